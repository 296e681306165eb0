"""The score of GNNLab: how often the batches of a few trial epochs visit a vertex."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.features.scores.visits import trial_visits
from spsample.sampling import Sampler
from spsample.store.base_graph import BaseGraph

__all__ = ["presc"]


def presc(
    graph: BaseGraph, seeds: Int64Array, sampler: Sampler, batch_size: int, *, epochs: int = 3, random_seed: int = 0
) -> NDArray[np.float64]:
    """(n,) batches of `epochs` trial epochs that need a vertex, for any sampler.

    The trial has random numbers of its own: none of its epochs is one of training with `random_seed`.

    References
    ----------
    Yang, Tang, Song, Wang, Yin, Chen, Yu, Zhou, "GNNLab: a factored system for sample-based GNN training over GPUs",
    EuroSys 2022: pre-sampling.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 2, 0], [0, 0, 1, 2]], num_nodes=3)
    >>> sp.features.score("presc", graph, [0, 1, 2], sp.GraphSAGE([-1]), batch_size=1, epochs=2)
    array([4., 4., 6.])
    """
    counts, _ = trial_visits(graph, seeds, sampler, batch_size, epochs, random_seed)
    return counts.astype(np.float64)
