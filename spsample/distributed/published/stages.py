"""`StagesOperand`: the published sparsity-aware 1.5D algorithm, with its all-reduce (`algorithm="stages"`)."""

from __future__ import annotations

from spsample.backends import ColumnSample, Draw, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.distributed.published.shares import Shares
from spsample.distributed.published.staged import HeldRows, StagedOperand
from spsample.distributed.row_arrays import joined
from spsample.sparse import Entries, RowTotals
from spsample.sparse.operand import RowRule


class StagesOperand(StagedOperand):
    """Every rank of a row group gets all of P = Q A before it draws from it: the published all-reduce.

    P has a row per row of Q: per batch and vertex. In GraphSAGE it is what is drawn from, and in LADIES it is the
    product that the extraction selects from (Q_R A of the paper). No two columns have the same row, so that adding up
    is gathering: a row that several batches want travels once for each of them. Batches follow each other, and of each
    only the rows are kept that are not there yet, so that memory does not grow with P.

    Kinder than what is published: only the pattern travels, and the weights of a weighted graph, no values where A has
    none; row lengths are as short as they can be; a layer's rows are fetched and gathered once, for drawing and
    extraction; of the column law (P is sums by column then, which are added up as published), only the extracted edges
    are gathered instead of Q_R A.
    """

    def group_rows(self, Q: StackedSelector, edge_ids: bool = False) -> HeldRows:
        """All rows of Q, gathered over the row group when first asked for."""
        held = self.held(Q)
        if held.group is None or not held.group.serves(edge_ids):
            held.group = self.all_reduced(held.shares, self.column_rows(Q, edge_ids))
            held.column = None  # its rows are among them
        return held.group

    def all_reduced(self, shares: Shares, column: HeldRows) -> HeldRows:
        """All rows of P, of which each distinct one is kept, from those that every column has."""
        if self.row_group.size == 1:
            return column
        firsts = shares.firsts()
        pieces = [column.arrays.first(0)]
        for batch in range(self.channel.reduce_max(len(shares.Q.batch_ids))):
            own, counts = column.of_batch(batch), shares.pairs_of_batch(batch)
            pieces.append(self.row_group.rows(own, counts).picked(self.parts.block, firsts.of_batch(batch)))
        arrays = joined(pieces)
        return HeldRows(arrays.operand(self.parts.block, firsts.vertices), firsts.selector, arrays)

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
