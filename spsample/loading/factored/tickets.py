"""Who trains which batch: tickets in the order of the batches, to whoever is free."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

__all__ = ["Sealed", "Ticket", "Tickets"]

AHEAD = 2
"""Tickets that a rank may hold: one of the batch that it trains, one of the next, which is fetched meanwhile."""


class Ticket(NamedTuple):
    """A batch, and the rank that trains it."""

    batch: int
    rank: int


class Sealed(NamedTuple):
    """All batches of a step have a ticket."""

    step: int


class Tickets:
    """The tickets of one epoch, given out by one rank.

    Batches come in order, and the ranks that have none come first. A rank that trains one gets the next ahead of time
    where that is of a later step, or where its step has a batch left for each trainer: else another rank may be free
    sooner.

    A sampler that has sampled all its batches stands by. It gets a ticket where that ends the epoch sooner: while
    M_r T_t / N_t > T_t', for M_r batches without a ticket, N_t trainers that take T_t seconds for a batch, and T_t'
    seconds of the sampler for one.

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
    >>> tickets = Tickets(first=0, num_batches=3, per_step=2, trainers=2)
    >>> tickets.ask(0), tickets.ask(1)
    ([Ticket(batch=0, rank=0)], [Ticket(batch=1, rank=1), Sealed(step=0)])
    >>> tickets.ask(1)  # it has one
    [Ticket(batch=2, rank=1), Sealed(step=1)]
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
        """Batches without a ticket: M_r."""
        return self._end - self._next

    def stand_by(self, rank: int) -> None:
        """A sampler has sampled its batches, and will ask."""
        self._standby.add(rank)

    def ask(self, rank: int) -> list[Ticket | Sealed]:
        """A rank has room for one more ticket; what is given out now."""
        self._asking.append(rank)
        return self._given()

    def trained(self, rank: int, seconds: float) -> list[Ticket | Sealed]:
        """A rank has trained the first batch that it held, in so much time, and asks for another one."""
        before = self._seconds.get(rank, seconds)
        self._seconds[rank] = 0.5 * (before + seconds)
        self._held[rank].popleft()
        return self.ask(rank)

    def _given(self) -> list[Ticket | Sealed]:
        given: list[Ticket | Sealed] = []
        while self._next < self._end and (rank := self._chosen()) is not None:
            self._asking.remove(rank)
            self._held.setdefault(rank, deque()).append(self._next)
            given.append(Ticket(self._next, rank))
            self._next += 1
            if self._next == self._end or self._next % self._per_step == 0:
                given.append(Sealed((self._next - 1) // self._per_step))
        return given

    def _chosen(self) -> int | None:
        """Who gets the next ticket: a trainer without one, a sampler that stands by, a trainer ahead of time."""
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
        """Whether a sampler that trains a batch ends the epoch sooner."""
        known = [seconds for other, seconds in self._seconds.items() if other not in self._standby]
        if not known:
            return False
        seconds = sum(known) / len(known)
        return self.left * seconds / self._trainers > self._seconds.get(rank, seconds)
