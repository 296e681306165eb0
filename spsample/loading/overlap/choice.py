"""How many threads each stage should have, from what it takes with one thread and with many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from spsample.common.stage_threads import StageThreads

__all__ = ["Choice", "Curve", "Loads", "choose"]

NEARLY = 1.02
"""Choices whose time is within this factor of the best are as good: the one with the fewest threads is taken."""


class Curve(NamedTuple):
    """Seconds of a stage for a batch, by Amdahl's law: ``serial + parallel / threads``.

    Attributes
    ----------
    serial, parallel : float
        Seconds; at least 0.
    """

    serial: float
    parallel: float

    def seconds(self, threads: int) -> float:
        """Seconds with that number of threads."""
        return self.serial + self.parallel / threads

    def scaled(self, factor: float) -> Curve:
        """Another one, of a stage that takes `factor` times as long."""
        return Curve(self.serial * factor, self.parallel * factor)

    @classmethod
    def through(cls, measured: Mapping[int, float]) -> Curve:
        """The curve through what was measured with the fewest and with the most threads.

        A stage that more threads do not make faster is serial. With one measurement, too.

        Examples
        --------
        >>> Curve.through({1: 5.0, 4: 2.0})
        Curve(serial=1.0, parallel=4.0)
        >>> Curve.through({1: 2.0, 4: 2.5}).seconds(4)
        2.0
        """
        few, many = min(measured), max(measured)
        if few == many or measured[many] >= measured[few]:
            return cls(measured[few], 0.0)
        parallel = (measured[few] - measured[many]) / (1 / few - 1 / many)
        serial = measured[many] - parallel / many
        return cls(serial, parallel) if serial >= 0 else cls(0.0, measured[few] * few)


@dataclass(frozen=True)
class Choice:
    """Numbers of threads of the stages.

    Attributes
    ----------
    sampling, features : int
        Threads in the kernels.
    in_turn : bool
        Whether a batch is sampled and fetched only when the loop asks for it.
    """

    sampling: int
    features: int
    in_turn: bool = False


@dataclass(frozen=True)
class Loads:
    """What the stages take for a batch.

    Attributes
    ----------
    sampling, features : Curve
    training : float
        Seconds that the loop takes for a batch, with `training_threads`.
    training_threads : int
    cores : int
        That all of them share.
    """

    sampling: Curve
    features: Curve
    training: float
    training_threads: int
    cores: int

    def overlapped(self, sampling: int, features: int) -> float:
        """Seconds between two batches with these numbers of threads.

        Those of the longest stage; or where threads outnumber cores, of all stages' work on all cores. A thread that
        waits for others of its stage counts as work: it spins.
        """
        sides = ((self.sampling.seconds(sampling), sampling), (self.features.seconds(features), features))
        stages = (*sides, (self.training, min(self.training_threads, self.cores)))
        return max(*(seconds for seconds, _ in stages), sum(s * threads for s, threads in stages) / self.cores)

    @property
    def in_turn(self) -> float:
        """Seconds between two batches when stages follow each other, each on all cores."""
        return self.sampling.seconds(self.cores) + self.features.seconds(self.cores) + self.training

    def of(self, choice: Choice) -> float:
        """Seconds between two batches."""
        return self.in_turn if choice.in_turn else self.overlapped(choice.sampling, choice.features)


def choose(loads: Loads, given: StageThreads = StageThreads()) -> Choice:  # noqa: B008  (a constant)
    """The numbers of threads with the least time between two batches; of those nearly as good the fewest threads.

    Parameters
    ----------
    loads : Loads
    given : StageThreads
        Numbers that are not to be chosen.

    Examples
    --------
    >>> sampling, features = Curve(0.0, 4.0), Curve(0.5, 0.0)
    >>> choose(Loads(sampling, features, training=2.0, training_threads=1, cores=4))
    Choice(sampling=2, features=1, in_turn=False)
    """
    found = [
        (loads.overlapped(sampling, features), sampling + features, sampling, features)
        for sampling, features in product(_numbers(given.sampling, loads), _numbers(given.features, loads))
    ]
    best = min(found)[0]
    _, _, sampling, features = min((one for one in found if one[0] <= NEARLY * best), key=lambda one: one[1:])
    return Choice(sampling, features)


def _numbers(given: int | None, loads: Loads) -> Iterable[int]:
    return range(1, loads.cores + 1) if given is None else (given,)
