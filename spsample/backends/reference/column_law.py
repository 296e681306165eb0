"""The column law: distinct columns of whole batches from their merged numerators (law, section 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from spsample.backends.protocol import (
    ColumnMatrix,
    ColumnSample,
    Draw,
    Int64Array,
    IntArray,
    Matrix,
    PartialSums,
    QuantisationRule,
    StackedSelector,
    UInt64Array,
)
from spsample.backends.reference.quantisation import entry_numerators
from spsample.backends.reference.random import Stream
from spsample.backends.reference.row_law import first_distinct, its_with_replacement


def column_totals(A: Matrix, rule: QuantisationRule) -> UInt64Array:
    """(n,) column sums of the numerators over all rows (graph rule)."""
    rows = len(A.indptr) - 1
    totals = np.zeros(rows if A.num_columns is None else A.num_columns, np.uint64)
    for row in range(rows):
        np.add.at(totals, A.indices[A.indptr[row] : A.indptr[row + 1]], entry_numerators(A, row, rule, 0))
    return totals**rule.column_power


def merge_columns(A: Matrix, Q: StackedSelector, rule: QuantisationRule) -> ColumnMatrix:
    """One row per batch: numerators of the frontier's entries merged by column."""
    columns, numerators = [], []
    for i in range(len(Q.batch_ids)):
        rows = Q.vertices[Q.batch_ptr[i] : Q.batch_ptr[i + 1]]
        entries = [A.indices[A.indptr[r] : A.indptr[r + 1]] for r in rows] or [A.indices[:0]]
        values = [entry_numerators(A, r, rule, i) for r in rows] or [np.zeros(0, np.uint64)]
        merged, where = np.unique(np.concatenate(entries), return_inverse=True)
        sums = np.zeros(len(merged), np.uint64)
        np.add.at(sums, where, np.concatenate(values))
        columns.append(merged[sums > 0])
        numerators.append(sums[sums > 0] ** rule.column_power)
    totals = np.array([n.sum(dtype=np.uint64) for n in numerators], np.uint64)
    indptr = np.concatenate([[0], np.cumsum([len(c) for c in columns])]).astype(np.int64)
    return ColumnMatrix(
        indptr,
        np.concatenate([*columns, A.indices[:0]]),
        np.concatenate([*numerators, np.zeros(0, np.uint64)]).astype(np.uint64),
        totals,
    )


def add_columns(pieces: Sequence[PartialSums], num_columns: int, column_power: int) -> ColumnMatrix:
    """One row per batch: the sums of several parts, added up."""
    if not pieces or column_power not in (1, 2) or any(piece.numerators.dtype.kind != "u" for piece in pieces):
        raise ValueError("needs at least one piece, unsigned numerators, and a column power of 1 or 2")
    k = len(pieces[0].indptr) - 1
    sums = [np.zeros(num_columns, np.uint64) for _ in range(k)]
    for piece in pieces:
        for row, (lo, hi) in zip(sums, pairwise(piece.indptr.tolist()), strict=True):
            columns = piece.columns[lo:hi]
            if (np.diff(columns) <= 0).any() or (len(columns) and not 0 <= columns[0] <= columns[-1] < num_columns):
                raise ValueError("columns: must ascend, below the number of columns")
            row[columns] += piece.numerators[lo:hi].astype(np.uint64)
    raised = [row[row > 0] ** column_power for row in sums]
    return ColumnMatrix(
        np.concatenate([[0], np.cumsum([len(row) for row in raised])]).astype(np.int64),
        np.concatenate([*(np.flatnonzero(row) for row in sums), np.zeros(0)]).astype(pieces[0].columns.dtype),
        np.concatenate([*raised, np.zeros(0, np.uint64)]),
        np.array([row.sum(dtype=np.uint64) for row in raised], np.uint64),
    )


def draw_columns(P: ColumnMatrix, batch_ids: Int64Array, draw: Draw) -> ColumnSample:
    """Column law on each row of P."""
    rows = [(P.columns[lo:hi], P.numerators[lo:hi]) for lo, hi in zip(P.indptr[:-1], P.indptr[1:], strict=True)]
    return _draw_distributions(rows, batch_ids, draw, P.columns)


def draw_merged(A: Matrix, Q: StackedSelector, rule: QuantisationRule, draw: Draw) -> ColumnSample:
    """Column law on each batch's merged columns."""
    return draw_columns(merge_columns(A, Q, rule), Q.batch_ids, draw)


def shared_guide(cumulative: UInt64Array) -> IntArray:
    """Position of the first unit of each slice of 2^b units, and of the last unit."""
    n, total = len(cumulative), int(cumulative[-1]) if len(cumulative) else 0
    shift = 0
    while (max(total, 1) - 1) >> shift >= max(n, 1):
        shift += 1
    units = [*range(0, total, 1 << shift), total - 1] if total else []
    positions = np.searchsorted(cumulative, np.array(units, np.uint64), side="right") if total else np.zeros(1)
    return positions.astype(np.int32 if n < 2**31 else np.int64)


def draw_shared(
    cumulative: UInt64Array, batch_ids: Int64Array, draw: Draw, guide: IntArray | None = None
) -> ColumnSample:
    """Column law of every batch on one row over all columns; needs no guide."""
    columns = np.arange(len(cumulative), dtype=np.int64)
    row = (columns, np.diff(cumulative, prepend=np.uint64(0)))
    return _draw_distributions([row] * len(batch_ids), batch_ids, draw, columns)


def shared_numerators(cumulative: UInt64Array, columns: IntArray) -> UInt64Array:
    """N of columns of one row that is given by its prefix sums."""
    return np.diff(cumulative, prepend=np.uint64(0))[columns]


def _draw_distributions(
    rows: list[tuple[IntArray, UInt64Array]], batch_ids: Int64Array, draw: Draw, like: IntArray
) -> ColumnSample:
    """One draw per (columns, numerators)."""
    drawn, totals, whole = [], [], []
    for (columns, numerators), batch in zip(rows, batch_ids, strict=True):
        stream = Stream(draw.key, 0, draw.hop, int(batch))
        sample = its_with_replacement if draw.replace else first_distinct
        drawn.append(columns[sample(stream, numerators, draw.size)])
        totals.append(int(numerators.sum(dtype=np.uint64)))
        whole.append(not draw.replace and int(np.count_nonzero(numerators)) <= draw.size)
    return stack_samples(drawn, totals, whole, like)


def stack_samples(drawn: list[IntArray], totals: list[int], whole: list[bool], like: IntArray) -> ColumnSample:
    """Merge repeats (in the order first drawn) and stack the batches."""
    counters = [Counter(columns.tolist()) for columns in drawn]  # a Counter keeps the order of first insertion
    columns = [c for counter in counters for c in counter]
    counts = [c for counter in counters for c in counter.values()]
    return ColumnSample(
        np.concatenate([[0], np.cumsum([len(c) for c in counters])]).astype(np.int64),
        np.array(columns, like.dtype),
        np.array(counts, np.int64),
        np.array(totals, np.uint64),
        np.array(whole, np.bool_),
    )
