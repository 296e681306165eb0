"""Checks of what users hand in: arrays of ids and weights, CSR structure, seeds, integers and choices.

Each check costs at most a few vectorised passes over its input, reports the first bad entry with its value
and position, and raises an exception of :mod:`spsample.errors`. Nothing is clipped, reordered or dropped.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from spsample.errors import CapacityError, DTypeError, InputError

__all__ = [
    "INT32_NODES",
    "MAX_NODES",
    "as_array",
    "as_edge_index",
    "as_id_vector",
    "as_weights",
    "check_ids",
    "check_indptr",
    "check_length",
    "check_not_negative",
    "check_num_nodes",
    "check_weights",
    "require_choice",
    "require_int",
    "validate_seeds",
]

MAX_NODES = 2**48
"""Most vertices of a graph: the counters of the random generator hold vertex ids of 48 bits."""

INT32_NODES = 2**31 - 1
"""Most vertices of a graph whose ``indices`` are int32."""

_INT64_MAX = 2**63 - 1
_EXACT_INTEGER = 2**53
_HOST_DEVICES = (1, 3, 11)  # DLPack: CPU, host memory pinned by CUDA, host memory pinned by ROCm


# --------------------------------------------------------------------------------------- integers and choices


def require_int(argument: str, value: Any, minimum: int | None = None, maximum: int | None = None) -> int:
    """Return `value` as an int within [minimum, maximum]; a bool or a float is no integer.

    Parameters
    ----------
    argument : str
        Name of the argument, for the message.
    value : int or numpy integer
        What was given.
    minimum, maximum : int, optional
        Inclusive bounds.

    Raises
    ------
    DTypeError
        If `value` is not an integer.
    InputError
        If it is out of bounds.

    Examples
    --------
    >>> require_int("batch_size", 1024, minimum=1)
    1024
    >>> require_int("batch_size", 0, minimum=1)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: batch_size: got 0; expected an integer of at least 1
    """
    expected = _expected_int(minimum, maximum)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise DTypeError(argument=argument, given=f"{_short(value)} of type {type(value).__name__}", expected=expected)
    number = int(value)
    if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
        raise InputError(argument=argument, given=str(number), expected=expected)
    return number


def _expected_int(minimum: int | None, maximum: int | None) -> str:
    if minimum is not None and maximum is not None:
        return f"an integer in [{minimum}, {maximum}]"
    if minimum is not None:
        return f"an integer of at least {minimum}"
    if maximum is not None:
        return f"an integer of at most {maximum}"
    return "an integer"


def require_choice(argument: str, value: Any, choices: Sequence[str]) -> str:
    """Return `value` if it is one of the strings `choices`.

    Raises
    ------
    DTypeError
        If `value` is not a string.
    InputError
        If it is none of the choices.

    Examples
    --------
    >>> require_choice("layout", "blocks", ("blocks", "subgraph"))
    'blocks'
    >>> require_choice("layout", "block", ("blocks", "subgraph"))
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: layout: got 'block'; expected one of 'blocks', 'subgraph'
    """
    expected = "one of " + ", ".join(repr(choice) for choice in choices)
    if not isinstance(value, str):
        given = f"{_short(value)} of type {type(value).__name__}"
        raise DTypeError(argument=argument, given=given, expected=expected)
    if value not in choices:
        raise InputError(argument=argument, given=_short(value), expected=expected)
    return value


def check_num_nodes(argument: str, value: Any) -> int:
    """Return a number of vertices: an integer from 1 to 2**48.

    Raises
    ------
    DTypeError, InputError
        As :func:`require_int`.
    CapacityError
        Above 2**48.

    Examples
    --------
    >>> check_num_nodes("num_nodes", 2708)
    2708
    """
    number = require_int(argument, value)
    if number < 1:
        raise InputError(argument=argument, given=str(number), expected="a graph of at least one vertex (1 or more)")
    if number > MAX_NODES:
        raise CapacityError(argument=argument, given=str(number), expected=f"at most 2**48 = {MAX_NODES} vertices")
    return number


# -------------------------------------------------------------------------------------------------- any array


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
    _refuse_containers(argument, value)
    _refuse_tensors(argument, value)
    _refuse_devices(argument, value)
    array = _converted(argument, value)
    if array.dtype.kind in "biufc":
        return array
    given = f"dtype {array.dtype}{_first_entry(array)}"
    if array.ndim == 0:
        given = f"{_short(value)} of type {type(value).__name__}"
    elif array.dtype == object:
        given = f"dtype object ({_first_odd(array)})"
    raise DTypeError(argument=argument, given=given, expected="an array of numbers")


def _refuse_containers(argument: str, value: Any) -> None:
    """Refuse what NumPy would turn into something else: None, matrices, masked arrays."""
    if value is None:
        raise DTypeError(argument=argument, given="None", expected="an array")
    if scipy.sparse.issparse(value):
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
    """Refuse arrays that are not in host memory, as their DLPack device tells."""
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


def _short(value: Any) -> str:
    """Return the start of repr(value)."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _first_entry(array: NDArray[Any]) -> str:
    """Say what the first entry is, or nothing for an empty array or a scalar."""
    return f" (first entry {_short(array.flat[:1].tolist()[0])})" if array.ndim and array.size else ""


