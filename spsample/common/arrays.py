"""Conversion of users' lists, tensors and DLPack objects to NumPy arrays; values without a plain array are refused."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import is_scipy_sparse, short
from spsample.errors import DTypeError, InputError

_INT64_MAX = 2**63 - 1
_HOST_DEVICES = (1, 3, 11)  # DLPack: CPU, host memory pinned by CUDA, host memory pinned by ROCm


def as_array(argument: str, value: Any) -> NDArray[Any]:
    """View `value` as a NumPy array, without a copy wherever that is possible.

    Parameters
    ----------
    argument : str
        Name of the argument, for the message.
    value : array_like
        A NumPy array, a (nested) list, anything with ``__array__`` or DLPack in host memory, a torch CPU
        tensor.

    Raises
    ------
    DTypeError
        For sparse, masked, object or string data, data on a device, and tensors that require gradients.
    InputError
        For ragged lists.

    Examples
    --------
    >>> as_array("seeds", [3, 1, 2])
    array([3, 1, 2])
    """
    if type(value) is np.ndarray and value.dtype.kind in "biufc":
        return value
    _refuse_containers(argument, value)
    _refuse_tensors(argument, value)
    _refuse_devices(argument, value)
    array = _converted(argument, value)
    if array.dtype.kind in "biufc":
        return array
    given = f"dtype {array.dtype}{first_entry(array)}"
    if array.ndim == 0:
        given = f"{short(value)} of type {type(value).__name__}"
    elif array.dtype == object:
        given = f"dtype object ({_first_odd(array)})"
    raise DTypeError(argument=argument, given=given, expected="an array of numbers")


def is_bfloat16(value: Any) -> bool:
    """Return whether it is a tensor of bfloat16."""
    return str(getattr(value, "dtype", "")) == "torch.bfloat16"


def _refuse_containers(argument: str, value: Any) -> None:
    """Refuse values that NumPy would turn into another thing: None, matrices, masked arrays."""
    if value is None:
        raise DTypeError(argument=argument, given="None", expected="an array")
    if is_scipy_sparse(value):
        given = f"a scipy {value.format} matrix of shape {value.shape}"
        raise DTypeError(
            argument=argument,
            given=given,
            expected="a dense array",
            hint="Use Graph.from_scipy for matrices.",
        )
    if isinstance(value, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(value)
        raise DTypeError(
            argument=argument,
            given=f"a masked array (first masked entry at position {int(np.argmax(mask))})",
            expected="a plain array",
            hint="Use .compressed() or .filled() first.",
        )


def _refuse_tensors(argument: str, value: Any) -> None:
    """Refuse torch tensors that have no plain array: sparse ones, and those that carry gradients."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return
    if value.layout != torch.strided:
        given = f"a sparse tensor of layout {value.layout}"
        raise DTypeError(argument=argument, given=given, expected="a dense array", hint="Pass its indices and values.")
    if value.requires_grad:
        raise DTypeError(
            argument=argument,
            given="a tensor that requires gradients",
            expected="data without gradients",
            hint="No gradient flows through sampling: pass tensor.detach().",
        )


def _refuse_devices(argument: str, value: Any) -> None:
    """Refuse arrays that are not in host memory, by their DLPack device."""
    probe = getattr(value, "__dlpack_device__", None)
    if probe is None or isinstance(value, np.ndarray):
        return
    try:
        kind = int(probe()[0])
    except (ValueError, TypeError, RuntimeError, BufferError):  # torch's "meta" device, for one
        kind = -1
    if kind not in _HOST_DEVICES:
        raise DTypeError(
            argument=argument,
            given=f"an array on device {getattr(value, 'device', kind)}",
            expected="an array in host memory",
            hint="Copy it to the host first, for instance with .cpu().",
        )


def _converted(argument: str, value: Any) -> NDArray[Any]:
    """Call NumPy's conversion and turn its exceptions into ours."""
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except ValueError as error:
        uneven = isinstance(value, (list, tuple))
        given = f"a {type(value).__name__} {'of uneven lengths or shapes' if uneven else f'({error})'}"
        raise InputError(argument=argument, given=given, expected="an array of numbers") from error
    except (TypeError, RuntimeError, BufferError, OverflowError) as error:
        raise DTypeError(
            argument=argument, given=f"a {type(value).__name__} ({error})", expected="an array of numbers"
        ) from error


def distinct_bytes(arrays: Iterable[Any]) -> int:
    """Return the bytes of arrays, each object once; None counts as 0.

    Examples
    --------
    >>> ids = np.zeros(4, np.int64)
    >>> distinct_bytes([ids, None, ids, np.zeros(2, np.int32)])
    40
    """
    return sum({id(array): int(array.nbytes) for array in arrays if array is not None}.values())


def first_entry(array: NDArray[Any]) -> str:
    """Describe the first entry; empty for an empty array or a scalar."""
    return f" (first entry {short(array.flat[:1].tolist()[0])})" if array.ndim and array.size else ""


def _first_odd(array: NDArray[Any]) -> str:
    """Describe the first entry for which an array of objects is no array of numbers: "None at position 1"."""
    for position, entry in enumerate(array.flat):
        if not isinstance(entry, numbers.Number) or (isinstance(entry, int) and abs(entry) > _INT64_MAX):
            return f"{short(entry)} at position {position}"
    return f"{array.size} entries"
