"""`PartitionedOperand`: what the algorithms on a partitioned A have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np

from spsample.backends import Backend, ColumnSample, Draw, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.comm import Channel
from spsample.common.lazily import lazily
from spsample.distributed.blocks import RowSource
from spsample.distributed.column_ranges import ColumnRanges
from spsample.distributed.grid import ProcessGrid
from spsample.distributed.placement import Placement
from spsample.sparse import GraphOperand, LocalOperand
from spsample.sparse.operand import Weighting


class Parts(NamedTuple):
    """What a rank has of a partitioned A.

    Attributes
    ----------
    rows : RowSource
        Where they come from, and what is known of the whole A.
    placement : Placement
        Where each row is: one part per block row, and one more for the hub rows, where there are any.
    block : LocalOperand
        This rank's block row.
    hubs : LocalOperand or None
        The hub rows, which every rank has.
    """

    rows: RowSource
    placement: Placement
    block: LocalOperand
    hubs: LocalOperand | None = None


def is_same(Q: StackedSelector, other: StackedSelector) -> bool:
    """Whether both are of the very same arrays: what is known of one holds for the other.

    Examples
    --------
    >>> Q = StackedSelector(np.array([0, 2]), np.array([3, 1]), np.array([0]))
    >>> is_same(Q, StackedSelector(*Q)), is_same(Q, Q._replace(batch_ptr=np.array([0, 1, 2])))
    (True, False)
    """
    return all(mine is given for mine, given in zip(Q, other, strict=True))


class PartitionedOperand(GraphOperand):
    """A in block rows over a process grid. An algorithm says how its rows meet those of Q, and who samples what.

    Columns of FastGCN are drawn in the column group, whose ranks have ranges of them.

    Parameters
    ----------
    grid : ProcessGrid
    parts : Parts

    Attributes
    ----------
    channel : Channel
        Over the column group; the ranks of its scope learn of a failure by the next exchange.
    parts : Parts
    """

    def __init__(self, grid: ProcessGrid, parts: Parts) -> None:
        self.channel = self.column_channel(grid)
        self.parts = parts

    @staticmethod
    def column_channel(grid: ProcessGrid) -> Channel:
        """Over the column group, which is its scope, too: what ranks of other columns do does not matter here."""
        return Channel(grid.column_group)

    @staticmethod
    def sampled_batches(grid: ProcessGrid, num_batches: int) -> Int64Array:
        """Ascending positions of the batches of a call that a rank samples: those that it gets, every p-th one."""
        return np.arange(grid.comm.rank, num_batches, grid.comm.size, dtype=np.int64)

    @abstractmethod
    def forget(self) -> None:
        """Let go of what is known of the last frontier."""

    @property
    def num_nodes(self) -> int:
        return self.parts.rows.num_nodes

    @property
    def num_edges(self) -> int:
        return self.parts.rows.num_edges

    @property
    def weighting(self) -> Weighting:
        return self.parts.rows.weighting

    @property
    def index_dtype(self) -> np.dtype[np.signedinteger]:
        return self.parts.rows.index_dtype

    @property
    def backend(self) -> Backend:
        return self.parts.block.backend

    def any_rank(self, here: bool) -> bool:
        return bool(self.channel.reduce_max(int(here)))

    def draw_columns(self, batch_ids: Int64Array, draw: Draw) -> ColumnSample:
        return self._column_ranges.draw(batch_ids, draw)

    def column_totals(self, columns: IntArray) -> UInt64Array:
        return self._column_ranges.numerators(columns)

    @lazily
    def _column_ranges(self) -> ColumnRanges:
        return ColumnRanges(self.channel, self.parts.block, self.num_edges)


__all__ = ["PartitionedOperand", "Parts", "is_same"]
