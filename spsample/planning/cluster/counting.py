"""Rows of pilot bulks by block, and what each rank needs of each block row."""

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
from spsample.planning.cluster.exchanges import BlockRows, FloatArray, GridShape, grouped
from spsample.sampling import BulkSample, Sampler
from spsample.sampling.bulk_layer import BulkLayer
from spsample.store import Graph


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
        columns = (self.batch, self.vertices, self.edges, self.degrees)
        batch, vertices, edges, degrees = (column[:end] for column in columns)
        sources = self.sources[:batches]
        return LayerRows(batch, vertices, edges, degrees, sources, self.gaps[:batches], self.src[: sources.sum()])


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
    gaps = np.zeros(len(sizes), np.int64)
    for i in range(len(sizes) if has_gaps else 0):
        gaps[i] = np.diff(np.sort(layer.src[layer.src_ranges[i]]), prepend=0).max(initial=0)
    src = layer.src[_places(layer.src_ranges.begin, layer.src_ranges.size)]
    return LayerRows(batch, vertices, edges, degrees, layer.src_ranges.size, gaps, src)


def _places(begins: Int64Array, sizes: Int64Array) -> Int64Array:
    """Return all places of ranges of these begins and sizes, one range after the other."""
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes - begins, sizes)


def count_by_owner(
    groups: Int64Array,
    owners: Int64Array,
    shape: tuple[int, int],
    values: NDArray[Any] | float = 1.0,
    op: np.ufunc = np.add,
) -> FloatArray:
    """Count, sum values, or reduce them otherwise, by group and owner; owner -1 is left out.

    Examples
    --------
    >>> count_by_owner(np.array([0, 1, 1, 1]), np.array([1, 0, 0, -1]), (2, 2)).tolist()
    [[0.0, 1.0], [2.0, 0.0]]
    >>> count_by_owner(np.array([0, 1, 1]), np.array([1, 0, 0]), (2, 2), np.array([5, 3, 7]), np.maximum).tolist()
    [[0.0, 5.0], [7.0, 0.0]]
    """
    kept, counted = owners >= 0, np.zeros(shape)
    cells = groups[kept] * shape[1] + owners[kept]
    op.at(counted.reshape(-1), cells, values[kept].astype(np.float64) if isinstance(values, np.ndarray) else values)
    return counted


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
        times = np.unique(columns_of(graph, frontier, rows), return_counts=True)[1]
        counted.flat[cell], most.flat[cell] = len(times), times.max(initial=0)
    return counted, most


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
    >>> from spsample.planning.cluster.counting import layer_rows
    >>> sampler = sp.LADIES([8, 200])
    >>> rows = layer_rows(graph, sp.bulk_sample(graph, range(64), sampler, batch_size=32))
    >>> [expected_draws(graph, frontier, sampler, s).tolist() for frontier, s in zip(rows, sampler.sizes)]
    [[25.0, 25.0], [482.0, 482.0]]
    """
    if sampler.replace:
        return np.minimum(np.bincount(frontier.batch, frontier.degrees, len(frontier.sources)), float(s))
    cuts = np.searchsorted(frontier.batch, np.arange(len(frontier.sources) + 1))
    drawn = []
    for rows in (np.arange(*cut) for cut in pairwise(cuts)):
        degrees = frontier.degrees[rows]
        weights = np.repeat(entry_weights(graph.weighting, sampler.power, degrees), degrees)
        drawn.append(_draws_of(columns_of(graph, frontier, rows), weights, s, spare))
    return np.array(drawn, np.float64)


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
    drawn = min(s, len(columns)) if sampler.replace else _draws_of(columns, weights, s, spare)
    ranges = np.searchsorted(equal_bounds(graph.num_nodes, num_ranges), columns, side="right") - 1
    shares: FloatArray = np.bincount(ranges, weights, num_ranges) / weights.sum()
    return drawn * shares


def _draws_of(columns: Int64Array, weights: FloatArray, s: int, spare: float) -> float:
    if len(columns) <= s:
        return len(columns)
    shares = np.bincount(np.unique(columns, return_inverse=True)[1].reshape(-1), weights)
    shares = shares[shares > 0] / shares.sum()
    piece = piece_of_draws(s, spare)
    for count in np.arange(piece, ROUND_DRAWS * s, piece).tolist():
        if float(-np.expm1(count * np.log1p(-np.minimum(shares, 1 - 1e-12))).sum()) >= s:
            return float(count)
    return float(ROUND_DRAWS * s)


@dataclass(frozen=True, eq=False)
class HopCounts:
    """Needs of ranks, by block row, for one layer.

    Arrays of shape (p, p/c) hold, for each rank and each block row, what the rank's batches need of that block row, its
    own included. Hub rows that every rank holds are left out throughout.

    Attributes
    ----------
    pairs : array (p, p/c)
        Rows of the stacked frontiers: (batch, vertex) pairs.
    edges : array (p, p/c)
        Sampled edges of those rows.
    rows : array (p, p/c)
        Distinct vertices among the pairs of a rank.
    row_entries : array (p, p/c)
        Entries of A in those rows, each counted once a rank.
    positions : array (p, p/c)
        Draws, where they are sent to the owners of what is drawn (layer-wise samplers).
    sums : array (p, p/c)
        Entries of Q A as each block row's owner sums them: distinct columns per batch and block row (column law).
    most_summed : array (p, p/c)
        The most entries that are summed in one column of a batch (column law).
    sources_by_range : array (p, p/c)
        Src vertices by range of n / (p/c) columns: the range's owner is asked for their numerators (FastGCN).
    longest, longest_edges : array (p, p/c)
        The most entries, and the most sampled edges, of one of the rows: integers travel in as many bytes as it takes.
    sources, gaps : array (p,)
        Src vertices of a rank's batches, and the largest distance between two of one batch.
    most_sources : int
        Src vertices of the largest batch.
    group_rows, group_entries : array (p/c, p/c)
        As `rows` and `row_entries`, for the union of the batches of each row group.
    stage_entries : array (p,)
        Entries of P that rank (i, j) has after its stages: those of row group i's batches, of the block rows of column
        j's stages. Only under the column law are a batch's rows summed.
    stage_most_summed : array (p,)
        The most entries that are summed in one of them.
    stage_rows : array (p,)
        Rows of the stacked frontiers of the row group in these block rows.
    stage_edges : array (p,)
        Edges sampled from these rows.
    """

    pairs: FloatArray
    edges: FloatArray
    rows: FloatArray
    row_entries: FloatArray
    positions: FloatArray
    sums: FloatArray
    most_summed: FloatArray
    sources_by_range: FloatArray
    longest: FloatArray
    longest_edges: FloatArray
    sources: FloatArray
    gaps: FloatArray
    most_sources: int
    group_rows: FloatArray
    group_entries: FloatArray
    stage_entries: FloatArray
    stage_most_summed: FloatArray
    stage_rows: FloatArray
    stage_edges: FloatArray


@dataclass(frozen=True, eq=False)
class RankCounts:
    """Needs of ranks, by block row, for all layers of a bulk, nearest the seeds first, and for its features.

    Attributes
    ----------
    shape : GridShape
    batches : array (p,)
        Batches of each rank.
    hops : tuple of HopCounts
    inputs : array (p, p/c)
        Src vertices of layer 1 of each rank's batches, by the block of features they lie in.
    block_rows, block_entries, block_longest : array (p/c,)
        Rows and entries of each block row of A, and entries of its longest row.
    """

    shape: GridShape
    batches: Int64Array
    hops: tuple[HopCounts, ...]
    inputs: FloatArray
    block_rows: FloatArray
    block_entries: FloatArray
    block_longest: FloatArray


BatchCounts = dict[str, Any]
"""By the name in `HopCounts`: what each of k batches needs of which block row (k, p/c), or in which column's stages.

