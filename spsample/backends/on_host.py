"""Parts shared by the backends whose arrays are NumPy's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from spsample.backends.protocol import Int64Array, StackedRows

_NOTHING: AbstractContextManager[None] = nullcontext()


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
        return _NOTHING

    def to_device(self, array: Any) -> Any:
        """The array itself."""
        return array

    def on_host(self, array: Any) -> Any:
        """The array itself."""
        return array

    def copied(self, array: Any) -> Any:
        """A copy of the array."""
        return array.copy()


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


def pointers_of(lengths: Sequence[int] | Int64Array) -> Int64Array:
    """Positions where stacked parts of these lengths begin, and the end of the last.

    Examples
    --------
    >>> pointers_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    pointers = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, dtype=np.int64, out=pointers[1:])
    return pointers
