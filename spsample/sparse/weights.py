"""The weights c_v of sampled columns (law, section 6): what makes a layer-wise estimate unbiased."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends import ColumnSample, Compaction
from spsample.backends.protocol import Int64Array, UInt64Array

Float64Array = NDArray[np.float64]


def des_raj_weights(sample: ColumnSample, numerators: UInt64Array) -> Float64Array:
    """Des Raj's ordered estimator: weight of the r-th of s' columns drawn without replacement.

    Parameters
    ----------
    sample : ColumnSample
        Columns in the order drawn.
    numerators : uint64 array (len(sample.columns),)
        N of each.

    Returns
    -------
    float64 array (len(sample.columns),)
        `((T - N_1 - ... - N_(r-1)) / N_r + s' - r) / s'`, and 1 in batches whose support was taken whole.

    References
    ----------
    Des Raj, "Some estimators in sampling with varying probabilities without replacement", JASA 51 (1956).

    Examples
    --------
    >>> totals, whole = np.array([10], np.uint64), np.array([False])
    >>> sample = ColumnSample(np.array([0, 2]), np.array([4, 7]), np.array([1, 1]), totals, whole)
    >>> des_raj_weights(sample, np.array([2, 4], np.uint64)).tolist()
    [3.0, 1.0]
    """
    batch = batch_of_columns(sample)
    first, end = sample.indptr[:-1][batch], sample.indptr[1:][batch]
    before = np.cumsum(numerators, dtype=np.uint64) - numerators  # of all batches, modulo 2^64; differences are exact
    remaining = sample.totals[batch] - (before - before[first])
    left = end - np.arange(1, len(batch) + 1)
    weights: Float64Array = (remaining / numerators + left) / (end - first)
    weights[sample.whole[batch]] = 1.0
    return weights


def batch_of_columns(sample: ColumnSample) -> Int64Array:
    """(len(columns),) number of the batch that each drawn column belongs to.

    Examples
    --------
    >>> nothing, totals, whole = np.zeros(3, np.int64), np.zeros(2, np.uint64), np.zeros(2, np.bool_)
    >>> batch_of_columns(ColumnSample(np.array([0, 1, 3]), nothing, nothing, totals, whole)).tolist()
    [0, 1, 1]
    """
    indptr = sample.indptr
    return np.arange(len(indptr) - 1).repeat(indptr[1:] - indptr[:-1])


def replacement_weights(sample: ColumnSample, numerators: UInt64Array, size: int) -> Float64Array:
    """Hansen and Hurwitz' estimator of draws with replacement: `count T / (s N)`."""
    totals = np.repeat(sample.totals, np.diff(sample.indptr)).astype(np.float64)
    return (sample.counts.astype(np.float64) * totals) / (float(size) * numerators.astype(np.float64))


def unbiased_source_weights(
    sample: ColumnSample, sources: Compaction, num_targets: Int64Array, drawn_weights: Float64Array
) -> Float64Array:
    """(len(src),) c of every src column: 1 for the first `num_targets` of a batch, else its weight as drawn."""
    weights = np.ones(len(sources.src), np.float64)
    batch = batch_of_columns(sample)
    is_new = sources.local >= num_targets[batch]
    weights[sources.src_ptr[batch] + sources.local] = np.where(is_new, drawn_weights, 1.0)
    return weights


def reference_source_weights(sample: ColumnSample, sources: Compaction, numerators: UInt64Array) -> Float64Array:
    """(len(src),) `T / (s' N)` of every src column, as the authors of LADIES compute it; 0 where N is 0."""
    per_batch = np.diff(sources.src_ptr)
    totals = np.repeat(sample.totals, per_batch).astype(np.float64)
    size = np.repeat(np.diff(sample.indptr), per_batch).astype(np.float64)
    denominator = size * numerators.astype(np.float64)
    return np.divide(totals, denominator, out=np.zeros(len(denominator)), where=denominator > 0)
