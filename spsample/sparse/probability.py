"""Entry counts and exponents of rows and batches, and the rules of quantisation that they give (law, section 2)."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Backend, QuantisationRule
from spsample.backends.protocol import NO_EXPONENT, Int64Array
from spsample.backends.reference.quantisation import WIDE_BITS, ceil_log2
from spsample.errors import CapacityError

Weighting = Literal["unweighted", "row", "weighted"]
"""Weights of the entries of A: 1, one by the length of their row, or weights of their own."""


class RowStatistics(NamedTuple):
    """For each of m selected rows: its number of entries, and the largest binary exponent of its weights."""

    counts: Int64Array
    exponents: NDArray[np.int32]


class FrontierStatistics(NamedTuple):
    """For each of k batches: the number of entries of its rows, and the largest binary exponent of their weights.

    The exponent is 0 where no entry is positive.
    """

    counts: Int64Array
    exponents: Int64Array


HEADROOM_BITS = {1: WIDE_BITS, 2: WIDE_BITS // 2}
"""H by column power: a frontier's numerators sum to at most 2^H."""


def batch_statistics(backend: Backend, batch_ptr: Int64Array, rows: RowStatistics) -> FrontierStatistics:
    """The statistics of each batch for the frontier rule, from those of its rows, which `batch_ptr` bounds.

    Examples
    --------
    >>> from spsample.backends import get_backend
    >>> batch_statistics(get_backend(), np.array([0, 2]), RowStatistics(np.array([3, 2]), np.array([1, 4])))
    FrontierStatistics(counts=array([5]), exponents=array([4]))
    """
    counts, largest = backend.batch_statistics(batch_ptr, rows.counts, rows.exponents)
    return FrontierStatistics(counts, np.where(largest == NO_EXPONENT, 0, largest))


def frontier_rule(weighting: Weighting, batches: FrontierStatistics, power: int, column_power: int) -> QuantisationRule:
    """The frontier rule of k batches: one K per batch from its entry count and its largest row exponent.

    Parameters
    ----------
    weighting : {"unweighted", "row", "weighted"}
    batches : FrontierStatistics
        Of the k batches.
    power, column_power : int
        a and c of the law: numerators of `w^a`, column sums to the power c.

    Raises
    ------
    CapacityError
        If column_power is 2 and a batch's frontier has more than 2^31 entries.

    Examples
    --------
    >>> rule = frontier_rule("weighted", FrontierStatistics(np.array([5]), np.array([4])), 1, 1)
    >>> rule.shifts.tolist()     # 62 - 4 - ceil(log2 5)
    [55]
    """
    _check_headroom(batches.counts, column_power)
    if weighting == "unweighted":
        return QuantisationRule(None, power, column_power)
    bits = np.array([ceil_log2(max(m, 1)) for m in batches.counts.tolist()], np.int64)
    return QuantisationRule(HEADROOM_BITS[column_power] - power * batches.exponents - bits, power, column_power)


def graph_rule(weighting: Weighting, num_edges: int, exponent: int) -> QuantisationRule:
    """FastGCN's rule: the frontier rule with all rows of A as the frontier, squared entries summed by column.

    Parameters
    ----------
    weighting : {"unweighted", "row", "weighted"}
    num_edges : int
        Entries of A.
    exponent : int
        The largest of its rows, or `NO_EXPONENT`; of no use where A is unweighted.

    Examples
    --------
    >>> graph_rule("weighted", 5, 4).shifts.tolist()     # 62 - 2 * 4 - ceil(log2 5)
    [51]
    """
    everything = FrontierStatistics(np.array([num_edges]), np.array([0 if exponent == NO_EXPONENT else exponent]))
    return frontier_rule(weighting, everything, power=2, column_power=1)


def _check_headroom(entries: Int64Array, column_power: int) -> None:
    """Squares of column sums add up to at most 2^62 only for batches of at most 2^31 entries."""
    if column_power == 1 or entries.size == 0 or entries.max() <= 2 ** HEADROOM_BITS[2]:
        return
    worst = int(entries.argmax())
    raise CapacityError(
        argument="law",
        given=f"'squared_count' on a frontier of {int(entries[worst])} entries (batch {worst} of the bulk)",
        expected=f"at most 2**{HEADROOM_BITS[2]} entries, so that the squared counts add up within 64 bits",
        hint="Use a smaller batch_size or layer size, or law='norm'.",
    )
