"""`StagedOperand`: block rows of A met one after the other in each column of the grid, results added up in each row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spsample.backends import ColumnMatrix, Numerators, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray
from spsample.comm import Channel
from spsample.distributed.column.partial_sums import added, powered, received_sums
from spsample.distributed.column.rows import received_entries
from spsample.distributed.column.totals import added_totals, partial_totals
from spsample.distributed.grid import ProcessGrid
from spsample.distributed.operand import PartitionedOperand, Parts, is_same
from spsample.distributed.published.row_fetch import RequestedRows, RowFetch
from spsample.distributed.published.row_group import RowGroup
from spsample.distributed.published.shares import Schedule, Shares
from spsample.distributed.row_arrays import RowArrays, joined
from spsample.distributed.wire_format import narrow, widen, width_of
from spsample.sparse import Entries, LocalOperand
from spsample.sparse.operand import FrontierTotals


class HeldRows(NamedTuple):
    """Rows that were fetched, as a matrix, and the rows of Q that are among them."""

    A: LocalOperand
    Q: StackedSelector
    arrays: RowArrays

    def serves(self, edge_ids: bool) -> bool:
        """Whether all that is asked for is there."""
        return self.arrays.edge_ids is not None or not edge_ids

    def of_batch(self, batch: int) -> RowArrays:
        """The rows of Q of the batch at a position, each as often as Q has it; none where there is no such batch."""
        first, end = self.Q.batch_ptr[np.minimum([batch, batch + 1], len(self.Q.batch_ids))].tolist()
        return RowArrays.taken(self.A, self.Q.vertices[first:end], self.arrays.edge_ids is not None)


class Held:
    """What a rank has for one Q: the rows of its column, or of its whole row group, and the lengths of Q's rows."""

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self.column: HeldRows | None = None
        self.group: HeldRows | None = None
        self.lengths: Int64Array | None = None


