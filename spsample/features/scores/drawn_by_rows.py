"""Probabilities that vertices are drawn by the rows of a frontier, each for itself: node-wise samplers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.features.scores.column_sums import Rows, column_sums, column_sums_of_entries
from spsample.features.scores.exponential import drawn_of_rows
from spsample.sampling import Sampler
from spsample.sampling.sampler import Proportion
from spsample.store.base_graph import BaseGraph

__all__ = ["drawn_by_rows", "from_log_complement", "log_complement"]

FloatArray = NDArray[np.float64]

CERTAIN = 40.0
"""-log(1 - q) of what is certain: 1 - exp(-40) is 1 in float64."""

_AT_ONCE = 1 << 14
"""Vertices that are looked at together: they stay in the cache."""


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

    def of_rows(rows: Rows) -> FloatArray:
        return log_complement(frontier[rows.vertices] * _uniform(rows.degrees, s, sampler.replace))

    def of_entries(rows: Rows) -> FloatArray:
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
    costs = np.minimum(probabilities, 1.0)
    np.negative(costs, out=costs)
    with np.errstate(divide="ignore"):
        np.log1p(costs, out=costs)
    np.negative(costs, out=costs)
    np.minimum(costs, CERTAIN, out=costs)
    costs += 0.0  # no -0.0
    return costs


def from_log_complement(costs: FloatArray) -> FloatArray:
    """1 - exp(-costs), written over them.

    Examples
    --------
    >>> from_log_complement(np.array([0.0, 40.0]))
    array([0., 1.])
    """
    for first in range(0, len(costs), _AT_ONCE):
        part = costs[first : first + _AT_ONCE]
        np.negative(part, out=part)
        np.expm1(part, out=part)
        np.negative(part, out=part)
        part += 0.0  # no -0.0
    return costs


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
