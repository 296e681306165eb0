"""The algorithms on a partitioned graph, and `AlgorithmChoice`, which measures the fastest one on the first bulks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
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


class AlgorithmChoice:
    """The choice of the fastest candidate for each kind of bulk, after each has sampled some in turn.

    Samples do not depend on the algorithm, so that no work is lost. Every rank has a choice, which gets the same times
    and so chooses the same.

    Parameters
    ----------
    inherited : dict, optional
        Choices that are known already, by kind.

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

    def __init__(self, inherited: Mapping[BulkKind, ChosenAlgorithm] | None = None) -> None:
        self._inherited = dict(inherited or {})
        self._runs: dict[BulkKind, dict[str, list[float]]] = {}
        self._chosen: dict[BulkKind, ChosenAlgorithm] = {}
        self._origin: AlgorithmChoice | None = None
        self._duplicates: list[AlgorithmChoice] = []
        self._of_ended: dict[BulkKind, ChosenAlgorithm] = {}

    @property
    def chosen(self) -> list[ChosenAlgorithm]:
        """Choices made here and by duplicates."""
        by_duplicates = (choice for other in list(self._duplicates) for choice in other.chosen)
        return [*self._chosen.values(), *self._of_ended.values(), *by_duplicates]

    @property
    def known(self) -> dict[BulkKind, ChosenAlgorithm]:
        """Choices by kind, inherited ones too. At one moment other ranks may know more or less."""
        return self._inherited | {choice.kind: choice for choice in self.chosen}

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
            self._chosen[kind] = ChosenAlgorithm(kind, _fastest(least), least)
            del self._runs[kind]
        for known in (self._runs, self._chosen):
            _forget_oldest(known)

    def duplicate(self, known: Mapping[BulkKind, ChosenAlgorithm]) -> AlgorithmChoice:
        """Return a choice for another thread; this one reports what it chooses.

        From now on both use what is `known` on every rank, by other duplicates too: a loader that is made for each
        epoch tries nothing twice.
        """
        self._inherited = dict(known)
        _forget_oldest(self._inherited)
        other = AlgorithmChoice(self._inherited)
        other._origin = self
        self._duplicates.append(other)
        return other

    def end(self) -> None:
        """Hand the choices of this duplicate to the one that it was made from, which keeps nothing else of it."""
        origin, self._origin = self._origin, None
        if origin is not None:
            origin._of_ended |= {choice.kind: choice for choice in self.chosen}
            origin._duplicates.remove(self)
            _forget_oldest(origin._of_ended)

    def _known(self, kind: BulkKind) -> ChosenAlgorithm | None:
        """Return the choice for bulks like these: of those that are near enough, the nearest in size."""
        known = self._inherited | self._chosen
        if kind in known:
            return known[kind]
        near = [choice for choice in known.values() if _are_near(choice.kind, kind)]
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
    while len(known) > MAX_KINDS:
        del known[next(iter(known))]
