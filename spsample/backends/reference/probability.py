"""From weights to integer numerators, and their merging by column (law, section 2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import (
    NO_EXPONENT,
    ColumnMatrix,
    Matrix,
    QuantisationRule,
    StackedRows,
    StackedSelector,
    UInt64Array,
)

NARROW_BITS, WIDE_BITS = 32, 62
NARROW_PRECISION = 2.0**11


def ceil_log2(count: int) -> int:
    """Bit length of `count - 1`.

    Examples
    --------
    >>> [ceil_log2(c) for c in (1, 2, 3, 4, 5)]
    [0, 1, 2, 2, 3]
    """
    return int(count - 1).bit_length()


def quantize(weights: NDArray[np.floating], shift: int, power: int = 1) -> UInt64Array:
    """N(w) = max(1, rint(m^power 2^(power e + shift))), 0 for w = 0.

    Examples
    --------
    >>> quantize(np.array([0.0, 1.0, 1e-9, 0.75]), 4).tolist()
    [0, 16, 1, 12]
    """
    m, e = np.frexp(weights.astype(np.float64))
    scaled = np.rint(np.ldexp(m if power == 1 else m * m, power * e + shift))
    return np.where(weights > 0, np.maximum(scaled, 1.0), 0.0).astype(np.uint64)


def row_numerators(weights: NDArray[np.floating]) -> UInt64Array:
    """Numerators of one row under the row rule.

    Examples
    --------
    >>> row_numerators(np.array([1.0, 3.0])).tolist()    # E = 2, D = 2, K = 29
    [536870912, 1610612736]
    """
    positive = weights[weights > 0].astype(np.float64)
    if positive.size == 0:
        return np.zeros(len(weights), np.uint64)
    base = int(np.frexp(positive)[1].max()) + ceil_log2(positive.size)
    scaled = np.ldexp(positive, NARROW_BITS - base)
    narrow = scaled.min() >= NARROW_PRECISION or bool(np.all((scaled == np.rint(scaled)) & (scaled >= 1)))
    return quantize(weights, (NARROW_BITS if narrow else WIDE_BITS) - base)


def entry_weights(A: Matrix, row: int) -> NDArray[np.float64]:
    """A_iv of row i in entry order, as binary64."""
    begin, end = A.indptr[row], A.indptr[row + 1]
    if A.data is not None:
        return A.data[begin:end].astype(np.float64)
    return np.full(end - begin, 1.0 / max(end - begin, 1) if A.row_normalized else 1.0)


def row_exponents(A: Matrix) -> NDArray[np.int32]:
    """Largest binary exponent of each row's positive entries."""
    result = np.full(len(A.indptr) - 1, NO_EXPONENT, np.int32)
    for row in range(len(result)):
        positive = entry_weights(A, row)
        positive = positive[positive > 0]
        if positive.size:
            result[row] = np.frexp(positive)[1].max()
    return result


def entry_numerators(A: Matrix, row: int, rule: QuantisationRule, batch: int) -> UInt64Array:
    """Numerators of the entries of one row under the frontier rule."""
    if rule.shifts is None:
        return np.ones(A.indptr[row + 1] - A.indptr[row], np.uint64)
    return quantize(entry_weights(A, row), int(rule.shifts[batch]), rule.power)


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


def extracted_numerators(
    A: Matrix, Q: StackedSelector, rows: StackedRows, src_ptr: NDArray[np.int64], rule: QuantisationRule
) -> UInt64Array:
    """N_v of each src column from the entries of the extraction."""
    sums = np.zeros(src_ptr[-1], np.uint64)
    for i, begin, indptr in stacked_batches(rows):
        for r, (lo, hi) in enumerate(zip(indptr[:-1] + begin, indptr[1:] + begin, strict=True)):
            vertex = int(Q.vertices[Q.batch_ptr[i] + r])
            values = entry_numerators(A, vertex, rule, i)
            values = values[: hi - lo] if rows.positions is None else values[rows.positions[lo:hi] - A.indptr[vertex]]
            np.add.at(sums, src_ptr[i] + rows.columns[lo:hi], values)
    return sums**rule.column_power


def stacked_batches(rows: StackedRows) -> list[tuple[int, int, NDArray[np.int64]]]:
    """(batch, first entry, batch-local indptr) of each batch."""
    return [
        (i, int(rows.entry_ptr[i]), rows.indptr[rows.batch_ptr[i] + i : rows.batch_ptr[i + 1] + i + 1])
        for i in range(len(rows.batch_ptr) - 1)
    ]
