"""Sums over the columns of A that are equal to the bit on any threads and ranks, and the scores that are such sums."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
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

_PART_ROWS = 1 << 14

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


def column_counts(graph: BaseGraph) -> Int64Array:
    """(n,) entries of each column of A: of how many edges a vertex is the source; collective on ranks.

    Examples
    --------
    >>> import spsample as sp
    >>> column_counts(sp.Graph([0, 2, 3], [0, 1, 0])).tolist()
    [2, 1]
    """
    counts = np.zeros(graph.num_nodes, np.int64)
    for rows in _some_rows(graph.block_row(), _rows_at_once()):
        _add_by_row(rows, np.ones(len(rows.indptr) - 1), 1.0, counts)
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
    return _sums(graph, partial(_by_parts, addends), largest, _rows_at_once(), _add_by_row)


def column_sums_of_entries(graph: BaseGraph, addends: Addends, largest: float) -> NDArray[np.float64]:
    """(n,) the sums of `column_sums`, where `addends` gives a number for each entry of the rows.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph([0, 2, 3], [0, 1, 0], [1.0, 2.0, 4.0])
    >>> column_sums_of_entries(graph, lambda rows: rows.weights, 4.0)
    array([5., 2.])
    """
    return _sums(graph, addends, largest, ENTRIES_AT_ONCE, _add_by_entry)


def _by_parts(addends: Addends, rows: CsrRows) -> NDArray[np.float64]:
    """A number for each row, some rows after the other: what is computed on the way stays in a cache."""
    count = len(rows.indptr) - 1
    numbers = np.empty(count)
    for first in range(0, count, _PART_ROWS):
        stop = min(first + _PART_ROWS, count)
        numbers[first:stop] = addends(_part(rows, first, stop))
    return numbers


def _part(rows: CsrRows, first: int, stop: int) -> CsrRows:
    """Rows `first` to `stop` of some."""
    at, indptr = rows.vertices, rows.indptr[first : stop + 1]
    begin, end = int(indptr[0]), int(indptr[-1])
    vertices = slice(at.start + first, at.start + stop) if isinstance(at, slice) else at[first:stop]
    weights = None if rows.weights is None else rows.weights[begin:end]
    return CsrRows(vertices, indptr - begin, rows.columns[begin:end], weights, rows.is_normalized)


def _rows_at_once() -> int:
    """Entries of rows that add a number each: the compiled core needs nothing that is as long as they are."""
    return ENTRIES_AT_ONCE if compiled_core() is None else sys.maxsize


def _sums(graph: BaseGraph, addends: Addends, largest: float, entries_at_once: int, add: _Add) -> NDArray[np.float64]:
    sums, bits, beyond = np.zeros(graph.num_nodes, np.int64), 0, 0
    block = graph.block_row()
    if largest > 0:
        bits = SUM_BITS - (max(graph.num_edges, 1) - 1).bit_length() - math.frexp(largest)[1]
        beyond = max(bits - _MAX_SCALE, 0)  # tiny numbers are scaled up first
        for rows in _some_rows(block, entries_at_once):
            numbers = addends(rows)
            add(rows, np.ldexp(numbers, beyond) if beyond else numbers, math.ldexp(1.0, bits - beyond), sums)
    total = graph.add_block_rows(sums, phase=PHASE).astype(np.float64)
    total *= math.ldexp(1.0, beyond - bits)
    return np.ldexp(total, -beyond) if beyond else total


_Add = Callable[[CsrRows, NDArray[np.float64], float, Int64Array], None]
"""Adds numbers, times a scale and rounded up, to the sums of the columns of some rows."""

_MAX_SCALE = 1000
"""The power of two that is still a float64."""


def _add_by_row(rows: CsrRows, numbers: NDArray[np.float64], scale: float, sums: Int64Array) -> None:
    """Each entry adds the number of its row to its column."""
    core = compiled_core()
    if core is not None:
        arguments = rows.indptr, rows.columns, numbers, scale, sums
        if not (_may_pay_as_symmetric(rows, numbers, sums) and core.add_symmetric_rows(*arguments)):
            core.add_rows(*arguments)
        return
    sums += _transposed(rows, np.ones(len(rows.columns), np.int64), len(sums)) @ _rounded_up(numbers, scale)


def _may_pay_as_symmetric(rows: CsrRows, numbers: NDArray[np.float64], sums: Int64Array) -> bool:
    """True where these are all rows of A, sums do not fit in a cache, and not too few rows add anything.

    Where A is symmetric its rows are its columns: the core then reads numbers rather than to write sums. It finds out.
    """
    is_whole = isinstance(rows.vertices, slice) and len(numbers) == len(sums) >= FAR_SUMS
    if not is_whole or rows.columns.dtype != np.int32:
        return False
    return int(np.count_nonzero(numbers)) * _ROWS_PER_ADDING_ROW >= len(numbers)


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


def _some_rows(A: Matrix, entries_at_once: int) -> Iterator[CsrRows]:
    """The rows, a part at a time: of at most `entries_at_once`, or one row."""
    first, num_rows = 0, len(A.indptr) - 1
    while first < num_rows:
        begin = int(A.indptr[first])
        end = max(int(np.searchsorted(A.indptr, begin + entries_at_once, side="right")) - 1, first + 1)
        stop = int(A.indptr[end])
        vertices = slice(first, end) if A.ids is None else A.ids[first:end]
        weights = None if A.data is None else A.data[begin:stop]
        indptr = A.indptr[first : end + 1]
        yield CsrRows(vertices, indptr - begin if begin else indptr, A.indices[begin:stop], weights, A.row_normalized)
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
    return column_counts(graph).astype(np.float64)


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
    for _ in range(iterations):
        scores = (1.0 - damping) / n + damping * _passed_on(graph, scores)
    return scores


def _passed_on(graph: BaseGraph, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) what each vertex gets from its targets, of which each spreads its score evenly over its sources."""

    def shares(rows: CsrRows) -> NDArray[np.float64]:
        return scores[rows.vertices] / np.maximum(rows.degrees, 1)

    return column_sums(graph, shares, float(scores.max()))


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
