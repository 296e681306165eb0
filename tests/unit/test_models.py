"""Blocks, models, full evaluation and metrics against dense computations."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import spsample as sp  # noqa: E402
from spsample.data import planted  # noqa: E402
from spsample.errors import InputError  # noqa: E402
from spsample.features import FeatureStore  # noqa: E402
from spsample.nn.blocks import mean_block, value_block  # noqa: E402
from spsample.training import (  # noqa: E402
    Block,
    BlockGATConv,
    BlockGCNConv,
    BlockMaker,
    BlockSAGEConv,
    ModelConfig,
    build_model,
    full_logits,
    register_model,
    sampled_logits,
    stack,
)

INDPTR = np.array([0, 2, 2, 5])
INDICES = np.array([1, 3, 0, 3, 3], dtype=np.int32)
DATA = np.array([1.0, 3.0, 0.5, 0.5, 1.0])


def adj(data=None):
    return SimpleNamespace(indptr=INDPTR, indices=INDICES, data=data, shape=(3, 4))


def as_tensor_or_none(array):
    return None if array is None else torch.from_numpy(array)


def tensors_of(adj):
    arrays = {name: as_tensor_or_none(getattr(adj, name)) for name in ("indptr", "indices", "data")}
    return SimpleNamespace(**arrays, shape=adj.shape)


def dense(values):
    matrix = np.zeros((3, 4))
    np.add.at(matrix, (np.repeat(np.arange(3), np.diff(INDPTR)), INDICES), values)
    return matrix


MEAN = [0.5, 0.5, 1 / 3, 1 / 3, 1 / 3]
WEIGHTED_MEAN = [0.25, 0.75, 0.25, 0.25, 0.5]


@pytest.mark.parametrize(
    ("block", "values"),
    [
        (mean_block(adj()), MEAN),
        (mean_block(adj(DATA)), WEIGHTED_MEAN),
        (mean_block(tensors_of(adj(DATA))), WEIGHTED_MEAN),
        (mean_block(tensors_of(adj())), MEAN),
        (value_block(adj(DATA)), DATA),
        (value_block(adj()), np.ones(5)),
    ],
)
def test_block_is_the_matrix(block, values):
    h = torch.randn(4, 6, requires_grad=True)
    result = block.aggregate(h)
    matrix = torch.from_numpy(dense(values)).float()
    assert torch.allclose(result, matrix @ h, atol=1e-6)
    weight = torch.randn(3, 6)
    (gradient,) = torch.autograd.grad((result * weight).sum(), h)
    assert torch.allclose(gradient, matrix.T @ weight, atol=1e-6)


def test_block_without_entries():
    empty = SimpleNamespace(indptr=np.zeros(4, dtype=np.int64), indices=INDICES[:0], data=None, shape=(3, 0))
    assert mean_block(empty).aggregate(torch.empty(0, 2)).tolist() == [[0, 0]] * 3


def test_rows_of_zero_weight_give_zero():
    block = mean_block(adj(np.array([0.0, 0.0, 1.0, 1.0, 2.0])))
    assert block.aggregate(torch.ones(4, 1)).ravel().tolist() == [0.0, 0.0, 1.0]


def test_read_only_arrays_raise_no_warning(recwarn):
    arrays = [array.copy() for array in (INDPTR, INDICES.astype(np.int64), DATA.astype(np.float32))]
    for array in arrays:
        array.flags.writeable = False
    value_block(SimpleNamespace(indptr=arrays[0], indices=arrays[1], data=arrays[2], shape=(3, 4)))
    assert not recwarn.list


def whole_block(graph, ids=None, hops=1):
    """Whole neighbourhoods of some vertices, of all by default, and the vertices that layer 1 reads."""
    ids = np.arange(graph.num_nodes) if ids is None else ids
    sampler = sp.GraphSAGE([-1] * hops)
    batch = sp.bulk_sample(graph, ids, sampler, batch_size=len(ids))[0]
    return [BlockMaker(graph, sampler)(layer) for layer in batch.layers], batch.src_nodes


def random_graph(weighted=False):
    rng = np.random.Generator(np.random.Philox(7))
    edges = np.stack([rng.integers(0, 40, 150), rng.integers(0, 37, 150)])  # some vertices without neighbours
    edges = edges[:, edges[0] != edges[1]]
    weights = rng.random(edges.shape[1]) + 0.1 if weighted else None
    return sp.Graph.from_edge_index(edges, num_nodes=40, edge_weight=weights), edges, weights


def test_sums_of_rows_are_weighted_degrees():
    edges = np.array([[1, 2, 2, 0], [0, 0, 1, 2]])
    plain = sp.Graph.from_edge_index(edges, num_nodes=3)
    weighted = sp.Graph.from_edge_index(edges, num_nodes=3, edge_weight=np.array([1.0, 3.0, 5.0, 2.0]))
    assert plain.row_sums().tolist() == [2, 1, 1]
    assert weighted.row_sums().tolist() == [4, 5, 2]
    assert plain.normalized("row").row_sums().tolist() == [1, 1, 1]


def test_a_block_without_degrees_says_so():
    with pytest.raises(InputError, match="degrees"):
        BlockGCNConv(2, 2)(torch.randn(4, 2), mean_block(adj()))


@pytest.mark.parametrize(("in_dim", "out_dim"), [(5, 3), (3, 5), (4, 4)])
def test_sage_is_its_formula(in_dim, out_dim):
    conv = BlockSAGEConv(in_dim, out_dim)
    block = mean_block(adj())
    h = torch.randn(4, in_dim)
    expected = conv.root(h[:3]) + conv.neighbours(block.aggregate(h))
    assert torch.allclose(conv(h, block), expected, atol=1e-6)


@pytest.mark.parametrize("make", [BlockSAGEConv, BlockGCNConv])
@pytest.mark.parametrize(("in_dim", "out_dim"), [(6, 4), (4, 6)])
def test_both_orders_of_sum_and_product_are_equal(make, in_dim, out_dim, monkeypatch):
    block = replace(mean_block(adj()), degrees=torch.arange(4.0))
    conv, h, results = make(in_dim, out_dim), torch.randn(4, in_dim, requires_grad=True), []
    for sums_first in (True, False):
        monkeypatch.setattr(Block, "sums_first", lambda *_, first=sums_first: first)
        result = conv(h, block)
        results.append([result, *torch.autograd.grad(result.square().sum(), [h, *conv.parameters()])])
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("make", [BlockSAGEConv, BlockGCNConv, lambda i, o: BlockGATConv(i, o, 2)])
@pytest.mark.parametrize(("in_dim", "out_dim"), [(6, 4), (4, 6)])
def test_convolutions_under_torchs_function_transforms(make, in_dim, out_dim):
    block = replace(mean_block(adj()), degrees=torch.arange(4.0))
    conv, many = make(in_dim, out_dim), torch.randn(2, 4, in_dim)
    parameters = dict(conv.named_parameters())

    def loss(parameters, h):
        return torch.func.functional_call(conv, parameters, (h, block)).square().sum()

    each = torch.vmap(torch.func.grad(loss), (None, 0))(parameters, many)
    for i, h in enumerate(many):
        expected = torch.autograd.grad(conv(h, block).square().sum(), list(parameters.values()))
        for one, other in zip(each.values(), expected, strict=True):
            assert torch.allclose(one[i], other, atol=1e-4)


@pytest.mark.parametrize(("in_dim", "out_dim"), [(6, 4), (4, 6)])
@pytest.mark.parametrize("weighted", [False, True])
def test_on_whole_neighbourhoods_convolutions_are_pygs(in_dim, out_dim, weighted):
    pyg = pytest.importorskip("torch_geometric.nn")
    graph, edges, weights = random_graph(weighted)
    (block,), nodes = whole_block(graph)
    x = torch.randn(40, in_dim)
    h, edge_index = x[nodes], torch.from_numpy(edges)
    gcn, theirs = BlockGCNConv(in_dim, out_dim), pyg.GCNConv(in_dim, out_dim)
    theirs.lin.weight = gcn.linear.weight
    edge_weight = None if weights is None else torch.from_numpy(weights).float()
    assert torch.allclose(gcn(h, block), theirs(x, edge_index, edge_weight), atol=1e-5)
    if weighted:
        return
    sage, theirs = BlockSAGEConv(in_dim, out_dim), pyg.SAGEConv(in_dim, out_dim)
    theirs.lin_l.weight, theirs.lin_l.bias = sage.neighbours.weight, sage.root.bias
    theirs.lin_r.weight = sage.root.weight
    assert torch.allclose(sage(h, block), theirs(x, edge_index), atol=1e-5)
    gat, theirs = BlockGATConv(in_dim, out_dim, heads=2), pyg.GATConv(in_dim, out_dim // 2, heads=2)
    theirs.lin.weight = gat.linear.weight
    theirs.att_src.data, theirs.att_dst.data = gat.source.data[None], gat.target.data[None]
    assert torch.allclose(gat(h, block), theirs(x, edge_index), atol=1e-5)


@pytest.mark.parametrize("sampler", [sp.GraphSAGE([3]), sp.LADIES([12]), sp.FastGCN([25])])
def test_gcn_on_samples_is_right_on_average(sampler):
    """The degrees are those of the whole graph: the mean over many samples is the whole neighbourhood's."""
    graph, _, _ = random_graph()
    source = graph if isinstance(sampler, sp.GraphSAGE) else graph.normalized("row")
    conv, x = BlockGCNConv(3, 3), torch.randn(40, 3)
    seeds = np.tile(np.arange(6), 4000)
    maker = BlockMaker(graph, sampler)
    with torch.no_grad():
        samples = [
            conv(x[batch.src_nodes], maker(batch.layers[0]))
            for batch in sp.bulk_sample(source, seeds, sampler, batch_size=6)
        ]
        (block,), nodes = whole_block(graph, np.arange(6))
        exact = conv(x[nodes], block)
    mean = torch.stack(samples).mean(0)
    error = torch.stack(samples).std(0) / len(samples) ** 0.5
    assert bool(((mean - exact).abs() <= 5 * error + 1e-5).all())


