"""The probability that a batch needs a vertex, computed through the layers, or from the counts of a trial as well."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_choice, require_int, require_type
from spsample.errors import InputError
from spsample.features.scores.column_sums import PHASE, CsrRows, column_sums
from spsample.features.scores.order import hottest
from spsample.features.scores.visits import trial_visits
from spsample.sampling import Sampler
from spsample.sampling.sampler import Proportion
from spsample.store.base_graph import BaseGraph

STEPS = 60
"""Newton steps at most: from below, on a concave function, so that they never pass the solution."""

LAST_STEP = 1e-7
"""Relative size of the last step: the error after a step is about its square."""

_AT_ONCE = 1 << 14
"""Outcomes that are looked at together: they stay in the cache."""

FloatArray = NDArray[np.float64]


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
        expected, slope = 0.0, total
        for first in range(0, len(most), _AT_ONCE):
            x = where_positive[first : first + _AT_ONCE]
            less = np.expm1(x * -factor)
            less *= most[first : first + _AT_ONCE]
            expected -= float(less.sum())
            less *= x
            slope += float(less.sum())
        step = (s - expected) / slope if slope > 0 else 0.0
        factor += max(step, 0.0)
        if step <= LAST_STEP * factor:
            break
    drawn = np.zeros(len(weights))
    drawn[at] = most * -np.expm1(-factor * where_positive)
    return drawn


def _repeated(share: FloatArray, s: int) -> FloatArray:
    """The probability to be among s draws with replacement, of which each takes a share."""
    with np.errstate(divide="ignore"):
        drawn: FloatArray = -np.expm1(s * np.log1p(-np.minimum(share, 1.0)))
    return drawn


def repeated_of_all(weights: FloatArray, present: FloatArray, s: int) -> FloatArray:
    """The probabilities to be among s draws with replacement: r (1 - (1 - w / (r total))^s).

    Examples
    --------
    >>> repeated_of_all(np.array([1.0, 3.0, 0.0]), np.array([1.0, 1.0, 0.0]), 2).round(4).tolist()
    [0.4375, 0.9375, 0.0]
    """
    total = max(float(weights.sum()), np.finfo(np.float64).tiny)
    return present * _repeated(weights / np.where(present > 0, present, 1.0) / total, s)


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
        return _repeated(share, s)
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
    by_weight = graph.weighting == "weighted" and proportion.power > 0 and s != -1

    def addends(rows: CsrRows) -> FloatArray:
        lengths, here = rows.degrees, frontier[rows.vertices]
        if not by_weight:
            return log_complement(here * _uniform(lengths, s, sampler.replace))
        weights = np.asarray(rows.weights, np.float64) ** proportion.power
        return log_complement(np.repeat(here, lengths) * drawn_of_rows(lengths, weights, s, sampler.replace))

    return from_log_complement(column_sums(graph, addends, largest, by_entry=by_weight))


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
        return _repeated(1.0 / d, s)
    return np.minimum(np.divide(s, d, out=d), 1.0, out=d)


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
    weights = _sums(graph, rows, proportion.power)
    if proportion.column_power == 2:
        # The expected square of a sum of independent terms: the square of its expectation, and its variance.
        weights = weights**2 + _sums(graph, rows * (1.0 - rows), 2 * proportion.power)
    present = (weights > 0).astype(np.float64)
    if proportion.rows == "frontier":
        present = np.where(weights > 0, _neighbours(graph, rows), 0.0)
    drawn_of = repeated_of_all if sampler.replace else drawn_of_all
    return drawn_of(weights, present, s)


def _sums(graph: BaseGraph, rows: FloatArray, power: int) -> FloatArray:
    """(n,) column sums of A's entries to the power, each row times its number; collective on ranks."""
    data = graph.block_row().data
    here = np.array([1.0 if data is None else float(data.max(initial=0.0))])
    largest = float(graph.comm.all_reduce(here, "max", phase=PHASE)[0])

    def addends(some: CsrRows) -> FloatArray:
        numbers: FloatArray = rows[some.vertices]
        if some.weights is not None:
            return np.asarray(some.weights, np.float64) ** power * np.repeat(numbers, some.degrees)
        return numbers / np.maximum(some.degrees, 1).astype(np.float64) ** power if some.is_normalized else numbers

    most = float(rows.max(initial=0.0)) * largest**power
    return column_sums(graph, addends, most, by_entry=graph.weighting == "weighted")


def _neighbours(graph: BaseGraph, frontier: FloatArray) -> FloatArray:
    """(n,) the probability that any vertex of the frontier has a vertex as an in-neighbour, of positive weight."""
    costs = log_complement(frontier)

    def addends(some: CsrRows) -> FloatArray:
        numbers: FloatArray = costs[some.vertices]
        return numbers if some.weights is None else np.repeat(numbers, some.degrees) * (some.weights > 0)

    by_entry = graph.weighting == "weighted"
    return from_log_complement(column_sums(graph, addends, float(costs.max(initial=0.0)), by_entry=by_entry))


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
    batches = max(-(-len(seeds) // batch_size), 1)
    distinct, times = np.unique(seeds, return_counts=True)  # a seed given several times falls anywhere each time
    before, known = np.zeros(graph.num_nodes), np.zeros(graph.num_nodes)
    known[distinct] = np.where(times == 1, 1.0 / batches, 1.0 - (1.0 - 1.0 / batches) ** times)
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
    starts = size * np.arange(max(len(order) // size, 1))  # the last group has what is left, too
    expected = batches * level
    each = (seen, expected, expected * (1.0 - level))
    counted, of_chance, variance = (np.add.reduceat(values, starts) for values in each)
    of_groups = _factors(counted, of_chance, variance, np.zeros(1, np.int64))
    level = np.minimum(level * np.repeat(of_groups, np.diff(starts, append=len(order))), 1.0)
    expected = batches * level
    scores[order] = level * _factors(seen, expected, expected * (1.0 - level), starts)
    return scores


def _factors(counts: FloatArray, expected: FloatArray, variance: FloatArray, starts: Int64Array) -> FloatArray:
    """(count + a) / (expected + a), with the a of each one's group; 1 where they deviate no more than by chance."""
    deviations = counts - expected
    excess = np.add.reduceat(deviations * deviations - variance, starts)
    is_off = excess > 0
    a = np.where(is_off, np.add.reduceat(expected * expected, starts) / np.where(is_off, excess, 1.0), 1.0)
    lengths = np.diff(starts, append=len(counts))
    weight, a = np.repeat(is_off.astype(np.float64), lengths), np.repeat(a, lengths)
    factors: FloatArray = (counts * weight + a) / (expected * weight + a)
    return factors
