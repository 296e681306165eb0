"""The default score: visits of a trial, shrunk towards the probabilities of inclusion."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.features.score_order import hottest
from spsample.features.scores.inclusion import inclusion
from spsample.features.scores.visits import trial_visits
from spsample.sampling import Sampler
from spsample.store.base_graph import BaseGraph

__all__ = ["posterior", "shrunk"]

FloatArray = NDArray[np.float64]

GROUP = 256
"""Vertices whose probabilities are about equal: enough that what their counts have in common is no chance."""


def posterior(
    graph: BaseGraph, seeds: Int64Array, sampler: Sampler, batch_size: int, *, epochs: int = 3, random_seed: int = 0
) -> FloatArray:
    """(n,) the probability that a batch needs a vertex, from the counts of `epochs` trial epochs and from `inclusion`.

    Counts follow the real sampler, but few batches cannot tell rarely visited vertices apart; `inclusion` can, but
    takes vertices as independent. Each is trusted as far as the counts show that it may be.

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
    more than chance has it, and it is p. Where p is 0 it is count / m: the counts know better.

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
    np.minimum(level, 1.0, out=level)
    expected = np.multiply(level, batches, out=expected)
    level *= _factors(seen, expected, expected * (1.0 - level), groups)
    scores[order] = level
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
    """(count + a) / (expected + a), with the a of each one's group; 1 where they deviate no more than chance has it."""
    excess = counts - expected
    excess *= excess
    excess -= variance
    excess = groups.sums(excess)
    is_off = excess > 0
    a = np.where(is_off, groups.sums(expected * expected) / np.where(is_off, excess, 1.0), 1.0)
    weight, a = groups.spread(is_off.astype(np.float64)), groups.spread(a)
    factors = counts * weight
    factors += a
    weight *= expected
    weight += a
    factors /= weight
    return factors
