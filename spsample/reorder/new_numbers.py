"""Rows of A once its vertices have new numbers: entries are numbered anew, and sorted again within each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray


class Renumbering:
    """Change windows of rows: sources get new numbers and ascend, parallel edges keep their order.

    Parameters
    ----------
    number : int array (n,)
        The new number of each vertex, of the type of the sources.
    pointers : int64 array (rows + 1,)
        Row pointers of the result.
    first_ids : int64 array (rows,) or None
        The edge id of the first entry of each row of the result, where edge ids are not stored but count entries; None
        where they are, or where none are wanted.

    Examples
    --------
    >>> change = Renumbering(np.array([2, 0, 1]), np.array([0, 2, 3]), np.array([1, 0]))
    >>> made = change(0, 2, {"indices": np.array([0, 2, 1])})
    >>> made["indices"].tolist(), made["edge_ids"].tolist()
    ([1, 2, 0], [2, 1, 0])
    """

    def __init__(
        self, number: NDArray[Any], pointers: NDArray[np.int64], first_ids: NDArray[np.int64] | None = None
    ) -> None:
        self._number = number
        self._pointers = pointers
        self._first_ids = first_ids

    def __call__(self, first: int, end: int, window: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the arrays of entries of rows `first` to `end - 1`, as they are written."""
        pointers = self._pointers[first : end + 1] - self._pointers[first]
        columns = self._number[window["indices"]]
        if self._first_ids is not None:
            rows = np.repeat(self._first_ids[first:end] - pointers[:-1], np.diff(pointers))
            window = {**window, "edge_ids": rows + np.arange(len(columns))}
        order = _sorting(pointers, columns, len(self._number))
        return {name: (columns if name == "indices" else array)[order] for name, array in window.items()}


def _sorting(pointers: NDArray[np.int64], columns: NDArray[Any], num_columns: int) -> NDArray[np.int64]:
    """Return the entries sorted by column within each row, equal ones in their order.

    Row, column and place in the row are sorted as one integer where it holds them, else by two counting sorts.
    """
    lengths, rows = np.diff(pointers), len(pointers) - 1
    bits = [int(number).bit_length() for number in (rows, num_columns, lengths.max(initial=0))]
    if sum(bits) > _KEY_BITS:
        matrix = scipy.sparse.csr_array((np.arange(len(columns)), columns, pointers), shape=(rows, num_columns))
        order: NDArray[np.int64] = matrix.tocsc().tocsr().data
        return order
    first = np.repeat(pointers[:-1], lengths)
    keys = np.repeat(np.arange(rows) << (bits[1] + bits[2]), lengths)
    keys |= columns.astype(np.int64) << bits[2]
    keys |= np.arange(len(columns)) - first
    keys.sort()
    keys &= (1 << bits[2]) - 1
    keys += first  # rows have not changed places
    return keys


_KEY_BITS = 63
