"""Column law on a partitioned A: of each part the cheaper of the rows and their owner's sums by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spsample.backends import ColumnMatrix, Numerators
from spsample.comm import Received, Sent
from spsample.distributed.fetched import FetchedRows, fetched, row_bytes, rows_for
from spsample.distributed.frontier import Frontier, Wanted
from spsample.distributed.narrow import either, from_parts, narrow, width_of
from spsample.distributed.owners import segment_sums
from spsample.distributed.partial_sums import added, powered, received_sums
from spsample.sparse import LocalOperand

SUMS, ROWS = 0, 1
"""What an owner sends."""


class Merged(NamedTuple):
    """Q A, and the rows that were fetched on the way."""

    P: ColumnMatrix
    rows: FetchedRows


def merge_columns(frontier: Frontier, rule: Numerators, later_bytes: int) -> Merged:
    """Q A with one row per batch (`GraphOperand.left_multiply`).

    `later_bytes` is about what an extraction from a part takes if its rows are not fetched now.
    """
    parts, k = frontier.owners.num_parts, len(frontier.Q.batch_ids)
    one, batches = np.ones(parts, np.int64), np.full(parts, k, np.int64)
    shifts = np.zeros(k, np.int64) if rule.shifts is None else rule.shifts
    sends = [Sent(np.full(parts, later_bytes, np.int64), one), Sent(np.tile(shifts, parts), batches)]
    answers = frontier.ask(sends, _Answer(rule), phase="sums")
    kinds, counts, columns, numerators, lengths, *weights = answers
    is_rows = kinds.rows == ROWS
    rows = fetched(frontier, is_rows, lengths, from_parts(columns, is_rows), weights[0] if weights else None)
    sums = received_sums(counts, from_parts(columns, ~is_rows).rows, numerators, batches)
    own = _sums_of(frontier, rows, rule._replace(column_power=1))
    block = frontier.owners.block
    P = added(block.backend, [sums, own], k, block.num_columns)
    return Merged(powered(P, rule.column_power), rows)


class _Answer(NamedTuple):
    """An owner's answer: a word for sums or rows, columns per batch, columns, numerators, row lengths, weights.

    Columns are those of sums or of rows, whichever it sends.
    """

    rule: Numerators

    def __call__(self, block: LocalOperand, wanted: Wanted, received: Sequence[Received]) -> list[Sent]:
        later, shifts = received
        rule = Numerators(None if self.rule.shifts is None else shifts.rows, self.rule.power, 1)
        sums = block.backend.merge_columns(block.matrix, wanted.Q, rule)
        columns = np.diff(sums.indptr)
        sizes = segment_sums(columns, wanted.batches)
        width = width_of(int(sums.numerators.max(initial=0)))
        sums_bytes = sizes * (block.matrix.indices.itemsize + width) + later.rows
        is_rows = wanted.entries(block) * row_bytes(block, False) <= sums_bytes
        of_batch = np.repeat(is_rows, wanted.batches)
        of_column = np.repeat(of_batch, columns)
        rows = rows_for(block, wanted, is_rows, False)
        sent_sizes = np.where(is_rows, 0, sizes)
        answers = [
            Sent(np.where(is_rows, ROWS, SUMS).astype(np.int8), np.ones(len(is_rows), np.int64)),
            narrow(np.where(of_batch, 0, columns), wanted.batches),
            either(is_rows, Sent(sums.columns[~of_column], sent_sizes), rows.columns),
            narrow(sums.numerators[~of_column], sent_sizes),
            rows.lengths,
        ]
        return answers if rows.weights is None else [*answers, rows.weights]


def _sums_of(frontier: Frontier, rows: FetchedRows, rule: Numerators) -> ColumnMatrix:
    """Sums of the fetched rows: k rows for each of their parts."""
    Q, chosen = rows.selector(frontier)
    shifts = None if rule.shifts is None else np.tile(rule.shifts, len(chosen))
    return frontier.owners.block.backend.merge_columns(rows.matrix, Q, rule._replace(shifts=shifts))


__all__ = ["Merged", "merge_columns"]
