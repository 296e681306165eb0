"""Minibatches as objects of other libraries; those that are not installed are stood in for by small fakes."""

from __future__ import annotations

import sys
import warnings
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample.errors import InputError, MissingDependencyError
from spsample.sampling import Adjacency, adapters

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
EDGE_INDEX = RNG.integers(0, 30, (2, 200))
PLAIN = sp.Graph.from_edge_index(EDGE_INDEX, num_nodes=30)
WEIGHTED = sp.Graph.from_edge_index(EDGE_INDEX, num_nodes=30, edge_weight=RNG.random(200) + 0.1)

SAMPLERS = {
    "blocks": sp.GraphSAGE([3, 2]),
    "blocks without targets": sp.GraphSAGE([3, 2], include_targets=False),
    "subgraph": sp.GraphSAGE([3, 2], layout="subgraph"),
    "layer-wise": sp.LADIES([8, 8]),
}
samplers = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
graphs = pytest.mark.parametrize("graph", [PLAIN, WEIGHTED], ids=["unweighted", "weighted"])
edge_ids = pytest.mark.parametrize("edge_ids", [False, True])


def minibatch_of(graph, sampler, edge_ids=True):
    return sp.bulk_sample(graph, [4, 9, 4, 0, 7], sampler, batch_size=3, edge_ids=edge_ids)[0]


def edge_index_of(layer):
    target = np.repeat(np.arange(layer.adj.shape[0]), np.diff(layer.adj.indptr))
    return np.stack([layer.adj.indices, target])


# --- PyG ------------------------------------------------------------------------------------------------------------


@graphs
@edge_ids
@pytest.mark.parametrize("name", ["blocks", "layer-wise"])
def test_to_pyg_blocks(graph, name, edge_ids):
    minibatch = minibatch_of(graph, SAMPLERS[name], edge_ids)
    batch_size, n_id, adjs = minibatch.to_pyg()
    assert batch_size == len(minibatch.seeds) == 2
    assert n_id.dtype == torch.int64
    assert n_id.tolist() == minibatch.src_nodes.tolist()
    assert len(adjs) == 2
    for layer, (edge_index, e_id, size) in zip(minibatch.layers, adjs, strict=True):
        assert edge_index.dtype == torch.int64
        np.testing.assert_array_equal(edge_index.numpy(), edge_index_of(layer))
        assert size == (layer.adj.shape[1], layer.adj.shape[0])
        assert (e_id is not None) == edge_ids
        if edge_ids:
            source, target = layer.src_nodes[edge_index[0]], layer.dst_nodes[edge_index[1]]
            np.testing.assert_array_equal(EDGE_INDEX[:, e_id.numpy()], [source, target])


@pytest.mark.parametrize("method", ["to_pyg", "to_dgl"])
@pytest.mark.parametrize(
    "sampler", [SAMPLERS["blocks without targets"], sp.LADIES([4], include_targets=False)], ids=repr
)
def test_blocks_begin_with_their_targets(method, sampler):
    with pytest.raises(InputError, match=r"include_targets: got False, .*; expected include_targets=True") as caught:
        getattr(minibatch_of(PLAIN, sampler), method)()
    assert f"{method}()" in caught.value.expected


@edge_ids
def test_blocks_move_to_a_device(edge_ids):
    adj = minibatch_of(PLAIN, SAMPLERS["blocks"], edge_ids).to_pyg()[2][0]
    moved = adj.to("meta")
    assert moved.edge_index.device.type == "meta"
    assert (moved.e_id is None) != edge_ids
    assert moved.size == adj.size


@graphs
@edge_ids
def test_to_pyg_subgraph(graph, edge_ids):
    pytest.importorskip("torch_geometric")
    minibatch = minibatch_of(graph, SAMPLERS["subgraph"], edge_ids)
    data = minibatch.to_pyg()
    data.validate(raise_on_error=True)
    assert isinstance(data, pytest.importorskip("torch_geometric.data").Data)
    assert data.num_nodes == len(minibatch.src_nodes) == sum(data.num_sampled_nodes)
    assert data.num_edges == minibatch.layers[0].adj.nnz == sum(data.num_sampled_edges)
    assert data.batch_size == data.num_sampled_nodes[0] == 2
    assert data.n_id.tolist() == minibatch.src_nodes.tolist()
    ends = data.n_id[data.edge_index].numpy()
    if edge_ids:
        np.testing.assert_array_equal(EDGE_INDEX[:, data.e_id.numpy()], ends)
    else:
        assert "e_id" not in data
    assert ("edge_weight" in data) == (graph is WEIGHTED)
    if graph is WEIGHTED:
        np.testing.assert_array_equal(data.edge_weight.numpy(), minibatch.layers[0].adj.data)


