"""The arrays of a batch in one run of bytes, which crosses the bus at once; on the other side tensors are its views."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from spsample.errors import DTypeError
from spsample.loading.to_device.transfer import address_of

__all__ = ["Parcel"]

Apart = Callable[[NDArray[np.uint8]], torch.Tensor | None]

ALIGNMENT = 64
"""Bytes of which each run begins at a multiple: those of a cache line."""


class _Piece(NamedTuple):
    """Where an array is: within a parcel, or within bytes that were copied on their own."""

    begin: int
    nbytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    apart: torch.Tensor | None = None

    def of(self, parcel: torch.Tensor) -> torch.Tensor:
        whole = parcel if self.apart is None else self.apart
        return whole[self.begin : self.begin + self.nbytes].view(self.dtype).view(self.shape)


_NOWHERE = _Piece(0, 0, torch.uint8, (0,))


class _Source(NamedTuple):
    """The memory of an array, and where it is."""

    address: int
    nbytes: int
    values: NDArray[np.uint8]
    dtype: torch.dtype
    shape: tuple[int, ...]


class Parcel:
    """Arrays that are about to be copied together.

    Memory that several of them share (the sources of a layer are the targets of the one before) is copied once.

    Parameters
    ----------
    arrays
        NumPy arrays, and tensors of the host.
    apart : function, optional
        Gives the bytes on the device (uint8) of memory that is copied on its own; None of what is to go with the rest.

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
    >>> parcel = Parcel([numbers, numbers[:2], np.float32([0.5])])
    >>> memory = np.empty(parcel.nbytes, np.uint8)
    >>> parcel.write(memory)
    >>> parcel.tensors(torch.from_numpy(memory))[1:]
    [tensor([0, 1]), tensor([0.5000])]
    """

    def __init__(self, arrays: Iterable[Any], apart: Apart = lambda values: None) -> None:
        sources = [_source(array) for array in arrays]
        self._pieces: list[_Piece] = [_NOWHERE] * len(sources)
        self._written: list[tuple[int, NDArray[np.uint8]]] = []
        self.nbytes = 0
        low, high, begin = 0, 0, 0  # the addresses of a run, and where it is in the parcel
        alone: torch.Tensor | None = None  # or its copy
        for number in sorted(range(len(sources)), key=lambda i: (sources[i].address, -sources[i].nbytes)):
            address, nbytes, values, dtype, shape = sources[number]
            grows = address + nbytes > high
            if address >= high or (address - low) % dtype.itemsize or (grows and alone is not None):
                alone = apart(values) if nbytes else None
                grows = nbytes > 0 and alone is None
                low, high = address, address if alone is None else address + nbytes
                begin = -(-self.nbytes // ALIGNMENT) * ALIGNMENT if alone is None else 0
            place = begin + address - low if nbytes else 0
            self._pieces[number] = _Piece(place, nbytes, dtype, shape, alone)
            if grows:
                high, self.nbytes = address + nbytes, place + nbytes
                self._written.append((place, values))

    def write(self, memory: NDArray[np.uint8]) -> None:
        """Copy the arrays to the beginning of some memory; other threads of Python work meanwhile."""
        for begin, values in self._written:
            np.copyto(memory[begin : begin + len(values)], values)

    def tensors(self, whole: torch.Tensor) -> list[torch.Tensor]:
        """The arrays in their order, as views of what was written, wherever it is now."""
        return [piece.of(whole) for piece in self._pieces]


def _source(array: Any) -> _Source:
    if isinstance(array, np.ndarray):
        dtype = _torch_dtype(array.dtype)
        values = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return _Source(address_of(values), values.nbytes, values, dtype, array.shape)
    if array.layout is not torch.strided or array.requires_grad or array.is_quantized:
        given = f"a tensor of layout {array.layout}, requires_grad={array.requires_grad}"
        raise DTypeError(argument="transform", given=given, expected="dense tensors without gradients on the host")
    plain = array.resolve_conj().resolve_neg().contiguous()
    values = plain.reshape(-1).view(torch.uint8).numpy()
    return _Source(address_of(values), values.nbytes, values, array.dtype, tuple(array.shape))


@cache
def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """Torch's name of a type of NumPy."""
    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except (TypeError, ValueError) as error:
        expected = "a type that torch has, in the byte order of this machine"
        raise DTypeError(
            argument="array", given=f"dtype {dtype}, to be copied to a device", expected=expected
        ) from error
