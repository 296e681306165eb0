"""What is built on the backend `cuda`, on a GPU: loaders, features, torch tensors, training, memory."""

from __future__ import annotations

import numpy as np
import pytest
from equality import assert_bulks_same
from the_gpu import the_gpu

import spsample as sp
from spsample.errors import CapacityError
from spsample.features.formats import format_for
from spsample.store.device_graph import expected_visits

if isinstance(the_gpu(), str):
    pytest.skip(the_gpu(), allow_module_level=True)

pytestmark = pytest.mark.gpu
SAMPLER = sp.GraphSAGE([5, 4])


@pytest.fixture(scope="module")
def graph():
    return sp.load_dataset("rmat:14,16").graph


@pytest.fixture(scope="module")
def x(graph):
    return np.random.default_rng(0).normal(size=(graph.num_nodes, 20)).astype(np.float32)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_loaders_give_what_they_give_on_the_host(gpu, graph, x, prefetch):
    options = {"batch_size": 64, "bulk_size": 10, "features": x, "labels": np.arange(graph.num_nodes), "random_seed": 3}
    host = sp.BulkLoader(graph, np.arange(4000), SAMPLER, prefetch=0, **options)
    device = sp.BulkLoader(graph, np.arange(4000), SAMPLER, prefetch=prefetch, backend="cuda", **options)
    for _ in range(2):
        for one, other in zip(host, device, strict=True):
            np.testing.assert_array_equal(one.src_nodes, gpu.to_host(other.src_nodes))
            np.testing.assert_array_equal(one.x, gpu.to_host(other.x))
            np.testing.assert_array_equal(one.y, gpu.to_host(other.y))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("hot", [0.0, 0.3, 1.0])
def test_features_in_tiers(gpu, graph, x, dtype, hot):
    source = sp.DeviceFeatures(x, hot, lambda: expected_visits(graph), dtype=dtype)
    ids = np.random.default_rng(1).integers(0, graph.num_nodes, 5000)
    form = format_for(dtype, np.abs(x).max(axis=0) if dtype == "int8" else None)
    np.testing.assert_array_equal(gpu.to_host(source.gather(ids)), form.decode(form.encode(x))[ids])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "float64"])
@pytest.mark.parametrize("hot", [0.0, 0.3, 1.0])
def test_features_of_a_cache_behind_the_device(gpu, graph, x, dtype, hot):
    """Several calls, so that pinned memory is written again; what misses on the device comes from the cache."""
    rows, rng = (x * 20).astype(dtype), np.random.default_rng(1)
    wanted = graph.in_degrees()
    cache = sp.CachedFeatures(sp.FeatureStore(rows), "64KiB", wanted)
    source = sp.DeviceFeatures(cache, hot, wanted)
    for count in (5000, 0, 7000, 100):
        ids = rng.integers(0, graph.num_nodes, count)
        expected = rows[ids].astype(np.float32)
        there = gpu.to_device(ids.astype(np.int32))
        np.testing.assert_array_equal(gpu.to_host(source.gather(there)), expected)
        out, at = gpu.to_device(np.zeros((count, x.shape[1]), np.float32)), rng.permutation(count)
        source.gather(there, out, at)
        np.testing.assert_array_equal(gpu.to_host(out)[at], expected)
    assert source.counts.hits + source.counts.misses == 2 * 12100


@pytest.mark.parametrize("entries", ["host", 0.2, "auto"])
@pytest.mark.parametrize("sampler", [SAMPLER, sp.LADIES([128, 128])], ids=str)
@pytest.mark.parametrize("least", [1, 1 << 18])  # rows in the order of their addresses, and as they come
def test_graphs_on_the_host(gpu, graph, monkeypatch, entries, sampler, least):
    monkeypatch.setattr("spsample.backends.cuda.launcher.LEAST_ORDERED", least)
    assert not gpu.is_on_host(gpu.to_device(np.ones(3)))
    assert gpu.is_on_host(gpu.pinned(np.ones(3))[1:])
    call = {"seeds": np.arange(3000), "sampler": sampler, "batch_size": 128, "random_seed": 5}
    placed = sp.DeviceGraph(graph, entries)
    assert_bulks_same(sp.bulk_sample(graph, **call), sp.bulk_sample(placed, **call).to_host())


