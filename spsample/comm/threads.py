"""`ThreadCommunicator`: p ranks as threads of one process, for tests, planning and simulation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.comm.checks import check_blocks, check_exchange, check_gather, check_root, check_threads
from spsample.comm.communicator import DEFAULT_TIMEOUT, Array, Communicator, Reduction
from spsample.comm.reduction import check_reduction, reduce_in_order
from spsample.comm.waiting import timeout_or_default
from spsample.errors import CommunicationError
from spsample.sparse import get_num_threads, set_num_threads

T = TypeVar("T")


class _Room:
    """Where the ranks of one group meet: each leaves something on its own place, waits, and looks at the others'."""

    def __init__(self, size: int, timeout: float, parent: _Room | None = None) -> None:
        self.places: list[Any] = [None] * size
        self.timeout = timeout
        self._children: WeakSet[_Room] = WeakSet()
        self._lock = threading.Lock()
        self._barrier = threading.Barrier(size)
        if parent is not None:
            parent.adopt(self)

    def adopt(self, child: _Room) -> None:
        with self._lock:
            self._children.add(child)

    def meet(self, rank: int, timeout: float) -> None:
        try:
            self._barrier.wait(timeout)
        except threading.BrokenBarrierError:
            raise CommunicationError(
                f"rank {rank}: another thread of its group ended, or did not come within {timeout:g} s"
            ) from None

    def end(self) -> None:
        """All who wait here or in groups of this one, now or later, get an error."""
        self._barrier.abort()
        with self._lock:
            children = list(self._children)
        for child in children:
            child.end()


class ThreadCommunicator(Communicator):
    """One of the ranks that `run_threads` starts.

    Examples
    --------
    >>> run_threads(3, lambda comm: comm.all_reduce(np.array([comm.rank])).item())
    [3, 3, 3]
    """

    name = "threads"

    def __init__(self, room: _Room, rank: int) -> None:
        self._room = room
        self.rank = rank
        self.size = len(room.places)
        self.timeout = room.timeout

    def all_to_all(self, send: Array, *, phase: str = "other") -> Array:
        """Block q to rank q."""
        check_blocks(self, send)
        return self._look(send, lambda sent: np.concatenate([blocks[self.rank : self.rank + 1] for blocks in sent]))

    def all_to_all_v(
        self, send: Array, send_counts: Int64Array, recv_counts: Int64Array, *, phase: str = "other"
    ) -> Array:
        """Rows to each rank."""
        check_exchange(self, send, send_counts, recv_counts)
        return self._look((send, send_counts), lambda sent: self._mine(sent, recv_counts))

    def _mine(self, sent: list[tuple[Array, Int64Array]], recv_counts: Int64Array) -> Array:
        parts = []
        for q, (rows, counts) in enumerate(sent):
            if counts[self.rank] != recv_counts[q]:
                expected = f"rank {self.rank} expects {recv_counts[q]} rows of rank {q}"
                raise CommunicationError(f"{expected}, which sends {counts[self.rank]}")
            begin = int(counts[: self.rank].sum())
            parts.append(rows[begin : begin + int(recv_counts[q])])
        return np.concatenate(parts)

    def all_gather(self, send: Array, *, phase: str = "other") -> Array:
        """The ranks' arrays."""
        return self._look(send, np.stack)

    def all_gather_v(self, send: Array, recv_counts: Int64Array, *, phase: str = "other") -> Array:
        """The ranks' rows."""
        check_gather(self, send, recv_counts)
        return self._look(send, np.concatenate)

    def all_reduce(self, send: Array, op: Reduction = "sum", *, phase: str = "other") -> Array:
        """In the order of the ranks."""
        check_reduction(op)
        return self._look(send, lambda sent: reduce_in_order(sent, op))

    def broadcast(self, array: Array, root: int = 0, *, phase: str = "other") -> Array:
        """The root's array."""
        check_root(self, root)
        return self._look(array, lambda sent: sent[root].copy())

    def split(self, color: int, key: int | None = None) -> ThreadCommunicator:
        """One room per color, made by its first rank."""
        wishes = self._look((color, self.rank if key is None else key), list)
        members = sorted((k, rank) for rank, (c, k) in enumerate(wishes) if c == color)
        ranks = [rank for _, rank in members]
        room = _Room(len(ranks), self.timeout, self._room) if self.rank == ranks[0] else None
        room = self._look(room, lambda rooms: rooms[ranks[0]])
        return ThreadCommunicator(room, ranks.index(self.rank))

    def abort(self, message: str) -> None:
        """The other threads get an error from what they wait in."""
        self._room.end()
        raise CommunicationError(message)

    def _look(self, mine: Any, take: Callable[[list[Any]], T]) -> T:
        """Leave `mine` on this rank's place and return what `take` makes of all places, before any is changed."""
        self._room.places[self.rank] = mine
        self._room.meet(self.rank, self.timeout)
        taken = take(self._room.places)
        self._room.meet(self.rank, self.timeout)
        return taken


def run_threads(size: int, body: Callable[[Communicator], T], timeout: float = DEFAULT_TIMEOUT) -> list[T]:
    """Run `body(comm)` on `size` ranks, each a thread of this process; return what they returned, by rank.

    Where one raises, the others' calls that wait for it raise `CommunicationError`, and the error of the lowest rank
    that has one of its own is raised here. Ranks may use the threads that their caller may use in the kernels.

    Examples
    --------
    >>> run_threads(2, lambda comm: comm.rank)
    [0, 1]
    """
    check_threads(size, body)
    room = _Room(size, timeout_or_default(timeout))
    threads = get_num_threads()

    def rank_body(rank: int) -> T:
        set_num_threads(threads)
        try:
            return body(ThreadCommunicator(room, rank))
        except BaseException:
            room.end()
            raise

    with ThreadPoolExecutor(size, thread_name_prefix="rank") as pool:
        futures = [pool.submit(rank_body, rank) for rank in range(size)]
    errors = [error for error in (future.exception() for future in futures) if error is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, CommunicationError)), errors[0])
    return [future.result() for future in futures]


__all__ = ["ThreadCommunicator", "run_threads"]
