"""`Recorder`: a communicator that counts calls, messages and bytes by phase."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from threading import Lock

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.comm.buffers import row_bytes
from spsample.comm.communicator import Array, Communicator, Reduction
from spsample.common.checks import require_type
from spsample.common.locks import renewed


@dataclass
class Counts:
    """Calls, messages to and from other ranks, and their bytes, of one rank in one phase.

    An all-to-all counts what goes to each other rank and what comes from it; an all-gather, a rank's part once to
    each of the others; an all-reduce of n bytes 2 n (p - 1) / p each way in 2 (p - 1) messages, as a ring makes it; a
    broadcast, n bytes from the root to each of the others. Nothing that a rank sends to itself is counted, and no
    message of 0 bytes.
    """

    calls: int = 0
    messages_sent: int = 0
    messages_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0

    def add(self, other: Counts) -> None:
        """Add another's numbers."""
        for number in fields(self):
            setattr(self, number.name, getattr(self, number.name) + getattr(other, number.name))


@dataclass
class Traffic:
    """Counts of one rank by phase, shared by a recorder and the communicators split off from it.

    Examples
    --------
    >>> traffic = Traffic()
    >>> traffic.add("rows", Counts(1, 1, 1, 40, 8))
    >>> traffic.total().bytes_sent
    40
    """

    phases: dict[str, Counts] = field(default_factory=dict)
    _lock: Lock = field(default_factory=lambda: renewed(Lock()), repr=False)

    def add(self, phase: str, counts: Counts) -> None:
        """Count one call."""
        with self._lock:
            self.phases.setdefault(phase, Counts()).add(counts)

    def total(self) -> Counts:
        """Counts of all phases added up."""
        total = Counts()
        with self._lock:
            for counts in self.phases.values():
                total.add(counts)
        return total

    def clear(self) -> None:
        """Begin anew."""
        with self._lock:
            self.phases.clear()


class Recorder(Communicator):
    """Counts calls, messages and bytes by phase, and leaves the work to another communicator.

    Parameters
    ----------
    comm : Communicator
        Does the work.
    traffic : Traffic, optional
        The counts; new ones by default. `split` and `duplicate` return recorders that count there, too.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> def body(comm):
    ...     recorder = Recorder(comm)
    ...     recorder.all_gather(np.zeros(2), phase="example")
    ...     return recorder.traffic.phases["example"].bytes_received
    >>> run_threads(3, body)
    [32, 32, 32]
    """

    def __init__(self, comm: Communicator, traffic: Traffic | None = None) -> None:
        require_type("comm", comm, Communicator, "an spsample Communicator")
        if traffic is not None:
            require_type("traffic", traffic, Traffic, "a Traffic")
        self._comm = comm
        self.traffic = Traffic() if traffic is None else traffic
        self.name, self.rank, self.size, self.timeout = comm.name, comm.rank, comm.size, comm.timeout
        self.world = comm.world

    @property
    def carrier(self) -> Communicator:
        """The carrier of the communicator that does the work."""
        return self._comm.carrier

    def all_to_all(self, send: Array, *, phase: str = "other") -> Array:
        """Count the call, and do it."""
        received = self._comm.all_to_all(send, phase=phase)
        blocks = np.full(self.size, send.nbytes // self.size)
        self._count(phase, blocks, blocks)
        return received

    def all_to_all_v(
        self, send: Array, send_counts: Int64Array, recv_counts: Int64Array, *, phase: str = "other"
    ) -> Array:
        """Count the call, and do it."""
        received = self._comm.all_to_all_v(send, send_counts, recv_counts, phase=phase)
        row = row_bytes(send)
        self._count(phase, send_counts * row, recv_counts * row)
        return received

    def all_gather(self, send: Array, *, phase: str = "other") -> Array:
        """Count the call, and do it."""
        received = self._comm.all_gather(send, phase=phase)
        blocks = np.full(self.size, send.nbytes)
        self._count(phase, blocks, blocks)
        return received

    def all_gather_v(self, send: Array, recv_counts: Int64Array, *, phase: str = "other") -> Array:
        """Count the call, and do it."""
        received = self._comm.all_gather_v(send, recv_counts, phase=phase)
        self._count(phase, np.full(self.size, send.nbytes), recv_counts * row_bytes(send))
        return received

    def all_reduce(self, send: Array, op: Reduction = "sum", *, phase: str = "other") -> Array:
        """Count the call, and do it."""
        reduced = self._comm.all_reduce(send, op, phase=phase)
        steps = 2 * (self.size - 1)
        moved = steps * send.nbytes // self.size
        self.traffic.add(phase, Counts(1, steps, steps, moved, moved))
        return reduced

    def broadcast(self, array: Array, root: int = 0, *, phase: str = "other") -> Array:
        """Count the call, and do it."""
        received = self._comm.broadcast(array, root, phase=phase)
        others = self.size - 1
        if self.rank == root:
            self.traffic.add(phase, Counts(1, others, 0, others * array.nbytes, 0))
        else:
            self.traffic.add(phase, Counts(1, 0, 1, 0, array.nbytes))
        return received

    def split(self, color: int, key: int | None = None) -> Recorder:
        """Return a recorder of the part, which counts here."""
        return Recorder(self._comm.split(color, key), self.traffic)

    def duplicate(self) -> Recorder:
        """Return a recorder of a duplicate, which counts here."""
        return Recorder(self._comm.duplicate(), self.traffic)

    @contextmanager
    def agreed(self, call: str) -> Iterator[None]:
        """Leave out headers of the communicator that does the work."""
        with self._comm.agreed(call):
            yield

    def close(self) -> None:
        """Close the communicator that does the work."""
        self._comm.close()

    def abort(self, message: str) -> None:
        """End all ranks of the communicator that does the work."""
        self._comm.abort(message)

    def _count(self, phase: str, sent: Int64Array, received: Int64Array) -> None:
        """Count one call, with its bytes to and from each rank."""
        sent, received = np.delete(sent, self.rank), np.delete(received, self.rank)
        messages = int(np.count_nonzero(sent)), int(np.count_nonzero(received))
        self.traffic.add(phase, Counts(1, *messages, int(sent.sum()), int(received.sum())))
