"""`ColumnOperand`: rows of Q split over all ranks, each of which asks its column group (`algorithm="column"`)."""

from __future__ import annotations

from spsample.backends import ColumnMatrix, ColumnSample, Draw, QuantisationRule, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.distributed.column.extraction import Columns, extract
from spsample.distributed.column.fetched import FetchedRows
from spsample.distributed.column.frontier import Answer, RowsAtOwners
from spsample.distributed.column.rows import RowDraw, sample_rows
from spsample.distributed.column.statistics import (
    entry_counts,
    frontier_statistics,
    locate,
    row_statistics,
    statistics_of_rows,
)
from spsample.distributed.column.sums import Answered, ask, draw_from_answers, merged
from spsample.distributed.entry_law import draw_entries_in_rounds
from spsample.distributed.grid import ProcessGrid
from spsample.distributed.operand import HeldRows, PartitionedOperand
from spsample.distributed.owners import Owners
from spsample.distributed.row_arrays import received_entries
from spsample.sparse.operand import Entries, Frontier, RowForm, ScaledForm
from spsample.sparse.probability import FrontierStatistics, RowStatistics

GAP_BYTES = 2
"""Bytes, about, of a sampled column on its way to an owner."""


class ColumnOperand(PartitionedOperand):
    """A on a column group, whose ranks hold all of its rows between them.

    Every rank has its own batches and asks the owners of the rows it needs, in one all-to-allv there and one back;
    nothing is reduced. The published algorithm splits A's block rows over the ranks instead and has to add up.
    """

    def __init__(self, grid: ProcessGrid, held: HeldRows) -> None:
        super().__init__(grid, held)
        self.owners = Owners(self.channel, held.placement, held.block, held.hubs)

    def frontier(self, Q: StackedSelector) -> ColumnFrontier:
        return ColumnFrontier(self, Q)


class ColumnFrontier(Frontier):
    """Rows of A at their owners, who draw from them, sum them up and extract from them."""

    A: ColumnOperand

    def __init__(self, A: ColumnOperand, Q: StackedSelector) -> None:
        super().__init__(A, Q)
        self._fetched: FetchedRows | None = None  # came with sums by column, and are kept for an extraction
        self._rows: RowsAtOwners | None = None

    @property
    def rows(self) -> RowsAtOwners:
        """The rows, which their owners get when they are first needed."""
        return self._registered(None)

    def _registered(self, more: Answer | None) -> RowsAtOwners:
        """Return the rows; owners who get them now answer `more`, too."""
        if self._rows is None:
            self._rows = RowsAtOwners(self.A.owners, self.Q, more)
        return self._rows

    def sample_rows(self, draw: Draw, form: RowForm | ScaledForm, edge_ids: bool) -> Entries:
        return sample_rows(self.A.owners, self.Q, RowDraw(draw, form, edge_ids), self.A.num_edges)

    def take_rows(self, edge_ids: bool) -> Entries:
        return sample_rows(self.A.owners, self.Q, RowDraw(None, "uniform", edge_ids), self.A.num_edges)

    def _row_statistics(self) -> RowStatistics:
        is_first = self._rows is None
        rows = self._registered(statistics_of_rows)
        answers = rows.answers if is_first else rows.ask([], statistics_of_rows, phase="totals")
        return row_statistics(rows, answers, self.A.weighting)

    def _batch_statistics(self) -> FrontierStatistics:
        return frontier_statistics(self.rows)

    def entry_counts(self, exclude: ColumnSample) -> Int64Array:
        return entry_counts(self.rows, exclude)

    def locate(self, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None = None) -> IntArray:
        return locate(self.rows, rows, offsets, exclude)

    def draw_entries(self, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
        return draw_entries_in_rounds(self, numerators, draw)

    def merge_columns(self, rule: QuantisationRule) -> ColumnMatrix:
        return merged(self.rows, self._answered(rule, 0), rule)

    def draw_merged(self, rule: QuantisationRule, draw: Draw) -> ColumnSample:
        columns = len(self.Q.vertices) + len(self.Q.batch_ids) * draw.size
        return draw_from_answers(self.rows, self._answered(rule, GAP_BYTES * columns), rule, draw)

    def _answered(self, rule: QuantisationRule, later_bytes: int) -> Answered:
        """Return rows or sums of each part; rows are kept for an extraction."""
        answered = ask(self.rows, rule, later_bytes)
        self._fetched = answered.rows
        return answered

    def extract(self, src_ptr: Int64Array, src: IntArray, edge_ids: bool) -> Entries:
        degrees = self.row_statistics.counts if self.A.weighting == "row" else None
        rows, ids = extract(self.rows, self._fetched, Columns.of(src_ptr, src, self.A.num_nodes), edge_ids)
        return received_entries(rows, self.Q.batch_ids, ids, degrees)


__all__ = ["GAP_BYTES", "ColumnFrontier", "ColumnOperand"]
