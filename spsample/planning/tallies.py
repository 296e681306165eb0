"""`LayerRows`: the rows that a bulk samples in one layer; tallies of them by rank and block row."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array, IntArray
from spsample.distributed.hubs import ROW_BYTES as HUB_BYTES
from spsample.planning.shape import FloatArray
from spsample.sampling import BulkSample, LayerwiseSampler
from spsample.sampling.bulk_layer import BulkLayer
from spsample.sampling.graphsage import makes_subgraphs

SPARSE = 16  # so many vertices for each column: then columns are sorted, else marked
SPARE_DRAWS = 16.0


@dataclass(frozen=True, eq=False)
class LayerRows:
    """Stacked rows of one layer of all batches.

    Attributes
    ----------
    batch, vertices, edges, degrees : int64 array (m,)
        Position of the batch in the bulk, vertex, sampled edges and entries in A of each row.
    sources : int64 array (k,)
        Src vertices of each batch.
    gaps : int64 array (k,)
        The largest distance between two of them, ascending, and from 0 (layer-wise samplers; else 0).
    src : int array
        The src vertices, batch after batch.
    """

    batch: Int64Array
    vertices: Int64Array
    edges: Int64Array
    degrees: Int64Array
    sources: Int64Array
    gaps: Int64Array
    src: IntArray

    def first(self, batches: int) -> LayerRows:
        """The same of the first batches only."""
        end = int(np.searchsorted(self.batch, batches))
        batch, vertices, edges, degrees = (one[:end] for one in (self.batch, self.vertices, self.edges, self.degrees))
        return LayerRows(
            batch,
            vertices,
            edges,
            degrees,
            self.sources[:batches],
            self.gaps[:batches],
            self.src[: self.sources[:batches].sum()],
        )


def layer_rows(graph: Any, bulk: BulkSample) -> list[LayerRows]:
    """The rows of each layer, nearest the seeds first; in the subgraph layout those that the hop has found.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
    >>> bulk = sp.bulk_sample(graph, [0, 1, 3], sp.GraphSAGE([2, 2]), batch_size=2)
    >>> [one.vertices.tolist() for one in layer_rows(graph, bulk)]
    [[0, 1, 3], [0, 1, 2, 3, 3, 0]]
    """
    found, known = [], np.zeros(len(bulk), np.int64)
    for layer in reversed(bulk.layers):
        found.append(_frontier(graph, layer, known, has_gaps=isinstance(bulk.sampler, LayerwiseSampler)))
        if makes_subgraphs(bulk.sampler):
            known = layer.dst_ranges.size
    return found


def _frontier(graph: Any, layer: BulkLayer, known: Int64Array, *, has_gaps: bool) -> LayerRows:
    sizes = layer.dst_ranges.size - known
    batch = np.repeat(np.arange(len(sizes)), sizes)
    row = np.arange(len(batch)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + known[batch]
    vertices = layer.dst[layer.dst_ranges.begin[batch] + row].astype(np.int64)
    first = layer.indptr_ranges.begin[batch] + row
    edges = layer.indptr[first + 1] - layer.indptr[first]
    degrees = graph.indptr[vertices + 1] - graph.indptr[vertices]
    gaps = _largest_gaps(layer) if has_gaps else np.zeros(len(sizes), np.int64)
    return LayerRows(batch, vertices, edges, degrees, layer.src_ranges.size, gaps, _src(layer))


def _src(layer: BulkLayer) -> IntArray:
    sizes = layer.src_ranges.size
    at = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes - layer.src_ranges.begin, sizes)
    src: IntArray = layer.src[at]
    return src


def _largest_gaps(layer: BulkLayer) -> Int64Array:
    batches = range(len(layer.src_ranges.size))
    src = (np.sort(layer.src[layer.src_ranges[i]]).astype(np.int64) for i in batches)
    return np.array([np.diff(one, prepend=0).max(initial=0) for one in src], np.int64)


class BlockRows:
    """Contiguous block rows of A, and hub rows, which every rank holds.

    Parameters
    ----------
    starts : int64 array (p/c + 1,)
        Block row i has the rows from starts[i] to starts[i + 1].
    hubs : int64 array, optional
        Vertices, ascending.

    Examples
    --------
    >>> BlockRows(np.array([0, 2, 5]), hubs=np.array([3])).owners(np.array([1, 2, 3])).tolist()
    [0, 1, -1]
    """

    def __init__(self, starts: Int64Array, hubs: Int64Array | None = None) -> None:
        self.starts = np.asarray(starts, np.int64)
        self.hubs = np.zeros(0, np.int64) if hubs is None else np.asarray(hubs, np.int64)
        self.count = len(self.starts) - 1

    def owners(self, vertices: Int64Array) -> Int64Array:
        """Block row of each vertex; -1 for hubs."""
        owners = np.searchsorted(self.starts, vertices, side="right") - 1
        if len(self.hubs):
            at = np.minimum(np.searchsorted(self.hubs, vertices), len(self.hubs) - 1)
            owners[self.hubs[at] == vertices] = -1
        return owners


def equal_starts(num_nodes: int, num_blocks: int) -> Int64Array:
    """Where blocks begin that have about the same number of vertices, as features are split.

    Examples
    --------
    >>> equal_starts(10, 4).tolist()
    [0, 2, 5, 7, 10]
    """
    return np.arange(num_blocks + 1) * num_nodes // num_blocks


def hub_rows(graph: Any, budget: int, entry_bytes: int) -> Int64Array:
    """The vertices that are sources of the most edges and whose rows fit in so many bytes, ascending.

    Those with equally many are all taken or none, as a partitioned graph replicates them.
    """
    if budget == 0:
        return np.zeros(0, np.int64)
    times = np.bincount(graph.indices, minlength=graph.num_nodes)
    order = np.argsort(-times, kind="stable")
    costs = np.cumsum(np.diff(graph.indptr)[order] * entry_bytes + HUB_BYTES)
    fitting = int(np.searchsorted(costs, budget, side="right"))
    least = times[order[fitting]] + 1 if fitting < len(order) else 1
    hubs: Int64Array = np.flatnonzero(times >= max(least, 1))
    return hubs


def tally(
    groups: Int64Array, owners: Int64Array, shape: tuple[int, int], weights: NDArray[Any] | None = None
) -> FloatArray:
    """Count, or sum weights, by group and owner; owner -1 is left out.

    Examples
    --------
    >>> tally(np.array([0, 1, 1, 1]), np.array([1, 0, 0, -1]), (2, 2)).tolist()
    [[0.0, 1.0], [2.0, 0.0]]
    """
    kept = owners >= 0
    weights = None if weights is None else weights[kept]
    counted = np.bincount(groups[kept] * shape[1] + owners[kept], weights, shape[0] * shape[1])
    return counted.astype(np.float64).reshape(shape)


def longest(groups: Int64Array, owners: Int64Array, shape: tuple[int, int], values: Int64Array) -> FloatArray:
    """The largest value by group and owner; owner -1 is left out.

    Examples
    --------
    >>> longest(np.array([0, 1, 1]), np.array([1, 0, 0]), (2, 2), np.array([5, 3, 7])).tolist()
    [[0.0, 5.0], [7.0, 0.0]]
    """
    kept = owners >= 0
    largest = np.zeros(shape)
    np.maximum.at(largest, (groups[kept], owners[kept]), values[kept])
    return largest


def longest_rows(graph: Any, blocks: BlockRows) -> FloatArray:
    """(p/c,): entries of the longest row of each block row."""
    cuts = pairwise(blocks.starts.tolist())
    return np.array([np.diff(graph.indptr[begin : end + 1]).max(initial=0) for begin, end in cuts], np.float64)


def distinct(groups: Int64Array, frontier: LayerRows) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Distinct vertices of each group of rows: group, vertex, entries in A."""
    order = np.lexsort((frontier.vertices, groups))
    group, vertex = groups[order], frontier.vertices[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (group[1:] != group[:-1]) | (vertex[1:] != vertex[:-1])
    return group[first], vertex[first], frontier.degrees[order][first]


def merged_columns(
    graph: Any, frontier: LayerRows, parts: Int64Array, shape: tuple[int, int]
) -> tuple[FloatArray, FloatArray]:
    """(k, parts): distinct columns of each batch's rows in each part of them, and the most entries in one column.

    Part -1 is left out.
    """
    counted, most = np.zeros(shape), np.zeros(shape)
    kept = np.flatnonzero(parts >= 0)
    if len(kept) == 0:
        return counted, most
    cells = frontier.batch[kept] * shape[1] + parts[kept]
    order = np.argsort(cells, kind="stable")
    found, first = np.unique(cells[order], return_index=True)
    for cell, rows in zip(found.tolist(), np.split(kept[order], first[1:]), strict=True):
        times = _times(_columns(graph, frontier, rows), graph.num_nodes)
        counted.flat[cell], most.flat[cell] = np.count_nonzero(times), times.max(initial=0)
    return counted, most


def _times(columns: Int64Array, num_nodes: int) -> Int64Array:
    """How often each column is there, some of them 0 times."""
    if num_nodes > SPARSE * len(columns):
        return np.unique(columns, return_counts=True)[1]
    return np.bincount(columns)


def _columns(graph: Any, frontier: LayerRows, rows: Int64Array) -> Int64Array:
    """Columns of the entries of some rows."""
    sizes = frontier.degrees[rows]
    places = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    columns: Int64Array = graph.indices[places + np.repeat(graph.indptr[frontier.vertices[rows]], sizes)]
    return columns


def expected_draws(graph: Any, frontier: LayerRows, s: int, *, replace: bool, spare: float = SPARE_DRAWS) -> FloatArray:
    """(k,): draws that each batch sends to the rows' owners under the entry law.

    All entries where there are no more than s; s with replacement; else pieces of s + s / 8 + `spare` draws, at most
    4 s, until the expected number of distinct columns is s.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:10,8").graph
    >>> bulk = sp.bulk_sample(graph, range(64), sp.LADIES([8, 200]), batch_size=32)
    >>> [expected_draws(graph, one, s, replace=False).tolist() for one, s in zip(layer_rows(graph, bulk), (8, 200))]
    [[25.0, 25.0], [482.0, 482.0]]
    """
    if replace:
        return np.minimum(np.bincount(frontier.batch, frontier.degrees, len(frontier.sources)), float(s))
    cuts = np.searchsorted(frontier.batch, np.arange(len(frontier.sources) + 1))
    return np.array([_draws_of_batch(graph, frontier, np.arange(*cut), s, spare) for cut in pairwise(cuts)], np.float64)


def _draws_of_batch(graph: Any, frontier: LayerRows, rows: Int64Array, s: int, spare: float) -> float:
    columns, degrees = _columns(graph, frontier, rows), frontier.degrees[rows]
    weights = None if graph.weighting == "unweighted" else np.repeat(squared_weights(graph, degrees), degrees)
    return _draws_of(columns, weights, graph.num_nodes, s, spare)


def squared_weights(graph: Any, degrees: Int64Array) -> FloatArray:
    """Of an entry of rows of so many entries: what the entry law draws in proportion to."""
    if graph.weighting == "unweighted":
        return np.ones(len(degrees))
    return 1.0 / np.maximum(degrees, 1).astype(np.float64) ** 2


def graph_draws(graph: Any, s: int, num_ranges: int, *, replace: bool, spare: float = SPARE_DRAWS) -> FloatArray:
    """(p/c,): draws of a batch by the range of columns that they go to, where all batches draw columns by their norms.

    At most 2^20 evenly spaced entries tell the distribution; weights are taken for those of a row-normalised graph.
    """
    places = np.arange(0, graph.num_edges, max(graph.num_edges >> 20, 1))
    if len(places) == 0:
        return np.zeros(num_ranges)
    columns, rows = graph.indices[places], np.searchsorted(graph.indptr, places, side="right") - 1
    weights = squared_weights(graph, graph.indptr[rows + 1] - graph.indptr[rows])
    drawn = min(s, len(columns)) if replace else _draws_of(columns, weights, graph.num_nodes, s, spare)
    ranges = np.searchsorted(equal_starts(graph.num_nodes, num_ranges), columns, side="right") - 1
    shares: FloatArray = np.bincount(ranges, weights, num_ranges) / weights.sum()
    return drawn * shares


def _draws_of(columns: Int64Array, weights: FloatArray | None, num_nodes: int, s: int, spare: float) -> float:
    if len(columns) <= s:
        return len(columns)
    shares = _sums_by_column(columns, weights, num_nodes)
    shares /= shares.sum()
    piece = piece_of_draws(s, spare)
    for count in np.arange(piece, 4 * s, piece).tolist():
        if float(-np.expm1(count * np.log1p(-np.minimum(shares, 1 - 1e-12))).sum()) >= s:
            return float(count)
    return 4.0 * s


def piece_of_draws(s: int, spare: float = SPARE_DRAWS) -> float:
    """Draws that are sent off together, in which most often s are distinct."""
    return s + s // 8 + spare


def _sums_by_column(columns: Int64Array, weights: FloatArray | None, num_nodes: int) -> FloatArray:
    """Sums of weights, or how often each column that is there appears."""
    if num_nodes > SPARSE * len(columns):
        columns = np.unique(columns, return_inverse=True)[1]
    counted = np.bincount(columns, weights).astype(np.float64)
    return counted[counted > 0]


__all__ = [
    "SPARE_DRAWS",
    "BlockRows",
    "LayerRows",
    "distinct",
    "equal_starts",
    "expected_draws",
    "graph_draws",
    "hub_rows",
    "layer_rows",
    "longest",
    "longest_rows",
    "merged_columns",
    "piece_of_draws",
    "squared_weights",
    "tally",
]
