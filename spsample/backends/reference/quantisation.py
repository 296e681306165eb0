"""From weights to integers, and what batches add up to (law, section 2)."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends.arithmetic import default_float_environment
from spsample.backends.protocol import (
    NO_EXPONENT,
    Int64Array,
    Matrix,
    QuantisationRule,
    UInt64Array,
)

NARROW_BITS, WIDE_BITS = 32, 62
"""Numerators of a row or of a frontier add up to at most 2 to the power of these (law, section 2).

Kernels have this and the next as `kNarrowBits`, `kWideBits` and `kPreciseBits`, in
`kernels/include/spsample/quantisation.h`.
"""

PRECISE_BITS = 11
"""A row is narrow where all of its numerators are then at least 2 to the power of this, or exact."""


def ceil_log2(count: int) -> int:
    """Bit length of `count - 1`.

    Examples
    --------
    >>> [ceil_log2(c) for c in (1, 2, 3, 4, 5)]
    [0, 1, 2, 2, 3]
    """
    return int(count - 1).bit_length()


def quantize(weights: NDArray[np.floating], shift: int | NDArray[np.int32], power: int = 1) -> UInt64Array:
    """N(w) = max(1, rint(m^power 2^(power e + shift))), 0 for w = 0; one shift for all weights, or one for each.

    Examples
    --------
    >>> quantize(np.array([0.0, 1.0, 1e-9, 0.75]), 4).tolist()
    [0, 16, 1, 12]
    """
    m, e = np.frexp(weights.astype(np.float64))
    scaled = np.rint(np.ldexp(m if power == 1 else m * m, power * e + shift))
    return np.where(weights > 0, np.maximum(scaled, 1.0), 0.0).astype(np.uint64)


def row_rule_numerators(weights: NDArray[np.floating]) -> UInt64Array:
    """Numerators of one row under the row rule.

    Examples
    --------
    >>> row_rule_numerators(np.array([1.0, 3.0])).tolist()    # E = 2, D = 2, K = 29
    [536870912, 1610612736]
    """
    positive = weights[weights > 0].astype(np.float64)
    if positive.size == 0:
        return np.zeros(len(weights), np.uint64)
    base = int(np.frexp(positive)[1].max()) + ceil_log2(positive.size)
    scaled = np.ldexp(positive, NARROW_BITS - base)
    narrow = scaled.min() >= 2.0**PRECISE_BITS or bool(np.all((scaled == np.rint(scaled)) & (scaled >= 1)))
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


def batch_statistics(
    batch_ptr: Int64Array, counts: Int64Array, exponents: NDArray[np.int32]
) -> tuple[Int64Array, Int64Array]:
    """Sum of each batch's counts, and the largest of its exponents; `NO_EXPONENT` where it has none.

    Examples
    --------
    >>> sums, largest = batch_statistics(np.array([0, 2, 2]), np.array([3, 2]), np.array([-3, -5], np.int32))
    >>> sums.tolist(), largest.tolist() == [-3, NO_EXPONENT]
    ([5, 0], True)
    """
    before = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=before[1:])
    padded = np.full(len(exponents) + 1, NO_EXPONENT, np.int64)
    padded[:-1] = exponents
    largest = np.maximum.reduceat(padded, batch_ptr[:-1]) if len(batch_ptr) > 1 else padded[:0]
    largest[batch_ptr[1:] == batch_ptr[:-1]] = NO_EXPONENT
    return before[batch_ptr[1:]] - before[batch_ptr[:-1]], largest


@default_float_environment()
def row_numerators(batch_ptr: Int64Array, counts: Int64Array, rule: QuantisationRule) -> UInt64Array:
    """(m,) numerator of `(1/d)^a` of each row of d entries under its batch's K; 0 for an empty row.

    Examples
    --------
    >>> row_numerators(np.array([0, 3]), np.array([1, 2, 0]), QuantisationRule(np.array([4]), 2, 1)).tolist()
    [16, 4, 0]
    """
    entries = np.where(counts > 0, 1.0 / np.maximum(counts, 1), 0.0)
    shifts = np.repeat(cast("Int64Array", rule.shifts), np.diff(batch_ptr)).astype(np.int32)
    return quantize(entries, shifts, rule.power)
