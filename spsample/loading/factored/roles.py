"""The roles of ranks, which sample or train; how many sample, and which one trains which batch."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from spsample.common.checks import require_int, require_number
from spsample.errors import CommunicationError, InputError, RankError
from spsample.planning.bulk_plan import bulk_ranges, warm_up_divisor

BULKS_PER_SAMPLER = 4
"""Bulks of each sampler in an epoch, at least."""

AHEAD = 2
"""Batches that a rank may have: the one that it trains, and the next one, which is fetched meanwhile."""


class Roles(NamedTuple):
    """The last ranks sample, the others train; rank 0 always trains.

    Attributes
    ----------
    ranks, samplers : int

    Examples
    --------
    >>> roles = Roles(ranks=4, samplers=1)
    >>> roles.trainers, roles.samples(3), str(roles)
    (3, True, 'rank 3 samples, ranks 0 to 2 train')
    """

    ranks: int
    samplers: int

    @property
    def trainers(self) -> int:
        """Ranks that train from the beginning of an epoch."""
        return self.ranks - self.samplers

    @property
    def coordinator(self) -> int:
        """The rank that assigns batches to ranks: a sampler."""
        return self.ranks - 1

    def samples(self, rank: int) -> bool:
        """Return whether a rank samples."""
        return rank >= self.trainers

    def shares(self, first: int, num_batches: int, bulk_size: int) -> Iterator[tuple[int, int, int]]:
        """Yield each bulk's sampler, first batch and end: the samplers take bulks in turn.

        Each sampler gets at least four in an epoch, where there are as many batches, and the first ones are smaller:
        so trainers get batches soon, and all samplers share the work.
        """
        size = min(bulk_size, max(num_batches // (BULKS_PER_SAMPLER * self.samplers), 1))
        for number, (begin, end) in enumerate(bulk_ranges(first, num_batches, size, warm_up_divisor(1))):
            yield self.trainers + number % self.samplers, begin, end

    def __str__(self) -> str:
        samplers, trainers = range(self.trainers, self.ranks), range(self.trainers)
        return (
            f"{_named(samplers)} {_verb('sample', len(samplers))}, {_named(trainers)} {_verb('train', len(trainers))}"
        )

    def explain(self, error: CommunicationError | RankError) -> None:
        """Add the roles to the text of an error that names a rank which is lost or has failed, unless it is there."""
        if str(self) in str(error):
            return
        if isinstance(error, RankError):
            error.message = f"{error.message} ({self})"
        error.args = (f"{error} ({self})",)


class SamplerCount(NamedTuple):
    """A number of ranks that should sample, and the reason.

    Attributes
    ----------
    samplers : int
    reason : str
    """

    samplers: int
    reason: str


def samplers_for(ranks: int, sampling_seconds: float, training_seconds: float) -> SamplerCount:
    """Compute the number of samplers: N_s = ceil(p / (K + 1)), K = T_t / T_s, and at least one trainer is left.

    Parameters
    ----------
    ranks : int
        p, at least 2.
    sampling_seconds, training_seconds : float
        T_s and T_t: of a minibatch on one rank, measured in a trial.

    Raises
    ------
    InputError
        If there are no two ranks, or a time is not positive.

    References
    ----------
    J. Yang et al., GNNLab: a factored system for sample-based GNN training over GPUs, EuroSys 2022, section 5.2.

    Examples
    --------
    >>> samplers_for(8, sampling_seconds=0.01, training_seconds=0.03).samplers
    2
    >>> print(samplers_for(4, sampling_seconds=0.01, training_seconds=0.05).reason)
    1 of 4 ranks samples: a minibatch takes 10.0 ms to sample and 50.0 ms to train, 4 / (5.00 + 1) = 0.67 rounded up
    """
    ranks = require_int("ranks", ranks, minimum=2)
    for name, seconds in (("sampling_seconds", sampling_seconds), ("training_seconds", training_seconds)):
        require_number(name, seconds, is_right=lambda x: x > 0, expected="a positive number of seconds")
    ratio = training_seconds / sampling_seconds
    wanted = ranks / (ratio + 1)
    samplers = min(max(math.ceil(wanted), 1), ranks - 1)
    capped = "rounded up" if samplers == math.ceil(wanted) else "and one rank has to train"
    reason = (
        f"{samplers} of {ranks} ranks {_verb('sample', samplers)}: a minibatch takes "
        f"{1e3 * sampling_seconds:.1f} ms to sample and {1e3 * training_seconds:.1f} ms to train, "
        f"{ranks} / ({ratio:.2f} + 1) = {wanted:.2f} {capped}"
    )
    return SamplerCount(samplers, reason)


def require_roles(ranks: int, samplers: int) -> Roles:
    """Refuse a factored run on one rank, or one without trainers.

    Raises
    ------
    InputError
    """
    if ranks < 2:
        expected = "at least 2 ranks: one that samples, one that trains"
        hint = "Start it with spsample launch -n, mpirun or torchrun, or choose another pipeline."
        raise InputError(argument="pipeline", given="'factored' on 1 rank", expected=expected, hint=hint)
    samplers = require_int("sampler_ranks", samplers, minimum=1)
    if samplers >= ranks:
        expected = f"at most {ranks - 1}: one rank has to train"
        raise InputError(argument="sampler_ranks", given=f"{samplers} of {ranks} ranks", expected=expected)
    return Roles(ranks, samplers)


def _named(ranks: range) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"


def _verb(verb: str, ranks: int) -> str:
    return f"{verb}s" if ranks == 1 else verb


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
        step = self._next // self._per_step
        is_left_for_all = min((step + 1) * self._per_step, self._end) - self._next >= self._trainers
        ahead = [
            rank
            for rank in self._asking
            if self._held.get(rank)
            and (rank not in self._standby or self._pays(rank))
            and (is_left_for_all or self._held[rank][-1] // self._per_step < step)
        ]
        return next(iter([*free, *helping, *ahead]), None)

    def _pays(self, rank: int) -> bool:
        """Return whether a sampler that trains a batch ends the epoch sooner."""
        known = [seconds for other, seconds in self._seconds.items() if other not in self._standby]
        if not known:
            return False
        seconds = sum(known) / len(known)
        return (self._end - self._next) * seconds / self._trainers > self._seconds.get(rank, seconds)
