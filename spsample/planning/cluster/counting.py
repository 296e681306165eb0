"""Counts of a bulk, exactly, and what its batches have in common with those that are predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.common.lazily import lazily
from spsample.distributed.placement import balanced, equal_bounds
from spsample.distributed.rounds import SPARE_DRAWS
from spsample.planning.cluster.block_rows import BlockRows
from spsample.planning.cluster.draws import entry_weights, expected_draws, graph_draws
from spsample.planning.cluster.grid_shape import FloatArray, GridShape, grouped
from spsample.planning.cluster.layer_rows import (
    LayerRows,
    count_by_owner,
    distinct,
    layer_rows,
    longest_by_owner,
    longest_rows,
    merged_columns,
)
from spsample.planning.cluster.rank_counts import HopCounts, RankCounts
from spsample.sampling import BulkSample, Sampler
from spsample.sampling.sampler import DrawLaw
from spsample.store import Graph


@dataclass(frozen=True, eq=False)
class BatchCounts:
    """What each of k batches needs of which block row (k, p/c), and has in which column's stages (k, c).

    The names are those of `HopCounts`. Positions, sums and stage entries, which take longer to count, may be those of
    the first batches only.
    """

    pairs: FloatArray
    edges: FloatArray
    positions: FloatArray
    sums: FloatArray
    most_summed: FloatArray
    sources_by_range: FloatArray
    longest: FloatArray
    longest_edges: FloatArray
    sources: FloatArray
    gaps: FloatArray
    stage_entries: FloatArray
    stage_most_summed: FloatArray
    stage_rows: FloatArray
    stage_edges: FloatArray


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
        frontier, owners, columns = self.frontier, self._owners, self._columns
        by_block, by_column = self._by_block(frontier), self._by_column(frontier)
        sums, most_summed = self._sums()
        stage_entries = stage_most_summed = np.zeros(by_column)
        if with_stages:
            stage_entries, stage_most_summed = self._stage_entries()
        return BatchCounts(
            pairs=count_by_owner(frontier.batch, owners, by_block),
            edges=count_by_owner(frontier.batch, owners, by_block, frontier.edges),
            positions=self._positions(),
            sums=sums,
            most_summed=most_summed,
            sources_by_range=self._sources_by_range(),
            longest=longest_by_owner(frontier.batch, owners, by_block, frontier.degrees),
            longest_edges=longest_by_owner(frontier.batch, owners, by_block, frontier.edges),
            sources=frontier.sources.astype(np.float64),
            gaps=frontier.gaps.astype(np.float64),
            stage_entries=stage_entries,
            stage_most_summed=stage_most_summed,
            stage_rows=count_by_owner(frontier.batch, columns, by_column),
            stage_edges=count_by_owner(frontier.batch, columns, by_column, frontier.edges),
        )

    def _by_block(self, frontier: LayerRows) -> tuple[int, int]:
        return len(frontier.sources), self.blocks.num_blocks

    def _by_column(self, frontier: LayerRows) -> tuple[int, int]:
        return len(frontier.sources), self.shape.replication

    @property
    def _law(self) -> DrawLaw:
        return self.sampler.draw_law(self.graph.weighting)

    @lazily
    def _owners(self) -> Int64Array:
        """Block row of each row of the frontier; -1 for hubs."""
        return self.blocks.owners(self.frontier.vertices)

    @lazily
    def _columns(self) -> Int64Array:
        """The column of the grid in whose stages each row is; -1 for hubs."""
        return np.where(self._owners >= 0, self.shape.stage_columns[self._owners], -1)

    @lazily
    def _merged(self) -> LayerRows:
        """The rows of which the columns of entries are looked at."""
        if self._law == "row" or self.merged_batches is None:
            return self.frontier
        return self.frontier.first(self.merged_batches)

    def _positions(self) -> FloatArray:
        """Entry law: draws go where the frontier's entries are. Those from the whole graph go to ranges of columns."""
        rows, graph = self._merged, self.graph
        by_block = self._by_block(rows)
        if self._law == "graph":
            return np.tile(graph_draws(graph, self.sampler, self.size, by_block[1], self.spare), (by_block[0], 1))
        if self._law != "entry":
            return np.zeros(by_block)
        likely = entry_weights(graph.weighting, self.sampler.power, rows.degrees) * rows.degrees
        entries = np.bincount(rows.batch, likely, by_block[0])
        drawn = expected_draws(graph, rows, self.sampler, self.size, self.spare)
        here = count_by_owner(rows.batch, self._owners[: len(rows.batch)], by_block, likely)
        return here * (drawn / np.where(entries > 0, entries, 1.0))[:, None]

    def _sources_by_range(self) -> FloatArray:
        """Src vertices by the range of columns in which their numerators are (graph law)."""
        if self._law != "graph":
            return np.zeros(self._by_block(self.frontier))
        return count_sources(self.frontier, self.graph.num_nodes, self.shape)

    def _sums(self) -> tuple[FloatArray, FloatArray]:
        """Entries of Q A as each block row's owner sums them, and the most in one column (column law)."""
        rows = self._merged
        by_block = self._by_block(rows)
        if self._law != "column":
            return np.zeros(by_block), np.zeros(by_block)
        return merged_columns(self.graph, rows, self._owners[: len(rows.batch)], by_block)

    def _stage_entries(self) -> tuple[FloatArray, FloatArray]:
        """Entries of P, and the most that were added up: under the column law those of a few batches."""
        rows, by_column = self.frontier, self._by_column(self.frontier)
        if self._law == "column":
            few = self._merged
            return merged_columns(self.graph, few, self._columns[: len(few.batch)], self._by_column(few))
        if self._law == "graph":
            return np.zeros(by_column), np.zeros(by_column)
        return count_by_owner(rows.batch, self._columns, by_column, rows.degrees), np.ones(by_column)


