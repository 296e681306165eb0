"""Column law on a partitioned A: of each part its rows, or their owner's sums by column where those are cheaper.

The bytes of an extraction after sums are not known yet when the owner chooses; the least of them are counted in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spsample.backends import ColumnMatrix, ColumnSample, Draw, PartialSums, QuantisationRule, StackedSelector
from spsample.backends.on_host import pointers_of
from spsample.backends.protocol import Int64Array
from spsample.comm import Received, Sent
from spsample.distributed.column.frontier import (
    FetchedBlockRows,
    RemoteFrontier,
    RowRequests,
    bytes_per_entry,
    fetched,
    rows_for,
)
from spsample.distributed.row_arrays import received_sums
from spsample.distributed.wire_format import either, keep_from, pack_pieces, width_of
from spsample.sparse import LocalOperand

SUMS, ROWS = 0, 1
"""Kinds of answers of an owner."""

STEPS = 8
"""Steps in which a rank's batches are merged until the cheaper kind is known, where the batches are small."""

STEP_ENTRIES = 1 << 16
"""Entries of a step where they are large: down to one batch, whose entries the kernel reads once in place of twice."""


class Answered(NamedTuple):
    """Answers of the owners: rows of some parts, sums of the others; k rows for each part, empty where it sent rows."""

    rows: FetchedBlockRows
    sums: list[PartialSums]


def ask(frontier: RemoteFrontier, rule: QuantisationRule, later_bytes: int) -> Answered:
    """Ask each part for the rows of Q, or their sums by column.

    `later_bytes` is about the number of bytes that an extraction from a part takes if its rows are not fetched now.
    """
    parts, k = frontier.parts, len(frontier.Q.batch_ids)
    single, batches = np.ones(parts, np.int64), np.full(parts, k, np.int64)
    shifts = np.zeros(k, np.int64) if rule.shifts is None else rule.shifts
    sends = [Sent(np.full(parts, later_bytes, np.int64), single), Sent(np.tile(shifts, parts), batches)]
    answers = frontier.ask(sends, _SumsOrRows(rule), phase="sums")
    kinds, counts, columns, numerators, lengths, *weights = answers
    is_rows = kinds.rows == ROWS
    rows = fetched(frontier, is_rows, lengths, [keep_from(columns, is_rows), *weights])
    return Answered(rows, received_sums(counts, keep_from(columns, ~is_rows).rows, numerators, batches))


def merged(frontier: RemoteFrontier, answered: Answered, rule: QuantisationRule) -> ColumnMatrix:
    """Q A with one row per batch (`Frontier.merge_columns`)."""
    rows, sums = answered
    block = frontier.block
    if rows.parts.all():
        return block.backend.merge_columns(rows.matrix, rows.selector(frontier), rule)
    own = block.backend.merge_columns(rows.matrix, rows.selector(frontier), rule._replace(column_power=1))
    return block.backend.add_columns(
        [*sums, PartialSums(own.indptr, own.columns, own.numerators)], block.num_nodes, rule.column_power
    )


def draw_from_answers(frontier: RemoteFrontier, answered: Answered, rule: QuantisationRule, draw: Draw) -> ColumnSample:
    """Column law on Q A (`Frontier.draw_merged`), which is not written out where all parts sent rows."""
    backend, rows = frontier.block.backend, answered.rows
    if rows.parts.all():
        return backend.draw_merged(rows.matrix, rows.selector(frontier), rule, draw)
    return backend.draw_columns(merged(frontier, answered, rule), frontier.Q.batch_ids, draw)


