"""`ColumnOperand`: rows of Q split over all ranks, each of which asks its column group (`algorithm="column"`)."""

from __future__ import annotations

import numpy as np

from spsample.backends import Backend, ColumnMatrix, ColumnSample, Draw, Numerators, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.comm import Channel
from spsample.distributed.blocks import RowSource
from spsample.distributed.owners import Owners
from spsample.distributed.rows import RowDraw, sample_rows
from spsample.sparse import Entries, GraphOperand, RowTotals
from spsample.sparse.operand import RowRule, Weighting


class ColumnOperand(GraphOperand):
    """A on a column group, whose ranks hold all of its rows between them.

    Every rank has its own batches and asks the owners of the rows it needs, in one all-to-allv there and one back;
    nothing is reduced. The published algorithm splits A's block rows over the ranks instead and has to add up.
    """

    def __init__(self, owners: Owners, rows: RowSource) -> None:
        self.owners = owners
        self._rows = rows

    @property
    def channel(self) -> Channel:
        """Over which it exchanges."""
        return self.owners.channel

    @property
    def num_nodes(self) -> int:
        return self._rows.num_nodes

    @property
    def num_edges(self) -> int:
        return self._rows.num_edges

    @property
    def weighting(self) -> Weighting:
        return self._rows.weighting

    @property
    def index_dtype(self) -> np.dtype[np.signedinteger]:
        return self._rows.index_dtype

    @property
    def backend(self) -> Backend:
        return self.owners.block.backend

    def any_rank(self, here: bool) -> bool:
        return bool(self.channel.reduce_max(int(here)))

    def sample_rows(self, Q: StackedSelector, draw: Draw, rule: RowRule, edge_ids: bool) -> Entries:
        return sample_rows(self.owners, Q, RowDraw(draw, rule, edge_ids), self.num_edges)

    def row_totals(self, Q: StackedSelector, exclude: ColumnSample | None = None) -> RowTotals:
        raise NotImplementedError

    def locate(
        self, Q: StackedSelector, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None = None
    ) -> IntArray:
        raise NotImplementedError

    def left_multiply(self, Q: StackedSelector, rule: Numerators) -> ColumnMatrix:
        raise NotImplementedError

    def draw_columns(self, batch_ids: Int64Array, draw: Draw) -> ColumnSample:
        raise NotImplementedError

    def column_totals(self, columns: IntArray) -> UInt64Array:
        raise NotImplementedError

    def extract(self, Q: StackedSelector, src_ptr: Int64Array, src: IntArray, edge_ids: bool) -> Entries:
        raise NotImplementedError


__all__ = ["ColumnOperand"]