def _first_odd(array: NDArray[Any]) -> str:
    """Describe the first entry for which an array of objects is no array of numbers: "None at position 1"."""
    for position, entry in enumerate(array.flat):
        if not isinstance(entry, numbers.Number) or (isinstance(entry, int) and abs(entry) > _INT64_MAX):
            return f"{_short(entry)} at position {position}"
    return f"{array.size} entries"


def _first(bad: NDArray[np.bool_], array: NDArray[Any]) -> str:
    """Describe the first entry of `array` where `bad` is true: "-3 at position 17"."""
    where = np.unravel_index(int(np.argmax(bad)), bad.shape)
    position = where[0] if len(where) == 1 else tuple(int(i) for i in where)
    return f"{array[where].item()} at position {position}"


# --------------------------------------------------------------------------------------- ids, indptr, weights


def _as_integers(argument: str, value: Any) -> NDArray[Any]:
    """View an array of integers as int32 or int64 in native byte order; these two are not copied."""
    if isinstance(value, (list, tuple)):
        _refuse_bools(argument, value)
    array = as_array(argument, value)
    if array.size == 0 and isinstance(value, (list, tuple)):  # NumPy calls [] float64
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        hint = "Use numpy.flatnonzero(mask) to turn a mask into ids." if array.dtype.kind == "b" else ""
        given = f"dtype {array.dtype}{_first_entry(array)}"
        raise DTypeError(argument=argument, given=given, expected="an integer dtype", hint=hint)
    if array.dtype == np.uint64 and array.size and int(array.max()) > _INT64_MAX:
        given = _first(array > np.uint64(_INT64_MAX), array)
        raise InputError(argument=argument, given=given, expected="integers below 2**63")
    wide = array.dtype.itemsize == 8 or (array.dtype.kind == "u" and array.dtype.itemsize == 4)
    return array.astype(np.int64 if wide else np.int32, copy=False)


def _refuse_bools(argument: str, values: Sequence[Any]) -> None:
    """Refuse bools in a list, which NumPy would turn into 0 and 1 beside integers."""
    for position, entry in enumerate(values):
        if isinstance(entry, (bool, np.bool_)):
            given = f"{entry} at position {position}"
            raise DTypeError(argument=argument, given=given, expected="integers")


