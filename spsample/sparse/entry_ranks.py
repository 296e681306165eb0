"""Ranks of A's entries among those in the set of columns that D scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from spsample.backends import Backend, ColumnScale, Matrix
from spsample.common.memory import available_memory

_MOST = 2**31
"""Entries of a row, of which ranks are mod 2^32."""


class EntryRanks:
    """By them a backend draws from A D without a pass over each row, where every entry of A is 1: a byte for 4 entries.

    To make it takes a pass over A. So it is made once as many rows were drawn from as A has, and kept. It is never made
    where it takes more than an eighth of the memory that is available, or has no room for the rank of an entry.

    Examples
    --------
    >>> from spsample.backends import get_backend
    >>> A = Matrix(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32))
    >>> ranks = EntryRanks(A, ColumnScale(np.array([0b10], np.uint64), 4.0), get_backend("reference"))
    >>> ranks.after(1) is None, ranks.after(1)[[0, 16, 17]].tolist(), ranks.nbytes
    (True, [6, 0, 2], 128)
    """

    def __init__(self, A: Matrix, scale: ColumnScale, backend: Backend) -> None:
        self.scale = scale
        self._A, self._backend = A, backend
        self._rows_to_come = len(A.indptr) - 1
        self._size = 8 * (len(A.indices) // 32 + 16)
        self._ranks: Any = None
        has_room = len(A.indices) < _MOST or np.diff(A.indptr).max() < _MOST
        self._is_wanted = has_room and self._size <= available_memory() // 8

    def after(self, rows: int) -> Any:
        """Uint32 array for the backend, or None as long as it is not worth its time; now `rows` more are drawn from."""
        if self._ranks is None and self._is_wanted:
            self._rows_to_come -= rows
            if self._rows_to_come <= 0:
                self._ranks = self._backend.entry_ranks(self._A, self.scale)
                self._is_wanted = self._ranks is not None
        return self._ranks

    @property
    def nbytes(self) -> int:
        """Bytes of them, those that are still to be made too."""
        return self._size if self._is_wanted else 0
