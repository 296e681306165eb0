"""Objects as bytes: a short pickle, and beside it the arrays and tensors that it refers to, each copied once."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNMENT = 64

_PLAIN_DTYPES = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
"""Types of tensors that NumPy has, too."""


class BufferSpan(NamedTuple):
    """The place of a buffer: its begin, and its bytes."""

    begin: int
    nbytes: int


class Packed(NamedTuple):
    """An object that is about to be written.

    Attributes
    ----------
    head : bytes
        Its pickle, without large buffers.
    buffers : list of memoryview
        The large buffers.
    spans : list of BufferSpan
        The place of each of them.
    nbytes : int
        Bytes of all.
    """

    head: bytes
    buffers: list[memoryview]
    spans: list[BufferSpan]
    nbytes: int

    def write(self, target: memoryview) -> None:
        """Copy the buffers to their places."""
        for buffer, span in zip(self.buffers, self.spans, strict=True):
            _copy(buffer, target[span.begin : span.begin + span.nbytes])

    def framed(self) -> NDArray[np.uint8]:
        """Return all of it in one array of bytes, to be sent; see `unframed`."""
        sizes = np.array([len(self.spans), len(self.head), *(span.nbytes for span in self.spans)], np.int64)
        head = aligned(sizes.nbytes)
        buffers = head + aligned(len(self.head))
        whole = np.empty(buffers + self.nbytes, np.uint8)
        whole[: sizes.nbytes] = sizes.view(np.uint8)
        whole[head : head + len(self.head)] = np.frombuffer(self.head, np.uint8)
        self.write(whole[buffers:].data)
        return whole


def pack(value: Any) -> Packed:
    """Take an object apart.

    Raises
    ------
    Exception
        As pickle raises it for an object that it cannot take.

    Examples
    --------
    >>> packed = pack({"x": np.arange(3.0)})
    >>> len(packed.buffers), packed.nbytes
    (1, 64)
    """
    pickled: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=pickled.append).dump(value)
    buffers = [buffer.raw() for buffer in pickled]
    return Packed(file.getvalue(), buffers, *_placed([buffer.nbytes for buffer in buffers]))


def unframed(whole: NDArray[np.uint8]) -> Any:
    """Return the object of `Packed.framed`; its arrays are views of the bytes.

    Examples
    --------
    >>> unframed(pack({"x": np.arange(3.0)}).framed())
    {'x': array([0., 1., 2.])}
    """
    if whole.ctypes.data % ALIGNMENT:  # a message within others: arrays are read in place
        whole = _realigned(whole)
    count, length = whole[:16].view(np.int64).tolist()
    head = aligned(8 * (count + 2))
    spans, _ = _placed(whole[16 : 8 * (count + 2)].view(np.int64).tolist())
    buffers = whole[head + aligned(length) :]
    views = [buffers[begin : begin + nbytes] for begin, nbytes in spans]
    return pickle.loads(whole[head : head + length].tobytes(), buffers=views)


def _placed(sizes: Sequence[int]) -> tuple[list[BufferSpan], int]:
    """Return the places of buffers of these sizes, each at a multiple of 64 bytes; and the bytes of all."""
    spans, end = [], 0
    for size in sizes:
        spans.append(BufferSpan(end, size))
        end += aligned(size)
    return spans, end


def aligned(nbytes: int) -> int:
    """Return the next multiple of 64 bytes, those of a cache line."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _realigned(whole: NDArray[np.uint8]) -> NDArray[np.uint8]:
    room = np.empty(len(whole) + ALIGNMENT, np.uint8)
    first = -room.ctypes.data % ALIGNMENT
    room[first : first + len(whole)] = whole
    return room[first : first + len(whole)]


def _copy(source: memoryview, target: memoryview) -> None:
    """Copy by NumPy, which lets other threads work meanwhile."""
    if source.nbytes:
        np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))


class _Pickler(pickle.Pickler):
    """A pickler that keeps tensors of the host out of the pickle, as arrays; torch's own way copies them into it."""

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not torch.Tensor or not _is_plain(torch, value):
            return NotImplemented
        return _tensor, (value.numpy(),)


def _is_plain(torch: Any, tensor: Any) -> bool:
    is_here = tensor.device.type == "cpu" and tensor.layout is torch.strided
    is_own = not tensor.requires_grad and not tensor.is_neg()
    return is_here and is_own and str(tensor.dtype).removeprefix("torch.") in _PLAIN_DTYPES


def _tensor(array: np.ndarray[Any, Any]) -> Any:
    import torch

    return torch.from_numpy(array)
