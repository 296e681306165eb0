"""Callers on several streams: nothing is read before it is made, no memory given away that another stream still uses.

The emulated device knows for all work what it waited for; here callers change streams.
"""

from __future__ import annotations

import copy
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from emulated_backend import emulated, needs_compiler
from equality import assert_bulks_same

import spsample as sp
from spsample.backends import get_backend
from spsample.backends.cuda.streams import Streams
from spsample.store.device_graph import expected_visits

pytestmark = needs_compiler
__all__ = ["emulated"]

SAMPLERS = [sp.GraphSAGE([4, 3]), sp.LADIES([20, 20]), sp.FastGCN([20, 20])]
CALL = {"seeds": np.arange(60), "batch_size": 8}


@pytest.fixture
def graph():
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 300, (2, 4000))
    return sp.Graph.from_edge_index(edges, num_nodes=300, edge_weight=rng.random(4000).astype(np.float32))


@contextmanager
def without_waits(monkeypatch):
    """Sessions as they would be if they did not know of each other's streams."""

    @contextmanager
    def alone(streams, stream):
        outer, streams._here.stream = streams.current, stream
        yield
        streams._here.stream = outer

    with monkeypatch.context() as patch:
        patch.setattr(Streams, "session", alone)
        patch.setattr(Streams, "use", lambda streams, memory: None)
        patch.setattr(Streams, "wait_for", lambda streams, ready: None)
        yield


@pytest.mark.parametrize("entries", ["device", 0.3, "host"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_a_graph_of_one_stream_is_sampled_on_another(emulated, graph, sampler, entries):
    expected = sp.bulk_sample(graph, sampler=sampler, edge_ids=True, **CALL)
    with emulated.callers_on(2):
        placed = sp.DeviceGraph(graph, entries)
    for stream in (3, 2, 4):
        with emulated.callers_on(stream):
            bulk = sp.bulk_sample(placed, sampler=sampler, edge_ids=True, **CALL)
        with emulated.callers_on(5):
            assert_bulks_same(expected, bulk.to_host())


def test_features_and_labels_of_one_stream_are_gathered_on_another(emulated, graph):
    x = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    with emulated.callers_on(2):
        features = sp.DeviceFeatures(x, 0.3, lambda: expected_visits(graph), dtype="int8")
        bulk = sp.bulk_sample(graph, sampler=SAMPLERS[0], backend="cuda", **CALL)
    with emulated.callers_on(3):
        rows = features.gather(bulk[0].src_nodes)
        again = features.gather(np.arange(10))
    ids = bulk.to_host()[0].src_nodes
    with emulated.callers_on(4):
        kernels = get_backend("cuda")
        np.testing.assert_array_equal(kernels.on_host(rows), kernels.on_host(features.gather(ids)))
    assert again.shape == (10, 5)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_loaders_batches_are_trained_on_on_another_stream(emulated, graph, prefetch):
    """The tensors are read on a stream that the loader's threads know nothing of, while bulks come and go."""
    torch = pytest.importorskip("torch")
    from spsample.nn.tensors import as_tensor

    x = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    options = {"features": x, "labels": np.arange(300), "batch_size": 8, "bulk_size": 2, "prefetch": prefetch}
    with emulated.callers_on(2):
        gpu = sp.DeviceGraph(graph)
        loader = sp.BulkLoader(gpu, np.arange(100), SAMPLERS[0], **options)
        for batch in loader:
            with emulated.callers_on(3):
                taken = [as_tensor(array) for array in (batch.x, batch.y, batch.src_nodes)]
                taken += batch.minibatch.to_pyg()[2]
                assert torch.equal(taken[0], torch.from_numpy(x)[taken[2].long()])


def test_sessions_that_are_open_at_the_same_time(emulated):
    """One thread uses what another has uploaded before the other's session has ended."""
    kernels = get_backend("cuda")
    pointers, copies = np.arange(10), []

    def use(number):
        with emulated.callers_on(number), kernels.session():
            copies.append(kernels.uploaded(pointers))
            emulated.sort(copies[-1])

    with emulated.callers_on(2), kernels.session():
        kernels.uploaded(pointers)
        other = threading.Thread(target=use, args=(3,))
        other.start()
        other.join()
    emulated.check()
    assert len(copies) == 1


def test_what_is_made_once_per_graph_is_done_before_others_see_it(emulated, graph):
    operand = sp.DeviceGraph(graph).operand()
    kernels = get_backend("cuda")
    with emulated.callers_on(2), kernels.session():
        kept = operand.kept
        made = [kept.row_exponents, *kept.row_rules, kept.cumulative, kept.guide]
    for array in made:
        by, time = array.memory.written
        assert emulated.timeline.waited[by] >= time


def test_reading_without_waiting_is_found(emulated, graph, monkeypatch):
    with without_waits(monkeypatch):
        with emulated.callers_on(2):
            placed = sp.DeviceGraph(graph)
        with (
            emulated.callers_on(3),
            pytest.raises(AssertionError, match=r"on stream 3 uses .* of stream 2, which it does not"),
        ):
            sp.bulk_sample(placed, sampler=SAMPLERS[0], **CALL)
    emulated.timeline.found.clear()


def test_memory_that_is_given_away_too_early_is_found(emulated, monkeypatch):
    array = get_backend("cuda").to_device(np.arange(5))
    emulated.settle()
    with emulated.callers_on(2), pytest.raises(AssertionError, match=r"may be given out anew before it has ended"):
        emulated.touch("training", [array])
    with emulated.callers_on(2), get_backend("cuda").session():
        emulated.touch("training", [emulated.use(array)])


def test_minibatches_are_looked_at_on_other_streams(emulated, graph):
    """What they do by operators of arrays, beside kernels."""
    with emulated.callers_on(2):
        placed = sp.DeviceGraph(graph)
        bulk = sp.bulk_sample(placed, sampler=SAMPLERS[0], edge_ids=True, **CALL)
    with emulated.callers_on(3):
        assert placed.in_degrees().sum() == graph.num_edges
        bulk.take(np.array([0, 2]))
        bulk[1].copy()
        copy.deepcopy(bulk[1])
        bulk[1].to_scipy()
