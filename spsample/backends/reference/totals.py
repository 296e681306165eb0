"""Totals of batches, and numerators of rows whose entries weigh the same (law, section 2)."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends.arithmetic import default_float_environment
from spsample.backends.protocol import NO_EXPONENT, Int64Array, QuantisationRule, UInt64Array


def batch_totals(
    batch_ptr: Int64Array, counts: Int64Array, exponents: NDArray[np.int32]
) -> tuple[Int64Array, Int64Array]:
    """Sum of each batch's counts, and the largest of its exponents; `NO_EXPONENT` where it has none.

    Examples
    --------
    >>> sums, largest = batch_totals(np.array([0, 2, 2]), np.array([3, 2]), np.array([-3, -5], np.int32))
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
    shift = np.repeat(cast("Int64Array", rule.shifts), np.diff(batch_ptr))
    m, e = np.frexp(1.0 / np.maximum(counts, 1))
    scaled = np.rint(np.ldexp(m if rule.power == 1 else m * m, (rule.power * e + shift).astype(np.int32)))
    return np.where(counts > 0, np.maximum(scaled, 1.0), 0.0).astype(np.uint64)