def as_id_vector(argument: str, value: Any) -> NDArray[Any]:
    """View `value` as a one-dimensional array of int32 or int64.

    int32 and int64 in native byte order are not copied (nor made contiguous); narrower integers become int32,
    unsigned ones of 32 and 64 bits int64.

    Raises
    ------
    DTypeError
        For any dtype but integers: floats are refused even where they are whole numbers.
    InputError
        For any other number of dimensions, and for unsigned integers from 2**63 on.

    Examples
    --------
    >>> as_id_vector("indices", [0, 2])
    array([0, 2])
    >>> as_id_vector("indices", [0.0, 2.0])
    Traceback (most recent call last):
    ...
    spsample.errors.DTypeError: indices: got dtype float64 (first entry 0.0); expected an integer dtype
    """
    array = _as_integers(argument, value)
    _check_vector(argument, array)
    return array


def as_edge_index(argument: str, value: Any) -> NDArray[Any]:
    """View `value` as an array of int32 or int64 of shape (2, E): sources in row 0, targets in row 1.

    Raises
    ------
    DTypeError, InputError
        As :func:`as_id_vector`; a shape of (E, 2) is refused with the advice to transpose.

    Examples
    --------
    >>> as_edge_index("edge_index", [[0, 1, 2], [1, 2, 0]]).shape
    (2, 3)
    """
    array = _as_integers(argument, value)
    if array.ndim != 2 or array.shape[0] != 2:
        transposed = array.ndim == 2 and array.shape[1] == 2
        raise InputError(
            argument=argument,
            given=f"shape {array.shape}",
            expected="shape (2, number of edges), sources in row 0 and targets in row 1",
            hint="Pass its transpose." if transposed else "",
        )
    return array


def as_weights(argument: str, value: Any) -> NDArray[Any]:
    """View `value` as a one-dimensional array of float32 or float64 (which are not copied).

    Other real dtypes and bools become float64, where that is exact: integers up to 2**53, longdouble values
    that are float64 values. Values are not checked here, see :func:`check_weights`.

    Raises
    ------
    DTypeError
        For complex weights and anything that is not a number.
    InputError
        For any other number of dimensions, and for a value that float64 cannot hold.

    Examples
    --------
    >>> as_weights("data", [1, 2])
    array([1., 2.])
    """
    array = as_array(argument, value)
    if array.dtype.kind == "c":
        given = f"dtype {array.dtype}{_first_entry(array)}"
        raise DTypeError(argument=argument, given=given, expected="real weights")
    _check_vector(argument, array)
    if array.dtype.kind == "f" and array.dtype.itemsize in (4, 8):
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    with np.errstate(over="ignore"):
        weights = array.astype(np.float64)
    inexact = _inexact(array, weights)
    if inexact.any():
        given = _first(inexact, array)
        raise InputError(argument=argument, given=given, expected="weights that float64 holds exactly")
    return weights


