"""The probability that a batch needs a vertex, through the layers: computed, nothing is sampled."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_choice, require_int, require_type
from spsample.errors import InputError
from spsample.features.scores.drawn_by_batches import drawn_by_batches
from spsample.features.scores.drawn_by_rows import drawn_by_rows
from spsample.sampling import Sampler
from spsample.sampling.sampler import Proportion
from spsample.store.base_graph import BaseGraph

__all__ = ["inclusion"]

FloatArray = NDArray[np.float64]

_ROWS = ("each", "frontier", "graph")
"""What `Proportion.rows` may be."""


def inclusion(graph: BaseGraph, seeds: Int64Array, sampler: Sampler, batch_size: int) -> FloatArray:
    """(n,) the probability that a vertex is among the src vertices of a batch, as if vertices were independent.

    A seed is in one of an epoch's k batches: 1 / k. A layer draws v for the target u with a probability of q(u, v), so
    that v is in the next frontier with 1 - (1 - p(v)) prod over u of (1 - p(u) q(u, v)); without the first factor where
    targets are not kept. What a row or a batch of s weights w draws is taken as 1 - exp(-lambda w), lambda such that
    they sum to s, and as r (1 - exp(-lambda w / r)) where a weight is positive only with a probability of r. Uniform
    rows, draws with replacement and whole rows have their exact q.

    It ranks vertices. Vertices of a batch are not independent, so its sum is not the number of rows of a batch.

    Raises
    ------
    InputError
        If the sampler does not state what it draws in proportion to (`Sampler.proportion`).

    Notes
    -----
    Sums over columns are integers, so all ranks and threads get the same numbers. A layer is one pass over A, two or
    three where the batch draws for its frontier (LADIES). Layers of a size that draw from the whole graph share one.

    References
    ----------
    Kaler, Iliopoulos, Murzynowski, Schardl, Leiserson, Chen, "Communication-efficient graph neural networks with
    probabilistic neighborhood expansion analysis and caching", MLSys 2023.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 3], [0, 0, 1]], num_nodes=4)
    >>> sp.features.score("inclusion", graph, [0], sp.GraphSAGE([1, 1]), batch_size=1)
    array([1.  , 0.75, 0.75, 0.5 ])
    """
    proportion = require_proportion(graph, sampler)
    draw = _draw_of(graph, sampler, proportion)
    before, known = np.zeros(graph.num_nodes), _in_seeds(graph.num_nodes, seeds, batch_size)
    for s in sampler.sizes:
        # Where each vertex is drawn from once, at the hop that found it, the frontier are the vertices of that hop.
        frontier = np.maximum(known - before, 0.0) if sampler.layout == "subgraph" else known
        drawn = draw(frontier, s)
        before = known
        known = _either(known, drawn) if sampler.include_targets else drawn
    return known


def require_proportion(graph: BaseGraph, sampler: Sampler) -> Proportion:
    """Return what the sampler draws in proportion to; refuse one that does not say.

    Raises
    ------
    InputError

    Examples
    --------
    >>> import spsample as sp
    >>> require_proportion(sp.Graph([0, 0], []), sp.FastGCN([3]))
    Proportion(rows='graph', power=2, column_power=1)
    """
    stated = sampler.proportion(graph.weighting) if _is_stated(type(sampler)) else None
    if stated is None:
        name = type(sampler).__name__
        raise InputError(
            argument="sampler",
            given=f"a {name}, which does not state what it draws in proportion to",
            expected="a sampler with a `proportion` of its own, such as GraphSAGE, LADIES and FastGCN",
            hint=f"The scores 'presc' and 'replay' take any sampler, {name} too.",
        )
    require_type("proportion", stated, Proportion, "a Proportion")
    require_choice("proportion.rows", stated.rows, _ROWS)
    require_int("proportion.power", stated.power, 0, 2)
    require_int("proportion.column_power", stated.column_power, 1, 2)
    return stated


def _draw_of(graph: BaseGraph, sampler: Sampler, proportion: Proportion) -> Callable[[FloatArray, int], FloatArray]:
    """What gives (n,) probabilities that a layer of size s draws each vertex, from those to be in its frontier."""
    if proportion.rows == "each":
        return lambda frontier, s: drawn_by_rows(graph, frontier, sampler, s, proportion)
    if proportion.rows == "frontier":
        return lambda frontier, s: drawn_by_batches(graph, frontier, sampler, s, proportion)
    of_graph = cache(lambda s: drawn_by_batches(graph, np.ones(graph.num_nodes), sampler, s, proportion))
    return lambda _, s: of_graph(s)


def _either(known: FloatArray, drawn: FloatArray) -> FloatArray:
    """(n,) the probability of one of two independent events."""
    either = 1.0 - known
    either *= drawn
    either += known
    return either


def _is_stated(sampler: type[Sampler]) -> bool:
    """Whether `proportion` is of the class that draws, or of one derived from it."""
    for one in sampler.__mro__:
        if "proportion" in vars(one):
            return True
        if "layer" in vars(one) or "run" in vars(one):
            return False
    return False


def _in_seeds(num_nodes: int, seeds: Int64Array, batch_size: int) -> FloatArray:
    """(n,) the probability that a vertex is a seed of a batch; one that is given several times falls anywhere each."""
    batches = max(-(-len(seeds) // batch_size), 1)
    given, times = np.unique(seeds, return_counts=True)
    probabilities = np.zeros(num_nodes)
    probabilities[given] = np.where(times == 1, 1.0 / batches, 1.0 - (1.0 - 1.0 / batches) ** times)
    return probabilities


def states_proportion(graph: BaseGraph, sampler: Sampler) -> bool:
    """Whether `inclusion` knows the sampler.

    Examples
    --------
    >>> import spsample as sp
    >>> states_proportion(sp.Graph([0, 0], []), sp.FastGCN([3]))
    True
    """
    return _is_stated(type(sampler)) and sampler.proportion(graph.weighting) is not None
