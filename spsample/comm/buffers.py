"""Arrays of ranks, of NumPy on the host and of CuPy on a device: as the bytes that a message moves, and reduced."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from spsample.comm.communicator import Array, Reduction, require_plain

_UFUNCS: dict[Reduction, str] = {"sum": "add", "max": "maximum", "min": "minimum"}


def on_device(array: Any) -> bool:
    """Return whether the array lies on a GPU.

    Examples
    --------
    >>> on_device(np.zeros(2))
    False
    """
    return hasattr(array, "__cuda_array_interface__")


def namespace(array: Any) -> Any:
    """The module whose arrays these are: NumPy or CuPy."""
    return sys.modules["cupy"] if on_device(array) else np


def contiguous(array: Array) -> Array:
    """The array in C order, of the same shape; a copy only where it is not.

    Examples
    --------
    >>> contiguous(np.array(3)).shape
    ()
    """
    return namespace(array).ascontiguousarray(array).reshape(array.shape)  # type: ignore[no-any-return]


def as_bytes(array: Array) -> Array:
    """The memory of an array in C order as uint8, not copied.

    Examples
    --------
    >>> as_bytes(np.array([1, 2], np.uint16)).tolist()
    [1, 0, 2, 0]
    """
    require_plain(array)
    return array.reshape(-1).view(np.uint8)


def row_bytes(array: Array) -> int:
    """Bytes of a row along the first axis.

    Examples
    --------
    >>> row_bytes(np.zeros((0, 3), np.float32))
    12
    """
    return array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))


def settle_device(array: Array) -> None:
    """Wait until the work that fills a device's array is done; MPI knows nothing of CUDA streams."""
    if on_device(array):
        namespace(array).cuda.get_current_stream().synchronize()


def reduce_in_order(parts: Sequence[Array] | Array, op: Reduction) -> Array:
    """Elementwise sum, maximum or minimum of arrays of one shape and dtype, from the first to the last.

    In this order the bits are the same on every rank and over every communicator. `parts` may also be one array with
    the parts along its first axis.

    Examples
    --------
    >>> reduce_in_order([np.array([1, 5], np.uint8), np.array([2, 3], np.uint8)], "max")
    array([2, 5], dtype=uint8)
    """
    ufunc = getattr(namespace(parts[0]), _UFUNCS[op])
    result = parts[0].copy()
    for part in parts[1:]:
        ufunc(result, part, out=result)
    return result
