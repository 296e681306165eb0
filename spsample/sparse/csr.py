"""`CSRMatrix`: compressed sparse rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends.protocol import Array, Int64Array, IntArray
from spsample.errors import InputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array


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
    InputError
        If the arrays do not make a matrix of that shape.

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
        rows, columns = self.shape
        _require(len(self.indptr) == rows + 1, "indptr", f"{len(self.indptr)} elements", f"{rows + 1} (rows + 1)")
        _require(
            bool(self.indptr[0] == 0 and self.indptr[-1] == len(self.indices) and (np.diff(self.indptr) >= 0).all()),
            "indptr",
            f"pointers from {self.indptr[0]} to {self.indptr[-1]}",
            f"ascending pointers from 0 to {len(self.indices)} (the number of indices)",
        )
        if len(self.indices):
            low, high = int(self.indices.min()), int(self.indices.max())
            _require(low >= 0 and high < columns, "indices", f"ids from {low} to {high}", f"columns in [0, {columns})")
        if self.data is not None:
            _require(
                len(self.data) == len(self.indices),
                "data",
                f"{len(self.data)} values",
                f"{len(self.indices)}, one per index",
            )

    @property
    def nnz(self) -> int:
        """Number of stored entries."""
        return len(self.indices)

    @classmethod
    def from_scipy(cls, matrix: Any) -> CSRMatrix:
        """The same matrix from any SciPy sparse matrix or array.

        Examples
        --------
        >>> import scipy.sparse
        >>> CSRMatrix.from_scipy(scipy.sparse.eye_array(3)).nnz
        3
        """
        csr = matrix.tocsr()
        return cls(csr.indptr.astype(np.int64), csr.indices, csr.data, csr.shape)

    def to_scipy(self) -> csr_array:
        """As `scipy.sparse.csr_array`, sharing the arrays; values 1.0 (float32) where there are none."""
        from scipy.sparse import csr_array

        data = np.ones(self.nnz, np.float32) if self.data is None else self.data
        return csr_array((data, self.indices, self.indptr), shape=self.shape)

    def __matmul__(self, other: CSRMatrix) -> CSRMatrix:
        """The product by `spsample.sparse.spgemm`."""
        from spsample.sparse.algebra import spgemm

        return spgemm(self, other)


def _require(condition: bool, argument: str, given: str, expected: str) -> None:
    if not condition:
        raise InputError(argument=argument, given=given, expected=expected)
