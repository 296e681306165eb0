"""Probabilities that vertices are drawn: by the rows of a frontier, or by a batch for its whole frontier."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.features.scores.column_sums import CsrRows, column_sums, column_sums_of_entries
from spsample.sampling import Sampler
from spsample.sampling.sampler import Proportion
from spsample.store.base_graph import BaseGraph

FloatArray = NDArray[np.float64]

STEPS = 60
"""Newton steps at most: from below, on a concave function, so that they never pass the solution."""

LAST_STEP = 1e-7
"""Relative size of the last step: the error after a step is about its square."""

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


CERTAIN = 40.0
"""-log(1 - q) of what is certain: 1 - exp(-40) is 1 in float64."""


def drawn_by_rows(
    graph: BaseGraph, frontier: FloatArray, sampler: Sampler, s: int, proportion: Proportion
) -> FloatArray:
    """(n,) the probability that any row of the frontier draws a vertex; collective on ranks.

    Parameters
    ----------
    graph : BaseGraph
    frontier : float64 array (n,)
        The probability of each vertex to be in the frontier.
    sampler : Sampler
        Whether it draws with replacement.
    s : int
        Fanout; -1 for whole rows.
    proportion : Proportion
        Uniform, or by the entries' weights.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph([0, 2, 2, 2], [1, 2])
    >>> drawn_by_rows(graph, np.array([0.5, 0.0, 0.0]), sp.GraphSAGE([1]), 1, Proportion("each", 0))
    array([0.  , 0.25, 0.25])
    """
    largest = float(log_complement(frontier.max(initial=0.0, keepdims=True)).max())

    def of_rows(rows: CsrRows) -> FloatArray:
        return log_complement(frontier[rows.vertices] * _uniform(rows.degrees, s, sampler.replace))

    def of_entries(rows: CsrRows) -> FloatArray:
        lengths = rows.degrees
        weights = np.asarray(rows.weights, np.float64) ** proportion.power
        drawn = drawn_of_rows(lengths, weights, s, sampler.replace)
        return log_complement(np.repeat(frontier[rows.vertices], lengths) * drawn)

    if graph.weighting != "weighted" or proportion.power == 0 or s == -1:
        sums = column_sums(graph, of_rows, largest)
    else:
        sums = column_sums_of_entries(graph, of_entries, largest)
    return from_log_complement(sums)


def log_complement(probabilities: FloatArray) -> FloatArray:
    """-log(1 - q), at most `CERTAIN`: products of complements become sums.

    Examples
    --------
    >>> log_complement(np.array([0.0, 1.0]))
    array([ 0., 40.])
    """
    with np.errstate(divide="ignore"):
        costs: FloatArray = np.minimum(-np.log1p(-np.minimum(probabilities, 1.0)), CERTAIN)
    costs += 0.0  # no -0.0
    return costs


def from_log_complement(costs: FloatArray) -> FloatArray:
    """1 - exp(-costs).

    Examples
    --------
    >>> from_log_complement(np.array([0.0, 40.0]))
    array([0., 1.])
    """
    probabilities: FloatArray = -np.expm1(-costs)
    probabilities += 0.0  # no -0.0
    return probabilities


def _uniform(degrees: NDArray[np.int64], s: int, replace: bool) -> FloatArray:
    """The probability of an entry of a uniform row to be drawn."""
    if s == -1:
        return np.ones(len(degrees))
    d = np.maximum(degrees, 1).astype(np.float64)
    if replace:
        with np.errstate(divide="ignore"):
            repeated: FloatArray = -np.expm1(s * np.log1p(-1.0 / d))
        return repeated
    return np.minimum(np.divide(s, d, out=d), 1.0, out=d)


PHASE = "scores"


def drawn_by_batches(
    graph: BaseGraph, frontier: FloatArray, sampler: Sampler, s: int, proportion: Proportion
) -> FloatArray:
    """(n,) the probability that a batch draws a vertex among its s; collective on ranks.

    Parameters
    ----------
    graph : BaseGraph
    frontier : float64 array (n,)
        The probability of each vertex to be in the frontier; of no use where the whole graph is drawn from.
    sampler : Sampler
        Whether it draws with replacement.
    s : int
        Layer size.
    proportion : Proportion
        What weights are: their expectation is drawn from.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph([0, 2, 3, 3], [1, 2, 2])
    >>> drawn_by_batches(graph, np.array([1.0, 0.0, 0.0]), sp.LADIES([1]), 1, Proportion("frontier", 2))
    array([0. , 0.5, 0.5])
    """
    rows = np.ones(graph.num_nodes) if proportion.rows == "graph" else frontier
    weights = _weight_sums(graph, rows, proportion)
    present = (weights > 0).astype(np.float64)
    if proportion.rows == "frontier":
        present = np.where(weights > 0, _neighbours(graph, rows), 0.0)
    drawn_of = repeated_of_all if sampler.replace else drawn_of_all
    return drawn_of(weights, present, s)


def _weight_sums(graph: BaseGraph, rows: FloatArray, proportion: Proportion) -> FloatArray:
    """(n,) expectation of the column sums, to their power, over rows that are there with these probabilities."""
    sums = _sums(graph, rows, proportion.power)
    if proportion.column_power == 1:
        return sums
    # The expected square of a sum of independent terms: the square of its expectation, and its variance.
    return sums**2 + _sums(graph, rows * (1.0 - rows), 2 * proportion.power)


def _sums(graph: BaseGraph, rows: FloatArray, power: int) -> FloatArray:
    """(n,) column sums of A's entries to the power, each row times its number."""
    largest = float(rows.max(initial=0.0)) * _largest_weight(graph) ** power
    if graph.weighting == "weighted":
        return column_sums_of_entries(graph, lambda some: _of_entries(some, rows, power), largest)
    return column_sums(graph, lambda some: _of_rows(some, rows, power), largest)


def _of_entries(some: CsrRows, rows: FloatArray, power: int) -> FloatArray:
    weights = np.asarray(some.weights, np.float64)
    return weights**power * np.repeat(rows[some.vertices], some.degrees)


def _of_rows(some: CsrRows, rows: FloatArray, power: int) -> FloatArray:
    divisor = np.maximum(some.degrees, 1).astype(np.float64) ** power if some.is_normalized else 1.0
    return rows[some.vertices] / divisor


def _neighbours(graph: BaseGraph, frontier: FloatArray) -> FloatArray:
    """(n,) the probability that any vertex of the frontier has a vertex as an in-neighbour, of positive weight."""
    costs = log_complement(frontier)

    def of_entries(some: CsrRows) -> FloatArray:
        return np.repeat(costs[some.vertices], some.degrees) * (np.asarray(some.weights) > 0)

    largest = float(costs.max(initial=0.0))
    if graph.weighting == "weighted":
        return from_log_complement(column_sums_of_entries(graph, of_entries, largest))
    return from_log_complement(column_sums(graph, lambda some: costs[some.vertices], largest))


def _largest_weight(graph: BaseGraph) -> float:
    """The largest entry of A, or 1 where it has no weights of its own; collective on ranks."""
    data = graph.block_row().data
    here = 1.0 if data is None else float(data.max(initial=0.0))
    return float(graph.comm.all_reduce(np.array([here]), "max", phase=PHASE)[0])