def _inexact(array: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Where `weights`, the float64 of `array`, may differ from it."""
    if array.dtype.kind in "iu":
        return np.asarray((array > _EXACT_INTEGER) | (array < -_EXACT_INTEGER))
    return np.asarray((weights != array) & ~np.isnan(weights))


def _check_vector(argument: str, array: NDArray[Any]) -> None:
    if array.ndim == 1:
        return
    given = f"the scalar {array.item()}" if array.ndim == 0 else f"shape {array.shape}"
    flat = array.ndim == 2 and 1 in array.shape
    raise InputError(
        argument=argument,
        given=given,
        expected="a one-dimensional array",
        hint="Use .reshape(-1) to drop the axis of length 1." if flat else "",
    )


def check_length(argument: str, array: NDArray[Any], length: int, what: str) -> None:
    """Check that `array` has `length` entries, one per `what`.

    Examples
    --------
    >>> check_length("data", np.ones(3), 4, "entry of indices")
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: data: got length 3; expected length 4, one per entry of indices
    """
    if len(array) != length:
        raise InputError(argument=argument, given=f"length {len(array)}", expected=f"length {length}, one per {what}")


def check_ids(argument: str, ids: NDArray[Any], num_nodes: int, hint: str = "") -> None:
    """Check that every entry of the integer array `ids` is in [0, num_nodes); two passes, no temporary array.

    Examples
    --------
    >>> check_ids("indices", np.array([0, 7, 9]), 5)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: indices: got 7 at position 1; expected vertex ids in [0, 5)
    """
    if ids.size == 0 or (int(ids.min()) >= 0 and int(ids.max()) < num_nodes):
        return
    bad = (ids < 0) | (ids >= num_nodes)
    expected = f"vertex ids in [0, {num_nodes})"
    raise InputError(argument=argument, given=_first(bad, ids), expected=expected, hint=hint)


def check_indptr(argument: str, indptr: NDArray[Any], num_entries: int) -> None:
    """Check that `indptr` starts at 0, never falls, and ends at `num_entries`.

    Examples
    --------
    >>> check_indptr("indptr", np.array([0, 3, 2, 4]), 4)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: indptr: got 2 at position 2, after 3; expected row starts that never fall
    """
    if int(indptr[0]) != 0:
        raise InputError(argument=argument, given=f"{indptr[0]} at position 0", expected="0 as the first entry")
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        at = int(np.argmax(falls)) + 1
        given = f"{indptr[at]} at position {at}, after {indptr[at - 1]}"
        raise InputError(argument=argument, given=given, expected="row starts that never fall")
    if int(indptr[-1]) != num_entries:
        last = len(indptr) - 1
        expected = f"the number of entries of indices, {num_entries}, as the last entry"
        raise InputError(argument=argument, given=f"{indptr[-1]} at position {last}", expected=expected)


def check_not_negative(argument: str, ids: NDArray[Any]) -> None:
    """Check that no entry of the integer array `ids` is negative.

    Examples
    --------
    >>> check_not_negative("edge_ids", np.array([0, 4, -1]))
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: edge_ids: got -1 at position 2; expected ids of at least 0
    """
    if ids.size and int(ids.min()) < 0:
        raise InputError(argument=argument, given=_first(ids < 0, ids), expected="ids of at least 0")


def check_weights(argument: str, weights: NDArray[Any]) -> None:
    """Check that every weight is finite and not negative; two passes, no temporary array.

    Examples
    --------
    >>> check_weights("data", np.array([1.0, np.nan, -1.0]))
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: data: got nan at position 1; expected finite weights of at least 0
    """
    with np.errstate(invalid="ignore"):
        if weights.size == 0 or (weights.min() >= 0 and weights.max() < np.inf):  # NaN fails both
            return
        bad = ~((weights >= 0) & (weights < np.inf))
    raise InputError(argument=argument, given=_first(bad, weights), expected="finite weights of at least 0")


# ------------------------------------------------------------------------------------------------------ seeds


def validate_seeds(seeds: Any, num_nodes: int, argument: str = "seeds") -> NDArray[np.int64]:
    """Return `seeds` as a contiguous int64 array of vertex ids; order and duplicates are kept.

    Parameters
    ----------
    seeds : array_like
        One-dimensional, integers in [0, num_nodes). It may be empty; a boolean mask is refused.
    num_nodes : int
        Number of vertices of the graph.
    argument : str, optional
        Name of the argument, for the message.

    Returns
    -------
    numpy.ndarray
        int64; the array given, not a copy, where it already has that form.

    Raises
    ------
    DTypeError
        If the dtype is not an integer one, or the data are not in host memory.
    InputError
        If there is not exactly one dimension, or an id is out of range.

    Examples
    --------
    >>> validate_seeds([5, 2, 5], num_nodes=6)
    array([5, 2, 5])
    >>> validate_seeds([5, -3], num_nodes=6)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: seeds: got -3 at position 1; expected vertex ids in [0, 6)
    """
    ids = as_id_vector(argument, seeds)
    check_ids(argument, ids, num_nodes)
    return np.ascontiguousarray(ids, dtype=np.int64)
