"""The score of Data Tiering: PageRank against the edges, from targets to sources, begun at the seeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_int, require_number
from spsample.features.scores.column_sums import Rows, column_sums
from spsample.sampling import Sampler
from spsample.sampling.sampler import require_bool
from spsample.store.base_graph import BaseGraph

__all__ = ["reverse_pagerank"]

FloatArray = NDArray[np.float64]


def reverse_pagerank(
    graph: BaseGraph,
    seeds: Int64Array,
    sampler: Sampler,
    batch_size: int,
    *,
    weighted: bool = True,
    damping: float = 0.85,
    iterations: int = 5,
) -> FloatArray:
    """(n,) scores after some iterations of score(u) <- (1 - f) / n + f sum over targets v of u of score(v) / d(v).

    f is the damping, d(v) the number of entries of row v, and v is a target of u once for each entry (v, u). Sampler
    and batch size are of no account.

    Parameters
    ----------
    graph, seeds, sampler, batch_size
        As of `score`.
    weighted : bool
        Scores begin at 1 / n. Weighted, they begin at 1 / |seeds| at the seeds, which is n / |seeds| times that.
    damping : float
        From 0 to 1.
    iterations : int
        A few: the weights of the beginning are to be felt.

    References
    ----------
    Min, Wu, Hidayetoglu, Xiong, Song, Hwu, "Graph neural network training and data tiering", KDD 2022.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 2, 0], [0, 0, 1, 2]], num_nodes=3)
    >>> options = {"iterations": 1, "weighted": False}
    >>> sp.features.score("reverse-pagerank", graph, [0], sp.GraphSAGE([2]), batch_size=1, **options).round(4)
    array([0.3333, 0.1917, 0.475 ])
    """
    require_bool("weighted", weighted)
    damping = require_number("damping", damping, lambda x: 0 <= x <= 1, "a number from 0 to 1")
    iterations = require_int("iterations", iterations, minimum=0)
    n = graph.num_nodes
    scores = np.full(n, 1.0 / n)
    if weighted and len(seeds):
        distinct = np.unique(seeds)
        scores[distinct] = 1.0 / len(distinct)
    for _ in range(iterations):
        scores = (1.0 - damping) / n + damping * _passed_on(graph, scores)
    return scores


def _passed_on(graph: BaseGraph, scores: FloatArray) -> FloatArray:
    """(n,) what each vertex gets from its targets, of which each spreads its score evenly over its sources."""

    def shares(rows: Rows) -> FloatArray:
        return scores[rows.vertices] / np.maximum(rows.degrees, 1)

    return column_sums(graph, shares, float(scores.max()))
