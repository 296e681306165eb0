"""How bytes get to a device: through pinned memory and on a stream of their own where it is a GPU."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from spsample.backends.tensors import on_stream

__all__ = [
    "BUFFERS",
    "CudaCalls",
    "Landed",
    "PinnedTransfer",
    "StagedTransfer",
    "Transfer",
    "address_of",
    "transfer_to",
]

BUFFERS = 2
"""Pinned buffers of a loader: one is written while the other one is read by the device."""

GRAIN = 1 << 20
"""Bytes of which a pinned buffer is a multiple."""

LEAST_ROWS = 1 << 20
"""Bytes of rows of features from which on they have pinned memory of their own: copying less twice costs little."""

Write = Callable[[NDArray[np.uint8]], None]


class Landed(NamedTuple):
    """Bytes on a device, which may be on their way.

    Attributes
    ----------
    whole : tensor
        uint8, in one dimension.
    ready
        What says that they are there; None where they are.
    """

    whole: torch.Tensor
    ready: Any = None


class Transfer(Protocol):
    """A way to a device."""

    def rows(self, count: int, dim: int) -> NDArray[np.float32] | None:
        """Memory for rows of features that is copied from where it is; None: any memory will do."""
        ...

    def send_rows(self, values: NDArray[np.uint8]) -> Landed | None:
        """Begin to copy what `rows` gave, which must not change afterwards, and may be freed; None of other memory."""
        ...

    def send(self, nbytes: int, write: Write) -> Landed:
        """Begin to copy bytes that a function writes; what it reads may be changed or freed afterwards."""
        ...

    def receive(self, landed: Landed) -> None:
        """Let the thread that calls it use them: what its current stream is given from now on comes after the copy."""
        ...


class StagedTransfer:
    """A way to a device that has no streams, such as the host itself.

    Examples
    --------
    >>> StagedTransfer(torch.device("cpu")).send(3, lambda memory: memory.fill(7)).whole
    tensor([7, 7, 7], dtype=torch.uint8)
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def rows(self, count: int, dim: int) -> None:
        """Any memory will do."""

    def send_rows(self, values: NDArray[np.uint8]) -> None:
        """It is copied with the others."""

    def send(self, nbytes: int, write: Write) -> Landed:
        """Write to memory of their own, and move that."""
        staged = torch.empty(nbytes, dtype=torch.uint8, device="cpu")  # whatever torch's default device
        write(staged.numpy())
        return Landed(staged.to(self._device))

    def receive(self, landed: Landed) -> None:
        """They are there."""


class CudaCalls:
    """What a transfer asks of torch.cuda, for one GPU.

    Parameters
    ----------
    device
        With its number.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def pinned(self, nbytes: int) -> torch.Tensor:
        """Page-locked memory of the host, which a GPU reads while the host goes on."""
        try:
            with torch.cuda.device(self._device):  # a thread begins with the first GPU, which may be another rank's
                return torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=True)
        except RuntimeError as error:
            raise MemoryError(f"{nbytes} bytes of page-locked memory: {error}") from error

    def empty(self, nbytes: int) -> torch.Tensor:
        """Memory of the GPU, that belongs to the current stream."""
        return torch.empty(nbytes, dtype=torch.uint8, device=self._device)

    def new_stream(self) -> Any:
        """Return a stream."""
        return torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]

    def current_stream(self) -> Any:
        """The stream that this thread works on."""
        return torch.cuda.current_stream(self._device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Around work that goes to a stream."""
        return on_stream(stream)

    def recorded(self, stream: Any) -> Any:
        """An event: what a stream was given so far is done. The host sleeps while it waits for it."""
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event


@dataclass
class _Buffer:
    """Pinned memory, and the event of the copy that reads it."""

    memory: torch.Tensor | None = None
    read: Any = None


