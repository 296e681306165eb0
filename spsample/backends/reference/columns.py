"""The entry law and the column law: drawing distinct columns for whole batches (law, section 3)."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import (
    ColumnMatrix,
    ColumnSample,
    Draw,
    IntArray,
    Matrix,
    QuantisationRule,
    StackedSelector,
    UInt64Array,
)
from spsample.backends.reference.probability import merge_columns
from spsample.backends.reference.random import NARROW_LIMIT, ROUND, Stream
from spsample.backends.reference.rows import first_distinct, its, its_with_replacement

Int64Array = NDArray[np.int64]


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


def draw_entries(A: Matrix, Q: StackedSelector, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
    """Entry law: draw entries of the frontier's rows, keep their distinct columns."""
    q = np.ones(len(Q.vertices), np.uint64) if numerators is None else numerators
    drawn, totals, whole = [], [], []
    for i, (lo, hi) in enumerate(zip(Q.batch_ptr[:-1], Q.batch_ptr[1:], strict=True)):
        rows = [A.indices[A.indptr[v] : A.indptr[v + 1]] for v in Q.vertices[lo:hi]]
        entry_columns = np.concatenate([*rows, A.indices[:0]])
        entry_numerators = np.repeat(q[lo:hi], [len(r) for r in rows])
        total = int(entry_numerators.sum(dtype=np.uint64))
        stream = Stream(draw.key, 0, draw.hop, int(Q.batch_ids[i]))
        support = np.unique(entry_columns[entry_numerators > 0])
        take_all = not draw.replace and len(support) <= draw.size
        if take_all:
            columns = support
        elif draw.replace:
            columns = entry_columns[its_with_replacement(stream, entry_numerators, draw.size)]
        else:
            columns = _first_distinct_columns(stream, entry_columns, entry_numerators, draw.size)
        drawn.append(columns)
        totals.append(total)
        whole.append(take_all)
    return _stack(drawn, totals, whole, A.indices)


def _first_distinct_columns(stream: Stream, columns: IntArray, numerators: UInt64Array, size: int) -> IntArray:
    """The first `size` distinct columns; every entry of a chosen column is taken out between rounds."""
    wide = int(numerators.sum(dtype=np.uint64)) > NARROW_LIMIT
    remaining = numerators.copy()
    chosen: dict[int, None] = {}
    first = 0
    while len(chosen) < size:
        j = np.arange(first, first + ROUND * size)
        x = stream.integers(j, int(remaining.sum(dtype=np.uint64)), wide)
        chosen.update(dict.fromkeys(columns[its(remaining, x)].tolist()))
        remaining[np.isin(columns, list(chosen))] = 0
        first += ROUND * size
    return np.array(list(chosen)[:size], columns.dtype)


def row_totals(A: Matrix, Q: StackedSelector, exclude: ColumnSample | None) -> Int64Array:
    """Entries of each selected row whose column is not excluded."""
    return np.array([len(_unchosen(A, Q, r, exclude)) for r in range(len(Q.vertices))], np.int64)


def locate(
    A: Matrix, Q: StackedSelector, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None
) -> IntArray:
    """Column of the given entry, counted among the entries that are not excluded."""
    found = [_unchosen(A, Q, int(r), exclude)[o] for r, o in zip(rows, offsets, strict=True)]
    return np.array(found, A.indices.dtype)


def _unchosen(A: Matrix, Q: StackedSelector, r: int, exclude: ColumnSample | None) -> IntArray:
    """Columns of the stacked row r's entries without those that its batch excludes."""
    vertex = Q.vertices[r]
    columns = A.indices[A.indptr[vertex] : A.indptr[vertex + 1]]
    if exclude is None:
        return columns
    i = int(np.searchsorted(Q.batch_ptr, r, side="right")) - 1
    return columns[~np.isin(columns, exclude.columns[exclude.indptr[i] : exclude.indptr[i + 1]])]


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
    return _stack(drawn, totals, whole, like)


def _stack(drawn: list[IntArray], totals: list[int], whole: list[bool], like: IntArray) -> ColumnSample:
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
