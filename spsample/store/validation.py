"""Checks of graphs and seeds: ids, edge lists, weights, numbers of vertices.

What is not particular to graphs is checked in `spsample.common.checks`, and made an array in
`spsample.common.arrays`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.arrays import as_array, first_entry
from spsample.common.checks import check_range, first_bad, require_int
from spsample.common.threads import compiled_core
from spsample.errors import CapacityError, DTypeError, InputError

MAX_NODES = 2**48
"""Most vertices of a graph: the counters of the random generator hold vertex ids of 48 bits."""

INT32_NODES = 2**31 - 1
"""Most vertices of a graph whose ``indices`` are int32."""

_INT64_MAX = 2**63 - 1
_EXACT_INTEGER = 2**53


def check_num_nodes(argument: str, value: Any) -> int:
    """Return a number of vertices: an integer from 1 to 2**48.

    Raises
    ------
    DTypeError, InputError
        As `require_int`.
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


def _as_integers(argument: str, value: Any) -> NDArray[Any]:
    """View an array of integers as int32 or int64 in native byte order; these two are not copied."""
    for position, entry in enumerate(value if isinstance(value, (list, tuple)) else ()):
        if isinstance(entry, (bool, np.bool_)):  # which NumPy would turn into 0 and 1 beside integers
            raise DTypeError(argument=argument, given=f"{entry} at position {position}", expected="integers")
    array = as_array(argument, value)
    if array.size == 0 and array.dtype.kind == "f":  # what NumPy and torch make of []
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        hint = "Use numpy.flatnonzero(mask) to turn a mask into ids." if array.dtype.kind == "b" else ""
        given = f"dtype {array.dtype}{first_entry(array)}"
        raise DTypeError(argument=argument, given=given, expected="an integer dtype", hint=hint)
    if array.dtype == np.uint64 and array.size and int(array.max()) > _INT64_MAX:
        given = first_bad(array > np.uint64(_INT64_MAX), array)
        raise InputError(argument=argument, given=given, expected="integers below 2**63")
    wide = array.dtype.itemsize == 8 or (array.dtype.kind == "u" and array.dtype.itemsize == 4)
    return array.astype(np.int64 if wide else np.int32, copy=False)


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
    if type(value) is np.ndarray and value.ndim == 1 and value.dtype == np.int64 and value.dtype.isnative:
        return value
    array = _as_integers(argument, value)
    _check_vector(argument, array)
    return array


def as_edge_index(argument: str, value: Any) -> NDArray[Any]:
    """View `value` as an array of int32 or int64 of shape (2, E): sources in row 0, targets in row 1.

    Raises
    ------
    DTypeError, InputError
        As `as_id_vector`; a shape of (E, 2) is refused with the advice to transpose.

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
    that are float64 values. Values are not checked here, see `check_weights`.

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
        raise DTypeError(argument=argument, given=f"dtype {array.dtype}{first_entry(array)}", expected="real weights")
    _check_vector(argument, array)
    if array.dtype.kind == "f" and array.dtype.itemsize in (4, 8):
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    with np.errstate(over="ignore"):
        weights = array.astype(np.float64)
    if array.dtype.kind in "iu":
        inexact = np.asarray((array > _EXACT_INTEGER) | (array < -_EXACT_INTEGER))
    else:
        inexact = np.asarray((weights != array) & ~np.isnan(weights))
    if inexact.any():
        given = first_bad(inexact, array)
        raise InputError(argument=argument, given=given, expected="weights that float64 holds exactly")
    return weights


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


def check_ids(argument: str, ids: NDArray[Any], num_nodes: int, hint: str = "") -> None:
    """Check that every entry of the integer array `ids` is in [0, num_nodes).

    Examples
    --------
    >>> check_ids("indices", np.array([0, 7, 9]), 5)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: indices: got 7 at position 1; expected vertex ids in [0, 5)
    """
    check_range(argument, ids, num_nodes, "vertex ids", hint)


def as_vertex_ids(argument: str, value: Any, num_nodes: int) -> NDArray[Any]:
    """View `value` as `as_id_vector` does, contiguous; every entry must be in [0, num_nodes).

    Examples
    --------
    >>> as_vertex_ids("ids", [2, 0], 3)
    array([2, 0])
    """
    ids = np.ascontiguousarray(as_id_vector(argument, value))
    check_ids(argument, ids, num_nodes)
    return ids


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
        raise InputError(argument=argument, given=first_bad(ids < 0, ids), expected="ids of at least 0")


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
    raise InputError(argument=argument, given=first_bad(bad, weights), expected="finite weights of at least 0")


def validate_seeds(
    seeds: Any, num_nodes: int, argument: str = "seeds", expected: str = "vertex ids"
) -> NDArray[np.int64]:
    """Return `seeds` as `validate_ids` does, unless they may be a mask of integers; `expected` is for that message.

    Raises
    ------
    DTypeError, InputError
        As `validate_ids`; also where as many as there are vertices (more than two) are all 0 or 1, which has two
        readings.

    Examples
    --------
    >>> validate_seeds([0, 1, 1], num_nodes=3)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: seeds: got 3 integers that are all 0 or 1, for a graph of 3 vertices; expected vertex
    ids. If it is a mask, numpy.flatnonzero(seeds) are its ids; if the ids of vertices 0 and 1
    are meant, numpy.unique(seeds) has each once
    """
    ids = validate_ids(seeds, num_nodes, argument)
    if len(ids) == num_nodes > 2 and ids[0] <= 1 and int(ids.max()) <= 1:
        raise InputError(
            argument=argument,
            given=f"{len(ids)} integers that are all 0 or 1, for a graph of {num_nodes} vertices",
            expected=expected,
            hint=f"If it is a mask, numpy.flatnonzero({argument}) are its ids; if the ids of vertices 0 and 1 are "
            f"meant, numpy.unique({argument}) has each once",
        )
    return ids


def validate_ids(ids: Any, num_nodes: int, argument: str = "seeds") -> NDArray[np.int64]:
    """Return `ids` as a contiguous int64 array of vertex ids; order and duplicates are kept.

    Parameters
    ----------
    ids : array_like
        One-dimensional, integers in [0, num_nodes). It may be empty; a boolean mask is refused.
    num_nodes : int
        Number of vertices of the graph.
    argument : str
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
    >>> validate_ids([5, 2, 5], 6, "seeds")
    array([5, 2, 5])
    >>> validate_ids([5, -3], 6, "seeds")
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: seeds: got -3 at position 1; expected vertex ids in [0, 6)
    """
    array = np.ascontiguousarray(as_id_vector(argument, ids), dtype=np.int64)
    core = compiled_core()
    if core is None or not core.ids_below(array, num_nodes):
        check_ids(argument, array, num_nodes)
    return array
