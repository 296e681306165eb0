"""The values of entries, and the weights c_v of src columns that make an estimate unbiased (law, section 6)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends.arithmetic import overflow_error
from spsample.backends.on_host import row_lengths
from spsample.backends.protocol import (
    ColumnSample,
    Compaction,
    Expansion,
    FloatArray,
    Int64Array,
    Matrix,
    QuantisationRule,
    StackedRows,
    StackedSelector,
    UInt64Array,
)
from spsample.backends.reference.quantisation import entry_numerators, entry_weights
from spsample.backends.reference.stacking import stacked_batches

Float64Array = NDArray[np.float64]


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


def expansion_values(
    Q: StackedSelector, rows: StackedRows, sources: Compaction, own: FloatArray | None, how: Expansion
) -> FloatArray:
    """Weights of a sum over the rows of A, from a draw by the rows of A D."""
    lengths, totals = row_lengths(rows), how.totals[Q.vertices]
    offsets = np.repeat(sources.src_ptr[:-1], np.diff(rows.entry_ptr))
    is_entry = np.arange(max(int(lengths.max(initial=0)), 1)) < lengths[:, None]
    weights, in_set = np.zeros(is_entry.shape), np.zeros(is_entry.shape, np.bool_)
    weights[is_entry] = own if own is not None and how.by_own else 1.0
    in_set[is_entry] = how.scale.has(sources.src[offsets + sources.local])
    expand = _hansen_hurwitz if how.replace else _des_raj
    expansions = expand(weights, in_set, totals, how.scale.factor)[is_entry]
    values = expansions if own is None else own * expansions
    return values.astype(np.float32 if own is None else own.dtype)


def _des_raj(weights: Float64Array, in_set: NDArray[np.bool_], totals: Float64Array, factor: float) -> Float64Array:
    """(rows, draws): of the r-th of s entries drawn without replacement (R_r / w_r + s - r) / s; 1 where all were.

    R_r is what the row weighs without those that were drawn before. What is in the set and what is not are added up
    apart, so that a large factor hides nothing. Des Raj, JASA 1956.
    """
    of_kind = np.stack([np.where(in_set, 0, weights), np.where(in_set, weights, 0)], axis=-1)
    after = totals[:, None] - np.cumsum(of_kind, axis=1)
    before = np.maximum(after + of_kind, 0)
    rest = before[..., 0] + before[..., 1] * factor
    s = np.maximum(np.count_nonzero(weights, axis=1), 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        estimates: Float64Array = (
            rest / np.where(in_set, weights * factor, weights) + (s - 1 - np.arange(weights.shape[1]))
        ) / s
    estimates[(after[:, -1] <= totals * 1e-12).all(axis=1)] = 1.0  # none is left but for rounding
    return estimates


def _hansen_hurwitz(
    weights: Float64Array, in_set: NDArray[np.bool_], totals: Float64Array, factor: float
) -> Float64Array:
    """(rows, draws): T / (s w) of each of s entries drawn with replacement, T what the row weighs.

    Hansen and Hurwitz, Ann. Math. Stat. 1943.
    """
    s = np.maximum(np.count_nonzero(weights, axis=1), 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.where(in_set, weights * factor, weights)
        estimates: Float64Array = (totals[:, :1] + totals[:, 1:] * factor) / (s * scaled)
    return estimates


def own_weights(A: Matrix, Q: StackedSelector, rows: StackedRows) -> FloatArray:
    """A_iv of drawn entries: weights, or `1/d` in float32."""
    if A.data is not None and rows.positions is not None:
        return A.data[rows.positions]
    degrees = np.diff(A.indptr)[Q.vertices]
    return np.repeat((1.0 / np.maximum(degrees, 1)).astype(np.float32), row_lengths(rows))


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


def des_raj_weights(
    sample: ColumnSample, sources: Compaction, num_targets: Int64Array, numerators: UInt64Array
) -> Float64Array:
    """(len(src),) c of every src column: 1 for a batch's targets, Des Raj's ordered estimator for the others."""
    drawn = _of_drawn(sample, sources, numerators)
    return _on_sources(sample, sources, num_targets, des_raj_drawn(sample, drawn))


def replacement_weights(
    sample: ColumnSample, sources: Compaction, num_targets: Int64Array, numerators: UInt64Array, size: int
) -> Float64Array:
    """(len(src),) c of every src column: 1 for a batch's targets, `count T / (s N)` for the others."""
    drawn = _of_drawn(sample, sources, numerators)
    return _on_sources(sample, sources, num_targets, replacement_drawn(sample, drawn, size))


