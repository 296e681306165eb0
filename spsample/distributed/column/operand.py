"""`ColumnOperand`: rows of Q split over all ranks, each of which asks its column group (`algorithm="column"`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spsample.backends import ColumnMatrix, ColumnSample, Draw, QuantisationRule, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.comm import Received, Sent
from spsample.distributed.column.extraction import Columns, extract
from spsample.distributed.column.frontier import (
    Answer,
    FetchedBlockRows,
    RemoteFrontier,
    RowRequests,
    received_exclusion,
)
from spsample.distributed.column.rows import RowDraw, sample_rows
from spsample.distributed.column.sums import Answered, ask, draw_from_answers, merged
from spsample.distributed.operand import PartitionedOperand
from spsample.distributed.rounds import draw_entries_in_rounds
from spsample.distributed.row_arrays import added_statistics, equal_exponents, partial_statistics, received_entries
from spsample.distributed.wire_format import pack, unpack
from spsample.sparse import LocalOperand
from spsample.sparse.operand import Entries, Frontier, RowForm, ScaledForm
from spsample.sparse.probability import FrontierStatistics, RowStatistics

GAP_BYTES = 2
"""Bytes, about, of a sampled column on its way to an owner."""


class ColumnOperand(PartitionedOperand):
    """A on a column group, whose ranks hold all of its rows between them.

    Every rank has its own batches and asks the owners of the rows it needs, in one all-to-allv there and one back;
    nothing is reduced. The published algorithm splits A's block rows over the ranks instead and has to add up.
    """

    def frontier(self, Q: StackedSelector) -> ColumnFrontier:
        return ColumnFrontier(self, Q)


class ColumnFrontier(Frontier):
    """Rows of A at their owners, who draw from them, sum them up and extract from them."""

    A: ColumnOperand

    def __init__(self, A: ColumnOperand, Q: StackedSelector) -> None:
        super().__init__(A, Q)
        self._fetched: FetchedBlockRows | None = None  # came with sums by column, and are kept for an extraction
        self._rows: RemoteFrontier | None = None

    @property
    def rows(self) -> RemoteFrontier:
        """The rows, which their owners get when they are first needed."""
        return self._registered(None)

    def _registered(self, more: Answer | None) -> RemoteFrontier:
        """Return the rows; owners who get them now answer `more`, too."""
        if self._rows is None:
            self._rows = RemoteFrontier(self.A, self.Q, more)
        return self._rows

    def sample_rows(self, draw: Draw, form: RowForm | ScaledForm, edge_ids: bool) -> Entries:
        return sample_rows(self.A, self.Q, RowDraw(draw, form, edge_ids))

    def take_rows(self, edge_ids: bool) -> Entries:
        return sample_rows(self.A, self.Q, RowDraw(None, "uniform", edge_ids))

    def _row_statistics(self) -> RowStatistics:
        is_first = self._rows is None
        rows = self._registered(_statistics_of_rows)
        lengths, *more = rows.answers if is_first else rows.ask([], _statistics_of_rows, phase="totals")
        counts = unpack(lengths, rows.rows)
        exponents = more[0].rows if more else equal_exponents(counts, self.A.weighting)
        row = rows.row_of[rows.places]
        return RowStatistics(counts[row], exponents[row])

    def _batch_statistics(self) -> FrontierStatistics:
        shape = parts, k = self.A.num_parts, len(self.Q.batch_ids)
        counts, exponents = self.rows.ask([], _statistics_of_batches, phase="totals")
        counts_of_parts = unpack(counts, np.full(parts, k, np.int64)).reshape(shape)
        return added_statistics(counts_of_parts, exponents.rows.reshape(shape))

    def entry_counts(self, exclude: ColumnSample) -> Int64Array:
        def answer(block: LocalOperand, requests: RowRequests, received: Sequence[Received]) -> list[Sent]:
            counts = block.frontier(requests.Q).entry_counts(received_exclusion(requests, *received))
            return [pack(counts, requests.pairs)]

        (counts,) = self.rows.ask(self.rows.excluded(exclude), answer, phase="totals")
        return unpack(counts, self.rows.pairs)[self.rows.places]

    def locate(self, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None = None) -> IntArray:
        """Return the columns of the `offsets`-th entries: positions go to the owners, columns come back."""
        where, ends = self.rows.places[rows], np.cumsum(self.rows.pairs)
        part = np.searchsorted(ends, where, side="right")
        order = np.argsort(part, kind="stable")
        counts = np.bincount(part, minlength=len(ends)).astype(np.int64)
        pair = (where - (ends - self.rows.pairs)[part])[order] if len(where) else where
        sends = [pack(pair, counts), pack(offsets[order], counts), Sent(counts, np.ones(len(ends), np.int64))]
        if exclude is not None:
            sends += self.rows.excluded(exclude)
        (received,) = self.rows.ask(sends, _located, phase="positions")
        columns = np.empty_like(received.rows)
        columns[order] = received.rows
        return columns

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


def _statistics_of_rows(block: LocalOperand, requests: RowRequests, received: Sequence[Received]) -> list[Sent]:
    """Answer with entry counts, and exponents where A has weights, once for all batches that need the row."""
    answers = [pack(np.diff(block.matrix.indptr)[requests.rows], requests.row_counts)]
    if block.weighting == "weighted":
        answers.append(Sent(block.row_exponents[requests.rows], requests.row_counts))
    return answers


def _statistics_of_batches(block: LocalOperand, requests: RowRequests, received: Sequence[Received]) -> list[Sent]:
    counts, exponents = partial_statistics(block.frontier(requests.Q))
    return [pack(counts, requests.batches), Sent(exponents, requests.batches)]


def _located(block: LocalOperand, requests: RowRequests, received: Sequence[Received]) -> list[Sent]:
    """Answer with the columns at positions of stacked rows."""
    pairs, positions, asked, *exclusion = received
    stacked = unpack(pairs, asked.rows) + np.repeat(np.cumsum(requests.pairs) - requests.pairs, asked.rows)
    excluded = received_exclusion(requests, *exclusion) if exclusion else None
    columns = block.frontier(requests.Q).locate(stacked, unpack(positions, asked.rows), excluded)
    return [Sent(columns, asked.rows)]
