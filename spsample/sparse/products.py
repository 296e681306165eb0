"""General sparse products of explicit matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from spsample.backends import get_backend
from spsample.backends.protocol import IntArray
from spsample.common.arrays import as_array
from spsample.common.checks import check_range, require_array
from spsample.errors import DTypeError, InputError
from spsample.sparse.csr import CSRMatrix

PRODUCT_DTYPES = ("float32", "float64", "int64", "uint64")


def spgemm(A: CSRMatrix, B: CSRMatrix, *, backend: str | None = None) -> CSRMatrix:
    """C = A B: general sparse product by rows (Gustavson 1978).

    Parameters
    ----------
    A, B : CSRMatrix
        Values float32, float64, int64 or uint64, the same in both; a missing `data` counts as ones of the other's type.

    Returns
    -------
    CSRMatrix
        Columns ascend within each row; entries that sum to 0 are kept; the order of sums is fixed, so that every
        backend returns the same bits.

    Raises
    ------
    InputError
        If the shapes or the types do not fit.

    Examples
    --------
    >>> A = CSRMatrix(np.array([0, 2]), np.array([0, 1], np.int32), np.array([1.0, 2.0]), (1, 2))
    >>> B = CSRMatrix(np.array([0, 1, 2]), np.array([1, 1], np.int32), np.array([5.0, 7.0]), (2, 3))
    >>> spgemm(A, B).data.tolist()
    [19.0]
    """
    _require_matrix("A", A)
    _require_matrix("B", B)
    if A.shape[1] != B.shape[0]:
        raise InputError(
            argument="B",
            given=f"shape {B.shape}",
            expected=f"{A.shape[1]} rows, as many as A (shape {A.shape}) has columns",
        )
    _require_product_dtype(A, B)
    indices = np.result_type(A.indices.dtype, B.indices.dtype)
    left, right = ((M.indptr, M.indices.astype(indices, copy=False), M.data) for M in (A, B))
    product = get_backend(backend).spgemm(left, right, B.shape[1])
    return CSRMatrix.from_parts(*product, (A.shape[0], B.shape[1]))


def _require_matrix(argument: str, value: Any) -> None:
    if not isinstance(value, CSRMatrix):
        raise DTypeError(argument=argument, given=f"a {type(value).__name__}", expected="a CSRMatrix")


def _require_product_dtype(A: CSRMatrix, B: CSRMatrix) -> None:
    given = [M.data.dtype for M in (A, B) if M.data is not None] or [np.dtype(np.float32)]
    if given[0] != given[-1] or given[0].name not in PRODUCT_DTYPES:
        raise DTypeError(
            argument="data",
            given=" and ".join(d.name for d in given),
            expected=f"the same type in A and B, one of {', '.join(PRODUCT_DTYPES)}",
        )


def select_rows(A: CSRMatrix, rows: IntArray, *, backend: str | None = None) -> CSRMatrix:
    """A[rows], each row's entries in their order: what a `RowSelector` times A is when written out.

    Examples
    --------
    >>> A = CSRMatrix(np.array([0, 1, 3]), np.array([1, 0, 1], np.int32), None, (2, 2))
    >>> select_rows(A, np.array([1, 1])).indices.tolist()
    [0, 1, 0, 1]
    """
    _require_matrix("A", A)
    rows = as_array("rows", rows)
    require_array("rows", rows, ("i", "u"), "integers")
    check_range("rows", rows, A.shape[0], "rows")
    triple = get_backend(backend).select_rows((A.indptr, A.indices, A.data), rows.astype(np.int64, copy=False))
    return CSRMatrix.from_parts(*triple, (len(rows), A.shape[1]))
