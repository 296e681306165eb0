"""The entry law: columns drawn by the entries of a batch's rows, which are never merged (law, section 3)."""

from __future__ import annotations

import numpy as np

from spsample.backends.protocol import (
    ColumnSample,
    Draw,
    Int64Array,
    IntArray,
    Matrix,
    StackedSelector,
    UInt64Array,
)
from spsample.backends.reference.column_law import stack_samples
from spsample.backends.reference.random import NARROW_LIMIT, ROUND_DRAWS, Stream
from spsample.backends.reference.row_law import its, its_with_replacement


def entry_counts(A: Matrix, Q: StackedSelector, exclude: ColumnSample | None) -> Int64Array:
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
    return stack_samples(drawn, totals, whole, A.indices)


def _first_distinct_columns(stream: Stream, columns: IntArray, numerators: UInt64Array, size: int) -> IntArray:
    """The first `size` distinct columns; every entry of a chosen column is taken out between rounds."""
    wide = int(numerators.sum(dtype=np.uint64)) > NARROW_LIMIT
    remaining = numerators.copy()
    chosen: dict[int, None] = {}
    first = 0
    while len(chosen) < size:
        j = np.arange(first, first + ROUND_DRAWS * size)
        x = stream.integers(j, int(remaining.sum(dtype=np.uint64)), wide)
        chosen.update(dict.fromkeys(columns[its(remaining, x)].tolist()))
        remaining[np.isin(columns, list(chosen))] = 0
        first += ROUND_DRAWS * size
    return np.array(list(chosen)[:size], columns.dtype)
