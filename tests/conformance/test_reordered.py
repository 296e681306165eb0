"""Graphs and features of stores whose rows were moved: every minibatch is that of the store before, bit for bit."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from emulated_backend import emulated, needs_compiler
from equality import KINDS, assert_bulks_same, calls, edge_lists, make_graph, samplers
from hypothesis import given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample.backends import available_backends
from spsample.data import load_dataset, planted, save_dataset
from spsample.features import CachedFeatures, DeviceFeatures, FeatureStore
from spsample.reorder import reorder
from spsample.store.device_graph import DeviceGraph

__all__ = ["emulated"]


def moved(graph, folder, seed):
    """The graph of a store with its rows in a random order, some scores of which are equal."""
    graph.save(folder / "plain")
    scores = np.random.default_rng(seed).integers(0, 1 + seed % (2 * graph.num_nodes), graph.num_nodes)
    reorder(folder / "plain", folder / "moved", scores)
    return sp.Graph.open(folder / "plain"), sp.Graph.open(folder / "moved")


@pytest.mark.parametrize("backend", [name for name in available_backends() if name != "cuda"])
@settings(max_examples=60)
@given(
    edges=edge_lists(),
    kind=st.sampled_from(KINDS),
    index=st.sampled_from([np.int32, np.int64]),
    sampler=samplers,
    seed=st.integers(0, 2**32 - 1),
    data=st.data(),
)
def test_minibatches_are_equal(tmp_path_factory, backend, edges, kind, index, sampler, seed, data):
    graph, other = moved(make_graph(edges, kind, index), tmp_path_factory.mktemp("stores"), seed)
    call = {**data.draw(calls(edges.num_nodes)), "sampler": sampler, "backend": backend}
    assert_bulks_same(sp.bulk_sample(graph, **call), sp.bulk_sample(other, **call))


@pytest.mark.parametrize("kind", ["unweighted", "weighted"])
def test_importance_weights_of_a_biased_sampler_are_equal(kind, tmp_path):
    source = sp.load_dataset("rmat:8,6").graph
    if kind == "weighted":
        source = sp.Graph(source.indptr, source.indices, np.random.default_rng(0).random(source.num_edges))
    graph, other = moved(source, tmp_path, 3)
    sampler = sp.Biased(sp.GraphSAGE([3, 2]), np.arange(50), 4, importance_weights=True)
    call = {"seeds": np.arange(0, 250, 3), "sampler": sampler, "batch_size": 16}
    assert_bulks_same(sp.bulk_sample(graph, **call), sp.bulk_sample(other, **call))


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_is_what_it_was(kind, tmp_path):
    """Arrays by vertex, digest, contents, derived graphs, scores, pickles."""
    source = sp.load_dataset("rmat:8,6").graph
    if kind in ("row", "sym"):
        source = source.normalized(kind)
    elif kind == "weighted":
        source = sp.Graph(source.indptr, source.indices, np.random.default_rng(0).random(source.num_edges))
    graph, other = moved(source, tmp_path, 3)
    assert repr(graph) == repr(other)
    assert graph.digest == other.digest
    assert graph.nbytes == other.nbytes
    assert graph.fingerprint() == other.fingerprint()
    for name in ("indptr", "indices", "data", "edge_ids"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(other, name))
    np.testing.assert_array_equal(graph.row_sums(), other.row_sums())
    for one in (other.normalized("row"), other.with_self_loops(), pickle.loads(pickle.dumps(other))):
        assert one.num_nodes == graph.num_nodes
    assert graph.normalized("row").fingerprint() == other.normalized("row").fingerprint()
    assert graph.with_self_loops().fingerprint() == other.with_self_loops().fingerprint()
    sampler = sp.GraphSAGE([3, 2])
    for name in ("posterior", "inclusion", "presc", "out-degree", "reverse-pagerank"):
        seeds = np.arange(0, 256, 5)
        one, two = (sp.features.score(name, g, seeds, sampler, 8) for g in (graph, other))
        np.testing.assert_array_equal(one, two, err_msg=name)


@needs_compiler
@pytest.mark.parametrize("entries", ["auto", "host", 0.4])
@pytest.mark.parametrize("kind", ["unweighted", "weighted"])
@pytest.mark.parametrize("sampler", [sp.GraphSAGE([4, 3]), sp.LADIES([20, 20]), sp.FastGCN([9])], ids=repr)
def test_on_a_device(emulated, tmp_path, entries, kind, sampler):
    source = sp.load_dataset("rmat:8,6").graph
    if kind == "weighted":
        source = sp.Graph(source.indptr, source.indices, np.random.default_rng(0).random(source.num_edges))
    graph, other = moved(source, tmp_path, 5)
    call = {"seeds": np.arange(0, 250, 3), "sampler": sampler, "batch_size": 16, "edge_ids": True}
    on_device = sp.bulk_sample(DeviceGraph(other, entries), **call)
    assert_bulks_same(sp.bulk_sample(graph, **call), on_device.to_host())


def stores(folder, dtype=np.float32, dim=5):
    """A data set and the same with rows moved."""
    made = planted(300, 6, 3)
    x = (np.random.default_rng(1).standard_normal((300, dim)) * 9).astype(dtype)
    save_dataset(sp.data.Dataset(**{**vars(made), "x": x}), folder / "plain")
    reorder(folder / "plain", folder / "moved", np.random.default_rng(2).random(300))
    return folder / "plain", folder / "moved"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int8])
def test_features(tmp_path, dtype):
    plain, other = (FeatureStore.open(path) for path in stores(tmp_path, dtype))
    ids = np.random.default_rng(0).integers(0, 300, 1000)
    expected = plain.gather(ids)
    for source in (other, pickle.loads(pickle.dumps(other)), CachedFeatures(other, "1KiB", np.arange(300.0))):
        np.testing.assert_array_equal(source.gather(ids), expected)
    as_kept = np.zeros((1000, 5), dtype)
    other.gather(ids, out=as_kept)
    np.testing.assert_array_equal(as_kept, plain.gather(ids, out=np.zeros((1000, 5), dtype)))
    assert (other.shape, other.stored_dtype, other.fingerprint()) == (plain.shape, plain.stored_dtype, None)
    with pytest.raises(sp.errors.InputError, match="ids"):
        other.gather([300])


@needs_compiler
def test_features_on_a_device(emulated, tmp_path):
    plain, other = (load_dataset(str(path)).x for path in stores(tmp_path))
    ids = np.random.default_rng(0).integers(0, 300, 100)
    rows = [DeviceFeatures(x, 0.3, np.arange(300)).gather(ids) for x in (plain, other)]
    np.testing.assert_array_equal(emulated.to_host(rows[0]), emulated.to_host(rows[1]))


def test_data_sets_and_loaders(tmp_path):
    one, two = (load_dataset(str(path)) for path in stores(tmp_path))
    assert one.meta == two.meta
    np.testing.assert_array_equal(one.y, two.y)
    np.testing.assert_array_equal(np.asarray(one.x), np.asarray(two.x))
    np.testing.assert_array_equal(one.x[3:9, 1], two.x[3:9, 1])
    options = {"batch_size": 16, "bulk_size": 3, "shuffle": True, "random_seed": 4}
    pairs = []
    for data in (one, two):
        np.testing.assert_array_equal(data.train_idx, one.train_idx)
        features = FeatureStore(data.x)
        loader = sp.BulkLoader(
            data.graph, data.train_idx, sp.GraphSAGE([3, 2]), features=features, labels=data.y, **options
        )
        pairs.append(list(loader))
    assert len(pairs[0]) == len(pairs[1]) > 3
    for mine, other in zip(*pairs, strict=True):
        np.testing.assert_array_equal(mine.x, other.x)
        np.testing.assert_array_equal(mine.y, other.y)
