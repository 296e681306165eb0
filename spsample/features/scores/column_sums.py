"""Sums over the columns of A that are equal to the bit on any threads and ranks, and the scores that are such sums."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from spsample.backends.protocol import FloatArray, Int64Array, IntArray, Matrix
from spsample.common.checks import require_int, require_number
from spsample.common.threads import compiled_core
from spsample.sampling import Sampler
from spsample.sampling.sampler import require_bool
from spsample.sparse import keys
from spsample.store.base_graph import BaseGraph

PHASE = "scores"

ENTRIES_AT_ONCE = 1 << 24

_PART_ENTRIES = 1 << 18

FAR_SUMS = 1 << 18
"""Sums that are more than a processor's second cache holds."""

_ROWS_PER_ADDING_ROW = 4

SUM_BITS = 62
"""The sum of all addends of a column is below 2 to this power."""


class CsrRows(NamedTuple):
    """Some rows of A: their entries as CSR, `weights` None where each entry weighs 1.

    `vertices` picks what belongs to the rows from an array with an element per vertex. Where `is_normalized`, an entry
    of a row of d entries weighs 1 / d.
    """

    vertices: IntArray | slice
    indptr: Int64Array
    columns: IntArray
    weights: FloatArray | None
    is_normalized: bool

    @property
    def degrees(self) -> Int64Array:
        """Entries of each row."""
        return np.diff(self.indptr)


Addends = Callable[[CsrRows], NDArray[np.float64]]
"""A function of rows of A that gives what they add: a number for each of them, or for each of their entries."""


