"""Sums of the rows of A D."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends import ColumnScale, Matrix


class RowTotals:
    """The sums of the rows of A D, made once for a graph in memory; 16 bytes a row and form.

    They are kept apart by what D scales and what not: a large factor would hide the latter.

    Examples
    --------
    >>> A = Matrix(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.array([0.5, 1.0, 2.0]))
    >>> totals = RowTotals(A, ColumnScale(np.array([0b10], np.uint64), 4.0))
    >>> totals.of("weighted").tolist(), totals.of("uniform").tolist()
    ([[0.5, 1.0], [0.0, 2.0]], [[1.0, 1.0], [0.0, 1.0]])
    """

    _ENTRIES = 1 << 22

    def __init__(self, A: Matrix, scale: ColumnScale) -> None:
        self.scale = scale
        self._A = A
        self._totals: dict[str, NDArray[np.float64]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the sums."""
        return sum(totals.nbytes for totals in self._totals.values())

    def of(self, form: str) -> NDArray[np.float64]:
        """(n, 2) for each vertex: the sums over its entries outside of the set and in it, both of A, not of A D.

        With the weights of A, or with every entry 1 ("uniform"); added up in the order of A's entries.
        """
        if form not in self._totals:
            sums = self._sums(self._A.data if form == "weighted" else None)
            if self._A.ids is not None:  # rows lie in another order than vertices
                sums[self._A.ids] = sums.copy()
            self._totals[form] = sums
        return self._totals[form]

    def _sums(self, data: NDArray[np.floating[Any]] | None) -> NDArray[np.float64]:
        """(rows, 2) as `of`, in the order of rows."""
        indptr, rows = self._A.indptr, len(self._A.indptr) - 1
        totals = np.zeros((rows, 2))
        first = 0
        while first < rows:
            last = max(int(np.searchsorted(indptr, indptr[first] + self._ENTRIES, side="right")) - 1, first + 1)
            begin, end = indptr[first], indptr[last]
            of_row = np.repeat(np.arange(last - first), np.diff(indptr[first : last + 1]))
            of_row = 2 * of_row + self.scale.has(self._A.indices[begin:end])
            weights = None if data is None else data[begin:end]
            totals[first:last] = np.bincount(of_row, weights, 2 * (last - first)).reshape(-1, 2)
            first = last
        return totals
