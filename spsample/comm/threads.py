"""Ranks in one process: `ThreadCommunicator`, p ranks as threads of it, and `LocalCommunicator`, one alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.comm.buffers import reduce_in_order
from spsample.comm.communicator import (
    DEFAULT_TIMEOUT,
    Array,
    Communicator,
    Reduction,
    check_blocks,
    check_exchange,
    check_gather,
    check_reduction,
    check_root,
)
from spsample.comm.headers import describe, exchange_numbers
from spsample.comm.waiting import timeout_or_default
from spsample.common.checks import require_int, short
from spsample.common.locks import renewed
from spsample.common.threads import MAX_THREADS
from spsample.errors import CommunicationError, DTypeError
from spsample.sparse import get_num_threads, set_num_threads

T = TypeVar("T")

_GRACE = 2.0
"""Seconds in which threads that a rank started, and which have communicators of their own, finish after it returned."""


class _Rendezvous:
    """The meeting place of a group: each rank puts an object on its own place, waits, and reads those of the others.

    Parameters
    ----------
    world : sequence of int
        The number of each rank of the group in `run_threads`.
    timeout : float
    """

    def __init__(self, world: Sequence[int], timeout: float) -> None:
        self.world = list(world)
        self.places: list[Any] = [None] * len(self.world)
        self.timeout = timeout
        self._parts: WeakSet[_Rendezvous] = WeakSet()
        self._changed = renewed(threading.Condition())
        self._here: set[int] = set()
        self._meetings = 0
        self._over = ""  # why no rank meets here any more
        self._left = ""  # the rank that has returned
        self._last_hope = float("inf")  # the time by which its other threads must have come

    def part(self, members: Sequence[int]) -> _Rendezvous:
        """Make a rendezvous of some of the ranks."""
        rendezvous = _Rendezvous([self.world[rank] for rank in members], self.timeout)
        with self._changed:
            self._parts.add(rendezvous)
        return rendezvous

    def meet(self, rank: int, call: str, timeout: float) -> None:
        """Wait for all ranks."""
        begin = time.monotonic()
        with self._changed:
            if self._over:
                raise self._lost(rank, call, self._over)
            self._here.add(rank)
            meeting = self._meetings
            if len(self._here) == len(self.world):
                self._meetings += 1
                self._here = set()
                self._changed.notify_all()
                return
            self._wait(meeting, begin + timeout)
            if self._meetings > meeting:
                return
            waited = f"({time.monotonic() - begin:.1f} s, time-out {timeout:g} s)"
            if not self._over:
                silent = [str(number) for at, number in enumerate(self.world) if at not in self._here]
                names = f"rank{'s' if len(silent) > 1 else ''} {', '.join(silent)}"
                self._over = self._left or f"others did not come {waited}; nothing was heard of {names}"
                self._changed.notify_all()
            raise self._lost(rank, call, self._over)

    def _wait(self, meeting: int, deadline: float) -> None:
        """Wait until the last rank of a meeting has come, cannot come any more, or is too late."""
        while not self._over and self._meetings == meeting:
            latest = min(deadline, self._last_hope)
            if time.monotonic() >= latest:
                return
            self._changed.wait(latest - time.monotonic())

    def _lost(self, rank: int, call: str, why: str) -> CommunicationError:
        return CommunicationError(f"rank {self.world[rank]} of a group of {len(self.world)}: {call}: {why}")

    def close(self, why: str) -> None:
        """Raise an error in all ranks that wait here, or in meetings of parts, now and later."""
        with self._changed:
            self._over = self._over or why
            self._changed.notify_all()
            parts = list(self._parts)
        for part in parts:
            part.close(why)

    def leave(self, number: int, why: str, grace: float = 0.0) -> None:
        """Record that a rank has returned; its other threads may still meet in parts."""
        with self._changed:
            if number in self.world:
                self._left = self._left or why
                self._last_hope = min(self._last_hope, time.monotonic() + grace)
                self._changed.notify_all()
            parts = list(self._parts)
        for part in parts:
            part.leave(number, why, _GRACE)


class ThreadCommunicator(Communicator):
    """A rank that `run_threads` starts.

    Examples
    --------
    >>> run_threads(3, lambda comm: comm.all_reduce(np.array([comm.rank])).item())
    [3, 3, 3]
    """

    name = "threads"

    def __init__(self, rendezvous: _Rendezvous, rank: int) -> None:
        self._rendezvous = rendezvous
        self.rank = rank
        self.size = len(rendezvous.places)
        self.world = rendezvous.world
        self.timeout = rendezvous.timeout

    def all_to_all(self, send: Array, *, phase: str = "other") -> Array:
        """Send block q to rank q."""
        check_blocks(self, send)
        call = describe("all_to_all", phase, send, rows_only=False)
        return self._look(
            call, send, lambda sent: np.concatenate([blocks[self.rank : self.rank + 1] for blocks in sent])
        )

    def all_to_all_v(
        self, send: Array, send_counts: Int64Array, recv_counts: Int64Array, *, phase: str = "other"
    ) -> Array:
        """Send rows to each rank."""
        check_exchange(self, send, send_counts, recv_counts)
        call = describe("all_to_all_v", phase, send, rows_only=True)
        return self._look(call, (send, send_counts), lambda sent: self._mine(sent, recv_counts))

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
        """Gather the ranks' arrays."""
        return self._look(describe("all_gather", phase, send, rows_only=False), send, np.stack)

    def all_gather_v(self, send: Array, recv_counts: Int64Array, *, phase: str = "other") -> Array:
        """Gather the ranks' rows."""
        check_gather(self, send, recv_counts)
        return self._look(describe("all_gather_v", phase, send, rows_only=True), send, np.concatenate)

    def all_reduce(self, send: Array, op: Reduction = "sum", *, phase: str = "other") -> Array:
        """Reduce in the order of the ranks."""
        check_reduction(op)
        call = describe(f"all_reduce ({op})", phase, send, rows_only=False)
        return self._look(call, send, lambda sent: reduce_in_order(sent, op))

    def broadcast(self, array: Array, root: int = 0, *, phase: str = "other") -> Array:
        """Broadcast the root's array."""
        check_root(self, root)
        call = describe(f"broadcast of rank {root}", phase, array, rows_only=False)
        return self._look(call, array, lambda sent: sent[root].copy())

    def split(self, color: int, key: int | None = None) -> ThreadCommunicator:
        """Make a rendezvous per color, on its first rank."""
        colors_and_keys = self._look("split", (color, self.rank if key is None else key), list)
        members = sorted((k, rank) for rank, (c, k) in enumerate(colors_and_keys) if c == color)
        ranks = [rank for _, rank in members]
        rendezvous = self._rendezvous.part(ranks) if self.rank == ranks[0] else None
        rendezvous = self._look("split", rendezvous, lambda made: made[ranks[0]])
        return ThreadCommunicator(rendezvous, ranks.index(self.rank))

    def abort(self, message: str) -> None:
        """Raise an error here, and in the calls that the other threads wait in."""
        self._rendezvous.close(f"{self.named([self.rank])} ended all: {message}")
        raise CommunicationError(message)

    def _look(self, call: str, mine: Any, take: Callable[[list[Any]], T]) -> T:
        """Leave `mine` on this rank's place and return what `take` makes of all places, before any is changed."""
        if self.size == 1:  # which several threads may use
            return take([mine])
        if not self._call:
            exchange_numbers(self, np.zeros((self.size, 0), np.int64), call)
        call = self._call or call
        self._rendezvous.places[self.rank] = mine
        self._rendezvous.meet(self.rank, call, self.timeout)
        try:
            taken = take(self._rendezvous.places)
        except CommunicationError as error:
            self._rendezvous.close(str(error))
            raise
        self._rendezvous.meet(self.rank, call, self.timeout)
        return taken


