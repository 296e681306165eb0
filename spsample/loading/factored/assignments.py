"""The assignment of batches to ranks that train: in the order of the batches, to ranks that are free."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

AHEAD = 2
"""Batches that a rank may have: the one that it trains, and the next one, which is fetched meanwhile."""


class Assignment(NamedTuple):
    """A batch, and the rank that trains it."""

    batch: int
    rank: int


class StepEnd(NamedTuple):
    """The end of a step, all of whose batches are assigned."""

    step: int


class Assignments:
    """The assignments of one epoch, made on one rank.

    Batches are assigned in order, first to ranks that have none. A rank that trains one gets the next ahead of time
    where that is of a later step, or where its step has a batch left for each trainer: else another rank may be free
    sooner.

    A sampler that has sampled all its batches stands by. It gets a batch where that ends the epoch sooner: while
    M_r T_t / N_t > T_t', for M_r unassigned batches, N_t trainers that take T_t seconds for a batch, and T_t' seconds
    of the sampler for one.

    Parameters
    ----------
    first, num_batches : int
        The first batch, and the number of all batches of the epoch.
    per_step : int
        B, batches of a step. Step t has the batches t B to (t + 1) B - 1.
    trainers : int
        N_t.

    References
    ----------
    J. Yang et al., GNNLab: a factored system for sample-based GNN training over GPUs, EuroSys 2022, section 5.3.

    Examples
    --------
    >>> assignments = Assignments(first=0, num_batches=3, per_step=2, trainers=2)
    >>> assignments.ask(0), assignments.ask(1)
    ([Assignment(batch=0, rank=0)], [Assignment(batch=1, rank=1), StepEnd(step=0)])
    >>> assignments.ask(1)  # ahead of time
    [Assignment(batch=2, rank=1), StepEnd(step=1)]
    """

    def __init__(self, first: int, num_batches: int, per_step: int, trainers: int) -> None:
        self._next, self._end = first, num_batches
        self._per_step, self._trainers = per_step, trainers
        self._asking: deque[int] = deque()
        self._held: dict[int, deque[int]] = {}
        self._seconds: dict[int, float] = {}
        self._standby: set[int] = set()

    @property
    def left(self) -> int:
        """Unassigned batches: M_r."""
        return self._end - self._next

    def stand_by(self, rank: int) -> None:
        """Record that a sampler has sampled its batches, and may train."""
        self._standby.add(rank)

    def ask(self, rank: int) -> list[Assignment | StepEnd]:
        """Record that a rank has room for one more batch, and return what is assigned now."""
        self._asking.append(rank)
        return self._assigned()

    def trained(self, rank: int, seconds: float) -> list[Assignment | StepEnd]:
        """Record the time in which a rank trained the first batch that it had, and that it has room for another one."""
        before = self._seconds.get(rank, seconds)
        self._seconds[rank] = 0.5 * (before + seconds)
        self._held[rank].popleft()
        return self.ask(rank)

    def _assigned(self) -> list[Assignment | StepEnd]:
        assigned: list[Assignment | StepEnd] = []
        while self._next < self._end and (rank := self._chosen()) is not None:
            self._asking.remove(rank)
            self._held.setdefault(rank, deque()).append(self._next)
            assigned.append(Assignment(self._next, rank))
            self._next += 1
            if self._next == self._end or self._next % self._per_step == 0:
                assigned.append(StepEnd((self._next - 1) // self._per_step))
        return assigned

    def _chosen(self) -> int | None:
        """Return the rank of the next batch: a trainer without one, a sampler on standby, a trainer ahead of time."""
        idle = [rank for rank in self._asking if not self._held.get(rank)]
        free = [rank for rank in idle if rank not in self._standby]
        helping = [rank for rank in idle if rank in self._standby and self._pays(rank)]
        ahead = [rank for rank in self._asking if self._held.get(rank) and self._may_get_ahead(rank)]
        return next(iter([*free, *helping, *ahead]), None)

    def _may_get_ahead(self, rank: int) -> bool:
        if rank in self._standby and not self._pays(rank):
            return False
        step = self._next // self._per_step
        step_end = min((step + 1) * self._per_step, self._end)
        return self._held[rank][-1] // self._per_step < step or step_end - self._next >= self._trainers

    def _pays(self, rank: int) -> bool:
        """Return whether a sampler that trains a batch ends the epoch sooner."""
        known = [seconds for other, seconds in self._seconds.items() if other not in self._standby]
        if not known:
            return False
        seconds = sum(known) / len(known)
        return self.left * seconds / self._trainers > self._seconds.get(rank, seconds)
