"""`RankCounts`: the numbers that decide the traffic of a bulk; how they are counted layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.common.lazily import lazily
from spsample.distributed.placement import equal_bounds
from spsample.distributed.rounds import SPARE_DRAWS
from spsample.planning.cluster.grid_shape import BlockRows, FloatArray, GridShape, grouped
from spsample.planning.cluster.layer_rows import (
    LayerRows,
    count_by_owner,
    entry_weights,
    expected_draws,
    graph_draws,
    longest_by_owner,
    merged_columns,
)
from spsample.sampling import Sampler
from spsample.sampling.sampler import DrawLaw
from spsample.store import Graph


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
        frontier, owners, columns = self.frontier, self._owners, self._columns
        by_block, by_column = self._by_block(frontier), self._by_column(frontier)
        sums, most_summed = self._sums()
        stage_entries = stage_most_summed = np.zeros(by_column)
        if with_stages:
            stage_entries, stage_most_summed = self._stage_entries()
        return dict(
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
    return count_by_owner(
        batch, ranges.owners(frontier.src.astype(np.int64)), (len(frontier.sources), ranges.num_blocks)
    )
