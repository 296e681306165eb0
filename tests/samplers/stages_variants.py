"""Two variants of the published algorithm that are not published: no choice of users."""

from __future__ import annotations

import numpy as np

from spsample.backends import ColumnSample, Draw, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.distributed import PartitionedGraph
from spsample.distributed.algorithms import ALGORITHMS
from spsample.distributed.operand import PartitionedOperand
from spsample.distributed.rounds import draw_entries_in_rounds
from spsample.distributed.row_arrays import RowArrays, equal_exponents
from spsample.distributed.stages.operand import CachedRows, StagesFrontier, StagesOperand
from spsample.sparse import Entries, RowStatistics
from spsample.sparse.operand import RowForm, ScaledForm


class StagesDistinctOperand(StagesOperand):
    """`StagesOperand` with an all-reduce of the distinct rows of P (`"stages-distinct"`).

    Each travels once for all batches that want it. All ranks of a row group still get all rows, as they do in what is
    published: the fairest baseline of its kind.
    """

    def frontier(self, Q: StackedSelector) -> StagesDistinctFrontier:
        return StagesDistinctFrontier(self, Q)


class StagesDistinctFrontier(StagesFrontier):
    """Rows of A of which every rank of a row group gets each distinct one."""

    def all_reduced(self, column: CachedRows) -> CachedRows:
        """All distinct rows of P, column by column."""
        plan, block = self.plan, self.A.held.block
        arrays = self.row_group.rows(column.arrays, plan.bounds[1:] - plan.bounds[:-1])
        return CachedRows(arrays.operand(block, plan.vertices).frontier(plan.selector()), arrays)


class StagesSplitOperand(StagesOperand):
    """`StagesOperand` without the all-reduce of P where it is redundant (`"stages-split"`).

    It is in GraphSAGE and in the entry law; the column law adds up as published.
    """

    def frontier(self, Q: StackedSelector) -> StagesSplitFrontier:
        return StagesSplitFrontier(self, Q)


class StagesSplitFrontier(StagesFrontier):
    """Rows of A that stay in the column that fetched them.

    A row lies whole in one column, whose rank draws from it; only what is drawn is gathered over the row group.
    """

    def sample_rows(self, draw: Draw, form: RowForm | ScaledForm, edge_ids: bool) -> Entries:
        rows = self.column_rows(edge_ids).F
        return self.stacked(RowArrays.of(rows.A, rows.sample_rows(draw, form, edge_ids)))

    def take_rows(self, edge_ids: bool) -> Entries:
        rows = self.column_rows(edge_ids).F
        return self.stacked(RowArrays.of(rows.A, rows.take_rows(edge_ids)))

    def _row_statistics(self) -> RowStatistics:
        rows, lengths = self.column_rows().F, self.row_lengths
        if self.A.weighting != "weighted":
            return RowStatistics(lengths, equal_exponents(lengths, self.A.weighting))
        (gathered,) = self.row_group.gather([rows.A.row_exponents[rows.Q.vertices]])
        return RowStatistics(lengths, gathered.rows[self.plan.places])

    def entry_counts(self, exclude: ColumnSample) -> Int64Array:
        return self.in_order(self.column_rows().F.entry_counts(exclude))

    def locate(self, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None = None) -> IntArray:
        """Each column finds the columns of A of its own rows' entries."""
        plan, column = self.plan, self.row_group.group.rank
        where = plan.column[rows]
        here = np.flatnonzero(where == column)
        stacked = plan.places[rows[here]] - int(plan.pairs[:column].sum())
        found = self.column_rows().F.locate(stacked, offsets[here], exclude)
        columns: IntArray = np.empty(len(rows), self.A.index_dtype)
        columns[np.argsort(where, kind="stable")] = self.row_group.gather([found])[0].rows
        return columns

    def draw_entries(self, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
        return draw_entries_in_rounds(self, numerators, draw)


VARIANTS: dict[str, type[PartitionedOperand]] = {
    "stages-distinct": StagesDistinctOperand,
    "stages-split": StagesSplitOperand,
}
"""By name, as `ALGORITHMS`."""

ALL_ALGORITHMS = {**ALGORITHMS, **VARIANTS}
"""What tests and measurements compare: the algorithms that users choose from, and the variants."""


class ComparedGraph(PartitionedGraph):
    """A `PartitionedGraph` whose `algorithm` may be a variant, too.

    Examples
    --------
    >>> import spsample as sp
    >>> def body(comm):
    ...     graph = sp.Graph([0, 1, 2], [1, 0])
    ...     return ComparedGraph.from_graph(graph, sp.ProcessGrid(comm), algorithm="stages-split").algorithm
    >>> sp.comm.run_threads(1, body)
    ['stages-split']
    """

    _algorithms = ALL_ALGORITHMS


__all__ = ["ALL_ALGORITHMS", "VARIANTS", "ComparedGraph", "StagesDistinctOperand", "StagesSplitOperand"]
