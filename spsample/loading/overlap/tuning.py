"""Numbers of threads of the stages of a loader: a trial on its first bulks, then changes where a stage starves."""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.common.stage_threads import StageThreads
from spsample.loading.overlap.adjusting import Adjuster, Window
from spsample.loading.overlap.choice import Choice, Curve, Loads, choose
from spsample.loading.overlap.cores import cores_of_rank

if TYPE_CHECKING:
    from spsample.comm import Communicator

__all__ = ["TRIAL_BULKS", "StageReport", "StageTuning", "Took", "Trial"]

TRIAL_BULKS = 3
"""Bulks of the trial: with all cores, since all is new then, with one thread, and with all cores."""


class StageReport(NamedTuple):
    """What was chosen, and why.

    Attributes
    ----------
    sampling, features : int
        Threads in the kernels.
    training : int
        Threads of torch, or 1 without it.
    in_turn : bool
        Whether stages work in turn after all.
    changes : int
        How often the choice has changed while the loader ran.
    reason : str
        Of the last choice.
    """

    sampling: int
    features: int
    training: int
    in_turn: bool
    changes: int
    reason: str


class StageTuning:
    """The numbers of threads of a loader's stages, over all its passes.

    The trial is the beginning of the first pass, so that no work is lost: its first bulks are sampled, fetched and
    trained in turn, each stage alone on the cores. Samples do not depend on threads, and so nothing but time does.
    Making one is collective.

    Parameters
    ----------
    given : StageThreads
    comm : Communicator
        The ranks; those on one machine share its cores.
    steps_of : function
        How many batches of this rank a bulk has.
    is_alone : bool
        Whether a pass whose stages work in turn needs no threads: no ranks or processes go on beside it.

    Attributes
    ----------
    choice : Choice or None
        None until the trial is over.
    """

    def __init__(
        self, given: StageThreads, comm: Communicator, steps_of: Callable[[Any], int], is_alone: bool = False
    ) -> None:
        self.given = given
        self.cores = cores_of_rank(comm)
        self.steps_of = steps_of
        self.choice: Choice | None = None
        self.trial = Trial()
        self._saves_threads = is_alone and given.sampling is None and given.features is None
        self._adjuster: Adjuster | None = None
        self._report: StageReport | None = None
        if given.sampling is not None and given.features is not None:
            self.choice = Choice(given.sampling, given.features)
            self._tell(0, "as they were given")

    @property
    def most_sampling(self) -> int:
        """The most threads that sampling can have."""
        return self.cores if self.given.sampling is None else self.given.sampling

    @property
    def report(self) -> StageReport | None:
        """What was chosen, and why; None before."""
        return self._report

    def is_in_turn_on(self, threads: int) -> bool:
        """Whether stages work in turn for good, each with that number of threads."""
        choice = self.choice
        is_settled = self._adjuster is None or self._adjuster.is_settled
        return choice is not None and choice.in_turn and is_settled and choice.sampling == choice.features == threads

    def trial_is_over(self, sampling: Curve, features: Curve, training: float) -> None:
        """Choose."""
        loads = Loads(sampling, features, training, self.training_threads(), self.cores)
        self.choice = choose(loads, self.given)
        self._adjuster = Adjuster(loads, self.choice, self.given, self._saves_threads)
        alone = ", ".join(
            f"{name} {1000 * seconds:.2f} ms"
            for name, seconds in (
                ("sampling", sampling.seconds(self.choice.sampling)),
                ("features", features.seconds(self.choice.features)),
                ("training", training),
            )
        )
        side, turn = 1000 * loads.of(self.choice), 1000 * loads.in_turn
        self._tell(
            0, f"a batch takes {alone}; side by side {side:.2f} ms, in turn {turn:.2f} ms, on {self.cores} cores"
        )

    def observe(self, window: Window) -> None:
        """Change the choice where a window gives reason to."""
        if self._adjuster is None or self._report is None:
            return
        reason = self._adjuster.observe(window)
        if reason:
            self.choice = self._adjuster.choice
            self._tell(self._report.changes + 1, reason)

    def training_threads(self) -> int:
        """How many threads the loop uses: those given, or torch's."""
        torch = sys.modules.get("torch")
        if self.given.training is not None:
            return self.given.training
        return 1 if torch is None else int(torch.get_num_threads())

    def _tell(self, changes: int, reason: str) -> None:
        choice = self.choice
        if choice is not None:
            threads = choice.sampling, choice.features, self.training_threads()
            self._report = StageReport(*threads, choice.in_turn, changes, reason)


class Took(NamedTuple):
    """Seconds of work for some batches, with a number of threads; of the trial's bulks also which one it was."""

    bulk: int
    threads: int
    seconds: float
    batches: int


class Trial:
    """What the bulks of the trial took, over as many passes as they are of.

    Attributes
    ----------
    begun : int
        Bulks that loops have come to.
    training : list of float
        Seconds that loops took for batches.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.training: list[float] = []
        self._took: dict[str, list[Took]] = {"sampling": [], "features": []}

    def keep(self, took: dict[str, list[Took]], training: list[float]) -> None:
        """Keep what a pass has measured."""
        for stage, some in took.items():
            self._took[stage] += some
        self.training += training

    def loads(self) -> tuple[Curve, Curve, float]:
        """Return the curves of sampling and features, and the seconds that the loop takes for a batch."""
        sampling = {one.threads: one.seconds / one.batches for one in self._took["sampling"]}  # the later ones count
        whole = [one for one in self._took["features"] if one.bulk < TRIAL_BULKS - 1]
        features = {threads: seconds / batches for threads, seconds, batches in _by_threads(whole)}
        steps = self.training[1:] or self.training or [0.0]  # the first one is slow
        curve_of_sampling, curve_of_features = (Curve.through(found or {1: 0.0}) for found in (sampling, features))
        return curve_of_sampling, curve_of_features, statistics.median(steps)


def _by_threads(records: list[Took]) -> Iterator[tuple[int, float, int]]:
    """Threads, seconds and batches of the records, by threads."""
    found: dict[int, list[Took]] = defaultdict(list)
    for one in records:
        found[one.threads].append(one)
    for threads, some in found.items():
        yield threads, sum(one.seconds for one in some), sum(one.batches for one in some)
