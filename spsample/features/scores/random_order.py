"""A score without knowledge: vertices in a random order, which others have to beat."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.sampling import Sampler
from spsample.sparse import keys
from spsample.store.base_graph import BaseGraph

__all__ = ["random_order"]


def random_order(
    graph: BaseGraph, seeds: Int64Array, sampler: Sampler, batch_size: int, *, random_seed: int = 0
) -> NDArray[np.float64]:
    """(n,) the numbers 0, 1 / n, ..., (n - 1) / n in an order that depends on `random_seed` only.

    Examples
    --------
    >>> import spsample as sp
    >>> scores = sp.features.score("random", sp.Graph([0] * 5, []), [0], sp.GraphSAGE([2]), batch_size=1, random_seed=7)
    >>> sorted(scores.tolist())
    [0.0, 0.25, 0.5, 0.75]
    """
    n = graph.num_nodes
    scores = np.empty(n)
    scores[keys.shuffle(n, keys.trial_seed(random_seed))] = np.arange(n) / max(n, 1)
    return scores
