"""Integer probabilities: the exponents of the frontier rule and the graph rule (law, section 2)."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Numerators, StackedSelector
from spsample.backends.protocol import NO_EXPONENT, Int64Array, UInt64Array
from spsample.backends.reference.probability import ceil_log2
from spsample.errors import CapacityError
from spsample.sparse.operand import FrontierTotals, RowTotals, Weighting

HEADROOM_BITS = {1: 62, 2: 31}
"""H by column power: a frontier's numerators sum to at most 2^H."""


def batch_totals(Q: StackedSelector, totals: RowTotals) -> FrontierTotals:
    """What the frontier rule needs to know of each batch of Q, from the totals of its m rows.

    Examples
    --------
    >>> Q = StackedSelector(np.array([0, 2]), np.array([0, 1]), np.array([0]))
    >>> batch_totals(Q, RowTotals(np.array([3, 2]), np.array([1, 4])))
    FrontierTotals(counts=array([5]), exponents=array([4]))
    """
    exponents = segment_maxima(totals.exponents, Q.batch_ptr) if len(totals.exponents) else 0 * Q.batch_ptr[1:]
    exponents[exponents == NO_EXPONENT] = 0
    return FrontierTotals(_segment_sums(totals.counts, Q.batch_ptr), exponents)


def frontier_rule(weighting: Weighting, totals: FrontierTotals, power: int, column_power: int) -> Numerators:
    """The frontier rule of k batches: one K per batch from its entry count and its largest row exponent.

    Parameters
    ----------
    weighting : {"unweighted", "row", "weighted"}
    totals : FrontierTotals
        Of the k batches.
    power, column_power : int
        a and c of the law: numerators of `w^a`, column sums to the power c.

    Raises
    ------
    CapacityError
        If column_power is 2 and a batch's frontier has more than 2^31 entries.

    Examples
    --------
    >>> rule = frontier_rule("weighted", FrontierTotals(np.array([5]), np.array([4])), 1, 1)
    >>> rule.shifts.tolist()     # 62 - 4 - ceil(log2 5)
    [55]
    """
    _check_headroom(totals.counts, column_power)
    if weighting == "unweighted":
        return Numerators(None, power, column_power)
    bits = np.array([ceil_log2(max(m, 1)) for m in totals.counts.tolist()], np.int64)
    return Numerators(HEADROOM_BITS[column_power] - power * totals.exponents - bits, power, column_power)


def graph_rule(weighting: Weighting, totals: RowTotals) -> Numerators:
    """FastGCN's rule: the frontier rule with all rows of A as the frontier, squared entries summed by column."""
    n = len(totals.counts)
    everything = StackedSelector(np.array([0, n]), np.arange(n), np.zeros(1, np.int64))
    return frontier_rule(weighting, batch_totals(everything, totals), power=2, column_power=1)


def row_normalized_numerators(Q: StackedSelector, totals: RowTotals, rule: Numerators) -> UInt64Array:
    """q of each selected row of a row-normalised graph: numerator of `(1/d)^a` under the batch's K; 0 for an empty row.

    Examples
    --------
    >>> Q = StackedSelector(np.array([0, 2]), np.array([0, 1]), np.array([0]))
    >>> totals = RowTotals(np.array([1, 2]), np.array([1, 0]))
    >>> row_normalized_numerators(Q, totals, Numerators(np.array([4]), 2, 1)).tolist()
    [16, 4]
    """
    shift = np.repeat(cast("Int64Array", rule.shifts), np.diff(Q.batch_ptr))
    m, e = np.frexp(1.0 / np.maximum(totals.counts, 1))
    scaled = np.rint(np.ldexp(m if rule.power == 1 else m * m, (rule.power * e + shift).astype(np.int32)))
    return np.where(totals.counts > 0, np.maximum(scaled, 1.0), 0.0).astype(np.uint64)


def _check_headroom(entries: Int64Array, column_power: int) -> None:
    """Squares of column sums stay below 2^62 only for frontiers of at most 2^31 entries."""
    if column_power == 1 or entries.size == 0 or entries.max() <= 2**31:
        return
    worst = int(entries.argmax())
    raise CapacityError(
        argument="law",
        given=f"'squared_count' on a frontier of {int(entries[worst])} entries (batch {worst} of the bulk)",
        expected="at most 2**31 entries, so that the squared counts add up within 64 bits",
        hint="Use a smaller batch_size or layer size, or law='norm'.",
    )


def _segment_sums(values: Int64Array, ptr: Int64Array) -> Int64Array:
    before = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=before[1:])
    sums: Int64Array = before[ptr[1:]] - before[ptr[:-1]]
    return sums


def segment_maxima(values: NDArray[np.int32], ptr: Int64Array) -> Int64Array:
    """Largest exponent of each segment; `NO_EXPONENT` where it has none.

    Examples
    --------
    >>> segment_maxima(np.array([-3, -5], np.int32), np.array([0, 2, 2])).tolist() == [-3, NO_EXPONENT]
    True
    """
    padded = np.full(len(values) + 1, NO_EXPONENT, np.int64)
    padded[:-1] = values
    maxima = np.maximum.reduceat(padded, ptr[:-1]) if len(ptr) > 1 else padded[:0]
    maxima[ptr[1:] == ptr[:-1]] = NO_EXPONENT
    return maxima
