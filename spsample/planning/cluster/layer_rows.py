"""`LayerRows`: the rows that a bulk samples in one layer; counts of them by block row, and of draws from them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array, IntArray
from spsample.backends.reference.random import ROUND_DRAWS
from spsample.distributed.placement import equal_bounds
from spsample.distributed.rounds import SPARE_DRAWS, piece_of_draws
from spsample.planning.cluster.grid_shape import BlockRows, FloatArray
from spsample.sampling import BulkSample, Sampler
from spsample.sampling.bulk_layer import BulkLayer
from spsample.store import Graph

SPARSE = 16  # vertices per column from which on columns are sorted instead of marked


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
        """Rows of the first batches only."""
        end = int(np.searchsorted(self.batch, batches))
        return LayerRows(
            batch=self.batch[:end],
            vertices=self.vertices[:end],
            edges=self.edges[:end],
            degrees=self.degrees[:end],
            sources=self.sources[:batches],
            gaps=self.gaps[:batches],
            src=self.src[: self.sources[:batches].sum()],
        )


def layer_rows(graph: Graph, bulk: BulkSample) -> list[LayerRows]:
    """The rows of each layer, nearest the seeds first; in the subgraph layout those that the hop has found.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
    >>> bulk = sp.bulk_sample(graph, [0, 1, 3], sp.GraphSAGE([2, 2]), batch_size=2)
    >>> [rows.vertices.tolist() for rows in layer_rows(graph, bulk)]
    [[0, 1, 3], [0, 1, 2, 3, 3, 0]]
    """
    frontiers, known = [], np.zeros(len(bulk), np.int64)
    for layer in reversed(bulk.layers):
        frontiers.append(_frontier(graph, layer, known, has_gaps=bulk.sampler.kind == "layer-wise"))
        if bulk.sampler.layout == "subgraph":
            known = layer.dst_ranges.size
    return frontiers


def _frontier(graph: Graph, layer: BulkLayer, known: Int64Array, *, has_gaps: bool) -> LayerRows:
    sizes = layer.dst_ranges.size - known
    batch = np.repeat(np.arange(len(sizes)), sizes)
    row = _places(known, sizes)
    vertices = layer.dst[layer.dst_ranges.begin[batch] + row].astype(np.int64)
    first = layer.indptr_ranges.begin[batch] + row
    edges = layer.indptr[first + 1] - layer.indptr[first]
    degrees = graph.indptr[vertices + 1] - graph.indptr[vertices]
    gaps = _largest_gaps(layer) if has_gaps else np.zeros(len(sizes), np.int64)
    src = layer.src[_places(layer.src_ranges.begin, layer.src_ranges.size)]
    return LayerRows(batch, vertices, edges, degrees, layer.src_ranges.size, gaps, src)


def _places(begins: Int64Array, sizes: Int64Array) -> Int64Array:
    """Return all places of ranges of these begins and sizes, one range after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes - begins, sizes)


def _largest_gaps(layer: BulkLayer) -> Int64Array:
    batches = range(len(layer.src_ranges.size))
    src = (np.sort(layer.src[layer.src_ranges[i]]).astype(np.int64) for i in batches)
    return np.array([np.diff(vertices, prepend=0).max(initial=0) for vertices in src], np.int64)


def count_by_owner(
    groups: Int64Array, owners: Int64Array, shape: tuple[int, int], weights: NDArray[Any] | None = None
) -> FloatArray:
    """Count, or sum weights, by group and owner; owner -1 is left out.

    Examples
    --------
    >>> count_by_owner(np.array([0, 1, 1, 1]), np.array([1, 0, 0, -1]), (2, 2)).tolist()
    [[0.0, 1.0], [2.0, 0.0]]
    """
    kept = owners >= 0
    weights = None if weights is None else weights[kept]
    counted = np.bincount(groups[kept] * shape[1] + owners[kept], weights, shape[0] * shape[1])
    return counted.astype(np.float64).reshape(shape)


def longest_by_owner(groups: Int64Array, owners: Int64Array, shape: tuple[int, int], values: Int64Array) -> FloatArray:
    """The largest value by group and owner; owner -1 is left out.

    Examples
    --------
    >>> longest_by_owner(np.array([0, 1, 1]), np.array([1, 0, 0]), (2, 2), np.array([5, 3, 7])).tolist()
    [[0.0, 5.0], [7.0, 0.0]]
    """
    kept = owners >= 0
    largest = np.zeros(shape)
    np.maximum.at(largest, (groups[kept], owners[kept]), values[kept])
    return largest


def longest_rows(graph: Graph, blocks: BlockRows) -> FloatArray:
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
    graph: Graph, frontier: LayerRows, parts: Int64Array, shape: tuple[int, int]
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
    filled, first = np.unique(cells[order], return_index=True)
    for cell, rows in zip(filled.tolist(), np.split(kept[order], first[1:]), strict=True):
        times = _times(columns_of(graph, frontier, rows), graph.num_nodes)
        counted.flat[cell], most.flat[cell] = np.count_nonzero(times), times.max(initial=0)
    return counted, most


