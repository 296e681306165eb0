"""`RankCounts`: the numbers that decide the traffic of a bulk, whether counted exactly or predicted."""

from __future__ import annotations

from dataclasses import dataclass

from spsample.backends.protocol import Int64Array
from spsample.planning.cluster.grid_shape import FloatArray, GridShape


@dataclass(frozen=True, eq=False)
class HopCounts:
    """What ranks need of which block rows for one layer.

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
    """What ranks need of which block rows for all layers of a bulk, nearest the seeds first, and for its features.

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


__all__ = ["HopCounts", "RankCounts"]