def test_heads_divide_the_width():
    with pytest.raises(InputError, match=r"^heads: got 3 for a width of 8"):
        build_model(4, 2, 2, ModelConfig("gat", hidden=8, heads=3))


STYLES = [(name, residual, norm) for name in ("sage", "gcn", "gat") for residual in (0, 1) for norm in (0, 1)]


@pytest.mark.parametrize(("name", "residual", "norm"), [*STYLES, ("residual", 0, 0)])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_full_evaluation_equals_the_naive_forward(name, residual, norm, num_layers, tmp_path):
    data = planted(120, degree=4)
    config = ModelConfig(name, hidden=8, dropout=0.5, residual=bool(residual), layer_norm=bool(norm))
    model = build_model(4, 4, num_layers, config)
    features = FeatureStore(data.x)
    blocks, nodes = whole_block(data.graph, hops=num_layers)
    model.eval()
    naive = model(torch.from_numpy(features.gather(nodes)), blocks).detach().numpy()
    model.train()
    for budget, folder in ((1, None), (20_000, tmp_path), ("1GiB", None)):
        logits = full_logits(model, data.graph, features, memory_budget=budget, activations=folder)
        assert logits.shape == (120, 4)
        assert np.allclose(logits, naive, atol=1e-5)
    assert model.training
    full_logits(model.eval(), data.graph, features)
    assert not model.training
    assert not list(tmp_path.iterdir())


