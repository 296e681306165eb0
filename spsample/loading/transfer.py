"""The transfer of a batch to a device: its arrays in one run of bytes, which crosses the bus at once.

Where the device is a GPU, the bytes go through pinned memory and on a stream of their own.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from spsample.backends.tensors import on_stream
from spsample.common.packing import aligned
from spsample.errors import DTypeError

UNDER_WAY = 2
"""Copies that may be under way while the next batch is written."""

MIN_ROWS = 1 << 20
"""Bytes of rows of features from which on they have pinned memory of their own: copying less twice costs little."""

Write = Callable[[NDArray[np.uint8]], None]


class Landed(NamedTuple):
    """Bytes on a device, which may be on their way.

    Attributes
    ----------
    whole : tensor
        uint8, in one dimension.
    ready
        The event of their arrival; None where they are there.
    """

    whole: torch.Tensor
    ready: Any = None


class Transfer:
    """A transfer to a device by memory of its own, which is copied at once; also where the device is the host.

    Parameters
    ----------
    device : torch.device
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def rows(self, count: int, dim: int) -> NDArray[np.float32] | None:
        """Return memory for rows of features that is copied from where it is; None: any memory will do."""
        return None

    def send_rows(self, values: NDArray[np.uint8]) -> Landed | None:
        """Begin to copy memory of `rows`, which must not change afterwards, and may be freed; None of other memory."""
        return None

    def send(self, nbytes: int, write: Write) -> Landed:
        """Begin to copy bytes that a function writes; its sources may be changed or freed afterwards."""
        staged = torch.empty(nbytes, dtype=torch.uint8, device="cpu")  # whatever torch's default device
        write(staged.numpy())
        return Landed(staged.to(self._device))

    def receive(self, landed: Landed) -> None:
        """Let the current stream of this thread wait until the bytes are there."""


class CudaCalls:
    """The calls of torch.cuda that a transfer needs, for one GPU.

    Parameters
    ----------
    device
        With its number.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def pinned(self, nbytes: int) -> torch.Tensor:
        """Allocate page-locked memory of the host, which a GPU reads while the host goes on."""
        try:
            with torch.cuda.device(self._device):  # a thread begins with the first GPU, which may be another rank's
                return torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=True)
        except RuntimeError as error:
            raise MemoryError(f"{nbytes} bytes of page-locked memory: {error}") from error

    def empty(self, nbytes: int) -> torch.Tensor:
        """Allocate memory of the GPU, which belongs to the current stream."""
        return torch.empty(nbytes, dtype=torch.uint8, device=self._device)

    def new_stream(self) -> Any:
        """Return a stream."""
        return torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]

    def current_stream(self) -> Any:
        """Return the stream that this thread works on."""
        return torch.cuda.current_stream(self._device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Return a context for work that goes to a stream."""
        return on_stream(stream)

    def recorded(self, stream: Any) -> Any:
        """Record an event after the work of a stream so far. The host sleeps while it waits for it."""
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event


class PinnedTransfer(Transfer):
    """A transfer to a GPU through memory of torch's pinned pool, on a stream of its own.

    1. The host waits for the event of the copy before the last, so that few are under way.
    2. The bytes are written to pinned memory, and copied by the stream to memory that was taken from torch's pool for
       that stream. The pinned pool knows the copies of its memory, and gives it out again after them.
    3. The stream that uses them waits for the event of the copy. The pool keeps the memory until that stream, too, is
       done with it (`record_stream`).

    Rows of features, which are most of a batch, are gathered into pinned memory, and copied from there.

    Parameters
    ----------
    calls : CudaCalls
    min_rows : int
        Bytes of rows from which on they have pinned memory of their own.
    """

    def __init__(self, calls: CudaCalls, min_rows: int = MIN_ROWS) -> None:
        self._calls, self._min_rows = calls, min_rows
        self._rows: weakref.WeakValueDictionary[int, NDArray[np.uint8]] = weakref.WeakValueDictionary()  # by address
        self._stream = calls.new_stream()
        self._under_way: deque[Any] = deque()  # events of copies

    def rows(self, count: int, dim: int) -> NDArray[np.float32] | None:
        """Return pinned memory, which lives as long as views of the array; None for few rows, or where it is short."""
        nbytes = 4 * count * dim
        if nbytes < max(self._min_rows, 1):
            return None
        try:
            memory: NDArray[np.uint8] = self._calls.pinned(nbytes).numpy()
        except MemoryError:  # raised, it would let ranks that gather together wait for this one
            return None
        self._rows[address_of(memory)] = memory  # views of it keep it
        return memory.view(np.float32).reshape(count, dim)

    def send_rows(self, values: NDArray[np.uint8]) -> Landed | None:
        """Begin to copy such memory, or the first bytes of it."""
        memory = self._rows.get(address_of(values))
        if memory is None:
            return None
        pinned: Any = memory.base  # torch's tensor, by which its pool knows of the copy
        return self._copied(pinned[: values.nbytes])

    def send(self, nbytes: int, write: Write) -> Landed:
        """Write to pinned memory, and begin to copy it."""
        if len(self._under_way) >= UNDER_WAY:
            with suppress(IndexError):  # another pass of the loader waits for it
                self._under_way.popleft().synchronize()
        memory = self._calls.pinned(nbytes)
        write(memory.numpy())
        landed = self._copied(memory)
        self._under_way.append(landed.ready)
        return landed

    def _copied(self, memory: torch.Tensor) -> Landed:
        """Begin to copy pinned memory."""
        with self._calls.on(self._stream):
            whole = self._calls.empty(len(memory))
            whole.copy_(memory, non_blocking=True)
            return Landed(whole, self._calls.recorded(self._stream))

    def receive(self, landed: Landed) -> None:
        """Let the current stream wait for the copy, and keep the memory for it."""
        stream = self._calls.current_stream()
        stream.wait_event(landed.ready)
        landed.whole.record_stream(stream)