def reference_weights(sample: ColumnSample, sources: Compaction, numerators: UInt64Array) -> Float64Array:
    """(len(src),) `T / (s' N)` of every src column, as the authors of LADIES compute it; 0 where N is 0."""
    per_batch = np.diff(sources.src_ptr)
    totals = np.repeat(sample.totals, per_batch).astype(np.float64)
    size = np.repeat(np.diff(sample.indptr), per_batch).astype(np.float64)
    denominator = size * numerators.astype(np.float64)
    return np.divide(totals, denominator, out=np.zeros(len(denominator)), where=denominator > 0)


def des_raj_drawn(sample: ColumnSample, numerators: UInt64Array) -> Float64Array:
    """Weight of the r-th of s' columns drawn without replacement, numerators N in the order drawn.

    `((T - N_1 - ... - N_(r-1)) / N_r + s' - r) / s'`, and 1 in batches whose support was taken whole. Source: Des Raj,
    "Some estimators in sampling with varying probabilities without replacement", JASA 51 (1956).

    Examples
    --------
    >>> totals, whole = np.array([10], np.uint64), np.array([False])
    >>> sample = ColumnSample(np.array([0, 2]), np.array([4, 7]), np.array([1, 1]), totals, whole)
    >>> des_raj_drawn(sample, np.array([2, 4], np.uint64)).tolist()
    [3.0, 1.0]
    """
    drawn = np.diff(sample.indptr)
    size = np.repeat(drawn, drawn)
    rank = np.arange(1, len(numerators) + 1) - np.repeat(sample.indptr[:-1], drawn)
    remaining = [
        total - np.append(np.uint64(0), np.cumsum(numerators[lo : hi - 1], dtype=np.uint64))[: hi - lo]
        for total, lo, hi in zip(sample.totals, sample.indptr[:-1], sample.indptr[1:], strict=True)
    ]
    left = np.concatenate([*remaining, np.zeros(0, np.uint64)])
    weights = (left.astype(np.float64) / numerators.astype(np.float64) + (size - rank)) / size
    return np.where(np.repeat(sample.whole, drawn), 1.0, weights)


def replacement_drawn(sample: ColumnSample, numerators: UInt64Array, size: int) -> Float64Array:
    """Hansen and Hurwitz' estimator of draws with replacement: `count T / (s N)`, in the order drawn."""
    totals = np.repeat(sample.totals, np.diff(sample.indptr)).astype(np.float64)
    return (sample.counts.astype(np.float64) * totals) / (float(size) * numerators.astype(np.float64))


def _places(sample: ColumnSample, sources: Compaction) -> Int64Array:
    """Place of each drawn column among the src of all batches."""
    places: Int64Array = np.repeat(sources.src_ptr[:-1], np.diff(sample.indptr)) + sources.local
    return places


def _of_drawn(sample: ColumnSample, sources: Compaction, numerators: UInt64Array) -> UInt64Array:
    """Numerators of the drawn columns, in the order drawn, from those of the src columns."""
    return numerators[_places(sample, sources)]


def _on_sources(
    sample: ColumnSample, sources: Compaction, num_targets: Int64Array, drawn_weights: Float64Array
) -> Float64Array:
    """1 for the first `num_targets` src columns of a batch, else the column's weight as drawn."""
    weights = np.ones(len(sources.src), np.float64)
    is_new = sources.local >= np.repeat(num_targets, np.diff(sample.indptr))
    weights[_places(sample, sources)[is_new]] = drawn_weights[is_new]
    return weights