def test_torch_takes_the_arrays_as_they_are(gpu, graph):
    torch = pytest.importorskip("torch")
    minibatch = sp.bulk_sample(graph, np.arange(256), SAMPLER, batch_size=64, edge_ids=True, backend="cuda")[2]
    layer = minibatch.layers[0]
    taken = torch.from_dlpack(layer.adj.indices)
    assert taken.is_cuda
    assert taken.data_ptr() == gpu.address(layer.adj.indices)
    _, n_id, adjs = minibatch.to_pyg()
    assert n_id.is_cuda
    assert all(adj.edge_index.is_cuda and adj.e_id.is_cuda for adj in adjs)


def test_on_a_stream_of_the_caller(gpu, graph):
    torch = pytest.importorskip("torch")
    call = {"seeds": np.arange(3000), "sampler": SAMPLER, "batch_size": 64}
    expected = sp.bulk_sample(graph, **call)
    with torch.cuda.stream(torch.cuda.Stream()):
        assert_bulks_same(expected, sp.bulk_sample(graph, **call, backend="cuda").to_host())


def test_streams_wait_for_each_other_and_memory_is_kept_for_them(gpu, graph, x):
    """A graph of one stream, bulks of a second, and a third that is behind when what it reads is dropped."""
    torch = pytest.importorskip("torch")
    from spsample.nn.tensors import as_tensor

    placing, sampling, reading = (torch.cuda.Stream() for _ in range(3))
    call = {"seeds": np.arange(3000), "sampler": SAMPLER, "batch_size": 64}
    read = []
    with torch.cuda.stream(placing):
        placed, features = sp.DeviceGraph(graph), sp.DeviceFeatures(x, 1.0)
    for epoch in range(10):
        with torch.cuda.stream(sampling):
            ids = sp.bulk_sample(placed, epoch=epoch, **call)[0].copy().src_nodes
            rows = features.gather(ids)
        with torch.cuda.stream(reading):
            torch.cuda._sleep(20_000_000)  # clock cycles: what is read next is free and made anew meanwhile, or kept
            read.append((as_tensor(ids).clone(), as_tensor(rows).clone()))
            del ids, rows
    torch.cuda.synchronize()
    for epoch, (ids, rows) in enumerate(read):
        expected = sp.bulk_sample(graph, epoch=epoch, **call)[0].src_nodes
        np.testing.assert_array_equal(ids.cpu().numpy(), expected)
        np.testing.assert_array_equal(rows.cpu().numpy(), x[expected])


@pytest.mark.parametrize("sampler", [sp.GraphSAGE([5, 5]), sp.LADIES([64, 64])], ids=str)
def test_training(gpu, sampler):
    pytest.importorskip("torch_geometric")
    from spsample.data import planted
    from spsample.training import ModelConfig, TrainConfig, Trainer

    losses = []
    for backend in ("cuda", None):
        config = TrainConfig(epochs=3, batch_size=64, backend=backend, evaluation="both")
        trainer = Trainer(planted(1000), sampler, ModelConfig(hidden=16, dropout=0.0), config)
        losses.append([record.loss for record in trainer.fit().history])
        trainer.close()
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)


def test_memory_that_runs_out_says_how_many_batches_fit(gpu, graph):
    too_many = int(gpu.free_bytes() // (4 * graph.num_edges) + 100)
    seeds = np.tile(np.arange(64), too_many)
    with pytest.raises(CapacityError, match=r"at most \d+ of these batches"):
        sp.bulk_sample(graph, seeds, sp.GraphSAGE([-1, -1]), batch_size=64, backend="cuda")
    sp.bulk_sample(graph, np.arange(256), SAMPLER, batch_size=64, backend="cuda")  # nothing is left behind


def test_many_batches_that_share_long_rows(gpu):
    """Blocks of one launch find out the same row's rule at once."""
    rng = np.random.default_rng(2)
    targets = np.concatenate([np.repeat(np.arange(4), 20_000), rng.integers(4, 300, 3000)])
    edges = np.stack([rng.integers(0, 300, len(targets)), targets])
    graph = sp.Graph.from_edge_index(edges, num_nodes=300, edge_weight=rng.exponential(size=len(targets)))
    call = {"seeds": np.arange(300), "sampler": sp.GraphSAGE([6, 6]), "batch_size": 3}
    expected = sp.bulk_sample(graph, **call)
    for _ in range(20):
        assert_bulks_same(expected, sp.bulk_sample(sp.DeviceGraph(graph), **call).to_host())
