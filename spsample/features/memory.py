"""Features in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from spsample.errors import DTypeError, InputError
from spsample.store.validation import as_array, validate_seeds

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["FeatureStore"]


class FeatureStore:
    """Feature rows of a two-dimensional array or SciPy CSR matrix in memory.

    Parameters
    ----------
    x
        Shape ``(vertices, features)``, any real dtype: NumPy array, memory map, torch CPU tensor or SciPy
        sparse matrix. Kept as given (a sparse matrix as CSR); rows become float32 when they are gathered.

    Raises
    ------
    InputError
        If ``x`` does not have two dimensions.
    DTypeError
        If its dtype is not real.

    Examples
    --------
    >>> store = FeatureStore(np.array([[1, 2], [3, 4], [5, 6]]))
    >>> store.gather([2, 0])
    array([[5., 6.],
           [1., 2.]], dtype=float32)
    """

    def __init__(self, x: Any) -> None:
        self._x: Any = x.tocsr() if sparse.issparse(x) else as_array("x", x)
        if self._x.ndim != 2:
            raise InputError(
                argument="x", given=f"shape {self._x.shape}", expected="two dimensions: (vertices, features)"
            )
        if self._x.dtype.kind not in "fiub":
            raise DTypeError(argument="x", given=f"dtype {self._x.dtype}", expected="a real dtype")

    @property
    def num_rows(self) -> int:
        """Number of vertices."""
        return int(self._x.shape[0])

    @property
    def dim(self) -> int:
        """Number of features per vertex."""
        return int(self._x.shape[1])

    def gather(self, ids: ArrayLike) -> NDArray[np.float32]:
        """Return the features of the vertices ``ids``, repeats allowed.

        Parameters
        ----------
        ids
            Vertex ids, integers, one dimension.

        Returns
        -------
        ndarray
            float32, C order, shape ``(len(ids), dim)``; a new array.

        Raises
        ------
        InputError, DTypeError
            If ``ids`` are no integers in one dimension, or out of range.
        """
        rows = self._x[validate_seeds(ids, self.num_rows, argument="ids")]
        dense = rows.toarray() if sparse.issparse(rows) else rows
        return np.ascontiguousarray(dense, dtype=np.float32)

    def __repr__(self) -> str:
        kind = "sparse" if sparse.issparse(self._x) else "dense"
        return f"FeatureStore({self.num_rows:,} x {self.dim:,}, {kind}, {self._x.dtype})"
