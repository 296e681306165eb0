"""The default score: visits of a trial, shrunk towards the probabilities of inclusion."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.features.scores.inclusion import inclusion
from spsample.features.scores.visits import trial_visits
from spsample.sampling import Sampler
from spsample.store.base_graph import BaseGraph

__all__ = ["posterior", "shrunk"]

FloatArray = NDArray[np.float64]


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


def shrunk(counts: Int64Array, batches: int, probabilities: FloatArray) -> FloatArray:
    """Means of the gamma posteriors of rates of which `counts` were seen in m batches, with prior means p.

    They are (count + a) / (m + a / p), with the a for which the counts deviate from m p by as much as they do:
    a = sum (m p)^2 / sum ((count - m p)^2 - m p (1 - p)). Where the denominator is not positive the counts deviate no
    more than chance has it, and p is returned. Where p is 0 it is count / m: the counts know better.

    Examples
    --------
    >>> shrunk(np.array([9, 0, 0]), 10, np.array([0.5, 0.5, 0.0])).round(4).tolist()
    [0.813, 0.1087, 0.0]
    >>> shrunk(np.array([5, 5]), 10, np.array([0.5, 0.5])).tolist()
    [0.5, 0.5]
    """
    m, p = float(batches), probabilities
    expected = m * p
    excess = float(((counts - expected) ** 2 - expected * (1.0 - p)).sum())
    if excess <= 0:
        return p
    a = float((expected**2).sum()) / excess
    scores: FloatArray = p * (counts + a) / np.where(p > 0, expected + a, 1.0)
    return np.where(p > 0, scores, counts / max(m, 1.0))
