"""EXTRACT: compaction of sampled rows, membership extraction and the values of entries (law, sections 4 and 6)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends.arithmetic import overflow_error
from spsample.backends.protocol import (
    ColumnSample,
    Compaction,
    FloatArray,
    IntArray,
    Matrix,
    StackedRows,
    StackedSelector,
)
from spsample.backends.reference.probability import entry_weights, stacked_batches
from spsample.backends.reference.rows import stack_rows, take_rows

Int64Array = NDArray[np.int64]


def source_order(dst: IntArray, columns: IntArray, include_targets: bool) -> IntArray:
    """dst first, then the other columns ascending; without targets all columns ascending.

    Examples
    --------
    >>> source_order(np.array([5, 2]), np.array([7, 2, 3, 7]), True).tolist()
    [5, 2, 3, 7]
    """
    if include_targets:
        return np.concatenate([dst, np.setdiff1d(columns, dst)]).astype(dst.dtype)
    return np.unique(columns).astype(dst.dtype)


def compact(
    Q: StackedSelector, rows: StackedRows, include_targets: bool, num_vertices: int | None = None
) -> Compaction:
    """src vertices of each batch and the entries' local column ids."""
    sources, local = [], []
    for i in range(len(Q.batch_ids)):
        columns = rows.columns[rows.entry_ptr[i] : rows.entry_ptr[i + 1]]
        src = source_order(Q.vertices[Q.batch_ptr[i] : Q.batch_ptr[i + 1]], columns, include_targets)
        sources.append(src)
        local.append(_local_ids(src, columns))
    src_ptr, src = _stack(sources, Q.vertices)
    return Compaction(src_ptr, src, np.concatenate([*local, rows.columns[:0]]).astype(rows.columns.dtype))


def compact_owned(
    Q: StackedSelector, rows: StackedRows, include_targets: bool, num_vertices: int | None = None
) -> Compaction:
    """The same: nothing is gained here by writing over what is given up."""
    return compact(Q, rows, include_targets)


def take_rows_numbered(
    A: Matrix, Q: StackedSelector, known: StackedSelector, positions: bool, include_targets: bool
) -> tuple[StackedRows, Compaction]:
    """Whole rows, and their columns numbered after the `known` vertices."""
    rows = take_rows(A, Q, positions)
    return rows, compact(known, rows, include_targets)


def merge_targets(
    Q: StackedSelector, sample: ColumnSample, include_targets: bool, num_vertices: int | None = None
) -> Compaction:
    """src vertices of each batch of a layer-wise draw, and where in them each drawn column is."""
    drawn = StackedRows(sample.indptr, sample.indptr, sample.indptr, sample.columns.astype(Q.vertices.dtype), None)
    return compact(Q, drawn, include_targets)


def extract(A: Matrix, Q: StackedSelector, src_ptr: Int64Array, src: IntArray, positions: bool = True) -> StackedRows:
    """Rows Q of A restricted to each batch's src columns, in A's order; positions always."""
    lengths, columns, places = [], [], []
    for i in range(len(Q.batch_ids)):
        members = src[src_ptr[i] : src_ptr[i + 1]]
        for vertex in Q.vertices[Q.batch_ptr[i] : Q.batch_ptr[i + 1]]:
            entries = np.arange(A.indptr[vertex], A.indptr[vertex + 1])
            entries = entries[np.isin(A.indices[entries], members)]
            lengths.append(len(entries))
            columns.append(_local_ids(members, A.indices[entries]))
            places.append(entries)
    return stack_rows(
        Q.batch_ptr,
        np.array(lengths, np.int64),
        np.concatenate([*columns, A.indices[:0]]).astype(A.indices.dtype),
        np.concatenate([*places, np.zeros(0, np.int64)]).astype(np.int64),
    )


def entry_values(
    A: Matrix, Q: StackedSelector, rows: StackedRows, src_ptr: Int64Array, weights: FloatArray, normalize: bool
) -> FloatArray:
    """A_iv weights[v] of each extracted entry, rounded once; CapacityError where that is not finite."""
    values = np.zeros(len(rows.columns), np.float64)
    for i, begin, indptr in stacked_batches(rows):
        for r, (lo, hi) in enumerate(zip(indptr[:-1] + begin, indptr[1:] + begin, strict=True)):
            vertex = int(Q.vertices[Q.batch_ptr[i] + r])
            a = entry_weights(A, vertex)  # all alike where positions are left out
            a = a[: hi - lo] if rows.positions is None else a[rows.positions[lo:hi] - A.indptr[vertex]]
            with np.errstate(over="ignore", invalid="ignore"):
                row = a * weights[src_ptr[i] + rows.columns[lo:hi]]
                values[lo:hi] = normalize_row(row) if normalize else row
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32 if A.data is None else A.data.dtype)
    bad = np.flatnonzero(~np.isfinite(rounded))
    if bad.size:
        raise overflow_error(A, rows, rounded, int(bad[0]))
    return rounded


def normalize_row(row: NDArray[np.float64]) -> NDArray[np.float64]:
    """A row divided by its sum, added up in entry order; as it is where the sum is 0, NaN where it is not finite.

    Examples
    --------
    >>> normalize_row(np.array([1.0, 3.0])).tolist()
    [0.25, 0.75]
    """
    total = 0.0
    for value in row.tolist():
        total += value
    if not np.isfinite(total):
        return np.full(len(row), np.nan)
    return row / total if total != 0.0 else row


def _local_ids(src: IntArray, columns: IntArray) -> Int64Array:
    """Index of each column in src (all are in it)."""
    order = np.argsort(src, kind="stable")
    return order[np.searchsorted(src[order], columns)] if len(columns) else np.zeros(0, np.int64)


def _stack(parts: list[IntArray], like: IntArray) -> tuple[Int64Array, IntArray]:
    """Offsets and concatenation of the batches' arrays."""
    ptr = np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int64)
    return ptr, np.concatenate([*parts, like[:0]]).astype(like.dtype)
