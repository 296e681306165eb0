"""`Communicator`: the calls that the distributed parts make over MPI, torch.distributed or threads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array

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
