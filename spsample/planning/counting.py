"""Counts of a bulk, exactly, and what its batches have in common with those that are predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.distributed.placement import balanced
from spsample.planning.block_rows import BlockRows, equal_starts
from spsample.planning.draws import SPARE_DRAWS, entry_weights, expected_draws, graph_draws
from spsample.planning.grid_shape import FloatArray, GridShape
from spsample.planning.layer_rows import (
    LayerRows,
    count_by_owner,
    distinct,
    layer_rows,
    longest_by_owner,
    longest_rows,
    merged_columns,
)
from spsample.planning.rank_counts import HopCounts, RankCounts
from spsample.sampling import BulkSample, Sampler
from spsample.sampling.sampler import DrawLaw


@dataclass(frozen=True, eq=False)
class BatchCounts:
    """What each of k batches needs of which block row (k, p/c), and has in which column's stages (k, c).

    Positions, sums and partials, which take longer to count, may be those of the first batches only.
    """

    pairs: FloatArray
    edges: FloatArray
    positions: FloatArray
    sums: FloatArray
    most: FloatArray
    src: FloatArray
    longest: FloatArray
    longest_edges: FloatArray
    sources: FloatArray
    gaps: FloatArray
    partials: FloatArray
    partial_most: FloatArray
    partial_rows: FloatArray
    partial_edges: FloatArray


def count_batches(
    graph: Any,
    frontier: LayerRows,
    sampler: Sampler,
    s: int,
    blocks: BlockRows,
    shape: GridShape,
    *,
    staged: bool,
    merged_batches: int | None = None,
    spare: float = SPARE_DRAWS,
) -> BatchCounts:
    """Tallies of one layer.

    Those of stages are 0 unless `staged`, those of draws and sums where the law has none. What needs the columns of
    entries is counted of the first `merged_batches` only. `spare` is as of `piece_of_draws`.
    """
    k, law = len(frontier.sources), sampler.draw_law(graph.weighting)
    batch, owners = frontier.batch, blocks.owners(frontier.vertices)
    columns = np.where(owners >= 0, shape.stage_columns[owners], -1)
    by_block, by_column = (k, blocks.count), (k, shape.replication)
    few = frontier if law == "row" or merged_batches is None else frontier.first(merged_batches)
    sums, most = _sums(graph, few, law, owners[: len(few.batch)], blocks.count)
    partials = partial_most = np.zeros(by_column)
    if staged:
        partials, partial_most = _partials(graph, frontier, few, law, columns, shape.replication)
    return BatchCounts(
        pairs=count_by_owner(batch, owners, by_block),
        edges=count_by_owner(batch, owners, by_block, frontier.edges),
        positions=_positions(graph, few, sampler, (s, spare), owners[: len(few.batch)], blocks.count),
        sums=sums,
        most=most,
        src=count_sources(frontier, graph.num_nodes, shape) if law == "graph" else np.zeros(by_block),
        longest=longest_by_owner(batch, owners, by_block, frontier.degrees),
        longest_edges=longest_by_owner(batch, owners, by_block, frontier.edges),
        sources=frontier.sources.astype(np.float64),
        gaps=frontier.gaps.astype(np.float64),
        partials=partials,
        partial_most=partial_most,
        partial_rows=count_by_owner(batch, columns, by_column),
        partial_edges=count_by_owner(batch, columns, by_column, frontier.edges),
    )


def _positions(
    graph: Any,
    frontier: LayerRows,
    sampler: Sampler,
    size: tuple[int, float],
    owners: Int64Array,
    num_blocks: int,
) -> FloatArray:
    """Entry law: draws go where the frontier's entries are. FastGCN's go to ranges of columns."""
    (s, spare), law = size, sampler.draw_law(graph.weighting)
    by_block = len(frontier.sources), num_blocks
    if law == "graph":
        drawn = graph_draws(graph, sampler, s, num_blocks, spare)
        return np.tile(drawn, (by_block[0], 1))
    if law != "entry":
        return np.zeros(by_block)
    likely = entry_weights(graph.weighting, sampler.power, frontier.degrees) * frontier.degrees
    entries = np.bincount(frontier.batch, likely, by_block[0])
    drawn = expected_draws(graph, frontier, sampler, s, spare)
    here = count_by_owner(frontier.batch, owners, by_block, likely)
    return here * (drawn / np.where(entries > 0, entries, 1.0))[:, None]


def _sums(
    graph: Any, frontier: LayerRows, law: DrawLaw, owners: Int64Array, num_blocks: int
) -> tuple[FloatArray, FloatArray]:
    by_block = (len(frontier.sources), num_blocks)
    if law != "column":
        return np.zeros(by_block), np.zeros(by_block)
    return merged_columns(graph, frontier, owners, by_block)


def _partials(
    graph: Any, frontier: LayerRows, few: LayerRows, law: DrawLaw, columns: Int64Array, num_columns: int
) -> tuple[FloatArray, FloatArray]:
    """Entries of P, and the most that were added up: of the column law those of a few batches."""
    by_column = (len(frontier.sources), num_columns)
    if law == "column":
        return merged_columns(graph, few, columns[: len(few.batch)], (len(few.sources), num_columns))
    if law == "graph":
        return np.zeros(by_column), np.zeros(by_column)
    return count_by_owner(frontier.batch, columns, by_column, frontier.degrees), np.ones(by_column)


class Folding(Protocol):
    """How numbers of batches become numbers of ranks."""

    def by_rank(self, per_batch: FloatArray) -> FloatArray:
        """(p, ...): from (k, ...)."""
        ...

    def most_by_rank(self, per_batch: FloatArray) -> FloatArray:
        """(p, ...): the largest number of a rank's batches, from (k, ...)."""
        ...

    def distinct_rows(self, frontier: LayerRows, blocks: BlockRows, *, grouped: bool) -> tuple[FloatArray, FloatArray]:
        """Distinct rows and their entries by rank, or by row group, and block row."""
        ...