def _times(columns: Int64Array, num_nodes: int) -> Int64Array:
    """Return how often each column appears, some of them 0 times."""
    if num_nodes > SPARSE * len(columns):
        return np.unique(columns, return_counts=True)[1]
    return np.bincount(columns)


def columns_of(graph: Graph, frontier: LayerRows, rows: Int64Array) -> Int64Array:
    """Columns of the entries of some rows."""
    columns: Int64Array = graph.indices[_places(graph.indptr[frontier.vertices[rows]], frontier.degrees[rows])]
    return columns


def expected_draws(
    graph: Graph, frontier: LayerRows, sampler: Sampler, s: int, spare: float = SPARE_DRAWS
) -> FloatArray:
    """(k,): draws that each batch sends to the rows' owners under the entry law.

    All entries where there are no more than s; s with replacement; else pieces of draws (`piece_of_draws`, with
    `spare`), at most `ROUND_DRAWS` s of them, until the expected number of distinct columns is s.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:10,8").graph
    >>> from spsample.planning.cluster.layer_rows import layer_rows
    >>> sampler = sp.LADIES([8, 200])
    >>> rows = layer_rows(graph, sp.bulk_sample(graph, range(64), sampler, batch_size=32))
    >>> [expected_draws(graph, frontier, sampler, s).tolist() for frontier, s in zip(rows, sampler.sizes)]
    [[25.0, 25.0], [482.0, 482.0]]
    """
    if sampler.replace:
        return np.minimum(np.bincount(frontier.batch, frontier.degrees, len(frontier.sources)), float(s))
    cuts = np.searchsorted(frontier.batch, np.arange(len(frontier.sources) + 1))
    return np.array(
        [_draws_of_batch(graph, frontier, np.arange(*cut), sampler, (s, spare)) for cut in pairwise(cuts)], np.float64
    )


def _draws_of_batch(
    graph: Graph, frontier: LayerRows, rows: Int64Array, sampler: Sampler, size: tuple[int, float]
) -> float:
    columns, degrees = columns_of(graph, frontier, rows), frontier.degrees[rows]
    weights = entry_weights(graph.weighting, sampler.power, degrees)
    each = None if graph.weighting == "unweighted" else np.repeat(weights, degrees)
    return _draws_of(columns, each, graph.num_nodes, *size)


def entry_weights(weighting: str, power: int, degrees: Int64Array) -> FloatArray:
    """Weights by which entries of rows of `degrees` entries are drawn: their values, to a power; equal in a row.

    Examples
    --------
    >>> entry_weights("row", 2, np.array([1, 2])).tolist(), entry_weights("unweighted", 2, np.array([1, 2])).tolist()
    ([1.0, 0.25], [1.0, 1.0])
    """
    if weighting == "unweighted":
        return np.ones(len(degrees))
    weights: FloatArray = 1.0 / np.maximum(degrees, 1).astype(np.float64) ** power
    return weights


def graph_draws(graph: Graph, sampler: Sampler, s: int, num_ranges: int, spare: float = SPARE_DRAWS) -> FloatArray:
    """(p/c,): draws of a batch by the range of columns that they go to, where all batches draw columns by their norms.

    At most 2^20 evenly spaced entries stand for all; weights are taken for those of a row-normalised graph.
    """
    places = np.arange(0, graph.num_edges, max(graph.num_edges >> 20, 1))
    if len(places) == 0:
        return np.zeros(num_ranges)
    columns, rows = graph.indices[places], np.searchsorted(graph.indptr, places, side="right") - 1
    weights = entry_weights(graph.weighting, sampler.power, graph.indptr[rows + 1] - graph.indptr[rows])
    drawn = min(s, len(columns)) if sampler.replace else _draws_of(columns, weights, graph.num_nodes, s, spare)
    ranges = np.searchsorted(equal_bounds(graph.num_nodes, num_ranges), columns, side="right") - 1
    shares: FloatArray = np.bincount(ranges, weights, num_ranges) / weights.sum()
    return drawn * shares


def _draws_of(columns: Int64Array, weights: FloatArray | None, num_nodes: int, s: int, spare: float) -> float:
    if len(columns) <= s:
        return len(columns)
    shares = _sums_by_column(columns, weights, num_nodes)
    shares /= shares.sum()
    piece = piece_of_draws(s, spare)
    for count in np.arange(piece, ROUND_DRAWS * s, piece).tolist():
        if float(-np.expm1(count * np.log1p(-np.minimum(shares, 1 - 1e-12))).sum()) >= s:
            return float(count)
    return float(ROUND_DRAWS * s)


def _sums_by_column(columns: Int64Array, weights: FloatArray | None, num_nodes: int) -> FloatArray:
    """Sums of weights, or how often each column that is there appears."""
    if num_nodes > SPARSE * len(columns):
        columns = np.unique(columns, return_inverse=True)[1]
    counted = np.bincount(columns, weights).astype(np.float64)
    return counted[counted > 0]
