"""The algorithms on a partitioned graph, and `AlgorithmChoice`, which measures the fastest one on the first bulks."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from spsample.distributed.column.operand import ColumnOperand
from spsample.distributed.operand import PartitionedOperand
from spsample.distributed.stages.operand import ObliviousOperand, StagesOperand

ALGORITHMS: dict[str, type[PartitionedOperand]] = {
    "column": ColumnOperand,
    "stages": StagesOperand,
    "oblivious": ObliviousOperand,
}
"""Operands by the name of their algorithm; called with the grid and this rank's parts of A."""

AUTO, DEFAULT = "auto", "column"
"""The name of a choice for each kind of bulk, and the algorithm where nothing is known of bulks."""

CANDIDATES = ("column", "stages")
"""Algorithms that are tried. The first one moves the fewest bytes, and is kept where another is not faster by `MARGIN`.

"oblivious" is not: it computes what "stages" computes, and broadcasts rows that "stages" sends where they are needed.
"""

RUNS = 4
"""Bulks by each algorithm; the first, in which rows are read and memory is new, does not count."""

MARGIN = 0.03
NEAR = 2
"""Ratio of numbers of batches up to which bulks are taken to be of one kind."""

MAX_KINDS = 64
"""Kinds that are known at a time; the oldest is dropped."""


class BulkKind(NamedTuple):
    """Bulks that take about as long as each other.

    Attributes
    ----------
    workload : hashable
        Sampler (as text), seeds in a batch, whether edge ids are given, backend.
    num_batches : int
    """

    workload: Hashable
    num_batches: int


class ChosenAlgorithm(NamedTuple):
    """The algorithm that was chosen for bulks of a kind.

    Attributes
    ----------
    kind : BulkKind
    algorithm : str
    seconds : dict
        Of a bulk by each algorithm: the least of those that counted, on all ranks together.
    """

    kind: BulkKind
    algorithm: str
    seconds: dict[str, float]

    def __str__(self) -> str:
        times = ", ".join(f"{1e3 * seconds:.3g} ms by {name}" for name, seconds in self.seconds.items())
        return f"algorithm {self.algorithm} for bulks of {self.kind.num_batches} batches: one takes {times}"


Choices = dict[BulkKind, ChosenAlgorithm]


class AlgorithmChoice:
    """The choice of the fastest candidate for each kind of bulk, after each has sampled some in turn.

    Samples do not depend on the algorithm, so that no work is lost. Every rank has a choice, which gets the same times
    and so chooses the same.

    Parameters
    ----------
    inherited : dict, optional
        Choices that are known already, by kind.
    reported : dict, optional
        Shared by a choice and its duplicates, which are of other threads: what any of them chooses.

    Examples
    --------
    >>> choice, kind = AlgorithmChoice(), BulkKind("LADIES", 16)
    >>> seconds = {"column": 0.3, "stages": 0.2}
    >>> for _ in range(8):
    ...     name = choice.next(kind)
    ...     choice.ran(kind, name, seconds[name])
    >>> choice.next(kind), choice.next(BulkKind("LADIES", 12)), choice.next(BulkKind("LADIES", 64))
    ('stages', 'stages', 'column')
    >>> print(choice.chosen[0])
    algorithm stages for bulks of 16 batches: one takes 300 ms by column, 200 ms by stages
    """

    def __init__(self, inherited: Choices | None = None, reported: Choices | None = None) -> None:
        self._chosen: Choices = dict(inherited or {})  # the same on all ranks
        self._reported: Choices = {} if reported is None else reported
        self._runs: dict[BulkKind, dict[str, list[float]]] = {}

    @property
    def chosen(self) -> list[ChosenAlgorithm]:
        """Choices made here and by duplicates."""
        return list(self.known.values())

    @property
    def known(self) -> Choices:
        """Choices by kind, those of duplicates too. At one moment other ranks may know more or less."""
        return self._reported.copy()

    def next(self, kind: BulkKind) -> str:
        """Return the algorithm that samples the next bulk of a kind."""
        known = self._known(kind)
        if known is not None:
            return known.algorithm
        runs = self._runs.get(kind, {})
        return min(CANDIDATES, key=lambda name: len(runs.get(name, [])))

    def is_tried(self, kind: BulkKind) -> bool:
        """Return whether nothing is chosen yet for bulks of a kind."""
        return self._known(kind) is None

    def ran(self, kind: BulkKind, algorithm: str, seconds: float) -> None:
        """Take note of a bulk: its time is the same number on all ranks."""
        if self._known(kind) is not None:
            return
        runs = self._runs.setdefault(kind, {name: [] for name in CANDIDATES})
        runs[algorithm].append(seconds)
        if all(len(times) >= RUNS for times in runs.values()):
            least = {name: min(times[1:]) for name, times in runs.items()}
            self._chosen[kind] = self._reported[kind] = ChosenAlgorithm(kind, _fastest(least), least)
            del self._runs[kind]
        for known in (self._runs, self._chosen, self._reported):
            _forget_oldest(known)

    def duplicate(self, known: Choices) -> AlgorithmChoice:
        """Return a choice for another thread; this one reports what it chooses.

        From now on both use what is `known` on every rank, by other duplicates too: a loader that is made for each
        epoch tries nothing twice.
        """
        self._chosen = known | self._chosen
        _forget_oldest(self._chosen)
        return AlgorithmChoice(self._chosen, self._reported)

    def _known(self, kind: BulkKind) -> ChosenAlgorithm | None:
        """Return the choice for bulks like these: of those that are near enough, the nearest in size."""
        near = [choice for choice in self._chosen.values() if _are_near(choice.kind, kind)]
        return min(near, key=lambda choice: abs(choice.kind.num_batches - kind.num_batches), default=None)


def _fastest(seconds: dict[str, float]) -> str:
    """Return the first candidate, or another that is faster by more than the margin."""
    best = min(seconds, key=lambda name: seconds[name])
    first = CANDIDATES[0]
    return best if seconds[best] < (1 - MARGIN) * seconds[first] else first


def _are_near(kind: BulkKind, other: BulkKind) -> bool:
    few, many = sorted((kind.num_batches, other.num_batches))
    return kind.workload == other.workload and many <= NEAR * few


def _forget_oldest(known: dict[BulkKind, Any]) -> None:
    for kind in list(known)[:-MAX_KINDS]:
        known.pop(kind, None)  # another thread may have forgotten it
