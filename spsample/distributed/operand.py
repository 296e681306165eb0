"""`PartitionedOperand`: the base of the algorithms on a partitioned A."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.comm import Channel
from spsample.common.lazily import lazily
from spsample.distributed.blocks import BlockReader
from spsample.distributed.column_ranges import ColumnRanges
from spsample.distributed.grid import ProcessGrid
from spsample.distributed.placement import Placement
from spsample.sparse import GraphOperand, LocalOperand


class HeldRows(NamedTuple):
    """The rows of a partitioned A that a rank holds.

    Attributes
    ----------
    rows : BlockReader
        Their source, which knows the sizes of the whole A.
    placement : Placement
        The part of each row: one part per block row, and one more for the hub rows, where there are any.
    block : LocalOperand
        This rank's block row.
    hubs : LocalOperand or None
        The hub rows, which every rank has.
    """

    rows: BlockReader
    placement: Placement
    block: LocalOperand
    hubs: LocalOperand | None = None


class PartitionedOperand(GraphOperand):
    """A in block rows over a process grid. An algorithm brings its rows to those of Q, and assigns batches to ranks.

    Columns of FastGCN are drawn in the column group, whose ranks have ranges of them.

    Parameters
    ----------
    grid : ProcessGrid
    held : HeldRows

    Attributes
    ----------
    channel : Channel
        Over the column group; the ranks of its scope learn of a failure by the next exchange.
    held : HeldRows
    """

    def __init__(self, grid: ProcessGrid, held: HeldRows) -> None:
        self.channel = self.column_channel(grid)
        self.held = held
        self.num_nodes = held.rows.num_nodes
        self.num_edges = held.rows.num_edges
        self.weighting = held.rows.weighting
        self.index_dtype = held.rows.index_dtype
        self.backend = held.block.backend

    @staticmethod
    def column_channel(grid: ProcessGrid) -> Channel:
        """Return a channel over the column group, which is its scope, too: ranks of other columns do not take part."""
        return Channel(grid.column_group)

    @staticmethod
    def sampled_batches(grid: ProcessGrid, num_batches: int) -> Int64Array:
        """Return the ascending positions of the batches of a call that a rank samples: those that it gets."""
        return np.arange(grid.comm.rank, num_batches, grid.comm.size, dtype=np.int64)

    @lazily
    def column_norms(self) -> ColumnRanges:
        """Squared column norms of the whole A, in ranges of columns over the column group."""
        return ColumnRanges(self.channel, self.held.block, self.num_edges)

    def any_reduce(self, *here: bool) -> list[bool]:
        return self.channel.any_reduce(*here)
