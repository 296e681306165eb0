"""Whole bulks of the backend `cuda` equal those of the host, on the emulated device."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from emulated_backend import emulated, needs_compiler
from equality import assert_bulks_same

import spsample as sp
from spsample.errors import DTypeError, InputError
from spsample.features import score

pytestmark = needs_compiler
__all__ = ["emulated"]


def rmat(kind="unweighted", index=np.int32):
    graph = sp.load_dataset("rmat:9,6").graph
    if kind == "weighted":
        weights = np.random.default_rng(0).exponential(size=graph.num_edges)
        return sp.Graph(graph.indptr, graph.indices.astype(index), weights)
    if kind in ("row", "sym"):
        graph = graph.normalized(kind)
    return graph


@pytest.mark.parametrize("layout", ["blocks"])
@pytest.mark.parametrize("fanouts", [[4, 3, 2], [-1, 2]])
def test_uniform_rows(emulated, layout, fanouts):
    graph = rmat()
    sampler = sp.GraphSAGE(fanouts, layout=layout)
    call = {"seeds": np.arange(0, 500, 3), "sampler": sampler, "batch_size": 16, "edge_ids": True}
    on_device = sp.bulk_sample(graph, **call, backend="cuda")
    assert emulated.owns(on_device.layers[0].src)
    assert_bulks_same(sp.bulk_sample(graph, **call), on_device.to_host())


def test_a_bulk_waits_as_often_whatever_k(emulated):
    graph = rmat()
    sp.bulk_sample(graph, [1], sp.GraphSAGE([3, 3]), batch_size=4, backend="cuda")
    counts = []
    for seeds in (8, 400):
        before = emulated.launches, emulated.waits
        sp.bulk_sample(graph, np.arange(seeds), sp.GraphSAGE([3, 3]), batch_size=4, backend="cuda")
        counts.append((emulated.launches - before[0], emulated.waits - before[1]))
    assert counts[0] == counts[1]
    assert counts[0][1] == 4  # of each layer: where entries end, and where sources do


@pytest.mark.parametrize("entries", ["host", 0.3, "auto"])
def test_entries_elsewhere(emulated, entries):
    graph = rmat()
    placed = sp.DeviceGraph(graph, entries=entries)
    call = {"seeds": np.arange(100), "sampler": sp.GraphSAGE([5, 4]), "batch_size": 16}
    assert_bulks_same(sp.bulk_sample(graph, **call), sp.bulk_sample(placed, **call).to_host())


@pytest.mark.parametrize("fanouts", [[5, 4], [40, 3]])
@pytest.mark.parametrize("kind", ["unweighted", "weighted"])
@pytest.mark.parametrize("entries", ["host", 0.3])
def test_rows_read_over_the_bus_are_drawn_from_in_their_order(emulated, monkeypatch, entries, kind, fanouts):
    graph = rmat(kind)
    ordered, argsort = [], emulated.argsort
    monkeypatch.setattr(emulated, "argsort", lambda values: ordered.append(emulated.to_host(values)) or argsort(values))
    monkeypatch.setattr("spsample.backends.cuda.launcher.LEAST_ORDERED", 50)
    call = {"seeds": np.arange(100), "sampler": sp.GraphSAGE(fanouts), "batch_size": 16, "edge_ids": True}
    expected = sp.bulk_sample(graph, **call)
    assert_bulks_same(expected, sp.bulk_sample(sp.DeviceGraph(graph, entries="device"), **call).to_host())
    assert not ordered  # in the device's memory rows are taken as they are stacked
    assert_bulks_same(expected, sp.bulk_sample(sp.DeviceGraph(graph, entries=entries), **call).to_host())
    draws = 1 if kind == "weighted" and fanouts[0] > 32 else 2  # many draws by weight read whole rows
    assert len(ordered) == draws
    np.testing.assert_array_equal(ordered[-1], max((layer.dst for layer in expected.layers), key=len))
    monkeypatch.setattr("spsample.backends.cuda.launcher.ORDER_BYTES", emulated.free_bytes())
    assert_bulks_same(expected, sp.bulk_sample(sp.DeviceGraph(graph, entries=entries), **call).to_host())
    assert len(ordered) == draws  # no more: sorting would take too much memory


@pytest.mark.parametrize("dtype", [None, "float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize(("dim", "hot"), [(7, 0.3), (8, 1.0), (100, 0.0), (0, 0.5)])
def test_features(emulated, dtype, dim, hot):
    from spsample.features.formats import format_for

    x = np.random.default_rng(0).normal(size=(50, dim)).astype(np.float32)
    x[3] = 1e-6  # below the normal numbers of float16
    source = sp.DeviceFeatures(x, hot, np.arange(50) % 7, dtype=dtype)
    ids = np.array([3, 3, 49, 0, 17, *range(50)])
    rows = emulated.to_host(source.gather(emulated.to_device(ids.astype(np.int32))))
    form = format_for(dtype or "float32", np.abs(x).max(axis=0, initial=0) if dtype == "int8" else None)
    np.testing.assert_array_equal(rows, form.decode(form.encode(x))[ids])
    np.testing.assert_array_equal(rows, emulated.to_host(source.gather(ids)))
    assert (source.num_rows, source.dim) == x.shape
    out = emulated.to_device(np.full((60, dim), -1, np.float32))
    at = np.random.default_rng(1).permutation(60)[: len(ids)]
    assert source.gather(ids, out, at) is out
    expected = np.full((60, dim), -1, np.float32)
    expected[at] = rows
    np.testing.assert_array_equal(emulated.to_host(out), expected)


@pytest.mark.parametrize(
    ("shape", "dtype", "at", "words"),
    [
        (None, None, [0, 1], "at: got places without out"),
        ((2, 3), np.float64, None, "expected a float32 array on the device"),
        ((3, 3), np.float32, None, "out: got 3 rows; expected one for each id: 2"),
        ((2, 4), np.float32, [0, 1], r"out: got shape \(2, 4\); expected rows of 3 numbers"),
        ((2, 3), np.float32, [0, 2], "at: got 2 at position 1"),
        ((2, 3), np.float32, [0], "at: got 1 places; expected one for each id: 2"),
    ],
)
def test_destinations_that_are_refused(emulated, shape, dtype, at, words):
    source = sp.DeviceFeatures(np.ones((5, 3), np.float32), 1.0)
    out = None if shape is None else emulated.to_device(np.zeros(shape, dtype))
    with pytest.raises((InputError, DTypeError), match=words):
        source.gather([4, 0], out, at)


@pytest.mark.parametrize("name", ["posterior", "out-degree"])
def test_hot_rows_are_those_of_a_score(emulated, name):
    graph = rmat()
    batches = {"graph": graph, "seeds": np.arange(0, 400, 2), "sampler": sp.GraphSAGE([4, 3]), "batch_size": 32}
    x = np.random.default_rng(0).normal(size=(graph.num_nodes, 3)).astype(np.float32)
    source = sp.DeviceFeatures(x, 0.1, name, **batches)
    scores = score(name, **batches)
    hottest = np.argsort(-scores, kind="stable")[: graph.num_nodes // 10]
    np.testing.assert_array_equal(source.hot_vertices, np.sort(hottest))
    np.testing.assert_array_equal(emulated.to_host(source.gather(np.arange(graph.num_nodes))), x)


def test_only_rows_that_are_not_hot_are_read_from_the_host(emulated):
    source = sp.DeviceFeatures(np.ones((50, 3), np.float32), 0.3, np.arange(50) % 7)
    source._tiers.pinned[:] = 2
    expected = np.full((50, 3), 2, np.float32)
    expected[source.hot_vertices] = 1
    assert len(source.hot_vertices) == 15
    np.testing.assert_array_equal(emulated.to_host(source.gather(np.arange(50))), expected)


def test_rankings_that_are_refused(emulated):
    x = np.zeros((10, 3))
    with pytest.raises(InputError, match="graph: got nothing; expected graph, seeds, sampler and batch_size"):
        sp.DeviceFeatures(x, 0.5, "posterior", seeds=[1])
    with pytest.raises(InputError, match="seeds: got it without the name of a score"):
        sp.DeviceFeatures(x, 0.5, np.ones(10), seeds=[1])


class Own(sp.GraphSAGE):
    """A sampler that does not state what it draws in proportion to."""

    def layer(self, *arguments, **options):
        return super().layer(*arguments, **options)


@pytest.mark.parametrize(("sampler", "name"), [(sp.GraphSAGE([4, 3]), "posterior"), (Own([4, 3]), "presc")])
def test_a_loader_ranks_features_by_its_own_batches(emulated, sampler, name):
    graph = rmat()
    x = np.random.default_rng(0).normal(size=(graph.num_nodes, 500)).astype(np.float32)
    emulated._free_bytes = x.nbytes  # half of which is for features
    batches = {"seeds": np.arange(0, 400, 2), "sampler": sampler, "batch_size": 32}
    loader = sp.BulkLoader(sp.DeviceGraph(graph, "host"), **batches, memory_budget="1GiB", features=x, prefetch=0)
    hot = loader.features.hot_vertices
    assert 0.3 * graph.num_nodes < len(hot) < 0.6 * graph.num_nodes
    hottest = np.argsort(-score(name, graph, **batches), kind="stable")[: len(hot)]
    np.testing.assert_array_equal(hot, np.sort(hottest))


class Alternating:
    """Threads and turns in the place of `SerialChoice`, each for one bulk."""

    is_serial = is_settled = False

    def begin(self):
        pass

    def delivered(self, *, ends_bulk):
        self.ends_bulk = ends_bulk

    def asks(self):
        self.is_serial ^= self.ends_bulk
        return self.ends_bulk


@pytest.mark.parametrize("fetch", ["batch", "bulk"])
@pytest.mark.parametrize("entries", ["device", "host"])
def test_a_loader_that_changes_between_threads_and_turns(emulated, entries, fetch):
    graph = rmat()
    x = np.random.default_rng(0).normal(size=(graph.num_nodes, 5)).astype(np.float32)
    call = {"seeds": np.arange(0, 400, 2), "sampler": sp.GraphSAGE([4, 3])}
    options = {"batch_size": 16, "bulk_size": 2, "labels": np.arange(graph.num_nodes), "random_seed": 5, "fetch": fetch}
    host = sp.BulkLoader(graph, **call, **options, features=x, prefetch=0)
    features = sp.DeviceFeatures(x, 0.5, np.arange(graph.num_nodes))
    device = sp.BulkLoader(sp.DeviceGraph(graph, entries), **call, **options, features=features)
    assert device._serial_choice is not None
    device._serial_choice = Alternating()
    for _ in range(2):
        for one, other in zip(host, device, strict=True):
            np.testing.assert_array_equal(one.x, emulated.to_host(other.x))
            np.testing.assert_array_equal(one.y, emulated.to_host(other.y))
            np.testing.assert_array_equal(one.src_nodes, emulated.to_host(other.src_nodes))


def test_loader(emulated):
    graph = rmat()
    x = np.random.default_rng(0).normal(size=(graph.num_nodes, 5)).astype(np.float32)
    y = np.arange(graph.num_nodes)
    options = {"batch_size": 32, "bulk_size": 3, "features": x, "labels": y, "prefetch": 0, "random_seed": 5}
    host = sp.BulkLoader(graph, np.arange(0, 400, 2), sp.GraphSAGE([4, 3]), **options)
    device = sp.BulkLoader(sp.DeviceGraph(graph), np.arange(0, 400, 2), sp.GraphSAGE([4, 3]), **options)
    for one, other in zip(host, device, strict=True):
        assert emulated.owns(other.x)
        np.testing.assert_array_equal(one.x, emulated.to_host(other.x))
        np.testing.assert_array_equal(one.y, emulated.to_host(other.y))
        np.testing.assert_array_equal(one.input_id, other.input_id)


@pytest.mark.parametrize("sampler", [sp.GraphSAGE([4, 3])])
def test_training(emulated, sampler):
    pytest.importorskip("torch")
    from spsample.data import planted
    from spsample.training import ModelConfig, TrainConfig, Trainer

    def losses(backend):
        config = TrainConfig(epochs=2, batch_size=64, prefetch=0, backend=backend, evaluation="both")
        trainer = Trainer(planted(300), sampler, ModelConfig(hidden=8, dropout=0.0), config)
        result = trainer.fit()
        return [record.loss for record in result.history], result.test, result.sampled

    ours, theirs = losses("cuda"), losses(None)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5)
    assert ours[1:] == theirs[1:]


LAYER_WISE = [
    sp.LADIES([20, 30]),
    sp.LADIES([20, 20], replace=True, normalize_rows=True),
    sp.LADIES([25, 20], law="squared_count", values="reference"),
    sp.FastGCN([30, 20], include_targets=False),
]


@pytest.mark.parametrize("kind", ["unweighted", "row", "sym"])
@pytest.mark.parametrize("sampler", LAYER_WISE, ids=str)
def test_layer_wise(emulated, sampler, kind):
    graph = rmat(kind)
    call = {"seeds": np.arange(0, 500, 5), "sampler": sampler, "batch_size": 16, "edge_ids": True}
    on_device = sp.bulk_sample(graph, **call, backend="cuda")
    assert_bulks_same(sp.bulk_sample(graph, **call), on_device.to_host())


@pytest.mark.parametrize("entries", ["device", 0.3])
@pytest.mark.parametrize("kind", ["row", "sym", "weighted"])
@pytest.mark.parametrize(
    "sampler",
    [sp.GraphSAGE([4, 3]), sp.GraphSAGE([3, -1, 2], layout="subgraph"), sp.GraphSAGE([40], replace=True)],
    ids=str,
)
def test_weights(emulated, sampler, kind, entries):
    graph = rmat(kind, np.int64)
    call = {"seeds": np.arange(0, 500, 5), "sampler": sampler, "batch_size": 16, "edge_ids": True}
    gpu = sp.DeviceGraph(graph, entries)
    expected = sp.bulk_sample(graph, **call)
    assert_bulks_same(expected, sp.bulk_sample(gpu, **call).to_host())
    assert_bulks_same(expected, sp.bulk_sample(gpu, **call).to_host())  # with what is known of rows by now


@pytest.mark.parametrize(
    "sampler", [sp.GraphSAGE([3, 3]), sp.LADIES([9, 9]), sp.LADIES([9], law="squared_count"), sp.FastGCN([9])], ids=str
)
@pytest.mark.parametrize("kind", ["unweighted", "weighted"])
def test_launches_and_waits_do_not_grow_with_the_number_of_batches(emulated, sampler, kind):
    graph = sp.DeviceGraph(rmat(kind))
    sp.bulk_sample(graph, np.arange(8), sampler, batch_size=4)  # what is made once per graph
    counts = []
    for seeds in (8, 400):
        before = emulated.launches, emulated.waits
        sp.bulk_sample(graph, np.arange(seeds), sampler, batch_size=4)
        counts.append((emulated.launches - before[0], emulated.waits - before[1]))
    assert counts[0] == counts[1]
    print(sampler, kind, counts)


@pytest.mark.parametrize("source", [sp.FeatureStore, sp.DeviceFeatures])
def test_training_with_a_source_of_features(emulated, source):
    pytest.importorskip("torch")
    from dataclasses import replace

    from spsample.data import planted
    from spsample.training import ModelConfig, TrainConfig, Trainer

    data = planted(300)
    results = []
    for x, backend in ((source(data.x), "cuda"), (sp.FeatureStore(data.x), None)):
        config = TrainConfig(epochs=1, batch_size=64, prefetch=0, backend=backend, evaluation="both")
        trainer = Trainer(replace(data, x=x), sp.GraphSAGE([4, 3]), ModelConfig(hidden=8, dropout=0.0), config)
        results.append(trainer.fit())
    np.testing.assert_allclose(results[0].history[0].loss, results[1].history[0].loss, rtol=1e-5)
    assert results[0].test == results[1].test


def test_batches_are_brought_to_where_the_model_is(emulated):
    """The emulated device is torch's CPU: a model elsewhere shows what stays behind."""
    torch = pytest.importorskip("torch")
    from spsample.nn.blocks import BlockMaker

    graph = rmat()
    x = np.zeros((graph.num_nodes, 3), np.float32)
    sampler = sp.GraphSAGE([4, 3])
    batch = next(iter(sp.BulkLoader(graph, np.arange(8), sampler, batch_size=8, features=x)))
    model = torch.nn.Linear(3, 3, device="meta")
    rows, blocks = BlockMaker(graph, sampler).inputs(batch, model)
    assert rows.is_meta
    for block in blocks:
        assert all(part.is_meta for part in (block.indptr, block.indices, block.values, block.degrees))