def hop_counts(
    folding: Folding, tallies: BatchCounts, frontier: LayerRows, blocks: BlockRows, shape: GridShape, most_sources: int
) -> HopCounts:
    """Counts of one layer, by rank."""
    rows, row_entries = folding.distinct_rows(frontier, blocks, grouped=False)
    group_rows, group_entries = folding.distinct_rows(frontier, blocks, grouped=True)
    return HopCounts(
        pairs=folding.by_rank(tallies.pairs),
        edges=folding.by_rank(tallies.edges),
        rows=rows,
        row_entries=row_entries,
        positions=folding.by_rank(tallies.positions),
        sums=folding.by_rank(tallies.sums),
        most=folding.most_by_rank(tallies.most),
        src=folding.by_rank(tallies.src),
        longest=folding.most_by_rank(tallies.longest),
        longest_edges=folding.most_by_rank(tallies.longest_edges),
        sources=folding.by_rank(tallies.sources),
        gaps=folding.most_by_rank(tallies.gaps),
        most_sources=most_sources,
        group_rows=group_rows,
        group_entries=group_entries,
        partials=_of_stages(shape, folding.by_rank(tallies.partials)),
        partial_most=_most_of_stages(shape, folding.most_by_rank(tallies.partial_most)),
        partial_rows=_of_stages(shape, folding.by_rank(tallies.partial_rows)),
        partial_edges=_of_stages(shape, folding.by_rank(tallies.partial_edges)),
    )


def _of_stages(shape: GridShape, by_rank: FloatArray) -> FloatArray:
    """(p,): what rank (i, j) has of row group i's batches, from what each rank's batches have in column j's stages."""
    c = shape.replication
    sums: FloatArray = by_rank.reshape(shape.num_blocks, c, c).sum(axis=1).reshape(shape.ranks)
    return sums


