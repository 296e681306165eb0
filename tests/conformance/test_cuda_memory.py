"""Bulks are planned with the device's memory; what does not fit is refused, or sampled in parts, and says what fits."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from emulated_backend import emulated, needs_compiler
from equality import assert_bulks_same

import spsample as sp
from spsample.backends.cuda.row_law_weighted_sums import row_sums_bytes
from spsample.errors import CapacityError, InputError
from spsample.planning.bulk_counts import BulkCounts
from spsample.planning.scratch import device_scratch
from spsample.store.device_graph import hottest_rows

pytestmark = needs_compiler
__all__ = ["emulated"]

SAMPLER = sp.GraphSAGE([4, 3])


@pytest.fixture
def graph():
    return sp.load_dataset("rmat:9,6").graph


def test_plans_ask_the_device(emulated, graph):
    gpu = sp.DeviceGraph(graph)
    emulated._free_bytes = 80 << 20
    plan = sp.plan_bulk(gpu, np.arange(512), SAMPLER, batch_size=4)
    assert plan.memory_budget == 40 << 20
    bulk = sp.bulk_sample(gpu, np.arange(512), SAMPLER, batch_size=4)
    assert plan.scratch_bytes(128) >= device_scratch(gpu, BulkCounts.of(bulk))


def test_a_bulk_size_that_does_not_fit_is_refused_with_the_largest_that_does(emulated, graph):
    gpu = sp.DeviceGraph(graph)
    plan = sp.plan_bulk(gpu, np.arange(512), SAMPLER, batch_size=1, memory_budget=emulated.free_bytes())
    emulated._free_bytes = plan.peak(512) - 1
    with pytest.raises(CapacityError, match=r"bulk_size: got 512, which takes .* expected at most \d+ within"):
        sp.BulkLoader(gpu, np.arange(512), SAMPLER, batch_size=1, bulk_size=512, prefetch=0)
    loader = sp.BulkLoader(
        gpu, np.arange(512), SAMPLER, batch_size=1, bulk_size="auto", memory_budget=plan.peak(256), prefetch=0
    )
    assert 1 <= loader.bulk_size < 512


def test_memory_that_runs_out_is_said(emulated, graph, monkeypatch):
    gpu = sp.DeviceGraph(graph)

    def no_memory(shape, dtype):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(emulated, "empty", no_memory)
        with pytest.raises(CapacityError, match=r"got 8 batches .* a bulk that fits in memory"):
            sp.bulk_sample(gpu, np.arange(64), SAMPLER, batch_size=8)


def little(emulated, patch, most):
    """No array on the device may have more than so many bytes."""
    empty = type(emulated).empty

    def limited(shape, dtype):
        if np.prod(shape) * np.dtype(dtype).itemsize > most:
            raise MemoryError
        return empty(emulated, shape, dtype)

    patch.setattr(emulated, "empty", limited)


def test_memory_that_runs_out_says_how_many_batches_fit(emulated, graph, monkeypatch):
    gpu, seeds = sp.DeviceGraph(graph), np.arange(512)
    plan = sp.plan_bulk(gpu, seeds, SAMPLER, batch_size=8, memory_budget="1GiB")
    emulated._free_bytes = plan.peak(40) * 16 // 15  # some is left over for batches larger than the pilots
    little(emulated, monkeypatch, 8000)
    with pytest.raises(CapacityError, match=r"got 64 batches .* at most [345]\d of these batches within") as caught:
        sp.bulk_sample(gpu, seeds, SAMPLER, batch_size=8)
    assert isinstance(caught.value.__cause__, MemoryError)
    sp.bulk_sample(gpu, seeds[:64], SAMPLER, batch_size=8)  # nothing is left behind


def test_memory_that_runs_out_says_how_much_was_asked(emulated, graph, monkeypatch):
    gpu = sp.DeviceGraph(graph)
    loader = sp.BulkLoader(gpu, np.arange(256), SAMPLER, batch_size=8, bulk_size=16, prefetch=0)
    little(emulated, monkeypatch, 700)
    with pytest.raises(CapacityError, match=r"got 8 batches .* a bulk that fits in memory"):
        sp.bulk_sample(gpu, np.arange(64), SAMPLER, batch_size=8)
    with pytest.raises(CapacityError, match=r"got 16 batches .* a bulk that fits in memory"):
        list(loader)


@pytest.mark.parametrize("sampler", [sp.GraphSAGE([3, -1]), sp.GraphSAGE([90], replace=True), sp.GraphSAGE([90])])
def test_bulks_within_a_budget(emulated, graph, sampler):
    """Entries are counted on the device where the size of the draw does not bound them."""
    options = {"batch_size": 16, "prefetch": 0, "memory_budget": "64MiB", "random_seed": 3}
    host = sp.BulkLoader(graph, np.arange(256), sampler, **options)
    device = sp.BulkLoader(graph, np.arange(256), sampler, backend="cuda", **options)
    for ours, theirs in zip(device, host, strict=True):
        np.testing.assert_array_equal(emulated.to_host(ours.src_nodes), theirs.src_nodes)


def test_sets_of_columns_are_made_in_groups_where_memory_is_short(emulated, graph):
    gpu = sp.DeviceGraph(graph)
    call = {"seeds": np.arange(200), "sampler": sp.GraphSAGE([4, -1]), "batch_size": 16}
    expected = sp.bulk_sample(graph, **call)
    assert_bulks_same(expected, sp.bulk_sample(gpu, **call).to_host())
    few = emulated.launches
    emulated._free_bytes = 3 * 4 * 512  # three batches' sets in a quarter
    assert_bulks_same(expected, sp.bulk_sample(gpu, **call).to_host())
    assert emulated.launches > 2 * few / 3


def test_sums_of_weights_are_kept_where_there_is_room(emulated, graph):
    """Samples are the same with and without them."""
    weights = np.random.default_rng(0).exponential(size=graph.num_edges).astype(np.float32)
    weighted = sp.Graph(graph.indptr, graph.indices, weights)
    expected = sp.bulk_sample(weighted, np.arange(64), SAMPLER, batch_size=8)
    needed = row_sums_bytes(graph.num_nodes, graph.num_edges)
    for free, kept, kernel in ((1 << 30, needed, "draw_summed"), (4 * needed - 1, 2 * graph.num_nodes, "draw_few")):
        gpu = sp.DeviceGraph(weighted, "device")
        emulated._free_bytes, emulated.kernels = free, set()
        bulk = sp.bulk_sample(gpu, np.arange(64), SAMPLER, batch_size=8)
        assert_bulks_same(expected, bulk.to_host())
        assert gpu.kept_nbytes == kept
        assert kernel in emulated.kernels


@pytest.mark.parametrize("entries", ["gpu", -0.1, 1.5, None, True])
def test_bad_entries(emulated, graph, entries):
    with pytest.raises(InputError, match="entries"):
        sp.DeviceGraph(graph, entries)


def test_what_does_not_fit_on_the_device_is_refused(emulated, graph):
    emulated._free_bytes = 1 << 10
    with pytest.raises(CapacityError, match="entries='auto' keeps a part"):
        sp.DeviceGraph(graph, "device")
    with pytest.raises(CapacityError, match="hot='auto' takes what fits"):
        sp.DeviceFeatures(np.zeros((graph.num_nodes, 8), np.float32), 1.0)


def test_a_part_of_the_features_needs_a_ranking(emulated):
    with pytest.raises(InputError, match=r"ranking: got none, with 50% .* ranking='posterior'"):
        sp.DeviceFeatures(np.zeros((10, 3)), 0.5)
    for wrong in (np.zeros(9), np.full(10, np.nan), np.full(10, -1.0)):
        with pytest.raises(InputError, match="ranking: got"):
            sp.DeviceFeatures(np.zeros((10, 3)), 0.5, wrong)


def test_hot_rows_fit_in_their_share_and_save_more_reads_than_others(graph):
    share = 0.2
    hot = hottest_rows(graph, share)
    degrees = graph.in_degrees()
    assert 0.9 * share * graph.num_edges < degrees[hot].sum() <= share * graph.num_edges
    read = np.zeros(graph.num_nodes)
    bulk = sp.bulk_sample(graph, np.arange(512), sp.GraphSAGE([10, 10, 10]), batch_size=8)
    for minibatch in bulk:
        for layer in minibatch.layers[:-1]:
            read[layer.dst_nodes] += np.minimum(degrees[layer.dst_nodes], 10)
    chance = np.random.default_rng(0).permutation(graph.num_nodes)
    other = chance[np.cumsum(degrees[chance]) <= share * graph.num_edges]
    assert read[hot].sum() > 1.2 * read[other].sum()


def test_arrays_of_the_device(emulated, graph):
    indptr, indices = emulated.to_device(graph.indptr), emulated.to_device(graph.indices)
    gpu = sp.DeviceGraph.from_arrays(indptr, indices)
    call = {"seeds": np.arange(100), "sampler": SAMPLER, "batch_size": 16}
    assert_bulks_same(sp.bulk_sample(graph, **call), sp.bulk_sample(gpu, **call).to_host())
    assert gpu.host is gpu.digest is None
    assert (gpu.num_nodes, gpu.num_edges) == (graph.num_nodes, graph.num_edges)
    np.testing.assert_array_equal(gpu.in_degrees(), graph.in_degrees())
    with pytest.raises(sp.errors.DTypeError, match="indptr: got ndarray"):
        sp.DeviceGraph.from_arrays(graph.indptr, indices)
    with pytest.raises(InputError, match="backend"):
        sp.bulk_sample(gpu, [0], SAMPLER, batch_size=1, backend="cpu")


def test_without_a_gpu_the_error_says_so(graph):
    with pytest.raises((sp.errors.BackendError, sp.errors.MissingDependencyError), match=r"GPU|cupy"):
        sp.bulk_sample(graph, [0], SAMPLER, batch_size=1, backend="cuda")


def test_edge_ids_lie_on_the_host_where_they_do_not_fit(emulated, monkeypatch):
    edges = np.random.default_rng(0).integers(0, 300, (2, 4000))
    graph = sp.Graph.from_edge_index(edges, num_nodes=300)
    pinned = []
    monkeypatch.setattr(emulated, "pinned", lambda array: pinned.append(array) or emulated.to_device(array))
    emulated._free_bytes = 2 * (graph.indices.nbytes + graph.indptr.nbytes)
    gpu = sp.DeviceGraph(graph)
    assert gpu.device_share == 1.0
    assert [array is graph.edge_ids for array in pinned] == [True]


def test_without_cupy_the_error_says_how_to_get_it(graph, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(sp.errors.MissingDependencyError, match=r'install it with: pip install "spsample\[gpu\]"$'):
        sp.bulk_sample(graph, [0], SAMPLER, batch_size=1, backend="cuda")


def test_memory_that_runs_out_for_a_graph_of_device_arrays(emulated, graph, monkeypatch):
    gpu = sp.DeviceGraph.from_arrays(emulated.to_device(graph.indptr), emulated.to_device(graph.indices))
    little(emulated, monkeypatch, 8000)
    with pytest.raises(CapacityError, match=r"got 64 batches of up to 8 seeds") as caught:
        sp.bulk_sample(gpu, np.arange(512), SAMPLER, batch_size=8)
    assert isinstance(caught.value.__cause__, MemoryError)


def test_memory_that_runs_out_once_for_one_batch(emulated, graph, monkeypatch):
    """Nothing is said of what fits where nothing smaller can be asked for."""
    gpu, failures, empty = sp.DeviceGraph(graph), [MemoryError()], emulated.empty

    def empty_later(shape, dtype):
        if failures:
            raise failures.pop()
        return empty(shape, dtype)

    monkeypatch.setattr(emulated, "empty", empty_later)
    with pytest.raises(CapacityError, match=r"got 1 batch .* a bulk that fits in memory"):
        sp.bulk_sample(gpu, np.arange(8), SAMPLER, batch_size=8)
