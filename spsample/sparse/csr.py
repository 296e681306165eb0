"""`CSRMatrix`: compressed sparse rows, and products of such matrices."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends import get_backend
from spsample.backends.protocol import Array, Int64Array, IntArray
from spsample.common.arrays import as_array
from spsample.common.checks import check_indptr, check_length, check_range, require_array
from spsample.errors import DTypeError, InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array


PRODUCT_DTYPES = ("float32", "float64", "int64", "uint64")


@dataclass(frozen=True, eq=False)
class CSRMatrix:
    """A sparse matrix as compressed rows.

    Parameters
    ----------
    indptr : int64 array (rows + 1,)
        Row i owns entries `indptr[i]:indptr[i + 1]`.
    indices : int32 or int64 array (nnz,)
        Column of each entry. Neither sorted nor distinct unless a method says so.
    data : array (nnz,) or None
        Value of each entry; None where every entry is 1.
    shape : (int, int)

    Raises
    ------
    DTypeError
        If one of them is not a NumPy array, or of a dtype that is not listed.
    InputError
        If the arrays do not make a matrix of that shape; the message names the first bad entry.

    Examples
    --------
    >>> A = CSRMatrix(np.array([0, 1, 3]), np.array([1, 0, 1], np.int32), np.array([2.0, 3.0, 4.0]), (2, 2))
    >>> (A @ A).to_scipy().toarray().tolist()
    [[6.0, 8.0], [12.0, 22.0]]
    """

    indptr: Int64Array
    indices: IntArray
    data: Array | None
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        rows, columns = _checked_shape(self.shape)
        require_array("indptr", self.indptr, ("int32", "int64"), "int64")
        require_array("indices", self.indices, ("int32", "int64"), "int32 or int64")
        check_length("indptr", self.indptr, rows + 1, "row and one more")
        check_indptr("indptr", self.indptr, len(self.indices))
        check_range("indices", self.indices, columns, "columns")
        if self.data is not None:
            require_array("data", self.data, ("b", "i", "u", "f", "c"), "numbers")
            check_length("data", self.data, len(self.indices), "index")

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return len(self.indices)

    @classmethod
    def from_parts(cls, indptr: Int64Array, indices: IntArray, data: Array | None, shape: tuple[int, int]) -> CSRMatrix:
        """A matrix of arrays that are known to be right, without the checks, which read them all."""
        matrix = cls.__new__(cls)
        matrix.__dict__.update(indptr=indptr, indices=indices, data=data, shape=shape)
        return matrix

    @classmethod
    def from_scipy(cls, matrix: Any) -> CSRMatrix:
        """Make one of any SciPy sparse matrix or array.

        Examples
        --------
        >>> import scipy.sparse
        >>> CSRMatrix.from_scipy(scipy.sparse.eye_array(3)).nnz
        3
        """
        if not hasattr(matrix, "tocsr"):
            given = f"a {type(matrix).__name__}"
            raise DTypeError(argument="matrix", given=given, expected="a SciPy sparse matrix or array")
        csr = matrix.tocsr()
        return cls(csr.indptr.astype(np.int64), csr.indices, csr.data, csr.shape)

    def to_scipy(self) -> csr_array:
        """As `scipy.sparse.csr_array`, sharing the arrays; values 1.0 (float32) where there are none."""
        from scipy.sparse import csr_array

        data = np.ones(self.nnz, np.float32) if self.data is None else self.data
        return csr_array((data, self.indices, self.indptr), shape=self.shape)

    def __matmul__(self, other: CSRMatrix) -> CSRMatrix:
        """The product by `spsample.sparse.spgemm`."""
        return spgemm(self, other)


def _checked_shape(shape: Any) -> tuple[int, int]:
    """The shape as two integers, or an error."""
    if not (isinstance(shape, tuple) and len(shape) == 2 and all(_is_size(size) for size in shape)):
        raise InputError(
            argument="shape", given=reprlib.repr(shape), expected="two integers of at least 0: (rows, columns)"
        )
    return int(shape[0]), int(shape[1])


def _is_size(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 0)


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
