"""General sparse algebra: products and rows of CSR matrices."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Array, IntArray

Int64Array = NDArray[np.int64]


def spgemm(
    A: tuple[Int64Array, IntArray, Array | None], B: tuple[Int64Array, IntArray, Array | None], num_columns: int
) -> tuple[Int64Array, IntArray, Array]:
    """C = A B by rows (Gustavson 1978): products of a row in the order of its entries, added up by column."""
    dtype = next((M[2].dtype for M in (A, B) if M[2] is not None), np.dtype(np.float32))
    left, right = ((*M[:2], np.ones(len(M[1]), dtype) if M[2] is None else M[2]) for M in (A, B))
    return _product(left, right)


def _product(
    A: tuple[Int64Array, IntArray, Array], B: tuple[Int64Array, IntArray, Array]
) -> tuple[Int64Array, IntArray, Array]:
    indices, data, lengths = [], [], []
    for lo, hi in zip(A[0][:-1], A[0][1:], strict=True):
        columns, values = cast("tuple[IntArray, Any]", select_rows(B, A[1][lo:hi])[1:])
        scale = np.repeat(A[2][lo:hi], np.diff(B[0])[A[1][lo:hi]])
        merged, first, where = np.unique(columns, return_index=True, return_inverse=True)
        products = scale * values
        sums = products[first]
        rest = np.setdiff1d(np.arange(len(columns)), first)
        np.add.at(sums, where[rest], products[rest])
        indices.append(merged)
        data.append(sums)
        lengths.append(len(merged))
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return (
        indptr,
        np.concatenate([*indices, B[1][:0]]).astype(B[1].dtype),
        np.concatenate([*data, B[2][:0]]).astype(B[2].dtype),
    )


def select_rows(
    A: tuple[Int64Array, IntArray, Array | None], rows: IntArray
) -> tuple[Int64Array, IntArray, Array | None]:
    """A[rows], entries in A's order."""
    where = np.concatenate([*(np.arange(A[0][r], A[0][r + 1]) for r in rows), np.zeros(0, np.int64)]).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(np.diff(A[0])[rows])]).astype(np.int64)
    return indptr, A[1][where], None if A[2] is None else A[2][where]
