"""Probabilities that vertices are drawn by a batch for its whole frontier: layer-wise samplers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.features.scores.column_sums import Rows, column_sums, column_sums_of_entries
from spsample.features.scores.drawn_by_rows import from_log_complement, log_complement
from spsample.features.scores.exponential import drawn_of_all, repeated_of_all
from spsample.sampling import Sampler
from spsample.sampling.sampler import Proportion
from spsample.store.base_graph import BaseGraph

__all__ = ["drawn_by_batches"]

FloatArray = NDArray[np.float64]

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


def _of_entries(some: Rows, rows: FloatArray, power: int) -> FloatArray:
    weights = np.asarray(some.weights, np.float64)
    return weights**power * np.repeat(rows[some.vertices], some.degrees)


def _of_rows(some: Rows, rows: FloatArray, power: int) -> FloatArray:
    divisor = np.maximum(some.degrees, 1).astype(np.float64) ** power if some.is_normalized else 1.0
    return rows[some.vertices] / divisor


def _neighbours(graph: BaseGraph, frontier: FloatArray) -> FloatArray:
    """(n,) the probability that any vertex of the frontier has a vertex as an in-neighbour, of positive weight."""
    costs = log_complement(frontier)

    def of_entries(some: Rows) -> FloatArray:
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
