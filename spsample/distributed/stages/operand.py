"""`StagesOperand`: the published sparsity-aware 1.5D algorithm; and its baseline, which broadcasts all of A.

Its exchanges: rows of the block of a stage within a column group, by request or by broadcast; results over a row group.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.backends import ColumnMatrix, ColumnSample, Draw, QuantisationRule, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.comm import Channel, Received, Sent
from spsample.comm.communicator import Array
from spsample.common.contents import contents_of
from spsample.common.lazily import lazily
from spsample.distributed.blocks import HeldRows
from spsample.distributed.grid import ProcessGrid
from spsample.distributed.operand import PartitionedOperand
from spsample.distributed.row_arrays import (
    RowArrays,
    added_statistics,
    joined,
    partial_statistics,
    received_entries,
    received_sums,
)
from spsample.distributed.stages.fetch_plan import FetchPlan, Stages, rows_of_batch
from spsample.distributed.wire_format import packed, unpack, width_of
from spsample.errors import InputError
from spsample.sparse.local import LocalFrontier
from spsample.sparse.operand import Entries, Frontier, RowForm, ScaledForm
from spsample.sparse.probability import FrontierStatistics, RowStatistics

ROWS, REQUESTS, REDUCTION = "rows", "rows requests", "reduction"
"""Phases."""


class RowGroup(Channel):
    """All-gathers over the row group, whose ranks have different rows: their sum is a concatenation.

    All of its ranks have the same Q, which headers compare. Nothing is exchanged where c = 1.
    """

    _contents = 0
    """Number that tells Q from others."""

    def of(self, Q: StackedSelector) -> RowGroup:
        """Return this row group for rows of Q."""
        other = copy.copy(self)
        if self.group.size > 1:
            other._contents = contents_of(np.array([contents_of(array) for array in Q]))
        return other

    def gather(self, arrays: Sequence[Array], *, phase: str = REDUCTION) -> list[Received]:
        """Gather arrays of all columns, one column after the other.

        Raises
        ------
        InputError
            If ranks of the row group ask for rows of their own.
        """
        if self.group.size == 1:
            return [Received(rows, np.array([len(rows)], np.int64)) for rows in arrays]
        return super().gather(arrays, phase=phase)

    def _header(self, counts: Int64Array, call: str) -> Int64Array:
        header = super()._header(np.column_stack([counts, np.full(self.group.size, self._contents)]), call)
        if (header[:, -1] != self._contents).any():
            raise InputError(
                argument="Q",
                given="other rows than on other ranks of the row group",
                expected="the same batches of the same rows on all of them, as algorithm 2 of the paper has them",
                hint="Take algorithm='column', where each rank asks for rows of its own. Or use bulk_sample.",
            )
        return header[:, :-1]

    def numbers(self, values: NDArray[np.integer], counts: Int64Array) -> Int64Array:
        """Gather numbers of at least 0, `counts[j]` of them of column j."""
        return unpack(self.gather([packed(values)])[0], counts)

    def rows(self, rows: RowArrays, counts: Int64Array) -> RowArrays:
        """Gather entries of rows, `counts[j]` of them of column j."""
        return rows.received(self.gather([packed(rows.lengths), *rows.entries]), counts)


class StagesOperand(PartitionedOperand):
    """A on a p/c x c grid, as published: P(i, j) multiplies Q_i by the block rows of A that are column j's.

    The ranks of row i all sample the batches of the row, each with the rows that its column fetched for them, in about
    p/c^2 stages with one block row each; their results are put together over the row group. A frontier keeps the rows
    that were fetched, so that EXTRACT finds them; the published code fetches them again for that product. They are
    fetched again here only where edge ids are wanted of them later.

    Every rank of a row group gets all of P = Q A before it draws from it: the published all-reduce (`"stages"`). P has
    a row per row of Q: per batch and vertex. GraphSAGE draws from it, and in LADIES it is the product that the
    extraction selects from (Q_R A of the paper). No two columns have the same row, so that adding up is gathering: a
    row that several batches need travels once for each of them. Batches follow each other, and of each only the rows
    are kept that are not there yet, so that memory does not grow with P.

    It costs less than the published algorithm: only the pattern travels, and the weights of a weighted graph, no values
    where A has none; row lengths are as short as they can be; a layer's rows are fetched and gathered once, for drawing
    and extraction; of the column law (P is sums by column then, which are added up as published), only the extracted
    edges are gathered instead of Q_R A.

    References
    ----------
    Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section
    5.2 and algorithm 2.
    """

    def __init__(self, grid: ProcessGrid, held: HeldRows) -> None:
        super().__init__(grid, held)
        members = grid.row * grid.replication + np.arange(grid.replication)
        self.row_group = RowGroup(grid.comm, grid.row_group, members.tolist())
        self.stages = Stages.of(held.placement, grid.num_blocks, grid.replication)

    @staticmethod
    def column_channel(grid: ProcessGrid) -> Channel:
        """Return a channel over the column group. All ranks are its scope: a failure concerns the row group, too."""
        members = np.arange(grid.num_blocks) * grid.replication + grid.column
        return Channel(grid.comm, grid.column_group, members.tolist())

    @staticmethod
    def sampled_batches(grid: ProcessGrid, num_batches: int) -> Int64Array:
        """Return the ascending positions of the batches of the row group."""
        positions: Int64Array = np.arange(num_batches, dtype=np.int64)
        here: Int64Array = positions[positions % grid.comm.size // grid.replication == grid.row]
        return here

    def frontier(self, Q: StackedSelector) -> StagesFrontier:
        return StagesFrontier(self, Q)

    def fetched(self, block: int | None, wanted: IntArray, edge_ids: bool) -> RowArrays:
        """Fetch the rows with the numbers `wanted` of a block row, the same one on all ranks of the column group.

        None, where this column has no block row left, is a stage too, for the ranks of other columns. Takes two
        exchanges: row numbers go to the one rank that has the block, and rows come back.
        """
        counts = np.zeros(self.channel.group.size, np.int64)
        if block is not None:
            counts[block] = len(wanted)
        (asked,) = self.channel.exchange([Sent(wanted, counts)], phase=REQUESTS)
        taken = RowArrays.taken(self.held.block, asked.rows, edge_ids)
        return taken.received(self.channel.exchange(taken.sends(asked.counts), phase=ROWS), counts)


class ObliviousOperand(StagesOperand):
    """The published algorithm in which stages broadcast block rows, whichever rows are needed (`"oblivious"`).

    References
    ----------
    Koanantakool et al., IPDPS 2016, and Tripathy, Yelick, Buluc, SC 2020, for dense right-hand sides; the baseline of
    MLSys 2024, section 5.2.1.
    """

    def fetched(self, block: int | None, wanted: IntArray, edge_ids: bool) -> RowArrays:
        """Broadcast the whole block in the column group; each rank keeps the rows it wants."""
        A, bounds = self.held.block.matrix, self.held.placement.bounds
        ids = self.held.block.edge_ids_at(np.arange(len(A.indices))) if edge_ids else None
        own = RowArrays(np.diff(A.indptr), A.indices, A.data, ids)
        lengths, *entries = self.channel.broadcast([packed(own.lengths), *own.entries], block, phase=ROWS)
        rows = 0 if block is None else int(bounds[block + 1] - bounds[block])
        whole = own.replaced(unpack(Received(lengths, np.array([len(lengths)])), np.array([rows])), entries)
        return whole.picked(self.held.block, wanted)


class CachedRows(NamedTuple):
    """Rows that were fetched: those of Q among them, as a frontier of a local matrix, and their arrays."""

    F: LocalFrontier
    arrays: RowArrays

    def serves(self, edge_ids: bool) -> bool:
        """Return whether edge ids are there, where they are asked for."""
        return self.arrays.edge_ids is not None or not edge_ids

    def of_batch(self, batch: int) -> RowArrays:
        """Return the rows of Q of the batch at a position, each as often as Q has it; none without such a batch."""
        rows = self.F.Q.vertices[rows_of_batch(self.F.Q, batch)]
        return RowArrays.taken(self.F.A, rows, self.arrays.edge_ids is not None)


class StagesFrontier(Frontier):
    """Rows of A that the columns of the grid fetch, each its own, and that every rank of a row group gets whole.

    They are kept as long as the frontier.
    """

    A: StagesOperand

    def __init__(self, A: StagesOperand, Q: StackedSelector) -> None:
        super().__init__(A, Q)
        self.row_group = A.row_group.of(Q)
        self.plan = FetchPlan(Q, A.held.placement, A.stages, self.row_group.group.size)
        self._column: CachedRows | None = None
        self._group: CachedRows | None = None

    def column_rows(self, edge_ids: bool = False) -> CachedRows:
        """Return the rows of Q that this rank's column fetches, fetched at the first call."""
        if self._column is None or not self._column.serves(edge_ids):
            column, plan = self.row_group.group.rank, self.plan
            arrays = self._fetched(edge_ids)
            ids = plan.vertices[plan.bounds[column] : plan.bounds[column + 1]]
            rows = arrays.operand(self.A.held.block, ids).frontier(plan.selector_of(column))
            self._column = CachedRows(rows, arrays)
        return self._column

    def _fetched(self, edge_ids: bool) -> RowArrays:
        """Fetch the rows of one stage after the other, and then the hub rows, which need none."""
        A, column = self.A, self.row_group.group.rank
        pieces = [A.fetched(block, self.plan.wanted(block), edge_ids) for block in A.stages.blocks_of(column)]
        hubs = A.stages.hubs_of(column)
        if A.held.hubs is not None and hubs is not None:
            pieces.append(RowArrays.taken(A.held.hubs, self.plan.wanted(hubs), edge_ids))
        return joined(pieces)

    @lazily
    def row_lengths(self) -> Int64Array:
        """(m,) numbers of entries of the rows of Q."""
        rows = self.column_rows().F
        return self.in_order(np.diff(rows.A.matrix.indptr)[rows.Q.vertices])

    def in_order(self, values: Int64Array) -> Int64Array:
        """Gather numbers of at least 0 of all rows of Q, from those of this column's rows."""
        return self.row_group.numbers(values, self.plan.pairs)[self.plan.places]

    def stacked(self, arrays: RowArrays) -> Entries:
        """Gather entries of all rows of Q, from those of this column's rows, whose columns may be of a smaller type."""
        A, Q = self.A, self.Q
        degrees = self.row_lengths if A.weighting == "row" else None
        everything = self.row_group.rows(arrays, self.plan.pairs)
        everything = everything._replace(columns=everything.columns.astype(A.index_dtype, copy=False))
        rows, everything = everything.stacked(A.backend, Q.batch_ptr, self.plan.places)
        return received_entries(rows, Q.batch_ids, everything.edge_ids, degrees)

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

    def _batch_statistics(self) -> FrontierStatistics:
        counts, exponents = partial_statistics(self.column_rows().F)
        shape = columns, k = self.row_group.group.size, len(self.Q.batch_ids)
        everyones, maxima = self.row_group.gather([packed(counts), exponents])
        return added_statistics(unpack(everyones, np.full(columns, k)).reshape(shape), maxima.rows.reshape(shape))

    def merge_columns(self, rule: QuantisationRule) -> ColumnMatrix:
        """Add up the totals of each column's rows: the published all-reduce."""
        A, k = self.A, len(self.Q.batch_ids)
        P = self.column_rows().F.merge_columns(rule._replace(column_power=1))
        counts, columns, values = self.row_group.gather([packed(np.diff(P.indptr)), P.columns, packed(P.numerators)])
        sums = received_sums(counts, columns.rows, values, np.full(self.row_group.group.size, k))
        return A.backend.add_columns(sums, A.num_nodes, rule.column_power)

    def extract(self, src_ptr: Int64Array, src: IntArray, edge_ids: bool) -> Entries:
        """Extract from all rows where they are here; else from each column's, and gather the edges."""
        if self._group is not None and self._group.serves(edge_ids):
            return self._group.F.extract(src_ptr, src, edge_ids)
        rows = self.column_rows(edge_ids).F
        edges = RowArrays.of(rows.A, rows.extract(src_ptr, src, edge_ids))
        width = width_of(int(np.diff(src_ptr).max(initial=1)) - 1)
        return self.stacked(edges._replace(columns=edges.columns.astype(f"u{width}")))