class _SumsOrRows(NamedTuple):
    """An owner's `Answer`: SUMS or ROWS, columns per batch, columns, numerators, row lengths, weights.

    Columns are those of sums or of rows, whichever it sends.
    """

    rule: QuantisationRule

    def __call__(self, block: LocalOperand, requests: RowRequests, received: Sequence[Received]) -> list[Sent]:
        later, shifts = received
        rule = QuantisationRule(None if self.rule.shifts is None else shifts.rows, self.rule.power, 1)
        limits = (_requested_bytes(block, requests) - later.rows).tolist()
        ends = pointers_of(requests.batches).tolist()
        ranks = zip(limits, ends[:-1], ends[1:], strict=True)
        cheaper = [_cheaper_sums(block, *_batches(requests.Q, rule, begin, end), limit) for limit, begin, end in ranks]
        is_rows = np.array([sums is None for sums in cheaper], np.bool_)
        of_ranks = [sums or _no_sums(block, k) for sums, k in zip(cheaper, requests.batches.tolist(), strict=True)]
        pieces = [sums.pieces for sums in of_ranks]
        sizes = np.array([sum(len(piece.columns) for piece in of_rank) for of_rank in pieces], np.int64)
        columns = Sent(np.concatenate([piece.columns for of_rank in pieces for piece in of_rank]), sizes)
        rows = rows_for(block, requests, is_rows, False)
        answers = [
            Sent(np.where(is_rows, ROWS, SUMS).astype(np.int8), np.ones(len(is_rows), np.int64)),
            pack_pieces([[np.diff(piece.indptr) for piece in of_rank] for of_rank in pieces]),
            either(is_rows, columns, rows.columns),
            pack_pieces(
                [[piece.numerators for piece in of_rank] for of_rank in pieces], [sums.largest for sums in of_ranks]
            ),
            rows.lengths,
        ]
        return answers if rows.weights is None else [*answers, rows.weights]


def _requested_bytes(block: LocalOperand, requests: RowRequests) -> Int64Array:
    """Return the bytes of each rank's distinct rows on the wire."""
    lengths = np.split(np.diff(block.matrix.indptr)[requests.rows], np.cumsum(requests.row_counts)[:-1])
    of_lengths = [len(rows) * width_of(int(rows.max(initial=0))) for rows in lengths]
    return requests.entries(block) * bytes_per_entry(block, False) + np.array(of_lengths, np.int64)


class _Sums(NamedTuple):
    """Sums of a rank's batches, some batches in each of the pieces, and the largest numerator."""

    pieces: list[ColumnMatrix]
    largest: int


def _cheaper_sums(block: LocalOperand, Q: StackedSelector, rule: QuantisationRule, limit: int) -> _Sums | None:
    """Sums of a rank's batches in pieces, or None where they take `limit` bytes or more.

    An eighth of the batches is merged at a time, or less where they are large, until those merged take as many bytes by
    themselves. They are a lower bound of the bytes, whatever the other batches are: the cheaper of the two is always
    taken, up to the bytes of the lengths of `Q`'s batches. Sums that would take r times the limit cost about 1 / r of
    their merging.
    """
    pieces: list[ColumnMatrix] = []
    columns, largest = 0, 0
    cuts = _cuts(block, Q) if limit > 0 else []
    for begin, end in zip([0, *cuts], cuts, strict=False):
        pieces.append(block.backend.merge_columns(block.matrix, *_batches(Q, rule, begin, end)))
        columns += len(pieces[-1].columns)
        largest = max(largest, int(pieces[-1].numerators.max(initial=0)))
        if limit <= columns * (block.matrix.indices.itemsize + width_of(largest)):
            return None
    return _Sums(pieces, largest) if pieces else None


def _cuts(block: LocalOperand, Q: StackedSelector) -> list[int]:
    """The batches before which steps end, ascending."""
    k, indptr = len(Q.batch_ids), block.matrix.indptr
    entries = int((indptr[Q.vertices + 1] - indptr[Q.vertices]).sum())
    steps = max(STEPS, min(k, entries // STEP_ENTRIES))
    return sorted({k * step // steps for step in range(1, steps + 1)} - {0})


def _batches(
    Q: StackedSelector, rule: QuantisationRule, begin: int, end: int
) -> tuple[StackedSelector, QuantisationRule]:
    """Batches begin .. end - 1, and the rule for them."""
    ptr = Q.batch_ptr[begin : end + 1]
    chosen = StackedSelector(ptr - ptr[0], Q.vertices[ptr[0] : ptr[-1]], Q.batch_ids[begin:end])
    return chosen, rule if rule.shifts is None else rule._replace(shifts=rule.shifts[begin:end])


def _no_sums(block: LocalOperand, k: int) -> _Sums:
    """Sums of k batches without entries."""
    empty = np.zeros(0, np.uint64)
    return _Sums([ColumnMatrix(np.zeros(k + 1, np.int64), empty.astype(block.matrix.indices.dtype), empty, empty)], 0)
