"""The roles of ranks, which sample or train, and the number of samplers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from spsample.common.checks import require_int, require_number
from spsample.errors import CommunicationError, InputError, RankError
from spsample.planning.bulk_plan import bulk_ranges, warm_up_divisor

BULKS_PER_SAMPLER = 4
"""Bulks of each sampler in an epoch, at least."""


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
        raise InputError(
            argument="pipeline",
            given="'factored' on 1 rank",
            expected="at least 2 ranks: one that samples, one that trains",
            hint="Start it with spsample launch -n, mpirun or torchrun, or choose another pipeline.",
        )
    samplers = require_int("sampler_ranks", samplers, minimum=1)
    if samplers >= ranks:
        raise InputError(
            argument="sampler_ranks",
            given=f"{samplers} of {ranks} ranks",
            expected=f"at most {ranks - 1}: one rank has to train",
        )
    return Roles(ranks, samplers)


def _named(ranks: range) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"


def _verb(verb: str, ranks: int) -> str:
    return f"{verb}s" if ranks == 1 else verb
