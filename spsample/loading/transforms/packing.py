"""Objects as bytes: a short pickle, and beside it the arrays and tensors that it refers to, each copied once."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Packed", "Span", "pack", "unpack"]

ALIGNMENT = 64


class Span(NamedTuple):
    """Where a buffer begins, and its bytes."""

    begin: int
    nbytes: int


class Packed(NamedTuple):
    """An object that is about to be written.

    Attributes
    ----------
    head : bytes
        Its pickle, without large buffers.
    buffers : list of memoryview
        These.
    spans : list of Span
        Where each of them will be.
    nbytes : int
        Bytes of all.
    """

    head: bytes
    buffers: list[memoryview]
    spans: list[Span]
    nbytes: int

    def write(self, target: memoryview) -> None:
        """Copy the buffers to their places."""
        for buffer, span in zip(self.buffers, self.spans, strict=True):
            _copy(buffer, target[span.begin : span.begin + span.nbytes])


def pack(value: Any) -> Packed:
    """Take an object apart.

    Raises
    ------
    Exception
        What pickle raises for an object that it cannot take.

    Examples
    --------
    >>> packed = pack({"x": np.arange(3.0)})
    >>> target = memoryview(bytearray(packed.nbytes))
    >>> packed.write(target)
    >>> unpack(packed.head, target, packed.spans)
    {'x': array([0., 1., 2.])}
    """
    found: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=found.append).dump(value)
    buffers = [one.raw() for one in found]
    spans, end = [], 0
    for buffer in buffers:
        spans.append(Span(end, buffer.nbytes))
        end += -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
    return Packed(file.getvalue(), buffers, spans, end)


def unpack(head: bytes, source: memoryview, spans: Sequence[Span]) -> Any:
    """Put an object together; its arrays are copies, so that `source` can be written again."""
    buffers = [np.empty(nbytes, np.uint8) for _, nbytes in spans]
    for buffer, (begin, nbytes) in zip(buffers, spans, strict=True):
        _copy(source[begin : begin + nbytes], buffer.data)
    return pickle.loads(head, buffers=buffers)


def _copy(source: memoryview, target: memoryview) -> None:
    """By NumPy, which lets other threads work meanwhile."""
    if source.nbytes:
        np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))


class _Pickler(pickle.Pickler):
    """Tensors of the host travel as arrays do; torch's own way copies them into the pickle."""

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not torch.Tensor or not _is_plain(torch, value):
            return NotImplemented
        return _tensor, (value.numpy(),)


def _is_plain(torch: Any, tensor: Any) -> bool:
    kinds = (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
    )
    is_here = tensor.device.type == "cpu" and tensor.layout is torch.strided
    is_own = not tensor.requires_grad and not tensor.is_neg()
    return is_here and is_own and (tensor.dtype in kinds or tensor.dtype is torch.bool)


def _tensor(array: np.ndarray[Any, Any]) -> Any:
    import torch

    return torch.from_numpy(array)
