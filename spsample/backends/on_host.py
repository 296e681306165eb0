"""What the backends share whose arrays are NumPy's."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from spsample.backends.protocol import FloatArray, Int64Array, Matrix, StackedRows, StackedSelector


class OnHost:
    """Base of backends that compute where NumPy does.

    Examples
    --------
    >>> array = np.arange(3)
    >>> OnHost().to_device(array) is array
    True
    """

    def session(self) -> AbstractContextManager[Any]:
        """Nothing to prepare."""
        return nullcontext()

    def to_device(self, array: Any) -> Any:
        """The array itself."""
        return array

    def on_host(self, array: Any) -> Any:
        """The array itself."""
        return array

    def own_weights(self, A: Matrix, Q: StackedSelector, rows: StackedRows) -> FloatArray:
        """A_iv of drawn entries: weights, or `1/d` in float32."""
        if A.data is not None and rows.positions is not None:
            return A.data[rows.positions]
        degrees = np.diff(A.indptr)[Q.vertices]
        return np.repeat((1.0 / np.maximum(degrees, 1)).astype(np.float32), row_lengths(rows))


def row_lengths(rows: StackedRows) -> Int64Array:
    """(m,) number of entries of each stacked row.

    Examples
    --------
    >>> rows = StackedRows(np.array([0, 2]), np.array([0, 3]), np.array([0, 2, 3]), np.zeros(3, np.int32), None)
    >>> row_lengths(rows).tolist()
    [2, 1]
    """
    lengths = np.diff(rows.indptr)
    ends = rows.batch_ptr[1:-1] + np.arange(1, len(rows.batch_ptr) - 1)
    return np.delete(lengths, ends - 1) if len(ends) else lengths


__all__ = ["OnHost", "row_lengths"]