class BatchesToRanks(Protocol):
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
    to_ranks: BatchesToRanks,
    counts: BatchCounts,
    frontier: LayerRows,
    blocks: BlockRows,
    shape: GridShape,
    most_sources: int,
) -> HopCounts:
    """Counts of one layer, by rank."""
    rows, row_entries = to_ranks.distinct_rows(frontier, blocks, grouped=False)
    group_rows, group_entries = to_ranks.distinct_rows(frontier, blocks, grouped=True)
    return HopCounts(
        pairs=to_ranks.by_rank(counts.pairs),
        edges=to_ranks.by_rank(counts.edges),
        rows=rows,
        row_entries=row_entries,
        positions=to_ranks.by_rank(counts.positions),
        sums=to_ranks.by_rank(counts.sums),
        most_summed=to_ranks.most_by_rank(counts.most_summed),
        sources_by_range=to_ranks.by_rank(counts.sources_by_range),
        longest=to_ranks.most_by_rank(counts.longest),
        longest_edges=to_ranks.most_by_rank(counts.longest_edges),
        sources=to_ranks.by_rank(counts.sources),
        gaps=to_ranks.most_by_rank(counts.gaps),
        most_sources=most_sources,
        group_rows=group_rows,
        group_entries=group_entries,
        stage_entries=_of_stages(shape, to_ranks.by_rank(counts.stage_entries)),
        stage_most_summed=_of_stages(shape, to_ranks.most_by_rank(counts.stage_most_summed), np.maximum),
        stage_rows=_of_stages(shape, to_ranks.by_rank(counts.stage_rows)),
        stage_edges=_of_stages(shape, to_ranks.by_rank(counts.stage_edges)),
    )


def _of_stages(shape: GridShape, by_rank: FloatArray, op: np.ufunc = np.add) -> FloatArray:
    """(p,): what rank (i, j) has of row group i's batches, from what each rank's batches have in column j's stages."""
    return grouped(shape, by_rank, op).reshape(shape.ranks)


class _CountedRanks:
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
        owners, cells = blocks.owners(vertices), (size, blocks.num_blocks)
        return count_by_owner(group, owners, cells), count_by_owner(group, owners, cells, degrees)


def count_bulk(
    graph: Graph, bulk: BulkSample, shape: GridShape, blocks: BlockRows | None = None, *, with_stages: bool = True
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
    with_stages : bool
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
    to_ranks, hops, layers = _CountedRanks(shape), [], layer_rows(graph, bulk)
    for frontier, s in zip(layers, bulk.sampler.sizes, strict=True):
        counts = LayerCounting(graph, bulk.sampler, frontier, s, shape, blocks).counts(with_stages=with_stages)
        hops.append(hop_counts(to_ranks, counts, frontier, blocks, shape, int(frontier.sources.max(initial=0))))
    return RankCounts(
        shape=shape,
        batches=shape.batches(len(bulk)),
        hops=tuple(hops),
        inputs=to_ranks.by_rank(count_sources(layers[-1], graph.num_nodes, shape)),
        block_rows=np.diff(blocks.starts).astype(np.float64),
        block_entries=np.diff(graph.indptr[blocks.starts]).astype(np.float64),
        block_longest=longest_rows(graph, blocks),
    )


def count_sources(frontier: LayerRows, num_nodes: int, shape: GridShape) -> FloatArray:
    """(k, p/c): src vertices of each batch, by the range of vertices, n / (p/c) of them, that they lie in."""
    ranges = BlockRows(equal_bounds(num_nodes, shape.num_blocks))
    batch = np.repeat(np.arange(len(frontier.sources)), frontier.sources)
    return count_by_owner(
        batch, ranges.owners(frontier.src.astype(np.int64)), (len(frontier.sources), ranges.num_blocks)
    )


__all__ = ["BatchCounts", "BatchesToRanks", "LayerCounting", "count_bulk", "count_sources", "hop_counts"]
