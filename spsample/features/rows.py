"""Rows of a dense array or a sparse matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from spsample.common.arrays import as_array
from spsample.errors import DTypeError, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["as_rows", "dense_rows"]


def as_rows(x: Any) -> Any:
    """Features as an array of two dimensions or a SciPy CSR matrix; nothing is copied that need not be.

    Raises
    ------
    InputError
        If ``x`` does not have two dimensions.
    DTypeError
        If its dtype is not real.
    """
    rows: Any = x.tocsr() if sparse.issparse(x) else as_array("x", x)
    if rows.ndim != 2:
        raise InputError(argument="x", given=f"shape {rows.shape}", expected="two dimensions: (vertices, features)")
    if rows.dtype.kind not in "fiub":
        raise DTypeError(argument="x", given=f"dtype {rows.dtype}", expected="a real dtype")
    return rows


def dense_rows(x: Any, places: NDArray[Any]) -> NDArray[Any]:
    """Dense rows of x at places that are in range, in x's dtype.

    `numpy.take` leaves Python's global lock to others, and is faster than ``x[places]``.

    Examples
    --------
    >>> dense_rows(np.array([[1, 2], [3, 4]]), np.array([1, 1])).tolist()
    [[3, 4], [3, 4]]
    """
    if sparse.issparse(x):
        rows: NDArray[Any] = x[places].toarray()
        return rows
    return np.take(np.asarray(x), places, axis=0, mode="clip")
