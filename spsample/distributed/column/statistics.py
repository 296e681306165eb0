"""Requests of the entry law and the frontier rule to owners: entry counts, exponents, and columns by position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spsample.backends import ColumnSample
from spsample.backends.protocol import Int64Array, IntArray
from spsample.comm import Received, Sent
from spsample.distributed.column.frontier import RowRequests, RowsAtOwners, received_exclusion
from spsample.distributed.partials import added_statistics, equal_exponents, partial_statistics
from spsample.distributed.wire_format import pack, unpack
from spsample.sparse.local import LocalOperand
from spsample.sparse.probability import FrontierStatistics, RowStatistics, Weighting


def row_statistics(frontier: RowsAtOwners, answers: Sequence[Received], weighting: Weighting) -> RowStatistics:
    """Entry counts and exponents of the rows of Q, which the owners answered by `statistics_of_rows`."""
    counts = unpack(answers[0], frontier.rows)
    exponents = answers[1].rows if weighting == "weighted" else equal_exponents(counts, weighting)
    row = frontier.row_of[frontier.places]
    return RowStatistics(counts[row], exponents[row])


def statistics_of_rows(block: LocalOperand, requests: RowRequests, received: Sequence[Received]) -> list[Sent]:
    """Answer with entry counts, and exponents where A has weights, once for all batches that need the row."""
    answers = [pack(np.diff(block.matrix.indptr)[requests.rows], requests.row_counts)]
    if block.weighting == "weighted":
        answers.append(Sent(block.row_exponents[requests.rows], requests.row_counts))
    return answers


def entry_counts(frontier: RowsAtOwners, exclude: ColumnSample) -> Int64Array:
    """Entry counts of the rows of Q without the columns that their batches exclude."""

    def answer(block: LocalOperand, requests: RowRequests, received: Sequence[Received]) -> list[Sent]:
        counts = block.frontier(requests.Q).entry_counts(received_exclusion(requests, *received))
        return [pack(counts, requests.pairs)]

    (counts,) = frontier.ask(frontier.excluded(exclude), answer, phase="totals")
    return unpack(counts, frontier.pairs)[frontier.places]


def frontier_statistics(frontier: RowsAtOwners) -> FrontierStatistics:
    """Entry counts and largest exponents of the batches: summed up by the owners first."""
    shape = parts, k = frontier.owners.num_parts, len(frontier.Q.batch_ids)
    counts, exponents = frontier.ask([], _statistics_of_batches, phase="totals")
    return added_statistics(unpack(counts, np.full(parts, k, np.int64)).reshape(shape), exponents.rows.reshape(shape))


def _statistics_of_batches(block: LocalOperand, requests: RowRequests, received: Sequence[Received]) -> list[Sent]:
    counts, exponents = partial_statistics(block.frontier(requests.Q))
    return [pack(counts, requests.batches), Sent(exponents, requests.batches)]


def locate(frontier: RowsAtOwners, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None) -> IntArray:
    """Return the columns of the `offsets`-th entries of stacked rows: positions go to the owners, columns come back."""
    where = frontier.places[rows]
    ends = np.cumsum(frontier.pairs)
    part = np.searchsorted(ends, where, side="right")
    order = np.argsort(part, kind="stable")
    counts = np.bincount(part, minlength=len(ends)).astype(np.int64)
    pair = (where - (ends - frontier.pairs)[part])[order] if len(where) else where
    sends = [pack(pair, counts), pack(offsets[order], counts), Sent(counts, np.ones(len(ends), np.int64))]

    def answer(block: LocalOperand, requests: RowRequests, received: Sequence[Received]) -> list[Sent]:
        pairs, positions, asked, *exclusion = received
        stacked = unpack(pairs, asked.rows) + np.repeat(requests.pair_begin(), asked.rows)
        excluded = received_exclusion(requests, *exclusion) if exclusion else None
        columns = block.frontier(requests.Q).locate(stacked, unpack(positions, asked.rows), excluded)
        return [Sent(columns, asked.rows)]

    if exclude is not None:
        sends += frontier.excluded(exclude)
    (received,) = frontier.ask(sends, answer, phase="positions")
    columns = np.empty_like(received.rows)
    columns[order] = received.rows
    return columns


__all__ = [
    "entry_counts",
    "frontier_statistics",
    "locate",
    "row_statistics",
    "statistics_of_rows",
]