class StagedOperand(PartitionedOperand):
    """A on a p/c x c grid, as published: P(i, j) multiplies Q_i by the block rows of A that are column j's.

    The ranks of row i all sample the batches of the row, each with the rows that its column fetched for them, in about
    p/c^2 stages with one block row each; what they find is put together over the row group. Rows that were fetched
    are kept for as long as the same Q is asked about, so that EXTRACT finds them; the published code fetches them
    again for that product. They are fetched again here only where edge ids are wanted of them later.

    References
    ----------
    Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section
    5.2 and algorithm 2.
    """

    fetch_rows: type[RowFetch] = RequestedRows
    """How rows come from the ranks that hold them."""

    def __init__(self, grid: ProcessGrid, parts: Parts) -> None:
        super().__init__(grid, parts)
        members = grid.row * grid.replication + np.arange(grid.replication)
        self.row_group = RowGroup(Channel(grid.comm, grid.row_group, members.tolist()))
        self._schedule = Schedule.of(parts.placement, grid.num_blocks, grid.replication)
        self._fetch = self.fetch_rows(self.channel, parts.block, parts.placement)
        self._last: Held | None = None

    @staticmethod
    def column_channel(grid: ProcessGrid) -> Channel:
        """Over the column group. All ranks are its scope: the others of the row group must learn of a failure, too."""
        members = np.arange(grid.num_blocks) * grid.replication + grid.column
        return Channel(grid.comm, grid.column_group, members.tolist())

    @staticmethod
    def sampled_batches(grid: ProcessGrid, num_batches: int) -> Int64Array:
        """Ascending positions of the batches of the row group."""
        positions: Int64Array = np.arange(num_batches, dtype=np.int64)
        here: Int64Array = positions[positions % grid.comm.size // grid.replication == grid.row]
        return here

    def forget(self) -> None:
        self._last = None

    def held(self, Q: StackedSelector) -> Held:
        """What is known of Q, nothing at first."""
        if self._last is None or not is_same(self._last.shares.Q, Q):
            self._last = Held(Shares(Q, self.parts.placement, self._schedule, self.row_group.size))
        return self._last

    def column_rows(self, Q: StackedSelector, edge_ids: bool = False) -> HeldRows:
        """The rows of Q that this rank's column fetches, fetched when first asked for."""
        held = self.held(Q)
        if held.column is None or not held.column.serves(edge_ids):
            column, shares = self.row_group.rank, held.shares
            arrays = self._fetched(shares, edge_ids)
            ids = shares.vertices[shares.bounds[column] : shares.bounds[column + 1]]
            held.column = HeldRows(arrays.operand(self.parts.block, ids), shares.selector_of(column), arrays)
        return held.column

    def _fetched(self, shares: Shares, edge_ids: bool) -> RowArrays:
        """One stage after the other, and then the hub rows, which need none."""
        column = self.row_group.rank
        stages = self._schedule.stages(column)
        pieces = [self._fetch.rows(block, shares.wanted(block), edge_ids) for block in stages]
        hubs = self._schedule.hubs(column)
        if self.parts.hubs is not None and hubs is not None:
            pieces.append(RowArrays.taken(self.parts.hubs, shares.wanted(hubs), edge_ids))
        return joined(pieces)

    def row_lengths(self, Q: StackedSelector) -> Int64Array:
        """(m,) numbers of entries of the rows of Q."""
        held = self.held(Q)
        if held.lengths is None:
            rows = self.column_rows(Q)
            held.lengths = self.in_order(held, np.diff(rows.A.matrix.indptr)[rows.Q.vertices])
        return held.lengths

    def in_order(self, held: Held, values: Int64Array) -> Int64Array:
        """Numbers of at least 0 of all rows of Q, from those of this column's rows."""
        return self.row_group.numbers(values, held.shares.pairs)[held.shares.places]

    def stacked(self, held: Held, arrays: RowArrays) -> Entries:
        """Entries of all rows of Q, from those of this column's rows, whose columns may be of a smaller type."""
        Q = held.shares.Q
        degrees = self.row_lengths(Q) if self.weighting == "row" else None
        everything = self.row_group.rows(arrays, held.shares.pairs)
        everything = everything._replace(columns=everything.columns.astype(self.index_dtype, copy=False))
        rows, everything = everything.stacked(self.backend, Q.batch_ptr, held.shares.places)
        return received_entries(rows, Q.batch_ids, everything.edge_ids, degrees)

    def frontier_totals(self, Q: StackedSelector) -> FrontierTotals:
        rows = self.column_rows(Q)
        counts, exponents = partial_totals(rows.A, rows.Q)
        shape = columns, k = self.row_group.size, len(Q.batch_ids)
        everyones, maxima = self.row_group.gather([narrow(counts, np.array([k])).rows, exponents])
        return added_totals(widen(everyones, np.full(columns, k)).reshape(shape), maxima.rows.reshape(shape))

    def left_multiply(self, Q: StackedSelector, rule: Numerators) -> ColumnMatrix:
        """Of each column's rows, and added up: the published all-reduce."""
        rows, k = self.column_rows(Q), len(Q.batch_ids)
        P = rows.A.left_multiply(rows.Q, rule._replace(column_power=1))
        numerators = narrow(P.numerators, np.array([len(P.numerators)])).rows
        sends = [narrow(np.diff(P.indptr), np.array([k])).rows, P.columns, numerators]
        counts, columns, values = self.row_group.gather(sends)
        sums = received_sums(counts, columns.rows, values, np.full(self.row_group.size, k))
        return powered(added(self.backend, [sums], k, self.num_nodes), rule.column_power)

    def extract(self, Q: StackedSelector, src_ptr: Int64Array, src: IntArray, edge_ids: bool) -> Entries:
        """From each column's rows; the edges are put together."""
        rows = self.column_rows(Q, edge_ids)
        found = RowArrays.of(rows.A, rows.A.extract(rows.Q, src_ptr, src, edge_ids))
        width = width_of(int(np.diff(src_ptr).max(initial=1)) - 1)
        return self.stacked(self.held(Q), found._replace(columns=found.columns.astype(f"u{width}")))


__all__ = ["Held", "HeldRows", "StagedOperand"]