Positions, sums and stage entries, which take longer to count, may be those of the first batches only.
"""

_MAXIMA = ("most_summed", "longest", "longest_edges", "gaps", "stage_most_summed")
"""Counts of which a rank has the largest of its batches; of all others it has the sum."""


@dataclass(frozen=True, eq=False)
class LayerCounting:
    """Counts one layer of a bulk, batch by batch.

    Attributes
    ----------
    graph : Graph
        The whole A.
    sampler : Sampler
        What the bulk was sampled with.
    frontier : LayerRows
        The rows of the layer.
    size : int
        s.
    shape, blocks : GridShape, BlockRows
        The grid.
    merged_batches : int or None
        Of how many batches what needs the columns of entries is counted, which takes longer; None: of all.
    spare : float
        As of `piece_of_draws`.
    """

    graph: Graph
    sampler: Sampler
    frontier: LayerRows
    size: int
    shape: GridShape
    blocks: BlockRows
    merged_batches: int | None = None
    spare: float = SPARE_DRAWS

    def counts(self, *, with_stages: bool) -> BatchCounts:
        """Counts of each batch. Those of stages are 0 unless asked for, and so are those that the law has none of."""
        rows, owners = self.frontier, self.blocks.owners(self.frontier.vertices)
        columns = np.where(owners >= 0, self.shape.stage_columns[owners], -1)
        by_block = len(rows.sources), self.blocks.num_blocks
        by_column = len(rows.sources), self.shape.replication
        return dict(
            pairs=count_by_owner(rows.batch, owners, by_block),
            edges=count_by_owner(rows.batch, owners, by_block, rows.edges),
            longest=count_by_owner(rows.batch, owners, by_block, rows.degrees, np.maximum),
            longest_edges=count_by_owner(rows.batch, owners, by_block, rows.edges, np.maximum),
            sources=rows.sources.astype(np.float64),
            gaps=rows.gaps.astype(np.float64),
            stage_rows=count_by_owner(rows.batch, columns, by_column),
            stage_edges=count_by_owner(rows.batch, columns, by_column, rows.edges),
            **self._of_law(owners, columns, with_stages),
        )

    def _of_law(self, owners: Int64Array, columns: Int64Array, with_stages: bool) -> BatchCounts:
        """Draws, sums, numerators and entries of P, as far as the law has any."""
        graph, sampler, rows = self.graph, self.sampler, self.frontier
        law = sampler.draw_law(graph.weighting)
        few = rows if law == "row" or self.merged_batches is None else rows.first(self.merged_batches)
        owned, staged = owners[: len(few.batch)], columns[: len(few.batch)]
        by_block = len(few.sources), self.blocks.num_blocks
        by_column = len(rows.sources), self.shape.replication
        counts = dict.fromkeys(("positions", "sums", "most_summed", "sources_by_range"), np.zeros(by_block))
        counts |= dict.fromkeys(("stage_entries", "stage_most_summed"), np.zeros(by_column))
        if law == "graph":
            drawn = graph_draws(graph, sampler, self.size, by_block[1], self.spare)
            counts["positions"] = np.tile(drawn, (by_block[0], 1))
            counts["sources_by_range"] = count_sources(rows, graph.num_nodes, self.shape)
        elif law == "entry":  # draws go where the frontier's entries are
            likely = entry_weights(graph.weighting, sampler.power, few.degrees) * few.degrees
            entries = np.bincount(few.batch, likely, by_block[0])
            each = expected_draws(graph, few, sampler, self.size, self.spare) / np.where(entries > 0, entries, 1.0)
            counts["positions"] = count_by_owner(few.batch, owned, by_block, likely) * each[:, None]
        elif law == "column":
            counts["sums"], counts["most_summed"] = merged_columns(graph, few, owned, by_block)
        if with_stages and law == "column":
            of_stages = merged_columns(graph, few, staged, (by_block[0], by_column[1]))
            counts["stage_entries"], counts["stage_most_summed"] = of_stages
        elif with_stages and law != "graph":
            counts["stage_entries"] = count_by_owner(rows.batch, columns, by_column, rows.degrees)
            counts["stage_most_summed"] = np.ones(by_column)
        return counts


def hop_counts(
    to_ranks: Any, counts: BatchCounts, frontier: LayerRows, blocks: BlockRows, shape: GridShape, most_sources: int
) -> HopCounts:
    """Counts of one layer, by rank.

    `to_ranks` makes numbers of ranks of numbers of batches: `by_rank`, `most_by_rank`, and `distinct_rows`, which gives
    distinct rows and their entries by rank, or by row group, and block row.
    """

    def of_ranks(name: str) -> FloatArray:
        of_batches = to_ranks.most_by_rank if name in _MAXIMA else to_ranks.by_rank
        by_rank: FloatArray = of_batches(counts[name])
        if not name.startswith("stage_"):
            return by_rank
        # what rank (i, j) has of row group i's batches, from what each rank's batches have in column j's stages
        return grouped(shape, by_rank, np.maximum if name in _MAXIMA else np.add).reshape(shape.ranks)

    rows, row_entries = to_ranks.distinct_rows(frontier, blocks, grouped=False)
    group_rows, group_entries = to_ranks.distinct_rows(frontier, blocks, grouped=True)
    return HopCounts(
        **{name: of_ranks(name) for name in counts},
        rows=rows,
        row_entries=row_entries,
        most_sources=most_sources,
        group_rows=group_rows,
        group_entries=group_entries,
    )


def count_sources(frontier: LayerRows, num_nodes: int, shape: GridShape) -> FloatArray:
    """(k, p/c): src vertices of each batch, by the range of vertices, n / (p/c) of them, that they lie in."""
    ranges = BlockRows(equal_bounds(num_nodes, shape.num_blocks))
    batch = np.repeat(np.arange(len(frontier.sources)), frontier.sources)
    cells = len(frontier.sources), ranges.num_blocks
    return count_by_owner(batch, ranges.owners(frontier.src.astype(np.int64)), cells)
