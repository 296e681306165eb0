"""Totals of rows and frontiers, and columns by position: what the entry law and the frontier rule ask of owners."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spsample.backends import ColumnSample, StackedSelector
from spsample.backends.protocol import NO_EXPONENT, Int64Array, IntArray
from spsample.comm import Received, Sent
from spsample.distributed.column.frontier import Frontier, Wanted, received_exclusion
from spsample.distributed.wire_format import narrow, widen
from spsample.sparse import LocalOperand, RowTotals
from spsample.sparse.operand import FrontierTotals, Weighting


def row_totals(frontier: Frontier, weighting: Weighting) -> RowTotals:
    """Entry counts and exponents of the rows of Q, each sent once for all batches that want the row."""
    answers = frontier.ask([], _totals_of_rows, phase="totals")
    counts = widen(answers[0], frontier.rows)
    exponents = answers[1].rows if weighting == "weighted" else equal_exponents(counts, weighting)
    row = frontier.row_of[frontier.places]
    return RowTotals(counts[row], exponents[row])


def _totals_of_rows(block: LocalOperand, wanted: Wanted, received: Sequence[Received]) -> list[Sent]:
    answers = [narrow(np.diff(block.matrix.indptr)[wanted.rows], wanted.row_counts)]
    if block.weighting == "weighted":
        answers.append(Sent(block.row_exponents[wanted.rows], wanted.row_counts))
    return answers


def equal_exponents(counts: Int64Array, weighting: Weighting) -> NDArray[np.int32]:
    """Of rows whose entries weigh 1, or one by their number."""
    weights = 1.0 / np.maximum(counts, 1) if weighting == "row" else np.ones(len(counts))
    return np.where(counts > 0, np.frexp(weights)[1], NO_EXPONENT).astype(np.int32)


def unchosen_totals(frontier: Frontier, exclude: ColumnSample) -> Int64Array:
    """Entry counts of the rows of Q without the columns that their batches exclude."""

    def answer(block: LocalOperand, wanted: Wanted, received: Sequence[Received]) -> list[Sent]:
        totals = block.row_totals(wanted.Q, received_exclusion(wanted, received))
        return [narrow(totals.counts, wanted.pairs)]

    (counts,) = frontier.ask(frontier.excluded(exclude), answer, phase="totals")
    return widen(counts, frontier.pairs)[frontier.places]


def frontier_totals(frontier: Frontier) -> FrontierTotals:
    """Entry counts and largest exponents of the batches: summed up by the owners first."""
    shape = parts, k = frontier.owners.num_parts, len(frontier.Q.batch_ids)
    counts, exponents = frontier.ask([], _totals_of_batches, phase="totals")
    return added_totals(widen(counts, np.full(parts, k, np.int64)).reshape(shape), exponents.rows.reshape(shape))


def _totals_of_batches(block: LocalOperand, wanted: Wanted, received: Sequence[Received]) -> list[Sent]:
    counts, exponents = partial_totals(block, wanted.Q)
    return [narrow(counts, wanted.batches), Sent(exponents, wanted.batches)]


def partial_totals(block: LocalOperand, Q: StackedSelector) -> tuple[Int64Array, NDArray[np.int32]]:
    """Entry count and largest exponent of each batch's rows in a part of A."""
    totals = block.row_totals(Q)
    counts, largest = block.backend.batch_totals(Q.batch_ptr, totals.counts, totals.exponents)
    return counts, largest.astype(np.int32)


def added_totals(counts: Int64Array, exponents: NDArray[np.int32]) -> FrontierTotals:
    """Of k batches, from what `partial_totals` gives of each part: both (parts, k).

    Examples
    --------
    >>> added_totals(np.array([[3, 1], [2, 0]]), np.array([[-2, 5], [1, NO_EXPONENT]]))
    FrontierTotals(counts=array([5, 1]), exponents=array([1, 5]))
    """
    maxima = exponents.max(axis=0).astype(np.int64)
    return FrontierTotals(counts.sum(axis=0), np.where(maxima == NO_EXPONENT, 0, maxima))


def locate(frontier: Frontier, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None) -> IntArray:
    """Columns of the `offsets`-th entries of stacked rows: positions go to the owners, columns come back."""
    where = frontier.places[rows]
    ends = np.cumsum(frontier.pairs)
    part = np.searchsorted(ends, where, side="right")
    order = np.argsort(part, kind="stable")
    counts = np.bincount(part, minlength=len(ends)).astype(np.int64)
    pair = (where - (ends - frontier.pairs)[part])[order] if len(where) else where
    sends = [narrow(pair, counts), narrow(offsets[order], counts), Sent(counts, np.ones(len(ends), np.int64))]

    def answer(block: LocalOperand, wanted: Wanted, received: Sequence[Received]) -> list[Sent]:
        pairs, positions, asked = received[:3]
        stacked = widen(pairs, asked.rows) + np.repeat(wanted.pair_begin(), asked.rows)
        found = block.locate(wanted.Q, stacked, widen(positions, asked.rows), received_exclusion(wanted, received[3:]))
        return [Sent(found, asked.rows)]

    (found,) = frontier.ask([*sends, *frontier.excluded(exclude)], answer, phase="positions")
    columns = np.empty_like(found.rows)
    columns[order] = found.rows
    return columns


__all__ = [
    "added_totals",
    "equal_exponents",
    "frontier_totals",
    "locate",
    "partial_totals",
    "row_totals",
    "unchosen_totals",
]
