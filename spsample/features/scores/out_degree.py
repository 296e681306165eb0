"""The score of PaGraph: of how many edges a vertex is the source."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.features.scores.column_sums import column_counts
from spsample.sampling import Sampler
from spsample.store.base_graph import BaseGraph

__all__ = ["out_degree"]


def out_degree(graph: BaseGraph, seeds: Int64Array, sampler: Sampler, batch_size: int) -> NDArray[np.float64]:
    """(n,) out-degrees, parallel edges each: blind to seeds and sampler.

    References
    ----------
    Lin, Li, Miao, Liu, Xu, "PaGraph: scaling GNN training on large graphs via computation-aware caching", SoCC 2020.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 2, 0], [0, 0, 1, 2]], num_nodes=3)
    >>> sp.features.score("out-degree", graph, [0], sp.GraphSAGE([2]), batch_size=1)
    array([1., 1., 2.])
    """
    return column_counts(graph).astype(np.float64)
