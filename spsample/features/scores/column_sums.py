"""Sums over the columns of A that are equal to the bit on any threads and ranks: in fixed point."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from spsample.backends.protocol import FloatArray, Int64Array, IntArray, Matrix
from spsample.store.base_graph import BaseGraph

__all__ = ["Rows", "column_counts", "column_sums", "column_sums_of_entries", "row_counts"]

PHASE = "scores"

ENTRIES_AT_ONCE = 1 << 24

SUM_BITS = 62
"""The sum of all addends of a column is below 2 to this power."""


class Rows(NamedTuple):
    """Some rows of A: their vertices, and their entries as CSR, `weights` None where each entry weighs 1.

    Where `is_normalized`, an entry of a row of d entries weighs 1 / d.
    """

    vertices: IntArray
    indptr: Int64Array
    columns: IntArray
    weights: FloatArray | None
    is_normalized: bool

    @property
    def degrees(self) -> Int64Array:
        """Entries of each row."""
        return np.diff(self.indptr)


Addends = Callable[[Rows], NDArray[np.float64]]
"""What rows of A add: a number for each of them, or for each of their entries."""


def column_counts(graph: BaseGraph) -> Int64Array:
    """(n,) entries of each column of A: of how many edges a vertex is the source; collective on ranks.

    Examples
    --------
    >>> import spsample as sp
    >>> column_counts(sp.Graph([0, 2, 3], [0, 1, 0])).tolist()
    [2, 1]
    """
    counts = np.zeros(graph.num_nodes, np.int64)
    for rows in _some_rows(graph.block_row()):
        counts += np.bincount(rows.columns, minlength=len(counts))
    return graph.add_block_rows(counts, phase=PHASE)


def row_counts(graph: BaseGraph) -> Int64Array:
    """(n,) entries of each row of A: how many edges a vertex aggregates; collective on ranks.

    Examples
    --------
    >>> import spsample as sp
    >>> row_counts(sp.Graph([0, 2, 3], [0, 1, 0])).tolist()
    [2, 1]
    """
    counts = np.zeros(graph.num_nodes, np.int64)
    for rows in _some_rows(graph.block_row()):
        counts[rows.vertices] = rows.degrees
    return graph.add_block_rows(counts, phase=PHASE)


def column_sums(graph: BaseGraph, addends: Addends, largest: float) -> NDArray[np.float64]:
    """(n,) the sum over each column of A of what its entries add; collective on ranks.

    Addends are rounded up to multiples of a power of two, and summed as integers. That power is such that no sum can
    overflow, which leaves `largest` 62 - ceil(log2 entries) bits. What is positive stays positive.

    Parameters
    ----------
    graph : BaseGraph
    addends : callable
        For some rows of A, what each entry of a row adds: a number of at least 0 for each row.
    largest : float
        No addend is larger; the same number on every rank.

    Examples
    --------
    >>> import spsample as sp
    >>> column_sums(sp.Graph([0, 2, 3], [0, 1, 0]), lambda rows: 1.0 / rows.degrees, 1.0)
    array([1.5, 0.5])
    """
    return _sums(graph, addends, largest, _add_by_row)


def column_sums_of_entries(graph: BaseGraph, addends: Addends, largest: float) -> NDArray[np.float64]:
    """(n,) the sums of `column_sums`, where `addends` gives a number for each entry of the rows.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph([0, 2, 3], [0, 1, 0], [1.0, 2.0, 4.0])
    >>> column_sums_of_entries(graph, lambda rows: rows.weights, 4.0)
    array([5., 2.])
    """
    return _sums(graph, addends, largest, _add_by_entry)


Adding = Callable[[Rows, Int64Array, int], Int64Array]


def _sums(graph: BaseGraph, addends: Addends, largest: float, adding: Adding) -> NDArray[np.float64]:
    sums, bits = np.zeros(graph.num_nodes, np.int64), 0
    block = graph.block_row()
    if largest > 0:
        bits = SUM_BITS - (max(graph.num_edges, 1) - 1).bit_length() - math.frexp(largest)[1]
        for rows in _some_rows(block):
            numbers = np.ceil(np.ldexp(addends(rows), bits)).astype(np.int64)
            sums += adding(rows, numbers, graph.num_nodes)
    return np.ldexp(graph.add_block_rows(sums, phase=PHASE).astype(np.float64), -bits)


def _add_by_row(rows: Rows, numbers: Int64Array, num_columns: int) -> Int64Array:
    """Each entry adds the number of its row to its column."""
    return _transposed(rows, np.ones(len(rows.columns), np.int64), num_columns) @ numbers  # type: ignore[no-any-return]


def _add_by_entry(rows: Rows, numbers: Int64Array, num_columns: int) -> Int64Array:
    """Each entry adds a number of its own to its column."""
    ones = np.ones(len(rows.vertices), np.int64)
    return _transposed(rows, numbers, num_columns) @ ones  # type: ignore[no-any-return]


def _transposed(rows: Rows, data: Int64Array, num_columns: int) -> scipy.sparse.csc_array:
    """The rows as the columns of a matrix, which SciPy adds up in one pass over the entries."""
    return scipy.sparse.csc_array((data, rows.columns, rows.indptr), shape=(num_columns, len(rows.vertices)))


def _some_rows(A: Matrix) -> Iterator[Rows]:
    """The rows, some entries at a time: at most `ENTRIES_AT_ONCE`, or one row."""
    first, num_rows = 0, len(A.indptr) - 1
    while first < num_rows:
        begin = int(A.indptr[first])
        end = max(int(np.searchsorted(A.indptr, begin + ENTRIES_AT_ONCE, side="right")) - 1, first + 1)
        stop = int(A.indptr[end])
        vertices = np.arange(first, end) if A.ids is None else A.ids[first:end]
        weights = None if A.data is None else A.data[begin:stop]
        yield Rows(vertices, A.indptr[first : end + 1] - begin, A.indices[begin:stop], weights, A.row_normalized)
        first = end
