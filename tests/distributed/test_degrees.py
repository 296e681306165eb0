"""Degrees of a distributed graph are those of the local one."""

import numpy as np
import pytest

pytest.importorskip("torch")

import spsample as sp
from spsample.comm import run_threads
from spsample.distributed import PartitionedGraph, ProcessGrid, ReplicatedGraph
from spsample.errors import InputError
from spsample.store import construction


def graph_of(kind):
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 97, (2, 600))
    weights = rng.random(600).astype(np.float32) if kind == "weighted" else None
    graph = sp.Graph.from_edge_index(edges, num_nodes=101, edge_weight=weights)
    return graph.normalized("row") if kind == "row" else graph


@pytest.mark.parametrize("kind", ["unweighted", "row", "weighted"])
@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("rows_at_once", [7, 1 << 16])
def test_equal_to_the_local_ones(kind, p, rows_at_once, monkeypatch):
    monkeypatch.setattr(construction, "ROWS_AT_ONCE", rows_at_once)
    graph = graph_of(kind)

    def body(comm):
        shared = PartitionedGraph.from_graph(graph, ProcessGrid(comm)), ReplicatedGraph(graph, comm)
        return [one.row_sums() for one in shared]

    for totals in run_threads(p, body, 30):
        for mine in totals:
            np.testing.assert_array_equal(mine, graph.row_sums())


def test_a_partitioned_graph_normalised_by_rows():
    graph = graph_of("unweighted")
    expected = sp.bulk_sample(graph.normalized("row"), np.arange(40), sp.LADIES([20, 20]), batch_size=10)

    def body(comm):
        parts = PartitionedGraph.from_graph(graph, ProcessGrid(comm)).normalized("row")
        return sp.bulk_sample(parts, np.arange(40), sp.LADIES([20, 20]), batch_size=10)

    for rank, bulk in enumerate(run_threads(2, body, 30)):
        for minibatch in bulk:
            reference = expected[minibatch.batch_id]
            assert minibatch.batch_id % 2 == rank
            for mine, theirs in zip(minibatch.layers, reference.layers, strict=True):
                np.testing.assert_array_equal(mine.adj.data, theirs.adj.data)
                np.testing.assert_array_equal(mine.src_nodes, theirs.src_nodes)


def test_weights_are_not_normalised_on_ranks():
    def body(comm):
        with pytest.raises(InputError, match="stores weights"):
            PartitionedGraph.from_graph(graph_of("weighted"), ProcessGrid(comm)).normalized("row")

    run_threads(2, body, 30)