def _most_of_stages(shape: GridShape, by_rank: FloatArray) -> FloatArray:
    """(p,): the same of the largest."""
    c = shape.replication
    largest: FloatArray = by_rank.reshape(shape.num_blocks, c, c).max(axis=1).reshape(shape.ranks)
    return largest


class _Counted:
    """The batches of a bulk go to ranks by their position."""

    def __init__(self, shape: GridShape) -> None:
        self._shape = shape

    def by_rank(self, per_batch: FloatArray) -> FloatArray:
        p = self._shape.ranks
        return np.stack([per_batch[rank::p].sum(axis=0) for rank in range(p)])

    def most_by_rank(self, per_batch: FloatArray) -> FloatArray:
        p = self._shape.ranks
        return np.stack([per_batch[rank::p].max(axis=0, initial=0.0) for rank in range(p)])

    def distinct_rows(self, frontier: LayerRows, blocks: BlockRows, *, grouped: bool) -> tuple[FloatArray, FloatArray]:
        groups = frontier.batch % self._shape.ranks // (self._shape.replication if grouped else 1)
        size = self._shape.num_blocks if grouped else self._shape.ranks
        group, vertices, degrees = distinct(groups, frontier)
        owners, cells = blocks.owners(vertices), (size, blocks.count)
        return count_by_owner(group, owners, cells), count_by_owner(group, owners, cells, degrees)


def count_bulk(
    graph: Any, bulk: BulkSample, shape: GridShape, blocks: BlockRows | None = None, *, staged: bool = True
) -> RankCounts:
    """Counts of a given bulk on a grid, exact but for the draws of layer-wise samplers, which a bulk does not tell.

    Parameters
    ----------
    graph : Graph
        The whole A.
    bulk : BulkSample
        All its batches, in one process: the rank of a batch is its position modulo p.
    shape : GridShape
    blocks : BlockRows, optional
        Block rows of A; by default those with about the same number of entries.
    staged : bool
        Also count what only the algorithms in stages need.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:10,8").graph
    >>> bulk = sp.bulk_sample(graph, range(256), sp.GraphSAGE([5, 5]), batch_size=32)
    >>> counts = count_bulk(graph, bulk, GridShape(4, 2))
    >>> counts.hops[0].pairs.sum().item(), counts.hops[0].pairs.shape
    (256.0, (4, 2))
    """
    blocks = BlockRows(balanced(graph.indptr, shape.num_blocks).bounds) if blocks is None else blocks
    folding, hops, layers = _Counted(shape), [], layer_rows(graph, bulk)
    for frontier, s in zip(layers, bulk.sampler.sizes, strict=True):
        tallies = count_batches(graph, frontier, bulk.sampler, s, blocks, shape, staged=staged)
        hops.append(hop_counts(folding, tallies, frontier, blocks, shape, int(frontier.sources.max(initial=0))))
    return RankCounts(
        shape=shape,
        batches=shape.batches(len(bulk)),
        hops=tuple(hops),
        inputs=folding.by_rank(count_sources(layers[-1], graph.num_nodes, shape)),
        block_rows=np.diff(blocks.starts).astype(np.float64),
        block_entries=np.diff(graph.indptr[blocks.starts]).astype(np.float64),
        block_longest=longest_rows(graph, blocks),
    )


def count_sources(frontier: LayerRows, num_nodes: int, shape: GridShape) -> FloatArray:
    """(k, p/c): src vertices of each batch, by the range of vertices, n / (p/c) of them, that they lie in."""
    ranges = BlockRows(equal_starts(num_nodes, shape.num_blocks))
    batch = np.repeat(np.arange(len(frontier.sources)), frontier.sources)
    return count_by_owner(batch, ranges.owners(frontier.src.astype(np.int64)), (len(frontier.sources), ranges.count))


__all__ = ["BatchCounts", "Folding", "count_batches", "count_bulk", "count_sources", "hop_counts"]
