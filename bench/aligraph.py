"""The score of AliGraph, which cases compare others with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.features import register_score, score, score_names


def aligraph(graph: Any, seeds: Any, sampler: Any, batch_size: int) -> NDArray[np.float64]:
    """(n,) edges that a vertex is the source of, over edges that it aggregates, at least 1.

    Zhu et al., "AliGraph: a comprehensive graph neural network platform", VLDB 2019: its importance for k = 1 hop.
    """
    rows, block = np.zeros(graph.num_nodes, np.int64), graph.block_row()
    rows[slice(None) if block.ids is None else block.ids] = np.diff(block.indptr)
    rows = graph.add_block_rows(rows, phase="scores")
    return score("out-degree", graph, seeds, sampler, batch_size) / np.maximum(rows, 1)


if "aligraph" not in score_names():
    register_score("aligraph", aligraph)
