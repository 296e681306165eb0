"""Ranks with a device each, emulated: graphs, features and loaders give what they give on the host."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_backend import emulated, needs_compiler

import spsample as sp
from spsample.comm import run_threads
from spsample.errors import InputError
from spsample.features import PartitionedDeviceFeatures, PartitionedFeatures

pytestmark = needs_compiler
__all__ = ["emulated"]

SAMPLER = sp.GraphSAGE([3, 2])


def graph_of(kind):
    graph = sp.load_dataset("rmat:8,6").graph
    if kind == "weighted":
        weights = np.random.default_rng(0).exponential(size=graph.num_edges).astype(np.float32)
        return sp.Graph(graph.indptr, graph.indices, weights)
    return graph.normalized("row") if kind == "row" else graph


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("replication", [1, 2])
def test_features(emulated, ordered, replication):
    x = np.random.default_rng(0).normal(size=(37, 6)).astype(np.float32)
    partition = None if ordered else np.random.default_rng(1).integers(0, 4 // replication, 37)

    def body(comm):
        grid = sp.ProcessGrid(comm, replication=replication)
        features = PartitionedDeviceFeatures(PartitionedFeatures.of(x, grid, partition=partition))
        ids = np.random.default_rng(comm.rank).integers(0, 37, 20 * comm.rank)
        rows = features.gather(emulated.to_device(ids.astype(np.int32)))
        np.testing.assert_array_equal(emulated.to_host(rows), x[ids])
        np.testing.assert_array_equal(emulated.to_host(features.gather(ids)), x[ids])
        with pytest.raises(InputError, match="on rank 1"):
            features.gather([40] if comm.rank == 1 else [1])
        return True

    assert run_threads(4, body) == [True] * 4


@pytest.mark.parametrize("kind", ["unweighted", "row"])
@pytest.mark.parametrize("sampler", [sp.GraphSAGE([4, 3]), sp.LADIES([20, 20])], ids=str)
def test_replicated_and_partitioned(emulated, kind, sampler):
    graph = graph_of(kind)
    call = {"seeds": np.arange(0, 120, 2), "sampler": sampler, "batch_size": 8, "random_seed": 4}
    expected = sp.bulk_sample(graph, **call)

    def body(comm):
        grid = sp.ProcessGrid(comm)
        for shared in (sp.ReplicatedGraph(graph, comm), sp.PartitionedGraph.from_graph(graph, grid)):
            bulk = sp.bulk_sample(shared, **call, backend="cuda").to_host()
            for number, batch in enumerate(bulk.batch_ids.tolist()):
                mine, theirs = bulk[number], expected[batch]
                for a, b in zip(mine.layers, theirs.layers, strict=True):
                    np.testing.assert_array_equal(a.src_nodes, b.src_nodes)
                    np.testing.assert_array_equal(a.adj.indices, b.adj.indices)
                    assert a.adj.data is b.adj.data is None or a.adj.data.tobytes() == b.adj.data.tobytes()
        return len(bulk)

    assert sum(run_threads(2, body)) == len(expected)


@pytest.mark.parametrize("prefetch", [0, 1])
def test_loaders_with_features_on_devices(emulated, prefetch):
    graph = graph_of("unweighted")
    x = np.random.default_rng(0).normal(size=(graph.num_nodes, 5)).astype(np.float32)
    options = {"batch_size": 8, "bulk_size": 4, "random_seed": 1}
    expected = {batch.batch_id: batch.x for batch in sp.BulkLoader(graph, range(100), SAMPLER, features=x, **options)}

    def body(comm):
        features = PartitionedDeviceFeatures(PartitionedFeatures.of(x, sp.ProcessGrid(comm)))
        shared = sp.ReplicatedGraph(graph, comm)
        loader = sp.BulkLoader(
            shared, range(100), SAMPLER, features=features, prefetch=prefetch, backend="cuda", **options
        )
        count = 0
        for batch in loader:
            if len(batch.seeds):
                np.testing.assert_array_equal(emulated.to_host(batch.x), expected[batch.batch_id])
                count += 1
        loader.close()
        return count

    assert sum(run_threads(3, body)) == len(expected)


@pytest.mark.parametrize("dtype", [None, "float16", "bfloat16", "int8"])
def test_a_source_of_any_form_is_decoded(emulated, dtype):
    x = np.random.default_rng(1).normal(size=(21, 3)).astype(np.float32)
    ids = np.array([20, 0, 7, 7, 13])

    def body(comm):
        source = PartitionedFeatures.of(x, sp.ProcessGrid(comm), dtype=dtype)
        device = PartitionedDeviceFeatures(source)
        np.testing.assert_array_equal(emulated.to_host(device.gather(ids)), source.gather(ids))

    run_threads(2, body)


def test_bulks_of_a_replicated_graph_are_planned_with_the_device(emulated):
    graph = graph_of("unweighted")
    emulated._free_bytes = 10 << 20

    def body(comm):
        options = {"batch_size": 8, "bulk_size": "auto", "prefetch": 0}
        shared = sp.ReplicatedGraph(graph, comm)
        device = sp.BulkLoader(shared, range(200), SAMPLER, backend="cuda", **options)
        host = sp.BulkLoader(shared, range(200), SAMPLER, **options)
        return device.plan.memory_budget, device.plan.bytes_per_batch > host.plan.bytes_per_batch

    assert run_threads(2, body) == [(5 << 20, True)] * 2
