"""Draws of s outcomes by weight: distinct ones as P = 1 - exp(-lambda w), with lambda such that they sum to s."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array

__all__ = ["drawn_of_all", "drawn_of_rows", "repeated_of_all"]

FloatArray = NDArray[np.float64]

STEPS = 60
"""Newton's, at most: from below, on a concave function, so that they never pass the solution."""

LAST_STEP = 1e-7
"""Of the factor: what is left after a step is about the square of the step."""

_AT_ONCE = 1 << 14
"""Outcomes that are looked at together: they stay in the cache."""


def drawn_of_all(weights: FloatArray, present: FloatArray, s: int) -> FloatArray:
    """The probabilities r (1 - exp(-lambda w / r)) that sum to s; r where all of them sum to less.

    Parameters
    ----------
    weights : float64 array
        w, at least 0: the expected weight.
    present : float64 array
        r, the probability that the weight is positive: it is w / r then.
    s : int

    Examples
    --------
    >>> drawn_of_all(np.array([1.0, 1.0, 0.0, 1.0]), np.array([1.0, 1.0, 0.0, 1.0]), 2).round(3).tolist()
    [0.667, 0.667, 0.0, 0.667]
    >>> drawn_of_all(np.array([1.0, 3.0]), np.array([0.5, 1.0]), 2).tolist()
    [0.5, 1.0]
    """
    total = float(weights.sum())
    if float(present.sum()) <= s or total == 0:
        return present
    at = np.flatnonzero((weights > 0) & (present > 0))
    most = present[at]
    where_positive = weights[at] / most
    factor = s / total
    for _ in range(STEPS):
        expected, drawn_weight = _drawn_at(factor, where_positive, most)
        slope = total - drawn_weight
        step = (s - expected) / slope if slope > 0 else 0.0
        factor += max(step, 0.0)
        if step <= LAST_STEP * factor:
            break
    drawn = np.zeros(len(weights))
    drawn[at] = most * -np.expm1(-factor * where_positive)
    return drawn


def _drawn_at(factor: float, where_positive: FloatArray, most: FloatArray) -> tuple[float, float]:
    """Sums of r (1 - exp(-factor x)), and of these times x: a part after the other, which stays in the cache."""
    expected = weight = 0.0
    for first in range(0, len(most), _AT_ONCE):
        x = where_positive[first : first + _AT_ONCE]
        drawn = x * -factor
        np.expm1(drawn, out=drawn)
        drawn *= most[first : first + _AT_ONCE]
        expected -= float(drawn.sum())
        drawn *= x
        weight -= float(drawn.sum())
    return expected, weight


def repeated_of_all(weights: FloatArray, present: FloatArray, s: int) -> FloatArray:
    """The probabilities to be among s draws with replacement: r (1 - (1 - w / (r total))^s).

    Examples
    --------
    >>> repeated_of_all(np.array([1.0, 3.0, 0.0]), np.array([1.0, 1.0, 0.0]), 2).round(4).tolist()
    [0.4375, 0.9375, 0.0]
    """
    total = max(float(weights.sum()), np.finfo(np.float64).tiny)
    share = np.minimum(weights / np.where(present > 0, present, 1.0) / total, 1.0)
    with np.errstate(divide="ignore"):
        drawn: FloatArray = present * -np.expm1(s * np.log1p(-share))
    return drawn


def drawn_of_rows(lengths: Int64Array, weights: FloatArray, s: int, replace: bool) -> FloatArray:
    """The probability of each entry of weighted rows of these lengths to be among the s draws of its row.

    With replacement it is 1 - (1 - w / total)^s, which is exact. A row of no more than s positive weights is taken
    whole.

    Examples
    --------
    >>> lengths, weights = np.array([2, 2]), np.array([1.0, 1.0, 0.0, 5.0])
    >>> [drawn_of_rows(lengths, weights, 1, replace).round(6).tolist() for replace in (False, True)]
    [[0.5, 0.5, 0.0, 1.0], [0.5, 0.5, 0.0, 1.0]]
    """
    num_rows = len(lengths)
    row = np.repeat(np.arange(num_rows), lengths)
    totals = _by_row(row, weights, num_rows)
    share = weights / np.where(totals > 0, totals, 1.0)[row]
    if replace:
        with np.errstate(divide="ignore"):
            drawn: FloatArray = -np.expm1(s * np.log1p(-np.minimum(share, 1.0)))
        return drawn
    positive = _by_row(row, share > 0, num_rows)
    whole = (positive <= s)[row]
    drawn = (share > 0).astype(np.float64)
    factor = np.full(num_rows, float(s))
    row, share = row[~whole], share[~whole]
    for _ in range(STEPS):
        left = np.exp(-factor[row] * share)
        slope = _by_row(row, share * left, num_rows)
        short = s - _by_row(row, 1.0 - left, num_rows)
        step = np.divide(short, slope, out=np.zeros(num_rows), where=slope > 0)
        larger = np.where((positive > s) & (step > 1e-12 * factor), factor + step, factor)
        if (larger == factor).all():
            break
        factor = larger
    drawn[~whole] = -np.expm1(-factor[row] * share)
    return drawn


def _by_row(row: NDArray[np.int64], values: NDArray[np.generic], num_rows: int) -> FloatArray:
    """Sums of each row's values, one addition after the other: a row's sum does not depend on other rows."""
    return np.bincount(row, weights=values, minlength=num_rows).astype(np.float64)
