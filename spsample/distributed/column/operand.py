"""`ColumnOperand`: rows of Q split over all ranks, each of which asks its column group (`algorithm="column"`)."""

from __future__ import annotations

from spsample.backends import ColumnMatrix, ColumnSample, Draw, QuantisationRule, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray
from spsample.distributed.column.extraction import Columns, extract
from spsample.distributed.column.frontier import Frontier
from spsample.distributed.column.rows import RowDraw, received_entries, sample_rows
from spsample.distributed.column.sums import Answered, ask, draw_columns, merged
from spsample.distributed.column.totals import frontier_totals, locate, row_totals, unchosen_totals
from spsample.distributed.grid import ProcessGrid
from spsample.distributed.operand import PartitionedOperand, Parts, is_same
from spsample.distributed.owners import Owners
from spsample.sparse import Entries, RowTotals
from spsample.sparse.operand import FrontierTotals, RowRule

GAP_BYTES = 2
"""Bytes, about, of a sampled column on its way to an owner."""


class ColumnOperand(PartitionedOperand):
    """A on a column group, whose ranks hold all of its rows between them.

    Every rank has its own batches and asks the owners of the rows it needs, in one all-to-allv there and one back;
    nothing is reduced. The published algorithm splits A's block rows over the ranks instead and has to add up.
    """

    def __init__(self, grid: ProcessGrid, parts: Parts) -> None:
        super().__init__(grid, parts)
        self.owners = Owners(self.channel, parts.placement, parts.block, parts.hubs)
        self._last: Frontier | None = None

    def sample_rows(self, Q: StackedSelector, draw: Draw, rule: RowRule, edge_ids: bool) -> Entries:
        return sample_rows(self.owners, Q, RowDraw(draw, rule, edge_ids), self.num_edges)

    def row_totals(self, Q: StackedSelector, exclude: ColumnSample | None = None) -> RowTotals:
        frontier = self._frontier_of(Q)
        if frontier.totals is None:
            frontier.totals = row_totals(frontier, self.weighting)
        if exclude is None:
            return frontier.totals
        return frontier.totals._replace(counts=unchosen_totals(frontier, exclude))

    def frontier_totals(self, Q: StackedSelector) -> FrontierTotals:
        return frontier_totals(self._frontier_of(Q))

    def locate(
        self, Q: StackedSelector, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None = None
    ) -> IntArray:
        return locate(self._frontier_of(Q), rows, offsets, exclude)

    def left_multiply(self, Q: StackedSelector, rule: QuantisationRule) -> ColumnMatrix:
        return merged(self._frontier_of(Q), self._asked(Q, rule, 0), rule)

    def draw_merged(self, Q: StackedSelector, rule: QuantisationRule, draw: Draw) -> ColumnSample:
        columns = len(Q.vertices) + len(Q.batch_ids) * draw.size
        return draw_columns(self._frontier_of(Q), self._asked(Q, rule, GAP_BYTES * columns), rule, draw)

    def _asked(self, Q: StackedSelector, rule: QuantisationRule, later_bytes: int) -> Answered:
        """Rows or sums of each part; rows are kept for an extraction."""
        frontier = self._frontier_of(Q)
        answered = ask(frontier, rule, later_bytes)
        frontier.fetched = answered.rows
        return answered

    def extract(self, Q: StackedSelector, src_ptr: Int64Array, src: IntArray, edge_ids: bool) -> Entries:
        frontier = self._frontier_of(Q)
        degrees = self.row_totals(Q).counts if self.weighting == "row" else None
        rows, ids = extract(frontier, frontier.fetched, Columns.of(src_ptr, src), edge_ids)
        return received_entries(rows, Q.batch_ids, ids, degrees)

    def forget(self) -> None:
        self._last = None

    def _frontier_of(self, Q: StackedSelector) -> Frontier:
        """Q as its owners know it; they are told when it is not the last one asked about."""
        if self._last is None or not is_same(self._last.Q, Q):
            self._last = Frontier(self.owners, Q)
        return self._last


__all__ = ["ColumnOperand"]
