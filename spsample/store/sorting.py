"""The order of a graph's entries: (target, source, position in the input)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from spsample.errors import CapacityError
from spsample.store import validation


def rows_sorted(indptr: NDArray[Any], indices: NDArray[Any]) -> bool:
    """Whether sources ascend within each row. O(n + num_edges) time, one bool per edge."""
    falls = indices[1:] < indices[:-1]
    inner = indptr[(indptr > 0) & (indptr < len(indices))]
    falls[inner - 1] = False
    return not falls.any()


def targets(indptr: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the row of each entry."""
    return np.repeat(np.arange(len(indptr) - 1, dtype=dtype), np.diff(indptr))


def is_identity(order: NDArray[Any]) -> bool:
    """Whether every entry stands where it stood in the input."""
    return np.array_equal(order, np.arange(len(order)))


def sort_entries(
    sources: NDArray[Any], targets: NDArray[Any], num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
    """Sort edges by (target, source, position); return indptr, indices and the position of each entry.

    Two counting sorts, each stable, O(num_nodes + E): scipy's change of compressed axis lists the entries
    of every new row in the order in which it meets them. First E x n, one entry per row, to columns; then n
    x n, which holds the positions as values, to rows. ``indices`` are int32 where num_nodes < 2**31, else
    int64.
    """
    count, n = len(sources), num_nodes
    dtype = np.int32 if n <= validation.INT32_NODES else np.int64
    small = np.int32 if max(n, count) < validation.INT32_NODES else np.int64
    try:
        rows = (
            np.zeros(count, np.int8),
            sources.astype(small, copy=False),
            np.arange(count + 1, dtype=small),
        )
        by_source = scipy.sparse.csr_array(rows, shape=(count, n)).tocsc()
        position = by_source.indices
        columns = (position, targets.astype(small, copy=False)[position], by_source.indptr)
        matrix = scipy.sparse.csc_array(columns, shape=(n, n)).tocsr()
    except MemoryError as error:
        given = f"{n} vertices and {count} edges"
        hint = "A vertex id may be far too large: ids need not all be used, but each takes 8 bytes."
        raise CapacityError(
            argument="num_nodes", given=given, expected="a graph that fits in memory", hint=hint
        ) from error
    indptr, order = matrix.indptr.astype(np.int64, copy=False), matrix.data.astype(np.int64, copy=False)
    return indptr, matrix.indices.astype(dtype, copy=False), order
