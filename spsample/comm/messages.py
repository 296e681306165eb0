"""`MessageCommunicator`: the base of communicators between processes; those over MPI and torch only move bytes."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.comm.buffers import (
    as_bytes,
    contiguous,
    namespace,
    on_device,
    reduce_in_order,
    row_bytes,
)
from spsample.comm.communicator import (
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
from spsample.comm.waiting import Activity, Call, wait_for
from spsample.errors import CommunicationError

_GATHERED = 1 << 18
"""An all-reduce whose arrays have together at most these bytes is one all-gather; a larger one goes in two steps."""

_SIGN_OF_LIFE = 5.0
"""Seconds of waiting after which a rank lets the others know that it waits."""


class Pending(Protocol):
    """A call under way."""

    def done(self) -> bool:
        """Return whether the call is finished; moves it on."""

    def unanswered(self) -> Sequence[int]:
        """Return the ranks of the group whose part has not come, as far as that is known."""


class Part(NamedTuple):
    """A group that a communicator is split into, as each of its ranks knows it."""

    number: int
    """Place of the group in ascending order of the colors."""
    members: list[int]
    """Ranks of the communicator that is split, in the order of the part."""
    rank: int
    """Rank of this process in the part."""


class MessageCommunicator(Communicator):
    """A communicator between processes: dtypes, checks, reductions, time-outs and errors of lost ranks.

    Whatever the dtype, bytes are moved. Sums are made here, in the order of the ranks: the same bits on every rank,
    every machine and over every communicator.

    Parameters
    ----------
    rank, size : int
    timeout : float
    activity : Activity
        Shared with the communicators that are split off.
    world : sequence of int
        The number of each rank in the whole job, which error messages name.
    """

    takes_device_buffers = False
    """True where arrays on a GPU go to the transport as they are; else they go by way of host memory."""

    transport_errors: tuple[type[Exception], ...] = ()
    """Exceptions of the transport where a rank is lost."""

    def __init__(self, rank: int, size: int, timeout: float, activity: Activity, world: Sequence[int]) -> None:
        self.rank = rank
        self.size = size
        self.timeout = timeout
        self.activity = activity
        self.world = list(world)
        self._calls = 0
        self._broken = ""
        self._kept: list[Any] = []  # buffers that the transport may still write into after a time-out

    # ------------------------------------------------------------------------------------------- what moves bytes

    @abstractmethod
    def _start_blocks(self, send: Array, received: Array) -> Pending:
        """Begin to exchange equal blocks, one per rank."""

    @abstractmethod
    def _start_exchange(
        self, send: Array, send_bytes: Int64Array, received: Array, received_bytes: Int64Array
    ) -> Pending:
        """Begin to exchange bytes, as many as the counts say; two ranks agree on theirs, others do not know them."""

    @abstractmethod
    def _start_gather(self, send: Array, received: Array) -> Pending:
        """Begin to gather equal blocks, one from each rank."""

    @abstractmethod
    def _start_gather_v(self, send: Array, received: Array, received_bytes: Int64Array) -> Pending:
        """Begin to gather bytes, as many of each rank as the counts say, which all ranks know."""

    @abstractmethod
    def _start_broadcast(self, buffer: Array, root: int) -> Pending:
        """Begin to broadcast the bytes of the root."""

    @abstractmethod
    def _part(self, part: Part) -> Communicator:
        """Make the communicator of a part; all ranks of this one call it."""

    @abstractmethod
    def _say_alive(self, call: int) -> None:
        """Let the others know that this rank waits in that call."""

    @abstractmethod
    def _heard_of(self, call: int) -> set[int] | None:
        """Return the ranks that are known to wait in that call; None where nothing can be known."""

    # --------------------------------------------------------------------------------------------------- the calls

    def all_to_all(self, send: Array, *, phase: str = "other") -> Array:
        """Send block q to rank q."""
        check_blocks(self, send)
        with self._begun(describe("all_to_all", phase, send, rows_only=False)):
            return self._moved(send, send.shape, self._start_blocks)

    def all_to_all_v(
        self, send: Array, send_counts: Int64Array, recv_counts: Int64Array, *, phase: str = "other"
    ) -> Array:
        """Send rows to each rank."""
        check_exchange(self, send, send_counts, recv_counts)
        with self._begun(describe("all_to_all_v", phase, send, rows_only=True)):
            return self._exchanged(send, send_counts, recv_counts)

    def _exchanged(self, send: Array, send_counts: Int64Array, recv_counts: Int64Array) -> Array:
        row = row_bytes(send)

        def start(mine: Array, theirs: Array) -> Pending:
            return self._start_exchange(mine, send_counts * row, theirs, recv_counts * row)

        return self._moved(send, (int(recv_counts.sum()), *send.shape[1:]), start)

    def all_gather(self, send: Array, *, phase: str = "other") -> Array:
        """Gather the ranks' arrays."""
        with self._begun(describe("all_gather", phase, send, rows_only=False)):
            return self._moved(send, (self.size, *send.shape), self._start_gather, if_empty=False)

    def all_gather_v(self, send: Array, recv_counts: Int64Array, *, phase: str = "other") -> Array:
        """Gather the ranks' rows."""
        check_gather(self, send, recv_counts)
        with self._begun(describe("all_gather_v", phase, send, rows_only=True)):
            return self._gathered_v(send, recv_counts)

    def _gathered_v(self, send: Array, recv_counts: Int64Array) -> Array:
        sizes = recv_counts * row_bytes(send)

        def start(mine: Array, theirs: Array) -> Pending:
            return self._start_gather_v(mine, theirs, sizes)

        return self._moved(send, (int(recv_counts.sum()), *send.shape[1:]), start, if_empty=False)

    def all_reduce(self, send: Array, op: Reduction = "sum", *, phase: str = "other") -> Array:
        """Reduce in the order of the ranks: all arrays on all ranks where they are small, else a part on each rank."""
        check_reduction(op)
        with self._begun(describe(f"all_reduce ({op})", phase, send, rows_only=False)):
            if send.nbytes * self.size <= _GATHERED:
                gathered = self._moved(send, (self.size, *send.shape), self._start_gather, if_empty=False)
                return reduce_in_order(gathered, op)
            send, back = self._staged(send)
            ends = np.arange(1, self.size + 1) * send.size // self.size
            counts = np.diff(ends, prepend=0)
            parts = self._exchanged(send.reshape(-1), counts, np.full(self.size, counts[self.rank]))
            mine = reduce_in_order(parts.reshape(self.size, -1), op)
            return back(self._gathered_v(mine, counts).reshape(send.shape))

    def broadcast(self, array: Array, root: int = 0, *, phase: str = "other") -> Array:
        """Broadcast the root's array."""
        check_root(self, root)

        def start(mine: Array, theirs: Array) -> Pending:
            theirs[:] = mine
            return self._start_broadcast(theirs, root)

        with self._begun(describe(f"broadcast of rank {root}", phase, array, rows_only=False)):
            return self._moved(array, array.shape, start, if_empty=False)

    def split(self, color: int, key: int | None = None) -> Communicator:
        """Gather colors and keys, then make the communicator of this rank's part."""
        mine = np.array([color, self.rank if key is None else key], np.int64)
        with self._begun("split"):
            colors_and_keys = self.all_gather(mine, phase="split")
            members = [
                rank
                for _, rank in sorted((k, rank) for rank, (c, k) in enumerate(colors_and_keys.tolist()) if c == color)
            ]
            number = int(np.searchsorted(np.unique(colors_and_keys[:, 0]), color))
            with self._watched():
                return self._part(Part(number, members, members.index(self.rank)))

    # ---------------------------------------------------------------------------------------------------- the same call

    @contextmanager
    def _begun(self, call: str) -> Iterator[None]:
        """Exchange a header before a call, unless all ranks are known to make this one."""
        if not self._call and self.size > 1:
            exchange_numbers(self, np.zeros((self.size, 0), np.int64), call)
        with self.agreed(call):
            yield

    # ----------------------------------------------------------------------------------------------------- waiting

    def _moved(
        self, send: Array, shape: tuple[int, ...], start: Callable[[Array, Array], Pending], *, if_empty: bool = True
    ) -> Array:
        """Make a call and wait for it: `start` gets the bytes sent and those of an array of this shape, to be filled.

        Nothing is called where nothing is to be filled, alike on all ranks, and `if_empty` is False.
        """
        send, back = self._staged(send)
        received = namespace(send).empty(shape, send.dtype)
        mine, theirs = as_bytes(send), as_bytes(received)
        if self.size == 1:
            theirs[:] = mine
        elif if_empty or len(theirs):
            with self._watched() as call:
                pending = start(mine, theirs)
                self._kept.append((pending, mine, theirs))
                if not self._wait(pending):
                    raise self._lost(call, "others did not come", pending)
                self._kept.pop()
        return back(received)

    def _staged(self, send: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Return the array in C order where the transport takes it, and a function that takes the result back."""
        xp, send = namespace(send), contiguous(send)
        if on_device(send) and not self.takes_device_buffers:
            return xp.asnumpy(send), xp.asarray
        return send, lambda received: received

    def _wait(self, pending: Pending) -> bool:
        patience = min(_SIGN_OF_LIFE, self.timeout / 2)
        if wait_for(pending.done, patience):
            return True
        self._say_alive(self._calls)
        return wait_for(pending.done, self.timeout - patience)

    @contextmanager
    def _watched(self) -> Iterator[Call]:
        """Record the call that this rank makes, and raise transport errors as `CommunicationError`."""
        what = self._call
        if self._broken:
            raise CommunicationError(f"{self._me()}: no {what} any more, since {self._broken}")
        self._calls += 1
        with self.activity.during(self.rank, what) as call:
            try:
                yield call
            except CommunicationError:
                raise
            except self.transport_errors as error:
                raise self._lost(call, str(error).strip().partition("\n")[0]) from error

    def _lost(self, call: Call, why: str, pending: Pending | None = None) -> CommunicationError:
        """Return the error of a call that cannot be finished; the communicator is unusable from now on."""
        waited = time.monotonic() - call.begin
        message = f"{self._me()}: {call.what}: {why} ({waited:.1f} s, time-out {self.timeout:g} s)"
        self._broken = f"{call.what} failed: {why}"
        self._say_alive(self._calls)
        heard = self._heard_of(self._calls)
        silent = [] if heard is None else [r for r in range(self.size) if r != self.rank and r not in heard]
        unanswered = [] if pending is None else list(pending.unanswered())
        if silent:
            message += f"; nothing was heard of {self.named(silent)}"
        elif unanswered:
            message += f"; no answer from {self.named(unanswered)}"
        if heard:
            message += f"; {self.named(sorted(heard))} waited, too"
        self.activity.lost = message
        self._let_go()
        return CommunicationError(message)

    def _let_go(self) -> None:
        """Give up what is under way, after a loss."""

    def _me(self) -> str:
        return f"rank {self.world[self.rank]} of a group of {self.size}"
