"""The ranks that something lies on, blocks of work in which they fail together, and plain objects told to all."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import numpy as np

from spsample.comm import Communicator, LocalCommunicator, together

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


def failing_together(comm: Communicator, call: str = "a collective call") -> AbstractContextManager[None]:
    """`spsample.comm.together`, where there are others; what one rank alone raises is left as it is."""
    return together(comm, call=call) if comm.size > 1 else nullcontext()


def from_first(comm: Communicator, make: Callable[[], T]) -> T:
    """What rank 0 makes, on every rank; collective. The others get a copy, by pickle.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> run_threads(2, lambda comm: from_first(comm, lambda: f"rank {comm.rank}'s"))
    ["rank 0's", "rank 0's"]
    """
    if comm.size == 1:
        return make()
    with together(comm):
        made = make() if comm.rank == 0 else None
        told = pickle.dumps(made)
    size = comm.broadcast(np.array([len(told)], np.int64), phase="set-up")
    sent = np.frombuffer(told, np.uint8) if comm.rank == 0 else np.empty(int(size[0]), np.uint8)
    received = comm.broadcast(sent, phase="set-up")
    return made if comm.rank == 0 else pickle.loads(received.tobytes())  # type: ignore[return-value]


def of_all(comm: Communicator, mine: T) -> list[T]:
    """What each rank has, by rank, on every rank; collective, by pickle.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> run_threads(2, lambda comm: of_all(comm, {"rank": comm.rank}))[0]
    [{'rank': 0}, {'rank': 1}]
    """
    told = np.frombuffer(pickle.dumps(mine), np.uint8)
    sizes = comm.all_gather(np.array([len(told)], np.int64), phase="set-up")[:, 0]
    everyone, ends = comm.all_gather_v(told, sizes, phase="set-up"), np.cumsum(sizes)
    return [pickle.loads(everyone[end - size : end].tobytes()) for size, end in zip(sizes, ends, strict=True)]


__all__ = ["comm_of", "failing_together", "from_first", "of_all"]