def test_full_evaluation_stays_within_its_budget(monkeypatch):
    """No chunk has more edges and targets than the budget allows, but for a single vertex."""
    from spsample.training import evaluation

    data = planted(2000, degree=8)
    sizes = []
    real = evaluation.bulk_sample
    monkeypatch.setattr(evaluation, "bulk_sample", lambda *a, **k: sizes.append(real(*a, **k)) or sizes[-1])
    model = build_model(4, 4, 2, ModelConfig(hidden=8))
    full_logits(model, data.graph, FeatureStore(data.x), memory_budget=296 * 500)
    costs = [bulk[0].layers[0].adj.nnz + bulk[0].layers[0].adj.shape[0] for bulk in sizes]
    assert len(costs) > 60
    assert max(costs) <= 500


def test_sampled_evaluation_with_whole_rows_is_full_evaluation():
    data = planted(200, degree=4)
    model = build_model(4, 4, 2, ModelConfig(hidden=8))
    features, ids = FeatureStore(data.x), np.array([5, 60, 5, 7, 199])
    sampler = sp.GraphSAGE([-1, -1])
    blocks = BlockMaker(data.graph, sampler)
    sampled = sampled_logits(model, data.graph, ids, sampler, features, blocks=blocks, batch_size=3)
    assert np.allclose(sampled, full_logits(model, data.graph, features)[ids], atol=1e-5)


def test_a_model_of_ones_own():
    class Sum(nn.Module):
        def __init__(self, in_dim, out_dim):
            super().__init__()
            self.linear = nn.Linear(in_dim, out_dim)

        def forward(self, h, block):
            return self.linear(h[: block.num_dst] + block.aggregate(h))

    name = "sum of this test"
    register_model(name)(lambda i, o, layers, config: stack(Sum, i, o, layers, config))
    model = build_model(4, 3, 2, ModelConfig(name, hidden=8, residual=True))
    data = planted(50)
    assert full_logits(model, data.graph, FeatureStore(data.x)).shape == (50, 3)
    with pytest.raises(InputError, match="a name that no model has yet"):
        register_model(name)


def test_layerwise_values_estimate_the_mean():
    """With room for every vertex the layer-wise samplers give the full aggregation."""
    data = planted(80, degree=5)
    h = torch.from_numpy(data.x)
    (block,), nodes = whole_block(data.graph)
    exact = block.aggregate(h[nodes])
    for sampler in (sp.LADIES([80]), sp.FastGCN([80])):
        batch = sp.bulk_sample(data.graph.normalized("row"), np.arange(80), sampler, batch_size=80)[0]
        block = value_block(batch.layers[0].adj)
        assert torch.allclose(block.aggregate(h[batch.src_nodes]), exact, atol=1e-6)


def test_unknown_architecture():
    with pytest.raises(InputError, match="architecture: got 'other'"):
        ModelConfig("other")
