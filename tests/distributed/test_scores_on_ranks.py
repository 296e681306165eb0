"""Scores are equal, bit for bit, on ranks and on any number of threads."""

import numpy as np
import pytest
from covers import pairs

import spsample as sp
from spsample.comm import run_threads
from spsample.distributed import PartitionedGraph, ProcessGrid, ReplicatedGraph
from spsample.errors import InputError
from spsample.features import score


def a_graph(kind):
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 97, (2, 900)) ** 2 // 97
    weights = rng.random(900).astype(np.float32) if kind == "weighted" else None
    graph = sp.Graph.from_edge_index(edges, num_nodes=97, edge_weight=weights)
    return graph.normalized("row") if kind == "row" else graph


OPTIONS = {"replay": {"epochs": range(2)}, "presc": {"epochs": 2}}
NAMES = ["out-degree", "random", "presc", "replay", "inclusion", "posterior", "reverse-pagerank"]
SAMPLERS = [sp.GraphSAGE([3, 2]), sp.LADIES([9, 9]), sp.FastGCN([9, 9])]


@pytest.mark.parametrize(
    ("name", "grid", "kind"), pairs(NAMES, [(2, 1), (4, 2), (3, 1)], ["unweighted", "row", "weighted"])
)
def test_equal_on_ranks(name, grid, kind):
    p, c = grid
    graph = a_graph(kind)
    parts = np.random.default_rng(1).integers(0, p // c, 97)
    options = OPTIONS.get(name, {})

    def body(comm):
        grid = ProcessGrid(comm, replication=c)
        shared = (
            ReplicatedGraph(graph, comm),
            PartitionedGraph.from_graph(graph, grid),
            PartitionedGraph.from_graph(graph, grid, partition=parts, replicate_hubs=200),
        )
        return [[score(name, one, range(50), s, 8, **options) for s in SAMPLERS] for one in shared]

    expected = [score(name, graph, range(50), s, 8, **options) for s in SAMPLERS]
    for rank in run_threads(p, body, 60):
        for found in rank:
            for mine, reference in zip(found, expected, strict=True):
                np.testing.assert_array_equal(mine, reference)


def test_what_one_rank_gives_wrong_all_refuse():
    graph = a_graph("unweighted")

    def body(comm):
        shared = ReplicatedGraph(graph, comm)
        for name, batch_size, words in (("presc", 8 * comm.rank, "batch_size: got 0"), ("none", 8, "name: got 'none'")):
            with pytest.raises(InputError, match=words):
                score(name, shared, range(50), SAMPLERS[0], batch_size)
        with pytest.raises(InputError, match="batch_size: got something else on rank"):
            score("presc", shared, range(50), SAMPLERS[0], 8 + comm.rank)
        with pytest.raises(InputError, match="options: got something else on rank"):
            score("presc", shared, range(50), SAMPLERS[0], 8, epochs=comm.rank)
        return True

    assert run_threads(2, body, 30) == [True, True]


@pytest.mark.parametrize("kind", ["unweighted", "row"])
def test_equal_where_a_symmetric_matrix_is_read(kind, monkeypatch):
    """A rank that has all rows may read them as columns; one that has some cannot."""
    edges = np.random.default_rng(0).integers(0, 97, (2, 900)) ** 2 // 97
    graph = sp.Graph.from_edge_index(np.concatenate([edges, edges[::-1]], axis=1), num_nodes=97)
    graph = graph.normalized("row") if kind == "row" else graph
    expected = [score("posterior", graph, range(50), s, 8) for s in SAMPLERS]
    monkeypatch.setattr("spsample.features.scores.column_sums.FAR_SUMS", 1)

    def body(comm):
        grid = ProcessGrid(comm)
        shared = ReplicatedGraph(graph, comm), PartitionedGraph.from_graph(graph, grid)
        return [[score("posterior", one, range(50), s, 8) for s in SAMPLERS] for one in shared]

    alone = [score("posterior", graph, range(50), s, 8) for s in SAMPLERS]
    for found in (alone, *(one for rank in run_threads(2, body, 60) for one in rank)):
        for mine, reference in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, reference)