def test_all_that_the_device_does_is_on_the_callers_stream(emulated, monkeypatch):
    """Also what minibatches and loaders do outside of `bulk_sample`."""
    pytest.importorskip("torch")
    depth = [0]

    @contextmanager
    def on_stream():
        depth[0] += 1
        yield
        depth[0] -= 1

    def inside(call):
        def checked(*args):
            assert depth[0] > 0, "outside of a session"
            return call(*args)

        return checked

    monkeypatch.setattr(emulated, "on_stream", on_stream)
    for name in ("launch", "empty", "zeros", "full", "to_device", "to_host", "pinned", "cumsum", "concatenate"):
        monkeypatch.setattr(emulated, name, inside(getattr(emulated, name)))
    gpu = sp.DeviceGraph(rmat())
    gpu.in_degrees()
    x = np.ones((gpu.num_nodes, 3), np.float32)
    options = {"features": x, "labels": np.arange(gpu.num_nodes), "batch_size": 8, "prefetch": 0, "bulk_size": 2}
    batch = next(iter(sp.BulkLoader(gpu, np.arange(32), sp.GraphSAGE([3, 2]), **options)))
    batch.minibatch.to_pyg()
    sp.bulk_sample(gpu, np.arange(8), sp.LADIES([8]), batch_size=4).to_host()


def test_weights_of_long_rows(emulated):
    """Of whole rows beside drawn ones, over several chunks of entries and batches."""
    rng = np.random.default_rng(3)
    targets = np.concatenate([np.full(700, 5), np.full(300, 9), rng.integers(0, 40, 500)])
    edges = np.stack([rng.integers(0, 60, len(targets)), targets])
    graph = sp.Graph.from_edge_index(edges, num_nodes=60, edge_weight=rng.random(len(targets)))
    for made in (graph, sp.Graph.from_edge_index(edges, num_nodes=60).normalized("row")):
        for sampler in (sp.GraphSAGE([-1, 4]), sp.GraphSAGE([3, -1], weighted=False)):
            call = {"seeds": np.arange(50), "sampler": sampler, "batch_size": 4}
            assert_bulks_same(sp.bulk_sample(made, **call), sp.bulk_sample(made, **call, backend="cuda").to_host())
