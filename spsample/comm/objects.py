"""Plain Python objects between ranks, and the ranks that a graph or features lie on."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from spsample.comm.channel import collective
from spsample.comm.communicator import Communicator
from spsample.comm.local import LocalCommunicator

T = TypeVar("T")


def comm_of(shared: Any) -> Communicator:
    """The ranks of a distributed graph or of partitioned features; of anything else, the one that has it.

    Examples
    --------
    >>> comm_of("a local graph").size
    1
    """
    comm = getattr(shared, "comm", None)
    return comm if isinstance(comm, Communicator) else LocalCommunicator()


def broadcast_object(comm: Communicator, make: Callable[[], T]) -> T:
    """What rank 0 makes, on every rank; collective. The others get a copy, by pickle.

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
    """What each rank has, by rank, on every rank; collective, by pickle.

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


__all__ = ["all_gather_object", "broadcast_object", "comm_of"]
