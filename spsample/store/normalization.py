"""Graphs made of others: normalised, with self loops; sums of rows, and quotients that their dtype can hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends.arithmetic import default_float_environment
from spsample.errors import CapacityError
from spsample.store.construction import GraphArrays, targets

ROWS_AT_ONCE = 1 << 16
"""Whose entries are numbered by row, where rows are summed."""


@default_float_environment()
def normalized(arrays: GraphArrays, kind: str) -> GraphArrays:
    """Return the arrays of A normalised: `kind` is "row" or "sym", as of `Graph.normalized`."""
    if kind == "row" and arrays.lying("data") is None:  # rows of a "row" graph sum to 1 already
        return arrays.row_normalized()
    values, per_row = entry_values(arrays), np.diff(arrays.indptr)
    sums = row_sums(arrays.indptr, values)
    if kind == "row":
        divisor = np.repeat(sums, per_row)
    else:
        root = np.sqrt(sums)
        divisor = np.repeat(root, per_row)
        divisor *= root[arrays.indices]
    return GraphArrays(arrays.indptr, arrays.indices, divided(values, divisor, value_dtype(arrays)), arrays.edge_ids)


def with_self_loops(arrays: GraphArrays) -> GraphArrays:
    """Return the arrays of A with an edge (v, v) for every vertex that has none, as `Graph.with_self_loops`."""
    indptr, indices, num_nodes = arrays.indptr, arrays.indices, len(arrays.indptr) - 1
    rows = targets(indptr, indices.dtype)
    missing = np.ones(num_nodes, dtype=bool)
    missing[rows[indices == rows]] = False
    if not missing.any() and arrays.weighting != "row":
        return arrays
    added = np.flatnonzero(missing)
    before = np.bincount(rows[indices < rows], minlength=num_nodes)
    at = (indptr[:-1] + before)[added]
    moved = indptr.copy()
    moved[1:] += np.cumsum(missing)
    data = None
    if arrays.weighting != "unweighted":
        data = np.insert(entry_values(arrays).astype(value_dtype(arrays), copy=False), at, 1)
    ids = np.arange(len(indices), dtype=np.int64) if arrays.edge_ids is None else arrays.edge_ids
    return GraphArrays(moved, np.insert(indices, at, added), data, np.insert(ids, at, len(indices) + added))


def entry_values(arrays: GraphArrays) -> NDArray[Any]:
    """Return the value of every entry: ``data``, or else float64."""
    if arrays.data is not None:
        return arrays.data
    if arrays.weighting == "unweighted":
        return np.ones(len(arrays.indices))
    per_row = np.diff(arrays.indptr)
    with np.errstate(divide="ignore"):
        return np.repeat(1.0 / per_row, per_row)


def value_dtype(arrays: GraphArrays) -> np.dtype[Any]:
    """Return the dtype of values computed from a graph: that of ``data``, and float32 where there is none."""
    data = arrays.lying("data")
    return np.dtype(np.float32) if data is None else data.dtype


def row_sums(indptr: NDArray[np.int64], values: NDArray[Any]) -> NDArray[np.float64]:
    """`sums_by_row`, where float64 can hold them.

    Raises
    ------
    CapacityError
        If one is larger.

    Examples
    --------
    >>> row_sums(np.array([0, 2]), np.array([0.5, 1.0]))
    array([1.5])
    """
    sums = sums_by_row(indptr, values)
    if not np.isfinite(sums).all():
        row = int(np.argmax(~np.isfinite(sums)))
        given = f"a sum above {np.finfo(np.float64).max:.3g} in row {row}"
        raise CapacityError(argument="data", given=given, expected="row sums that float64 can hold")
    return sums


def sums_by_row(indptr: NDArray[np.int64], values: NDArray[Any]) -> NDArray[np.float64]:
    """Sum the values of each row of a CSR matrix in float64, one addition after the other.

    Examples
    --------
    >>> sums_by_row(np.array([0, 2, 2, 3]), np.array([0.5, 1.0, 2.0]))
    array([1.5, 0. , 2. ])
    """
    sums = np.zeros(len(indptr) - 1)
    for first in range(0, len(sums), ROWS_AT_ONCE):
        counts = np.diff(indptr[first : first + ROWS_AT_ONCE + 1])
        begin, end = indptr[[first, first + len(counts)]]
        rows = np.repeat(np.arange(len(counts)), counts)
        sums[first : first + len(counts)] = np.bincount(rows, values[begin:end], len(counts))
    return sums


def sums_of_alike(weighting: str, degrees: NDArray[np.int64]) -> NDArray[np.float32]:
    """Sum rows that store no weights, from their numbers of entries: of ones, or of one over their number.

    Examples
    --------
    >>> sums_of_alike("unweighted", np.array([2, 0])), sums_of_alike("row", np.array([2, 0]))
    (array([2., 0.], dtype=float32), array([1., 0.], dtype=float32))
    """
    return (np.minimum(degrees, 1) if weighting == "row" else degrees).astype(np.float32)


def sums_of_rows(weighting: str, indptr: NDArray[np.int64], values: NDArray[Any] | None) -> NDArray[np.float32]:
    """Sum rows of a graph, which stores weights only where it is "weighted".

    Examples
    --------
    >>> indptr = np.array([0, 2, 2])
    >>> sums_of_rows("weighted", indptr, np.array([0.5, 1.0])), sums_of_rows("row", indptr, None)
    (array([1.5, 0. ], dtype=float32), array([1., 0.], dtype=float32))
    """
    if values is None:
        return sums_of_alike(weighting, np.diff(indptr))
    return sums_by_row(indptr, values).astype(np.float32)


def divided(values: NDArray[Any], divisor: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return values / divisor, 0 where the divisor is 0, rounded once to `dtype`.

    Raises
    ------
    CapacityError
        If a positive value would become 0 or infinite.

    Examples
    --------
    >>> divided(np.array([1.0, 3.0, 2.0]), np.array([4.0, 4.0, 0.0]), np.dtype(np.float32))
    array([0.25, 0.75, 0.  ], dtype=float32)
    """
    quotient = np.zeros(len(values))
    kept = divisor > 0
    with np.errstate(over="ignore", under="ignore"):
        np.divide(values, divisor, out=quotient, where=kept)
        data = quotient.astype(dtype, copy=False)
    bad = kept & (values > 0) & ((data == 0) | ~np.isfinite(data))
    if bad.any():
        at = int(np.argmax(bad))
        given = f"{values[at]} at entry {at}, to be divided by {divisor[at]}"
        raise CapacityError(argument="data", given=given, expected=f"a quotient that {dtype} can hold")
    return data
