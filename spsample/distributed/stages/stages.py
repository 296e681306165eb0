"""The published sparsity-aware 1.5D algorithm, with its all-reduce, and its baseline that broadcasts all of A."""

from __future__ import annotations

from spsample.backends import ColumnSample, Draw, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.distributed.row_arrays import joined
from spsample.distributed.stages.exchanges import BroadcastRows
from spsample.distributed.stages.operand import CachedRows, PublishedFrontier, PublishedOperand
from spsample.sparse.operand import Entries, RowForm, ScaledForm
from spsample.sparse.probability import RowStatistics


class StagesOperand(PublishedOperand):
    """Every rank of a row group gets all of P = Q A before it draws from it: the published all-reduce (`"stages"`).

    P has a row per row of Q: per batch and vertex. In GraphSAGE it is what is drawn from, and in LADIES it is the
    product that the extraction selects from (Q_R A of the paper). No two columns have the same row, so that adding up
    is gathering: a row that several batches need travels once for each of them. Batches follow each other, and of each
    only the rows are kept that are not there yet, so that memory does not grow with P.

    It costs less than what is published: only the pattern travels, and the weights of a weighted graph, no values where
    A has none; row lengths are as short as they can be; a layer's rows are fetched and gathered once, for drawing and
    extraction; of the column law (P is sums by column then, which are added up as published), only the extracted edges
    are gathered instead of Q_R A.
    """

    def frontier(self, Q: StackedSelector) -> StagesFrontier:
        return StagesFrontier(self, Q)


class ObliviousOperand(StagesOperand):
    """The published algorithm in which stages broadcast block rows, whichever rows are needed (`"oblivious"`).

    References
    ----------
    Koanantakool et al., IPDPS 2016, and Tripathy, Yelick, Buluc, SC 2020, for dense right-hand sides; the baseline of
    MLSys 2024, section 5.2.1.
    """

    fetch_rows = BroadcastRows


class StagesFrontier(PublishedFrontier):
    """Rows of A that every rank of a row group gets whole."""

    _group: CachedRows | None = None

    def group_rows(self, edge_ids: bool = False) -> CachedRows:
        """Return all rows of Q, gathered over the row group at the first call."""
        if self._group is None or not self._group.serves(edge_ids):
            self._group = self.all_reduced(self.column_rows(edge_ids))
            self._column = None  # its rows are among them
        return self._group

    def all_reduced(self, column: CachedRows) -> CachedRows:
        """Gather all rows of P, of which each distinct one is kept, from those of every column."""
        A, plan = self.A, self.plan
        if self.row_group.group.size == 1:
            return column
        unique = plan.unique_rows()
        pieces = [column.arrays.first(0)]
        for batch in range(A.channel.reduce_max(len(self.Q.batch_ids))):
            own, counts = column.of_batch(batch), plan.pairs_of_batch(batch)
            pieces.append(self.row_group.rows(own, counts).picked(A.held.block, unique.of_batch(batch)))
        arrays = joined(pieces)
        return CachedRows(arrays.operand(A.held.block, unique.vertices).frontier(unique.selector), arrays)

    def sample_rows(self, draw: Draw, form: RowForm | ScaledForm, edge_ids: bool) -> Entries:
        return self.group_rows(edge_ids).F.sample_rows(draw, form, edge_ids)

    def take_rows(self, edge_ids: bool) -> Entries:
        return self.group_rows(edge_ids).F.take_rows(edge_ids)

    def _row_statistics(self) -> RowStatistics:
        return self.group_rows().F.row_statistics

    def entry_counts(self, exclude: ColumnSample) -> Int64Array:
        return self.group_rows().F.entry_counts(exclude)

    def locate(self, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None = None) -> IntArray:
        return self.group_rows().F.locate(rows, offsets, exclude)

    def draw_entries(self, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
        return self.group_rows().F.draw_entries(numerators, draw)

    def extract(self, src_ptr: Int64Array, src: IntArray, edge_ids: bool) -> Entries:
        """Extract from all rows where they are here, else from each column's."""
        if self._group is None or not self._group.serves(edge_ids):
            return super().extract(src_ptr, src, edge_ids)
        return self._group.F.extract(src_ptr, src, edge_ids)


__all__ = ["ObliviousOperand", "StagesFrontier", "StagesOperand"]