def test_to_pyg_subgraph_trims_like_neighborloader():
    """Layer by layer, PyG's trim_to_layer leaves the edges of `layers[l]`."""
    pytest.importorskip("torch_geometric")
    from torch_geometric.utils import trim_to_layer

    minibatch = minibatch_of(PLAIN, sp.GraphSAGE([3, 2, 2], layout="subgraph"))
    data = minibatch.to_pyg()
    x, edge_index = data.n_id.reshape(-1, 1), data.edge_index
    for number, layer in enumerate(minibatch.layers):
        x, edge_index, _ = trim_to_layer(
            number, data.num_sampled_nodes, data.num_sampled_edges, x=x, edge_index=edge_index
        )
        assert x.flatten().tolist() == layer.src_nodes.tolist()
        np.testing.assert_array_equal(edge_index.numpy(), edge_index_of(layer))


# --- torch, SciPy ---------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@samplers
@graphs
def test_to_torch_csr_equals_to_scipy(graph, sampler):
    minibatch = minibatch_of(graph, sampler)
    for layer, tensor, matrix in zip(minibatch.layers, minibatch.to_torch_csr(), minibatch.to_scipy(), strict=True):
        assert tensor.layout == torch.sparse_csr
        assert tuple(tensor.shape) == matrix.shape == layer.adj.shape
        dense = matrix.toarray()
        np.testing.assert_allclose(tensor.to_dense().numpy(), dense, rtol=1e-6)
        assert tensor.values().numel() == (dense != 0).sum()
        assert tensor.values().numpy().dtype == (np.float32 if layer.adj.data is None else layer.adj.data.dtype)
        if layer.adj.data is None:
            assert (matrix.data == 1).all()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 4.0, 8.0, 16.0]], ids=["unweighted", "weighted"])
def test_torch_csr_keeps_the_invariants_of_torch(weights):
    """Parallel edges, and repeats drawn with replacement: columns ascend and are distinct, values are summed."""
    edge_index = [[2, 2, 1, 0, 1], [0, 0, 0, 1, 1]]
    graph = sp.Graph.from_edge_index(edge_index, num_nodes=4, edge_weight=weights)
    for sampler in (sp.GraphSAGE([9], replace=True), sp.GraphSAGE([2, 9]), sp.LADIES([4]), sp.GraphSAGE([1])):
        minibatch = sp.bulk_sample(graph, [1, 0, 3], sampler, batch_size=3)[0]
        for tensor, matrix in zip(minibatch.to_torch_csr(), minibatch.to_scipy(), strict=True):
            parts = tensor.crow_indices(), tensor.col_indices(), tensor.values()
            checked = torch.sparse_csr_tensor(*parts, size=tensor.shape, check_invariants=True)
            np.testing.assert_array_equal(checked.to_dense().numpy(), matrix.toarray())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_torch_csr_of_no_entries():
    empty = sp.Graph([0, 0, 0], [])
    tensor = sp.bulk_sample(empty, [1, 0], sp.GraphSAGE([2]), batch_size=2)[0].to_torch_csr()[0]
    assert tuple(tensor.shape) == (2, 2)
    assert tensor.values().numel() == 0


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_torch_csr_multiplies_as_the_rows_say():
    minibatch = minibatch_of(WEIGHTED, SAMPLERS["layer-wise"])
    for tensor, matrix in zip(minibatch.to_torch_csr(), minibatch.to_scipy(), strict=True):
        x = np.random.default_rng(0).normal(size=(matrix.shape[1], 3))
        np.testing.assert_allclose((tensor @ torch.from_numpy(x)).numpy(), matrix @ x)


@pytest.mark.skipif("cpu" not in sp.available_backends(), reason="the compiled core is missing")
@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 80), max_size=12),
    num_columns=st.integers(1, 60),
    random_seed=st.integers(0, 2**32 - 1),
    index=st.sampled_from([np.int32, np.int64]),
    real=st.sampled_from([None, np.float32, np.float64]),
    stride=st.sampled_from([1, 2]),
)
def test_ascending_rows_of_the_compiled_core_are_those_of_numpy(lengths, num_columns, random_seed, index, real, stride):
    random = np.random.default_rng(random_seed)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = random.integers(0, num_columns, stride * indptr[-1]).astype(index)[::stride]
    data = None if real is None else random.standard_normal(stride * indptr[-1]).astype(real)[::stride]
    A = Adjacency(indptr, indices, data, (len(lengths), num_columns))
    for found, expected in [
        (adapters._ascending(A, merge=True), adapters._merged(A)),
        (adapters._ascending(A, merge=False), adapters._sorted(A)),
    ]:
        for one, other in zip(found, expected, strict=True):
            assert (one is None) == (other is None)
            if other is not None:
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)


def test_to_torch_csr_does_not_pass_on_the_beta_warning():
    torch = pytest.importorskip("torch")
    minibatch = minibatch_of(PLAIN, SAMPLERS["blocks"])
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # else once per process
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            minibatch.to_torch_csr()
    finally:
        torch.set_warn_always(always)