def address_of(values: NDArray[Any]) -> int:
    """Return `values.ctypes.data`, in a tenth of the time."""
    return int(values.__array_interface__["data"][0])


def transfer_to(device: torch.device) -> Transfer:
    """Return the transfer to a device.

    Examples
    --------
    >>> type(transfer_to(torch.device("cpu"))).__name__
    'Transfer'
    """
    return PinnedTransfer(CudaCalls(device)) if device.type == "cuda" else Transfer(device)


Apart = Callable[[NDArray[np.uint8]], torch.Tensor | None]


class _PackedArray(NamedTuple):
    """The place of an array: within the packed bytes, or within bytes that were copied on their own."""

    begin: int
    nbytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    apart: torch.Tensor | None = None

    def of(self, packed: torch.Tensor) -> torch.Tensor:
        whole = packed if self.apart is None else self.apart
        return whole[self.begin : self.begin + self.nbytes].view(self.dtype).view(self.shape)


_NOWHERE = _PackedArray(0, 0, torch.uint8, (0,))


class PackedTensors:
    """Arrays that are about to be copied together.

    Memory that several of them share (the sources of a layer are the targets of the one before) is copied once.

    Parameters
    ----------
    arrays
        NumPy arrays, and tensors of the host.
    apart : function, optional
        Returns the bytes on the device (uint8) of memory that is copied on its own; None of other memory.

    Attributes
    ----------
    nbytes : int

    Raises
    ------
    DTypeError
        If there is an array of a type that torch does not have, or a tensor that is more than its numbers: sparse, or
        part of a gradient.

    Examples
    --------
    >>> numbers = np.arange(6)
    >>> packed = PackedTensors([numbers, numbers[:2], np.float32([0.5])])
    >>> memory = np.empty(packed.nbytes, np.uint8)
    >>> packed.write(memory)
    >>> packed.tensors(torch.from_numpy(memory))[1:]
    [tensor([0, 1]), tensor([0.5000])]
    """

    def __init__(self, arrays: Iterable[Any], apart: Apart = lambda values: None) -> None:
        sources = [_source(array) for array in arrays]
        addresses = [address_of(values) for values, _, _ in sources]
        self._pieces: list[_PackedArray] = [_NOWHERE] * len(sources)
        self._written: list[tuple[int, NDArray[np.uint8]]] = []
        self.nbytes = 0
        low, high, begin = 0, 0, 0  # addresses of a run of memory, and its place in the packed bytes
        alone: torch.Tensor | None = None  # or its own copy on the device
        for number in sorted(range(len(sources)), key=lambda i: (addresses[i], -len(sources[i][0]))):
            values, dtype, shape = sources[number]
            address, nbytes = addresses[number], len(values)
            grows = address + nbytes > high
            if address >= high or (address - low) % dtype.itemsize or (grows and alone is not None):
                alone = apart(values) if nbytes else None
                grows = nbytes > 0 and alone is None
                low, high = address, address if alone is None else address + nbytes
                begin = aligned(self.nbytes) if alone is None else 0
            place = begin + address - low if nbytes else 0
            self._pieces[number] = _PackedArray(place, nbytes, dtype, shape, alone)
            if grows:
                high, self.nbytes = address + nbytes, place + nbytes
                self._written.append((place, values))

    def write(self, memory: NDArray[np.uint8]) -> None:
        """Copy the arrays to the beginning of some memory; other threads of Python work meanwhile."""
        for begin, values in self._written:
            np.copyto(memory[begin : begin + len(values)], values)

    def tensors(self, whole: torch.Tensor) -> list[torch.Tensor]:
        """Return the arrays in their order, as views of the written bytes, which may be on a device now."""
        return [piece.of(whole) for piece in self._pieces]


def _source(array: Any) -> tuple[NDArray[np.uint8], torch.dtype, tuple[int, ...]]:
    """Return the bytes of an array, its type and its shape."""
    if isinstance(array, np.ndarray):
        dtype = _torch_dtype(array.dtype)
        values = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return values, dtype, array.shape
    if array.layout is not torch.strided or array.requires_grad or array.is_quantized:
        given = f"a tensor of layout {array.layout}, requires_grad={array.requires_grad}"
        raise DTypeError(argument="transform", given=given, expected="dense tensors without gradients on the host")
    plain = array.resolve_conj().resolve_neg().contiguous()
    values = plain.reshape(-1).view(torch.uint8).numpy()
    return values, array.dtype, tuple(array.shape)


@cache
def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """Return torch's type for one of NumPy."""
    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except (TypeError, ValueError) as error:
        expected = "a type that torch has, in the byte order of this machine"
        raise DTypeError(
            argument="array", given=f"dtype {dtype}, to be copied to a device", expected=expected
        ) from error
