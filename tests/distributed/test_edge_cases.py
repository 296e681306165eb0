"""Ranks, blocks, rows and batches of which there are none or too many: the same samples, and no rank waits for ever."""

from __future__ import annotations

import numpy as np
import pytest
from partitioned_cases import ALGORITHMS, GRAPHS, SAMPLERS, batches_of, gathered, same_batches

import spsample as sp
from spsample.comm import run_threads
from spsample.distributed import ProcessGrid

TIMEOUT = 60


def hub(weighted=False):
    """Vertex 5 has 18,000 in-neighbours, all others together fewer."""
    rng = np.random.default_rng(2)
    n, others = 20_000, 10_000
    targets = np.concatenate([np.full(18_000, 5), rng.integers(6, n, others)])
    sources = np.concatenate([rng.permutation(n)[:18_000], rng.integers(0, 9, others)])
    weight = rng.exponential(1.0, len(targets)).astype(np.float32) if weighted else None
    return sp.Graph.from_edge_index(np.stack([sources, targets]), num_nodes=n, edge_weight=weight)


def wide(graph):
    return sp.Graph(graph.indptr, graph.indices.astype(np.int64), graph.data)


def spread(n, count):
    return np.random.default_rng(4).integers(0, n, count)


def with_hub(count):
    return np.concatenate([[5, 5], spread(20_000, count), [5]])


EMPTY = sp.Graph(np.zeros(11, np.int64), np.zeros(0, np.int32))
THREE = sp.Graph([0, 2, 2, 3], [1, 2, 0])
PLAIN, WEIGHTED = GRAPHS["plain"](), GRAPHS["weighted"]()

# name: p, graph, seeds, batch size, parts of the vertices (None: by entries)
CASES = {
    "4,097 seeds on 4 ranks": (4, PLAIN, spread(64, 4097), 64, None),
    "4,097 seeds, weights": (4, WEIGHTED, spread(64, 4097), 256, None),
    "one batch of 4,097 seeds": (4, PLAIN, spread(64, 4097), 5000, None),
    "3 seeds on 8 ranks": (8, PLAIN, [3, 60, 3], 1, None),
    "3 seeds on 8 ranks, weights": (8, WEIGHTED, [3, 60, 3], 1, None),
    "one batch on 8 ranks": (8, WEIGHTED, [3, 60, 3], 4, None),
    "no seeds": (4, PLAIN, [], 4, None),
    "no seeds, weights": (4, WEIGHTED, [], 4, None),
    "an empty block row": (4, WEIGHTED, spread(64, 50), 7, "not in the second block"),
    "all rows in one block": (4, PLAIN, spread(64, 50), 7, "in the last block"),
    "3 vertices on 8 ranks": (8, THREE, [0, 1, 2, 2, 0], 2, None),
    "in-degree 18,000": (4, hub(), with_hub(60), 16, None),
    "in-degree 18,000, weights": (4, hub(weighted=True), with_hub(60), 16, None),
    "all rows empty": (4, EMPTY, spread(10, 20), 3, None),
    "one vertex": (4, sp.Graph([0, 0], []), [0, 0, 0], 1, None),
    "one vertex and its loop": (2, sp.Graph([0, 1], [0], [0.5]), [0, 0, 0], 2, None),
    "ids of 64 bits": (4, wide(WEIGHTED), spread(64, 50).astype(np.uint64), 7, "not in the second block"),
    "one seed over and over": (4, PLAIN, [7] * 30, 5, None),
}
WHICH = [SAMPLERS[i] for i in (0, 1, 3, 4, 5, 7, 8, 10, 13)]


def parts_of(n, blocks, how):
    if how == "in the last block":
        return np.full(n, blocks - 1)
    parts = np.arange(n) % blocks
    parts[parts == 1] = 0
    return parts


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("case", CASES)
def test_same_samples(case, algorithm):
    """Each with a third of the samplers, the next one for the next algorithm."""
    p, graph, seeds, batch_size, how = CASES[case]
    which = WHICH[(list(CASES).index(case) + ALGORITHMS.index(algorithm)) % 3 :: 3]
    arguments = {"batch_size": batch_size, "random_seed": 5, "edge_ids": True}
    want = [batches_of(sp.bulk_sample(graph, seeds, sampler, **arguments)) for sampler in which]

    def body(comm, c):
        partition = None if how is None else parts_of(graph.num_nodes, p // c, how)
        hubs = 500 if c == 1 else None
        layout = {"algorithm": algorithm, "partition": partition, "replicate_hubs": hubs}
        parts = sp.PartitionedGraph.from_graph(graph, ProcessGrid(comm, c), **layout)
        return [batches_of(sp.bulk_sample(parts, seeds, sampler, **arguments)) for sampler in which]

    for c in (1, 2) if algorithm == "column" else (2,):
        bulks = zip(*run_threads(p, lambda comm: body(comm, c), TIMEOUT), strict=True)  # noqa: B023  (called here)
        for per_rank, expected in zip(bulks, want, strict=True):
            same_batches(gathered(per_rank), expected)
