"""`StagesSplitOperand`: the published algorithm where rows stay in the column that fetched them (`"stages-split"`)."""

from __future__ import annotations

import numpy as np

from spsample.backends import ColumnSample, Draw, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray
from spsample.distributed.column.totals import equal_exponents
from spsample.distributed.published.staged import StagedOperand
from spsample.distributed.row_arrays import RowArrays
from spsample.sparse import Entries, RowTotals
from spsample.sparse.operand import RowRule


class StagesSplitOperand(StagedOperand):
    """`StagesOperand` without the all-reduce of P where it is redundant: in GraphSAGE and in the entry law.

    A row lies whole in one column, whose rank draws from it; only what is drawn is gathered over the row group. The
    column law adds up as published.
    """

    def sample_rows(self, Q: StackedSelector, draw: Draw, rule: RowRule, edge_ids: bool) -> Entries:
        rows = self.column_rows(Q, edge_ids)
        drawn = rows.A.sample_rows(rows.Q, draw, rule, edge_ids)
        return self.stacked(self.held(Q), RowArrays.of(rows.A, drawn))

    def row_totals(self, Q: StackedSelector, exclude: ColumnSample | None = None) -> RowTotals:
        held, rows = self.held(Q), self.column_rows(Q)
        lengths = self.row_lengths(Q)
        if self.weighting == "weighted":
            (gathered,) = self.row_group.gather([rows.A.row_exponents[rows.Q.vertices]])
            exponents = gathered.rows[held.shares.places]
        else:
            exponents = equal_exponents(lengths, self.weighting)
        if exclude is None:
            return RowTotals(lengths, exponents)
        return RowTotals(self.in_order(held, rows.A.row_totals(rows.Q, exclude).counts), exponents)

    def locate(
        self, Q: StackedSelector, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None = None
    ) -> IntArray:
        """Each column finds the columns of A of its own rows' entries."""
        shares, own, column = self.held(Q).shares, self.column_rows(Q), self.row_group.rank
        where = shares.column[rows]
        here = np.flatnonzero(where == column)
        stacked = shares.places[rows[here]] - int(shares.pairs[:column].sum())
        found = own.A.locate(own.Q, stacked, offsets[here], exclude)
        columns: IntArray = np.empty(len(rows), self.index_dtype)
        columns[np.argsort(where, kind="stable")] = self.row_group.gather([found])[0].rows
        return columns


__all__ = ["StagesSplitOperand"]
