"""`StagesOperand`: the published sparsity-aware 1.5D algorithm, with its all-reduce (`algorithm="stages"`)."""

from __future__ import annotations

from spsample.backends import ColumnSample, Draw, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.distributed.staged import HeldRows, StagedOperand
from spsample.sparse import Entries, RowTotals
from spsample.sparse.operand import RowRule


class StagesOperand(StagedOperand):
    """Every rank of a row group gets all of P = Q A before it draws from it: the published all-reduce.

    Where P has a row per row of A (GraphSAGE) or its entries are drawn from (entry law), P is the rows that the columns
    fetched, and as no two columns have the same row, adding up is gathering. Each row travels once for all batches that
    want it, which P's rows as published would not. Everything after it is local. Of the column law, P is sums by
    column, which are added up; the extracted edges are, too, since the rows are then in one column only.
    """

    def group_rows(self, Q: StackedSelector, edge_ids: bool = False) -> HeldRows:
        """All rows of Q, gathered over the row group when first asked for."""
        held = self.held(Q)
        if held.group is None or not held.group.serves(edge_ids):
            shares, column = held.shares, self.column_rows(Q, edge_ids)
            arrays = self.row_group.rows(column.arrays, shares.bounds[1:] - shares.bounds[:-1])
            held.group = HeldRows(arrays.operand(self.parts.block, shares.vertices), shares.selector(), arrays)
            held.column = None  # its rows are among them
        return held.group

    def sample_rows(self, Q: StackedSelector, draw: Draw, rule: RowRule, edge_ids: bool) -> Entries:
        rows = self.group_rows(Q, edge_ids)
        return rows.A.sample_rows(rows.Q, draw, rule, edge_ids)

    def row_totals(self, Q: StackedSelector, exclude: ColumnSample | None = None) -> RowTotals:
        rows = self.group_rows(Q)
        return rows.A.row_totals(rows.Q, exclude)

    def locate(
        self, Q: StackedSelector, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None = None
    ) -> IntArray:
        every = self.group_rows(Q)
        return every.A.locate(every.Q, rows, offsets, exclude)

    def draw_entries(self, Q: StackedSelector, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
        rows = self.group_rows(Q)
        return rows.A.draw_entries(rows.Q, numerators, draw)

    def extract(self, Q: StackedSelector, src_ptr: Int64Array, src: IntArray, edge_ids: bool) -> Entries:
        """From all rows where they are held, else from each column's."""
        rows = self.held(Q).group
        if rows is None or not rows.serves(edge_ids):
            return super().extract(Q, src_ptr, src, edge_ids)
        return rows.A.extract(rows.Q, src_ptr, src, edge_ids)


__all__ = ["StagesOperand"]
