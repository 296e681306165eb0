"""Graphs, samplers and the comparison of bulks that the tests of distributed graphs share."""

from __future__ import annotations

from typing import Any

import numpy as np

import spsample as sp
from spsample.distributed.algorithms import ALGORITHMS as BY_NAME

ALGORITHMS = tuple(BY_NAME)


def _edges(n: int = 60, m: int = 500) -> np.ndarray:
    rng = np.random.default_rng(7)
    targets = np.minimum(rng.geometric(0.05, m) - 1, n - 1)  # some rows are long, the last ones nearly empty
    return np.stack([rng.integers(0, n, m), targets])


def plain() -> sp.Graph:
    return sp.Graph.from_edge_index(_edges(), num_nodes=64)


def weighted() -> sp.Graph:
    weight = np.random.default_rng(3).exponential(1.0, 500)
    weight[::17] = 0
    return sp.Graph.from_edge_index(_edges(), num_nodes=64, edge_weight=weight.astype(np.float32))


def weighted_double() -> sp.Graph:
    graph = weighted()
    return sp.Graph(graph.indptr, graph.indices.astype(np.int64), graph.data.astype(np.float64))


def row_normalized() -> sp.Graph:
    return plain().normalized("row")


GRAPHS = {
    "plain": plain,
    "weighted": weighted,
    "weighted_double": weighted_double,
    "row_normalized": row_normalized,
}

SAMPLERS = [
    sp.GraphSAGE([3, 4, 2]),
    sp.GraphSAGE([2, -1], replace=True),
    sp.GraphSAGE([3, 2], weighted=False, include_targets=False),
    sp.GraphSAGE([3, 4], layout="subgraph"),
    sp.LADIES([5, 6, 7]),
    sp.LADIES([5, 6], include_targets=False),
    sp.LADIES([40, 60]),  # more than there are
    sp.LADIES([4, 5], replace=True),
    sp.LADIES([5, 6], law="squared_count", values="reference"),
    sp.LADIES([12, 6], law="squared_count", include_targets=False),
    sp.FastGCN([6, 7]),
    sp.FastGCN([30, 100], include_targets=False),
    sp.FastGCN([6, 7], values="reference"),
    sp.FastGCN([6, 70], replace=True),
]


def batches_of(bulk: sp.BulkSample) -> dict[int, list[Any]]:
    """All arrays of each minibatch, by batch id."""
    return {mb.batch_id: _arrays(mb) for mb in bulk}


def _arrays(mb: sp.MiniBatch) -> list[Any]:
    arrays = [mb.seeds, mb.seed_inverse]
    for layer in mb.layers:
        arrays += [layer.dst_nodes, layer.src_nodes, layer.adj.indptr, layer.adj.indices]
        arrays += [array for array in (layer.adj.data, layer.edge_ids) if array is not None]
    return arrays


def gathered(per_rank: list[dict[int, Any]]) -> dict[int, Any]:
    """The batches of all ranks; each must be on one of them only."""
    everything: dict[int, Any] = {}
    for batches in per_rank:
        assert not everything.keys() & batches.keys()
        everything |= batches
    return everything


def divisors(p: int) -> list[int]:
    return [c for c in range(1, p + 1) if p % c == 0]


def same_batches(got: dict[int, list[Any]], want: dict[int, list[Any]]) -> None:
    """The same batches in all their bits."""
    assert got.keys() == want.keys()
    for i in want:
        for mine, other in zip(got[i], want[i], strict=True):
            np.testing.assert_array_equal(mine, other)
            assert mine.dtype == other.dtype
