"""Sums of the rows of A D."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends import ColumnScale, Matrix

__all__ = ["RowTotals"]


class RowTotals:
    """The sums of the rows of A D, made once for a graph in memory; 8 bytes a row and form, 8 a column.

    Examples
    --------
    >>> A = Matrix(np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.array([0.5, 1.0, 2.0]))
    >>> totals = RowTotals(A, ColumnScale(np.array([0b10], np.uint64), 4.0))
    >>> totals.of("weighted").tolist(), totals.of("uniform").tolist()
    ([4.5, 8.0], [5.0, 4.0])
    """

    _ENTRIES = 1 << 22

    def __init__(self, A: Matrix, scale: ColumnScale) -> None:
        self.scale = scale
        self._A = A
        self._factors = scale.factors(len(A.indptr) - 1 if A.num_columns is None else A.num_columns)
        self._totals: dict[str, NDArray[np.float64]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the sums and of the factors."""
        return self._factors.nbytes + sum(totals.nbytes for totals in self._totals.values())

    def of(self, form: str) -> NDArray[np.float64]:
        """(rows,) with the weights of A, or with every entry 1 ("uniform"); added up in the order of A's entries.

        By vertex, where rows are in another order.
        """
        if form not in self._totals:
            totals = self._sums(self._A.data if form == "weighted" else None)
            if self._A.ids is not None:
                totals[self._A.ids] = totals.copy()
            self._totals[form] = totals
        return self._totals[form]

    def _sums(self, data: NDArray[np.floating[Any]] | None) -> NDArray[np.float64]:
        indptr, rows = self._A.indptr, len(self._A.indptr) - 1
        totals = np.zeros(rows)
        first = 0
        while first < rows:
            last = max(int(np.searchsorted(indptr, indptr[first] + self._ENTRIES, side="right")) - 1, first + 1)
            begin, end = indptr[first], indptr[last]
            weights = self._factors[self._A.indices[begin:end]]
            if data is not None:
                weights = weights * data[begin:end]
            of_row = np.repeat(np.arange(last - first), np.diff(indptr[first : last + 1]))
            totals[first:last] = np.bincount(of_row, weights, last - first)
            first = last
        return totals