# --- torch_sparse, DGL ----------------------------------------------------------------------------------------------


def check_torch_sparse(minibatch, made):
    for layer, tensor in zip(minibatch.layers, made, strict=True):
        row, column, value = tensor.coo()
        assert tuple(tensor.sparse_sizes()) == layer.adj.shape
        edges = edge_index_of(layer)
        order = np.lexsort(edges)  # by row, then column
        np.testing.assert_array_equal(np.stack([column, row]), edges[:, order])
        assert (value is None) == (layer.adj.data is None)
        if value is not None:
            np.testing.assert_array_equal(value, layer.adj.data[order])


class FakeSparseTensor(SimpleNamespace):
    """The part of torch_sparse.SparseTensor's interface that is used."""

    def __init__(self, *, rowptr, col, value, sparse_sizes, is_sorted, trust_data):
        assert rowptr.dtype == col.dtype == torch.int64
        assert is_sorted
        assert trust_data
        super().__init__(rowptr=rowptr, col=col, value=value, sizes=sparse_sizes)

    def sparse_sizes(self):
        return self.sizes

    def coo(self):
        return torch.repeat_interleave(torch.diff(self.rowptr)), self.col, self.value


@samplers
@graphs
def test_to_torch_sparse_with_a_fake(graph, sampler, monkeypatch):
    fake = ModuleType("torch_sparse")
    fake.SparseTensor = FakeSparseTensor
    monkeypatch.setitem(sys.modules, "torch_sparse", fake)
    minibatch = minibatch_of(graph, sampler)
    check_torch_sparse(minibatch, minibatch.to_torch_sparse())


@samplers
@graphs
def test_to_torch_sparse(graph, sampler):
    pytest.importorskip("torch_sparse")
    minibatch = minibatch_of(graph, sampler)
    check_torch_sparse(minibatch, minibatch.to_torch_sparse())


class FakeBlock(SimpleNamespace):
    """The part of a DGL block's interface that is used."""

    def edges(self):
        return self.ends

    def num_src_nodes(self):
        return self.num_src

    def num_dst_nodes(self):
        return self.num_dst


def fake_dgl():
    module = ModuleType("dgl")
    module.NID, module.EID = "_ID", "_ID"

    def create_block(ends, num_src_nodes, num_dst_nodes):
        assert all(end.dtype == torch.int64 for end in ends)
        return FakeBlock(ends=ends, num_src=num_src_nodes, num_dst=num_dst_nodes, srcdata={}, dstdata={}, edata={})

    module.create_block = create_block
    return module


def check_dgl(minibatch, blocks, dgl):
    for layer, block in zip(minibatch.layers, blocks, strict=True):
        assert (block.num_dst_nodes(), block.num_src_nodes()) == layer.adj.shape
        np.testing.assert_array_equal(np.stack(block.edges()), edge_index_of(layer))
        assert block.srcdata[dgl.NID].tolist() == layer.src_nodes.tolist()
        assert block.dstdata[dgl.NID].tolist() == layer.dst_nodes.tolist()
        assert (dgl.EID in block.edata) == (layer.edge_ids is not None)
        assert ("w" in block.edata) == (layer.adj.data is not None)


@pytest.mark.parametrize("name", ["blocks", "subgraph", "layer-wise"])
@graphs
@edge_ids
def test_to_dgl_with_a_fake(graph, name, edge_ids, monkeypatch):
    monkeypatch.setitem(sys.modules, "dgl", fake_dgl())
    minibatch = minibatch_of(graph, SAMPLERS[name], edge_ids)
    check_dgl(minibatch, minibatch.to_dgl(), sys.modules["dgl"])


@graphs
def test_to_dgl(graph):
    dgl = pytest.importorskip("dgl")
    minibatch = minibatch_of(graph, SAMPLERS["blocks"])
    check_dgl(minibatch, minibatch.to_dgl(), dgl)


# --- packages that are not there ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "package", "sampler", "advice"),
    [
        ("to_pyg", "torch", "blocks", 'pip install "spsample[pyg]"'),
        ("to_pyg", "torch_geometric", "subgraph", 'pip install "spsample[pyg]"'),
        ("to_torch_csr", "torch", "blocks", 'pip install "spsample[pyg]"'),
        ("to_torch_sparse", "torch_sparse", "blocks", "pip install --no-build-isolation torch-scatter"),
        ("to_dgl", "dgl", "blocks", "pip install dgl"),
    ],
)
def test_missing_packages(method, package, sampler, advice, monkeypatch):
    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    if package == "torch_geometric":
        monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    minibatch = minibatch_of(PLAIN, SAMPLERS[sampler])
    with pytest.raises(MissingDependencyError) as caught:
        getattr(minibatch, method)()
    assert isinstance(caught.value, ImportError)
    assert caught.value.package == package
    assert f"MiniBatch.{method}() needs the package {package}" in str(caught.value)
    assert advice in str(caught.value)
