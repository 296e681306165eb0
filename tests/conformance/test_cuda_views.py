"""What is made of bulks on a device: minibatches and their copies, other libraries' objects, files, loaders of PyG."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from emulated_backend import emulated, needs_compiler
from equality import assert_bulks_same

import spsample as sp
from spsample.errors import DTypeError, InputError
from spsample.loading import bulk_arrays
from spsample.sampling.bulk import empty_minibatch

pytestmark = needs_compiler
__all__ = ["emulated"]

SAMPLERS = [sp.GraphSAGE([4, 3]), sp.GraphSAGE([4, 3], layout="subgraph"), sp.LADIES([20, 20])]
SEEDS = [5, 3, 5, 7, 9, 9, 1, 2, 200]


@pytest.fixture(params=["unweighted", "weighted"])
def graph(request):
    graph = sp.load_dataset("rmat:8,6").graph
    if request.param == "unweighted":
        return graph
    weights = np.random.default_rng(0).exponential(size=graph.num_edges).astype(np.float32)
    return sp.Graph(graph.indptr, graph.indices, weights)


def on_both(graph, sampler):
    call = {"seeds": SEEDS, "sampler": sampler, "batch_size": 4, "edge_ids": True}
    return sp.bulk_sample(graph, **call), sp.bulk_sample(graph, **call, backend="cuda")


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_copies(emulated, graph, sampler):
    expected, bulk = on_both(graph, sampler)
    for number in range(len(bulk)):
        copies = (bulk[number].copy(), copy.deepcopy(bulk[number]), pickle.loads(pickle.dumps(bulk[number])))
        for made in copies:
            assert emulated.owns(made.src_nodes)
            np.testing.assert_array_equal(made.seed_inverse, expected[number].seed_inverse)
            assert_bulks_same(expected.copy_batch(number), made._bulk.to_host())
    some = np.array([0, 2])
    ours, theirs = bulk.take(some).to_host(), expected.take(some)
    np.testing.assert_array_equal(ours.seed_batches.selector.vertices, theirs.seed_batches.selector.vertices)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one.src_nodes, other.src_nodes)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_other_libraries(emulated, graph, sampler):
    torch = pytest.importorskip("torch")
    expected, bulk = on_both(graph, sampler)
    for ours, theirs in zip(bulk, expected, strict=True):
        for one, other in zip(ours.to_scipy(), theirs.to_scipy(), strict=True):
            assert one.shape == other.shape
            assert (one != other).nnz == 0
        for one, other in zip(ours.to_torch_csr(), theirs.to_torch_csr(), strict=True):
            assert torch.equal(one.col_indices(), other.col_indices())
            assert torch.equal(one.values(), other.values())
    for name, array in bulk_arrays(bulk).items():
        np.testing.assert_array_equal(array, bulk_arrays(expected)[name])


def test_a_batch_without_seeds_is_on_the_device_whole(emulated, graph):
    layer = empty_minibatch(on_both(graph, SAMPLERS[0])[1], 7).layers[0]
    assert all(map(emulated.owns, (layer.adj.indptr, layer.adj.indices, layer.src_nodes, layer.dst_nodes)))
    none = sp.bulk_sample(graph, [], SAMPLERS[0], batch_size=2, backend="cuda")
    assert len(empty_minibatch(none, 0).layers[0].adj.indptr) == 1


@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize("classes", [0, 3, None])
def test_pyg_loader(emulated, graph, features, classes):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(graph.num_nodes, 5)).astype(np.float32) if features else None
    y = None if classes is None else rng.integers(0, 2, (graph.num_nodes, classes) if classes else graph.num_nodes)
    options = {"batch_size": 4, "features": x, "labels": y, "edge_ids": True}
    host = sp.BulkLoader(graph, SEEDS, SAMPLERS[1], **options)
    device = sp.BulkLoader(graph, SEEDS, SAMPLERS[1], backend="cuda", **options)
    for ours, theirs in zip(device.pyg(), host.pyg(), strict=True):
        assert sorted(ours.keys()) == sorted(theirs.keys())
        for key in sorted(theirs.keys()):
            same = torch.equal(ours[key], theirs[key]) if torch.is_tensor(ours[key]) else ours[key] == theirs[key]
            assert same, key


@pytest.mark.parametrize("seeds", [list(range(9)), [3, 1, 3, 0, 5, 5]])
def test_neighbor_loader_of_pygs_names(emulated, graph, seeds):
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").Data
    from spsample.pyg import NeighborLoader

    target = np.repeat(np.arange(graph.num_nodes), graph.in_degrees())
    edges = torch.from_numpy(np.stack([graph.indices.astype(np.int64), target]))
    whole = data(edge_index=edges, x=torch.randn(graph.num_nodes, 3), edge_attr=torch.arange(graph.num_edges))
    options = {"input_nodes": seeds, "batch_size": 4, "random_seed": 1}
    host, device = (NeighborLoader(whole, [3, 2], backend=name, **options) for name in (None, "cuda"))
    for ours, theirs in zip(device, host, strict=True):
        for key in sorted(theirs.keys()):
            same = torch.equal(ours[key], theirs[key]) if torch.is_tensor(ours[key]) else ours[key] == theirs[key]
            assert same, key


def test_a_device_graph_is_its_own_copy_and_pickled_as_its_graph(emulated, graph):
    gpu = sp.DeviceGraph(graph, entries=0.3)
    assert copy.copy(gpu) is gpu is copy.deepcopy(gpu)
    read = pickle.loads(pickle.dumps(gpu))
    assert read.device_share == gpu.device_share
    call = {"seeds": SEEDS, "sampler": SAMPLERS[0], "batch_size": 4}
    assert_bulks_same(sp.bulk_sample(graph, **call), sp.bulk_sample(read, **call).to_host())
    arrays = (emulated.to_device(graph.indptr), emulated.to_device(graph.indices))
    with pytest.raises(InputError, match="to be pickled"):
        pickle.dumps(sp.DeviceGraph.from_arrays(*arrays))
    with pytest.raises(DTypeError, match="from_arrays takes arrays"):
        sp.DeviceGraph(gpu)
    features = sp.DeviceFeatures(np.ones((4, 2)))
    assert copy.deepcopy(features) is features
    with pytest.raises(InputError, match="the array they were made of"):
        pickle.dumps(features)
