"""The score of AliGraph: how many vertices ask for a vertex, over how many it asks for itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.features.scores.column_sums import column_counts, row_counts
from spsample.sampling import Sampler
from spsample.store.base_graph import BaseGraph

__all__ = ["aligraph"]


def aligraph(graph: BaseGraph, seeds: Int64Array, sampler: Sampler, batch_size: int) -> NDArray[np.float64]:
    """(n,) the importance of a vertex within one hop: edges that it is the source of, over edges that it aggregates.

    AliGraph keeps the neighbourhood of an important vertex: the first number is the use of that, the second its cost. A
    vertex without neighbours costs 1. Parallel edges count each; seeds and sampler are of no account.

    References
    ----------
    Zhu, Zhao, Yang, Lin, Zhou, Ai, Li, Zhou, "AliGraph: a comprehensive graph neural network platform", VLDB 2019: the
    importance of k hops, here for k = 1.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 2, 0], [0, 0, 1, 2]], num_nodes=3)
    >>> sp.features.score("aligraph", graph, [0], sp.GraphSAGE([2]), batch_size=1)
    array([0.5, 1. , 2. ])
    """
    importance: NDArray[np.float64] = column_counts(graph) / np.maximum(row_counts(graph), 1)
    return importance
