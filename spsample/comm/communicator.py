"""`Communicator`: the calls that the distributed parts make over MPI, torch.distributed or threads; their checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_array, require_choice, require_int
from spsample.errors import DTypeError, InputError

Array = NDArray[Any]
Reduction = Literal["sum", "max", "min"]

DEFAULT_TIMEOUT = 600.0
"""Seconds that a call waits for the other ranks."""

TIMEOUT_VARIABLE = "SPSAMPLE_TIMEOUT"
"""Environment variable that sets another time-out, in seconds."""


class Communicator(ABC):
    """A group of ranks that call the same methods in the same order.

    Arrays are NumPy arrays of any dtype without Python objects; what is received is a new array of the caller's. Sizes
    may pass 2^31 elements and bytes. Every call waits at most `timeout` seconds for the other ranks and then raises
    `CommunicationError`, which leaves the communicator unusable. `phase` names what the call is for: a recorder counts
    by it, and ranks that are in different calls, or in one for different phases, all raise `CommunicationError`, which
    names both. To find that out they exchange a header of 64 bytes for each pair of ranks first, which no recorder
    counts; not within `agreed`.

    One thread at a time may use a communicator; threads that communicate side by side each own a `duplicate()`.

    Attributes
    ----------
    name : str
        The transport: "local", "threads", "mpi", "gloo" or "nccl".
    rank, size : int
    timeout : float
        Seconds.
    world : sequence of int
        The number of each rank in the whole job, which error messages name.
    """

    name: str
    rank: int
    size: int
    timeout: float
    world: Sequence[int]
    _call = ""
    """The call that all ranks are known to make; empty for none."""

    @abstractmethod
    def all_to_all(self, send: Array, *, phase: str = "other") -> Array:
        """Send block q of `send` (size, ...) to rank q; block q of the result came from rank q."""

    @abstractmethod
    def all_to_all_v(
        self, send: Array, send_counts: Int64Array, recv_counts: Int64Array, *, phase: str = "other"
    ) -> Array:
        """Send `send_counts[q]` rows (along the first axis, in order) to rank q, receive `recv_counts[q]` from it.

        Both have `size` elements; what a rank expects must be what the other one sends.
        """

    @abstractmethod
    def all_gather(self, send: Array, *, phase: str = "other") -> Array:
        """Return (size, ...): the array of each rank, which has the same shape and dtype on all of them."""

    @abstractmethod
    def all_gather_v(self, send: Array, recv_counts: Int64Array, *, phase: str = "other") -> Array:
        """Return the rows (along the first axis) of all ranks in order; rank q has `recv_counts[q]` of them."""

    @abstractmethod
    def all_reduce(self, send: Array, op: Reduction = "sum", *, phase: str = "other") -> Array:
        """Sum, maximum or minimum of the ranks' arrays, elementwise; the same bits on every rank."""

    @abstractmethod
    def broadcast(self, array: Array, root: int = 0, *, phase: str = "other") -> Array:
        """`array` of rank `root`; the others give one of the same shape and dtype, whose contents do not matter."""

    @abstractmethod
    def split(self, color: int, key: int | None = None) -> Communicator:
        """Make a communicator for the ranks of each color, ordered by `key` (None: by rank)."""

    def duplicate(self) -> Communicator:
        """Another communicator of the same ranks, for another thread."""
        return self.split(0)

    def barrier(self, *, phase: str = "other") -> None:
        """Wait for all ranks."""
        self.all_reduce(np.zeros(1, np.int8), "max", phase=phase)

    @contextmanager
    def agreed(self, call: str) -> Iterator[None]:
        """Leave out headers in the block: a header has said that all ranks make `call`."""
        before, self._call = self._call, self._call or call
        try:
            yield
        finally:
            self._call = before

    def named(self, ranks: Sequence[int]) -> str:
        """Return the name of some of the ranks in messages."""
        numbers = ", ".join(str(self.world[rank]) for rank in ranks)
        return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"

    @property
    def carrier(self) -> Communicator:
        """The communicator that moves the bytes: this one, unless it wraps another."""
        return self

    def close(self) -> None:  # noqa: B027  (nothing to free, for most)
        """Free what the communicator holds; every rank calls it, and nothing after it."""

    def abort(self, message: str) -> None:
        """End all ranks, as well as it is possible: for a rank that cannot go on and that others wait for."""
        raise SystemExit(message)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rank={self.rank}, size={self.size})"


# Checks that every communicator makes of its arguments, before anything is sent.


def require_plain(array: Array) -> None:
    """Refuse Python objects, which no message can move."""
    if array.dtype.hasobject:
        raise DTypeError(argument="send", given=f"dtype {array.dtype}", expected="a dtype without Python objects")


def check_blocks(comm: Communicator, send: Array) -> None:
    """Refuse what has not one block per rank."""
    if send.ndim < 1 or len(send) != comm.size:
        raise InputError(
            argument="send", given=f"shape {send.shape}", expected=f"one block per rank: ({comm.size}, ...)"
        )


def check_exchange(comm: Communicator, send: Array, send_counts: Int64Array, recv_counts: Int64Array) -> None:
    """Refuse counts that do not fit the ranks or the array, and arrays of Python objects."""
    require_plain(send)
    for name, counts in (("send_counts", send_counts), ("recv_counts", recv_counts)):
        _require_counts(comm, name, counts)
    if int(send_counts.sum()) != len(send):
        given = f"{len(send)} rows for counts of {int(send_counts.sum())}"
        raise InputError(argument="send", given=given, expected="as many rows as are to be sent")
    if int(send_counts[comm.rank]) != int(recv_counts[comm.rank]):
        given = f"{int(recv_counts[comm.rank])} rows from this rank, which sends itself {int(send_counts[comm.rank])}"
        raise InputError(argument="recv_counts", given=given, expected="the same number")


def check_gather(comm: Communicator, send: Array, recv_counts: Int64Array) -> None:
    """Refuse counts that do not fit the ranks or this rank's rows."""
    _require_counts(comm, "recv_counts", recv_counts)
    if int(recv_counts[comm.rank]) != len(send):
        given = f"{len(send)} rows for a count of {int(recv_counts[comm.rank])} on rank {comm.rank}"
        raise InputError(argument="send", given=given, expected="as many rows as are to be sent")


def _require_counts(comm: Communicator, name: str, counts: Int64Array) -> None:
    require_array(name, counts, ("i", "u"), "integers")
    if counts.shape != (comm.size,) or counts.min() < 0:
        expected = f"{comm.size} numbers of at least 0, one per rank"
        raise InputError(argument=name, given=str(counts.tolist()), expected=expected)


def check_reduction(op: str) -> None:
    """Refuse what is no reduction."""
    require_choice("op", op, get_args(Reduction))


def check_root(comm: Communicator, root: int) -> None:
    """Refuse what is no rank."""
    if require_int("root", root) not in range(comm.size):
        raise InputError(argument="root", given=str(root), expected=f"a rank in [0, {comm.size})")
