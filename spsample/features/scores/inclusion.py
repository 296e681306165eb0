"""The probability that a batch needs a vertex, computed through the layers, or from the counts of a trial as well."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_choice, require_int, require_type
from spsample.errors import InputError
from spsample.features.score_order import hottest
from spsample.features.scores.drawn import drawn_by_batches, drawn_by_rows
from spsample.features.scores.visits import trial_visits
from spsample.sampling import Sampler
from spsample.sampling.sampler import Proportion
from spsample.store.base_graph import BaseGraph

FloatArray = NDArray[np.float64]

_ROWS = ("each", "frontier", "graph")
"""Values of `Proportion.rows`."""


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
        known = (1.0 - known) * drawn + known if sampler.include_targets else drawn
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
    """A function to (n,) probabilities that a layer of size s draws each vertex, from those to be in its frontier."""
    if proportion.rows == "each":
        return lambda frontier, s: drawn_by_rows(graph, frontier, sampler, s, proportion)
    if proportion.rows == "frontier":
        return lambda frontier, s: drawn_by_batches(graph, frontier, sampler, s, proportion)
    of_graph = cache(lambda s: drawn_by_batches(graph, np.ones(graph.num_nodes), sampler, s, proportion))
    return lambda _, s: of_graph(s)


def _is_stated(sampler: type[Sampler]) -> bool:
    """True where `proportion` is of the class that draws, or of one derived from it."""
    for base in sampler.__mro__:
        if "proportion" in vars(base):
            return True
        if "layer" in vars(base) or "run" in vars(base):
            return False
    return False


def _in_seeds(num_nodes: int, seeds: Int64Array, batch_size: int) -> FloatArray:
    """(n,) the probability that a vertex is a seed of a batch; one that is given several times falls anywhere each."""
    batches = max(-(-len(seeds) // batch_size), 1)
    distinct, times = np.unique(seeds, return_counts=True)
    probabilities = np.zeros(num_nodes)
    probabilities[distinct] = np.where(times == 1, 1.0 / batches, 1.0 - (1.0 - 1.0 / batches) ** times)
    return probabilities


def states_proportion(graph: BaseGraph, sampler: Sampler) -> bool:
    """True where `inclusion` knows the sampler.

    Examples
    --------
    >>> import spsample as sp
    >>> states_proportion(sp.Graph([0, 0], []), sp.FastGCN([3]))
    True
    """
    return _is_stated(type(sampler)) and sampler.proportion(graph.weighting) is not None


GROUP = 256
"""Vertices of a group of about equal probabilities: enough that what their counts have in common is no chance."""


def posterior(
    graph: BaseGraph, seeds: Int64Array, sampler: Sampler, batch_size: int, *, epochs: int = 3, random_seed: int = 0
) -> FloatArray:
    """(n,) the probability that a batch needs a vertex, from the counts of `epochs` trial epochs and from `inclusion`.

    Counts follow the real sampler, but few batches cannot rank rarely visited vertices; `inclusion` can, but takes
    vertices as independent. Each has the weight that the counts justify.

    Raises
    ------
    InputError
        If the sampler does not state what it draws in proportion to, as `inclusion`.

    Notes
    -----
    See `shrunk` for the formula. The trial is that of the score `presc`.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:8,4").graph
    >>> scores = sp.features.score("posterior", graph, range(64), sp.GraphSAGE([3, 3]), batch_size=16)
    >>> bool(((scores >= 0) & (scores <= 1)).all())
    True
    """
    probabilities = inclusion(graph, seeds, sampler, batch_size)
    counts, batches = trial_visits(graph, seeds, sampler, batch_size, epochs, random_seed)
    return shrunk(counts, batches, probabilities)


def shrunk(counts: Int64Array, batches: int, probabilities: FloatArray, size: int = GROUP) -> FloatArray:
    """Means of the gamma posteriors of rates of which `counts` were seen in m batches, with prior means p.

    They are (count + a) / (m + a / p), with the a for which the counts deviate from m p by as much as they do:
    a = sum (m p)^2 / sum ((count - m p)^2 - m p (1 - p)). Where the denominator is not positive the counts deviate no
    more than by chance, and it is p. Where p is 0 it is count / m.

    This is done in two steps. p is wrong by more for some vertices than for others, and one a for all would say how
    wrong the largest are, which decide its sums. So vertices are sorted by p, and each `size` of them are a group. The
    sums of the groups' counts are shrunk towards those of m p, which gives p another level in each group. Then the
    counts of a group are shrunk towards that, with an a of its own.

    Parameters
    ----------
    counts : int64 array (n,)
        Batches of the trial that need a vertex.
    batches : int
        Of the trial: m.
    probabilities : float64 array (n,)
        p.
    size : int
        Vertices of a group; the last one may have more.

    Examples
    --------
    >>> shrunk(np.array([9, 0, 0]), 10, np.array([0.5, 0.5, 0.0]), 2).round(4).tolist()
    [0.813, 0.1087, 0.0]
    >>> shrunk(np.array([5, 5]), 10, np.array([0.5, 0.5])).tolist()
    [0.5, 0.5]
    """
    scores: FloatArray = counts / max(float(batches), 1.0)
    known = np.flatnonzero(probabilities)
    if len(known) == 0:
        return scores
    prior = probabilities[known]
    order = hottest(prior, len(known))
    level, order = prior[order], known[order]
    seen = counts[order].astype(np.float64)
    groups = _Groups.of_size(len(order), size)
    expected = batches * level
    variance = groups.sums(expected * (1.0 - level))
    together = _Groups.of_size(len(groups.starts), len(groups.starts))
    level *= groups.spread(_factors(groups.sums(seen), groups.sums(expected), variance, together))
    level = np.minimum(level, 1.0)
    expected = batches * level
    scores[order] = level * _factors(seen, expected, expected * (1.0 - level), groups)
    return scores


class _Groups(NamedTuple):
    """Places that follow each other, in groups: where each begins, and how many are in it."""

    starts: Int64Array
    lengths: Int64Array

    @classmethod
    def of_size(cls, count: int, size: int) -> _Groups:
        """Groups of `size` of `count` places; the last one has what is left, too."""
        starts = size * np.arange(max(count // size, 1))
        return cls(starts, np.diff(starts, append=count))

    def sums(self, values: FloatArray) -> FloatArray:
        """The sum of each group."""
        total: FloatArray = np.add.reduceat(values, self.starts)
        return total

    def spread(self, of_groups: FloatArray) -> FloatArray:
        """The number of its group, for each place."""
        return np.repeat(of_groups, self.lengths)


def _factors(counts: FloatArray, expected: FloatArray, variance: FloatArray, groups: _Groups) -> FloatArray:
    """(count + a) / (expected + a), with the a of each one's group; 1 where they deviate no more than by chance."""
    deviations = counts - expected
    excess = groups.sums(deviations * deviations - variance)
    is_off = excess > 0
    a = np.where(is_off, groups.sums(expected * expected) / np.where(is_off, excess, 1.0), 1.0)
    weight, a = groups.spread(is_off.astype(np.float64)), groups.spread(a)
    factors: FloatArray = (counts * weight + a) / (expected * weight + a)
    return factors
