"""Ranks of A's entries among those in the set of columns that D scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from spsample.backends import Backend, ColumnScale, Matrix


class EntryRanks:
    """By them a backend draws from A D without a pass over each row, where every entry of A is 1: a byte for 4 entries.

    To make it takes a pass over A. So it is made once as many rows were drawn from as A has, and kept.

    Examples
    --------
    >>> from spsample.backends import get_backend
    >>> A = Matrix(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32))
    >>> ranks = EntryRanks(A, ColumnScale(np.array([0b10], np.uint64), 4.0), get_backend("reference"))
    >>> ranks.after(1) is None, ranks.after(1)[[0, 16, 17]].tolist(), ranks.nbytes
    (True, [6, 0, 2], 128)
    """

    _MOST = 2**31  # entries of a row: ranks are mod 2^32

    def __init__(self, A: Matrix, scale: ColumnScale, backend: Backend) -> None:
        self.scale = scale
        self._A, self._backend = A, backend
        self._rows_to_come = len(A.indptr) - 1
        if len(A.indices) >= self._MOST and np.diff(A.indptr).max() >= self._MOST:
            self._rows_to_come = len(A.indices) * 2**62
        self._ranks: Any = None

    def after(self, rows: int) -> Any:
        """Uint32 array for the backend, or None as long as it is not worth its time; now `rows` more are drawn from."""
        if self._ranks is None:
            self._rows_to_come -= rows
            if self._rows_to_come <= 0:
                self._ranks = self._backend.entry_ranks(self._A, self.scale)
        return self._ranks

    @property
    def nbytes(self) -> int:
        """Bytes of them, made or not."""
        return 8 * (len(self._A.indices) // 32 + 16)
