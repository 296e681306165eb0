"""Python objects of ranks: broadcast, gathered and compared; and the ranks that a graph or features lie on."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from spsample.comm.channel import collective
from spsample.comm.communicator import Communicator
from spsample.comm.headers import exchange_numbers
from spsample.comm.threads import LocalCommunicator
from spsample.common.contents import contents_of
from spsample.errors import InputError

T = TypeVar("T")


def comm_of(shared: Any) -> Communicator:
    """Return the ranks of a distributed graph or of partitioned features; of anything else, the one that has it.

    Examples
    --------
    >>> comm_of("a local graph").size
    1
    """
    comm = getattr(shared, "comm", None)
    return comm if isinstance(comm, Communicator) else LocalCommunicator()


def broadcast_object(comm: Communicator, make: Callable[[], T]) -> T:
    """Make an object on rank 0, and return it on every rank; collective. The others get a copy, by pickle.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> run_threads(2, lambda comm: broadcast_object(comm, lambda: f"rank {comm.rank}'s"))
    ["rank 0's", "rank 0's"]
    """
    if comm.size == 1:
        return make()
    with collective(comm):
        made = make() if comm.rank == 0 else None
        pickled = pickle.dumps(made)
    size = comm.broadcast(np.array([len(pickled)], np.int64), phase="set-up")
    sent = np.frombuffer(pickled, np.uint8) if comm.rank == 0 else np.empty(int(size[0]), np.uint8)
    received = comm.broadcast(sent, phase="set-up")
    return made if comm.rank == 0 else pickle.loads(received.tobytes())  # type: ignore[return-value]


def all_gather_object(comm: Communicator, mine: T) -> list[T]:
    """Gather an object of each rank, by rank, on every rank; collective, by pickle.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> run_threads(2, lambda comm: all_gather_object(comm, {"rank": comm.rank}))[0]
    [{'rank': 0}, {'rank': 1}]
    """
    with collective(comm, call="a gather of objects"):
        pickled = np.frombuffer(pickle.dumps(mine), np.uint8)
    sizes = comm.all_gather(np.array([len(pickled)], np.int64), phase="set-up")[:, 0]
    everyone, ends = comm.all_gather_v(pickled, sizes, phase="set-up"), np.cumsum(sizes)
    return [pickle.loads(everyone[end - size : end].tobytes()) for size, end in zip(sizes, ends, strict=True)]


def require_same(comm: Communicator, /, **arguments: Any) -> None:
    """Refuse a collective call whose arguments differ between ranks; they are compared by hash.

    Raises
    ------
    InputError
        On every rank, naming the first argument that differs and the ranks that gave another one than most.
    """
    for argument, where in differing(comm, **arguments).items():
        expected = "the same on every rank: this call is collective"
        raise InputError(argument=argument, given=f"something else on {where}", expected=expected)


def differing(comm: Communicator, /, **values: Any) -> dict[str, str]:
    """Name the values that differ between ranks, and where they do: "rank 2 than on rank 0"; collective.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> run_threads(3, lambda comm: differing(comm, p=1, q=comm.rank > 0, r=comm.rank))[0]
    {'q': 'rank 0 than on rank 1', 'r': 'ranks 1, 2 than on rank 0'}
    """
    if comm.size == 1:
        return {}
    digests = np.array([contents_of(value) for value in values.values()], np.int64)
    call = f"comparison of {', '.join(values)}"
    whole = contents_of(digests)
    if (exchange_numbers(comm, np.full((comm.size, 1), whole), call) == whole).all():
        return {}
    with comm.agreed(call):
        everyone = comm.all_gather(digests, phase="status")
    where = {}
    for name, of_ranks in zip(values, everyone.T, strict=True):
        _, first, counts = np.unique(of_ranks, return_index=True, return_counts=True)
        usual = int(min(first[counts == counts.max()]))  # the digest of most ranks; of as many, that of the first ones
        others = np.flatnonzero(of_ranks != of_ranks[usual]).tolist()
        if others:
            where[name] = f"{comm.named(others)} than on {comm.named([usual])}"
    return where