class PinnedTransfer:
    """A way to a GPU through a few pinned buffers, on a stream of its own.

    1. The oldest buffer is taken, once the copy that reads it is over: the host waits for its event.
    2. The bytes are written to it, and copied by the stream to memory that was taken from torch's pool for that stream.
    3. The stream that uses them waits for the event of the copy. The pool keeps the memory until that stream, too, is
       done with it (`record_stream`).

    Rows of features, which are most of a batch, are gathered into pinned memory that torch's pool of it gives out, and
    copied from there. That pool, too, knows the copies that it was used for, and gives it out again after them.

    Parameters
    ----------
    calls : CudaCalls
    buffers : int
        How many there are. Where more copies are under way at once, as of two passes, there are as many.
    least_rows : int
        Bytes of rows from which on they have pinned memory of their own.
    """

    def __init__(self, calls: CudaCalls, buffers: int = BUFFERS, least_rows: int = LEAST_ROWS) -> None:
        self._calls = calls
        self._least_rows = least_rows
        self._rows: weakref.WeakValueDictionary[int, NDArray[np.uint8]] = weakref.WeakValueDictionary()  # by address
        self._stream = calls.new_stream()
        self._buffers = deque(_Buffer() for _ in range(buffers))

    def rows(self, count: int, dim: int) -> NDArray[np.float32] | None:
        """Pinned memory, for as long as the array or a view of it is there; None of few rows, or where it lacks."""
        nbytes = 4 * count * dim
        if nbytes < max(self._least_rows, 1):
            return None
        try:
            memory: NDArray[np.uint8] = self._calls.pinned(nbytes).numpy()
        except MemoryError:  # ranks that gather together would wait for this one
            return None
        self._rows[address_of(memory)] = memory  # views of it keep it
        return memory.view(np.float32).reshape(count, dim)

    def send_rows(self, values: NDArray[np.uint8]) -> Landed | None:
        """Begin to copy such memory, or the first bytes of it."""
        memory = self._rows.get(address_of(values))
        if memory is None:
            return None
        pinned: Any = memory.base  # torch's: its pool is told of the copy, which it would not be of another tensor
        return self._copied(pinned[: values.nbytes])

    def send(self, nbytes: int, write: Write) -> Landed:
        """Write to a buffer, and begin to copy it."""
        buffer = self._free_buffer()
        try:
            memory = self._room(buffer, nbytes)
            write(memory.numpy())
            landed = self._copied(memory)
            buffer.read = landed.ready
        finally:
            self._buffers.append(buffer)
        return landed

    def _copied(self, memory: torch.Tensor) -> Landed:
        """Begin to copy pinned memory."""
        with self._calls.on(self._stream):
            whole = self._calls.empty(len(memory))
            whole.copy_(memory, non_blocking=True)
            return Landed(whole, self._calls.recorded(self._stream))

    def receive(self, landed: Landed) -> None:
        """Let the current stream wait for the copy, and memory be kept for it."""
        stream = self._calls.current_stream()
        stream.wait_event(landed.ready)
        landed.whole.record_stream(stream)

    def _free_buffer(self) -> _Buffer:
        """The oldest one, which no copy reads any more."""
        try:
            buffer = self._buffers.popleft()
        except IndexError:  # others are writing to all of them
            return _Buffer()
        if buffer.read is not None:
            buffer.read.synchronize()
        return buffer

    def _room(self, buffer: _Buffer, nbytes: int) -> torch.Tensor:
        """As many bytes of a buffer, which grows by an eighth more than it has to."""
        if buffer.memory is None or len(buffer.memory) < nbytes:
            buffer.memory = None
            buffer.memory = self._calls.pinned(-(-(nbytes + nbytes // 8) // GRAIN) * GRAIN)
        return buffer.memory[:nbytes]


def address_of(values: NDArray[Any]) -> int:
    """As `values.ctypes.data`, in a tenth of the time."""
    return int(values.__array_interface__["data"][0])


def transfer_to(device: torch.device) -> Transfer:
    """The way to a device.

    Examples
    --------
    >>> type(transfer_to(torch.device("cpu"))).__name__
    'StagedTransfer'
    """
    return PinnedTransfer(CudaCalls(device)) if device.type == "cuda" else StagedTransfer(device)