def column_sums(graph: BaseGraph, addends: Addends, largest: float, *, by_entry: bool = False) -> NDArray[np.float64]:
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
    by_entry : bool
        Whether `addends` gives a number for each entry of the rows instead.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph([0, 2, 3], [0, 1, 0], [1.0, 2.0, 4.0])
    >>> column_sums(graph, lambda rows: 1.0 / rows.degrees, 1.0)
    array([1.5, 0.5])
    >>> column_sums(graph, lambda rows: rows.weights, 4.0, by_entry=True)
    array([5., 2.])
    """
    sums, bits, beyond = np.zeros(graph.num_nodes, np.int64), 0, 0
    block = graph.block_row()
    if largest > 0:
        bits = SUM_BITS - (max(graph.num_edges, 1) - 1).bit_length() - math.frexp(largest)[1]
        beyond = max(bits - _MAX_SCALE, 0)  # tiny numbers are scaled up first
        parts, add = (_by_entry, _add_by_entry) if by_entry else (_by_row, _add_by_row)
        for rows, numbers in parts(block, addends):
            add(rows, np.ldexp(numbers, beyond) if beyond else numbers, math.ldexp(1.0, bits - beyond), sums)
    total = graph.add_block_rows(sums, phase=PHASE).astype(np.float64)
    total *= math.ldexp(1.0, beyond - bits)
    return np.ldexp(total, -beyond) if beyond else total


_MAX_SCALE = 1000
"""The power of two that is still a float64."""


def _by_entry(A: Matrix, addends: Addends) -> Iterator[tuple[CsrRows, NDArray[np.float64]]]:
    """Some rows after the other, and a number for each of their entries."""
    for _, rows in _some_rows(A, ENTRIES_AT_ONCE):
        yield rows, addends(rows)


def _by_row(A: Matrix, addends: Addends) -> Iterator[tuple[CsrRows, NDArray[np.float64]]]:
    """As many rows as can be added at a time, and a number for each: the core needs nothing as long as the entries."""
    numbers = np.empty(len(A.indptr) - 1)
    for place, rows in _some_rows(A, _PART_ENTRIES):  # what is computed on the way stays in a cache
        numbers[place] = addends(rows)
    for place, rows in _some_rows(A, ENTRIES_AT_ONCE if compiled_core() is None else sys.maxsize):
        yield rows, numbers[place]


def _add_by_row(rows: CsrRows, numbers: NDArray[np.float64], scale: float, sums: Int64Array) -> None:
    """Each entry adds the number of its row to its column.

    Where these are all rows of A, sums do not fit in a cache, and not too few rows add anything, the core finds out
    whether A is symmetric: its rows are its columns then, and numbers are read rather than sums written.
    """
    core = compiled_core()
    if core is None:
        sums += _transposed(rows, np.ones(len(rows.columns), np.int64), len(sums)) @ _rounded_up(numbers, scale)
        return
    is_whole = isinstance(rows.vertices, slice) and len(numbers) == len(sums) >= FAR_SUMS
    may_pay = is_whole and rows.columns.dtype == np.int32
    may_pay = may_pay and int(np.count_nonzero(numbers)) * _ROWS_PER_ADDING_ROW >= len(numbers)
    arguments = rows.indptr, rows.columns, numbers, scale, sums
    if not (may_pay and core.add_symmetric_rows(*arguments)):
        core.add_rows(*arguments)


def _add_by_entry(rows: CsrRows, numbers: NDArray[np.float64], scale: float, sums: Int64Array) -> None:
    """Each entry adds a number of its own to its column."""
    core = compiled_core()
    if core is not None:
        core.add_entries(rows.columns, numbers, scale, sums)
        return
    sums += _transposed(rows, _rounded_up(numbers, scale), len(sums)) @ np.ones(len(rows.indptr) - 1, np.int64)


def _rounded_up(numbers: NDArray[np.float64], scale: float) -> Int64Array:
    return np.ceil(numbers * scale).astype(np.int64)


def _transposed(rows: CsrRows, data: Int64Array, num_columns: int) -> scipy.sparse.csc_array:
    """The rows as the columns of a matrix, which SciPy adds up in one pass over the entries."""
    return scipy.sparse.csc_array((data, rows.columns, rows.indptr), shape=(num_columns, len(rows.indptr) - 1))


def _some_rows(A: Matrix, entries_at_once: int) -> Iterator[tuple[slice, CsrRows]]:
    """The rows and where they begin and end, a part at a time: of at most `entries_at_once`, or one row."""
    first, num_rows = 0, len(A.indptr) - 1
    while first < num_rows:
        begin = int(A.indptr[first])
        end = max(int(np.searchsorted(A.indptr, begin + entries_at_once, side="right")) - 1, first + 1)
        stop = int(A.indptr[end])
        place = slice(first, end)
        vertices = place if A.ids is None else A.ids[place]
        weights = None if A.data is None else A.data[begin:stop]
        indptr = A.indptr[first : end + 1]
        columns = A.indices[begin:stop]
        yield place, CsrRows(vertices, indptr - begin if begin else indptr, columns, weights, A.row_normalized)
        first = end


def out_degree(graph: BaseGraph, seeds: Int64Array, sampler: Sampler, batch_size: int) -> NDArray[np.float64]:
    """(n,) out-degrees, parallel edges each; seeds and sampler do not matter.

    References
    ----------
    Lin, Li, Miao, Liu, Xu, "PaGraph: scaling GNN training on large graphs via computation-aware caching", SoCC 2020.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 2, 0], [0, 0, 1, 2]], num_nodes=3)
    >>> sp.features.score("out-degree", graph, [0], sp.GraphSAGE([2]), batch_size=1)
    array([1., 1., 2.])
    """
    return column_sums(graph, lambda rows: np.ones(len(rows.degrees)), 1.0)


def reverse_pagerank(
    graph: BaseGraph,
    seeds: Int64Array,
    sampler: Sampler,
    batch_size: int,
    *,
    weighted: bool = True,
    damping: float = 0.85,
    iterations: int = 5,
) -> NDArray[np.float64]:
    """(n,) scores after some iterations of score(u) <- (1 - f) / n + f sum over targets v of u of score(v) / d(v).

    f is the damping, d(v) the number of entries of row v, and v is a target of u once for each entry (v, u). Sampler
    and batch size do not matter.

    Parameters
    ----------
    graph, seeds, sampler, batch_size
        As of `score`.
    weighted : bool
        Scores begin at 1 / n. Weighted, they begin at 1 / |seeds| at the seeds, which is n / |seeds| times that.
    damping : float
        From 0 to 1.
    iterations : int
        A few, so that the weights of the beginning still count.

    References
    ----------
    Min, Wu, Hidayetoglu, Xiong, Song, Hwu, "Graph neural network training and data tiering", KDD 2022.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 2, 0], [0, 0, 1, 2]], num_nodes=3)
    >>> options = {"iterations": 1, "weighted": False}
    >>> sp.features.score("reverse-pagerank", graph, [0], sp.GraphSAGE([2]), batch_size=1, **options).round(4)
    array([0.3333, 0.1917, 0.475 ])
    """
    require_bool("weighted", weighted)
    damping = require_number("damping", damping, lambda x: 0 <= x <= 1, "a number from 0 to 1")
    iterations = require_int("iterations", iterations, minimum=0)
    n = graph.num_nodes
    scores = np.full(n, 1.0 / n)
    if weighted and len(seeds):
        distinct = np.unique(seeds)
        scores[distinct] = 1.0 / len(distinct)

    def shares(rows: CsrRows) -> NDArray[np.float64]:
        return scores[rows.vertices] / np.maximum(rows.degrees, 1)

    for _ in range(iterations):
        scores = (1.0 - damping) / n + damping * column_sums(graph, shares, float(scores.max()))
    return scores


def random_order(
    graph: BaseGraph, seeds: Int64Array, sampler: Sampler, batch_size: int, *, random_seed: int = 0
) -> NDArray[np.float64]:
    """(n,) the numbers 0, 1 / n, ..., (n - 1) / n in an order that depends on `random_seed` only.

    Examples
    --------
    >>> import spsample as sp
    >>> scores = sp.features.score("random", sp.Graph([0] * 5, []), [0], sp.GraphSAGE([2]), batch_size=1, random_seed=7)
    >>> sorted(scores.tolist())
    [0.0, 0.25, 0.5, 0.75]
    """
    n = graph.num_nodes
    scores = np.empty(n)
    scores[keys.shuffle(n, keys.trial_seed(random_seed))] = np.arange(n) / max(n, 1)
    return scores