class LocalCommunicator(ThreadCommunicator):
    """The only rank of its group; nothing is sent.

    Examples
    --------
    >>> LocalCommunicator().all_gather(np.array([3, 4])).tolist()
    [[3, 4]]
    """

    name = "local"

    def __init__(self) -> None:
        self.rank, self.size, self.world = 0, 1, (0,)
        self.timeout = DEFAULT_TIMEOUT

    def all_to_all(self, send: Array, *, phase: str = "other") -> Array:
        """Return `send`, copied; each step of a training calls it, and nobody asks for the call's description."""
        check_blocks(self, send)
        return send.copy()

    def split(self, color: int, key: int | None = None) -> LocalCommunicator:
        """Return another such communicator."""
        return LocalCommunicator()

    def abort(self, message: str) -> None:
        """End the program."""
        raise SystemExit(message)


def run_threads(size: int, body: Callable[[Communicator], T], timeout: float | None = None) -> list[T]:
    """Run `body(comm)` on `size` ranks, each a thread of this process; return what they returned, by rank.

    Where one raises, or returns, the others' calls that wait for it raise `CommunicationError` at once, which names it;
    the error of the lowest rank that has one of its own is raised here. Ranks may use the threads that their caller may
    use in the kernels.

    Parameters
    ----------
    size : int
    body : callable
    timeout : float, optional
        Seconds that a call waits for other ranks. None: SPSAMPLE_TIMEOUT in the environment, else 600.

    Raises
    ------
    InputError
        If the time-out is not a positive number.

    Examples
    --------
    >>> run_threads(2, lambda comm: comm.rank)
    [0, 1]
    """
    require_int("size", size, minimum=1, maximum=MAX_THREADS)
    if not callable(body):
        raise DTypeError(argument="body", given=short(body), expected="a function of a communicator")
    rendezvous = _Rendezvous(range(size), timeout_or_default(timeout))
    threads = get_num_threads()

    def rank_body(rank: int) -> T:
        set_num_threads(threads)
        try:
            returned = body(ThreadCommunicator(rendezvous, rank))
        except BaseException as error:
            rendezvous.close(f"rank {rank} ended with {type(error).__name__}: {error}")
            raise
        rendezvous.leave(rank, f"rank {rank} returned, and makes no more calls")
        return returned

    with ThreadPoolExecutor(size, thread_name_prefix="rank") as pool:
        futures = [pool.submit(rank_body, rank) for rank in range(size)]
    errors = [error for error in (future.exception() for future in futures) if error is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, CommunicationError)), errors[0])
    return [future.result() for future in futures]
