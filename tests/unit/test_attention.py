"""Attention on sampled batches: PyG's values and gradients, threads, derivatives, dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric import nn as pyg
from torch_geometric.data import Data

from spsample import nn as fast
from spsample.common.threads import compiled_core, kernel_threads
from spsample.nn import sums
from spsample.nn.sums import AttentionEntries, attention_weights, sum_by_head
from spsample.pyg import NeighborLoader

needs_core = pytest.mark.skipif(compiled_core() is None, reason="needs the compiled core")


@pytest.fixture(params=["core", "torch"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of the operations."""
    if request.param == "torch":
        monkeypatch.setattr(sums, "compiled_core", lambda: None)
    elif compiled_core() is None:
        pytest.skip("needs the compiled core")
    return str(request.param)


def drawn(heads: int, dim: int, rows: int = 5, columns: int = 7, dtype: Any = torch.float64) -> tuple[Any, ...]:
    """Entries with empty rows, parallel entries and columns without one; sources, targets, an attention's vector."""
    generator = torch.Generator().manual_seed(heads + dim)
    counts = torch.randint(0, 6, (rows,), generator=generator)
    counts[0], counts[-1] = 0, 6
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    indices = torch.randint(0, columns - 1, (int(indptr[-1]),), generator=generator)
    sizes = (columns, heads * dim), (rows, heads * dim), (heads, dim)
    numbers = [torch.randn(size, generator=generator, dtype=dtype, requires_grad=True) for size in sizes]
    return AttentionEntries(indptr, indices, columns), *numbers


def attended(entries: AttentionEntries, source: Any, target: Any, vector: Any) -> Any:
    return sum_by_head(entries, attention_weights(entries, source, target, vector, 0.2), source)


@pytest.mark.parametrize(("heads", "dim"), [(1, 1), (4, 1), (3, 5), (2, 16), (2, 37)])
def test_gradients_of_both_orders(by: str, heads: int, dim: int) -> None:
    entries, *inputs = drawn(heads, dim)
    torch.autograd.gradcheck(lambda *one: attended(entries, *one), inputs)
    if heads * dim < 10:
        torch.autograd.gradgradcheck(lambda *one: attended(entries, *one), inputs)


@needs_core
@pytest.mark.parametrize(("heads", "dim"), [(1, 1), (4, 1), (3, 5), (2, 16), (8, 100)])
def test_the_core_computes_what_torch_does(monkeypatch: pytest.MonkeyPatch, heads: int, dim: int) -> None:
    entries, *inputs = drawn(heads, dim, rows=300, columns=400)

    def results() -> list[Any]:
        out = attended(entries, *inputs)
        return [out, *torch.autograd.grad((out * out.detach().cos()).sum(), inputs)]

    ours = results()
    monkeypatch.setattr(sums, "compiled_core", lambda: None)
    for one, other in zip(ours, results(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@needs_core
def test_threads_give_equal_bits() -> None:
    entries, *inputs = drawn(4, 32, rows=3000, columns=2000, dtype=torch.float32)

    def results() -> list[Any]:
        out = attended(entries, *inputs)
        return [out, *torch.autograd.grad(out.square().sum(), inputs)]

    with kernel_threads(1):
        expected = results()
    with kernel_threads(3):
        assert all(map(torch.equal, results(), expected))


def test_scores_too_large_for_a_power(by: str) -> None:
    entries = AttentionEntries(torch.tensor([0, 2]), torch.tensor([0, 1]), 2)
    source = torch.tensor([[1000.0], [999.0]])
    weights = attention_weights(entries, source, torch.zeros(1, 1), torch.ones(1, 1), 0.2)
    torch.testing.assert_close(weights, source.softmax(0))


def test_transforms_of_functions_and_tangents() -> None:
    entries, *inputs = drawn(2, 3)
    inputs = [one.detach() for one in inputs]
    members = torch.stack([inputs[0], 2 * inputs[0]])
    by_member = torch.vmap(lambda one: attended(entries, one, *inputs[1:]))(members)
    torch.testing.assert_close(by_member[1], attended(entries, members[1], *inputs[1:]))
    tangents = [torch.randn_like(one) for one in inputs]
    _, forward = torch.func.jvp(lambda *one: attended(entries, *one), tuple(inputs), tuple(tangents))
    jacobians = torch.autograd.functional.jacobian(lambda *one: attended(entries, *one), tuple(inputs))
    by_rows = sum((j * t).flatten(2).sum(2) for j, t in zip(jacobians, tangents, strict=True))
    torch.testing.assert_close(forward, by_rows)


def batches(dtype: Any = torch.float64, fanouts: tuple[int, ...] = (4, 3)) -> list[Any]:
    """Of a graph with self loops, parallel edges and vertices without an edge."""
    torch.manual_seed(0)
    edges = torch.randint(0, 150, (2, 600))
    edges = torch.cat([edges, edges[:, :60], torch.arange(40).expand(2, 40)], 1)
    data = Data(x=torch.randn(200, 6, dtype=dtype), edge_index=edges)
    return list(NeighborLoader(data, list(fanouts), batch_size=16, random_seed=0))


OPTIONS = [
    {},
    {"heads": 3},
    {"heads": 2, "concat": False},
    {"heads": 2, "add_self_loops": False},
    {"heads": 2, "residual": True, "bias": False},
    {"heads": 2, "concat": False, "residual": True, "negative_slope": 0.5},
    {"share_weights": True, "heads": 2},
]


@pytest.mark.parametrize("layer", ["GATConv", "GATv2Conv"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_layers_are_pygs_at_the_seeds(by: str, layer: str, options: dict[str, Any]) -> None:
    if "share_weights" in options and layer == "GATConv":
        pytest.skip("GATConv has no such option")
    theirs, ours = (_two_layers(getattr(module, layer), options) for module in (pyg, fast))
    ours.load_state_dict(theirs.state_dict())
    for batch in batches():
        expected = _gradients(theirs, batch.x, batch.edge_index.clone(), batch.batch_size)
        for one, other in zip(_gradients(ours, batch.x, batch.edge_index, batch.batch_size), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    assert all(slow == 0 for _, slow in fast.calls(ours).values())


def test_pairs_and_what_is_pygs(by: str) -> None:
    """Layers of two sizes; features of edges and attention weights on request."""
    batch = batches(fanouts=(4,))[0]
    for layer in ("GATConv", "GATv2Conv"):
        theirs, ours = (getattr(module, layer)((6, 6), 4, heads=2).double() for module in (pyg, fast))
        ours.load_state_dict(theirs.state_dict())
        pair, seeds = (batch.x, 2 * batch.x), batch.batch_size
        torch.testing.assert_close(ours(pair, batch.edge_index), theirs(pair, batch.edge_index.clone())[:seeds])
        theirs, ours = (getattr(module, layer)(6, 4, edge_dim=1).double() for module in (pyg, fast))
        ours.load_state_dict(theirs.state_dict())
        of_edges = torch.randn(batch.num_edges, 1, dtype=torch.float64)
        torch.testing.assert_close(
            ours(batch.x, batch.edge_index, of_edges), theirs(batch.x, batch.edge_index.clone(), of_edges)[:seeds]
        )
        _, (edges, weights) = ours(batch.x, batch.edge_index, return_attention_weights=True)
        assert edges.shape[1] == len(weights)


@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_weights_of_edges_get_a_gradient(by: str, aggr: str) -> None:
    batch = batches(fanouts=(4,))[1]
    theirs, ours = (module.GraphConv(6, 4, aggr=aggr).double() for module in (pyg, fast))
    ours.load_state_dict(theirs.state_dict())
    results = []
    for layer, edge_index in ((theirs, batch.edge_index.clone()), (ours, batch.edge_index)):
        x, weight = batch.x.clone().requires_grad_(), torch.linspace(-1, 1, batch.num_edges, dtype=torch.float64)
        out = layer(x, edge_index, weight.requires_grad_())[: batch.batch_size]
        results.append([out, *torch.autograd.grad(out.sin().sum(), [x, weight, *layer.parameters()])])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def _two_layers(layer: Callable[..., Any], options: dict[str, Any]) -> Any:
    one = layer(6, 5, **options)
    width = 5 * (one.heads if one.concat else 1)
    return torch.nn.ModuleList([one, layer(width, 3, **options)]).double()


def _gradients(model: Any, x: Any, edge_index: Any, num_seeds: int) -> list[Any]:
    x = x.clone().requires_grad_()
    out = model[1](model[0](x, edge_index).relu(), edge_index)[:num_seeds]
    return [out, *torch.autograd.grad(out.sin().sum(), [x, *model.parameters()])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layer", ["GATConv", "GATv2Conv"])
def test_dropout_of_the_attention(layer: str, dtype: Any) -> None:
    """The way back has the mask of the way there: its gradient is the slope under one key. Means are those without."""
    batch = batches(dtype, fanouts=(4,))[3]
    conv = getattr(fast, layer)(6, 4, heads=2, dropout=0.5, bias=False).to(dtype)
    vector = torch.randn(batch.batch_size, 8, dtype=dtype)

    def value(x: Any) -> Any:
        torch.manual_seed(7)
        return (conv(x, batch.edge_index) * vector).sum()

    assert value(batch.x) != conv.eval()(batch.x, batch.edge_index).mul(vector).sum()
    conv.train()
    x = batch.x.clone().requires_grad_()
    value(x).backward()
    step = 1e-2 if dtype == torch.float32 else 1e-6
    change = torch.randn_like(x)
    slope = (value(batch.x + step * change) - value(batch.x - step * change)) / (2 * step)
    torch.testing.assert_close((x.grad * change).sum(), slope.detach(), rtol=5e-2 if step > 1e-3 else 1e-6, atol=1e-6)
    means = torch.stack([conv(batch.x, batch.edge_index) for _ in range(400)]).mean(0)
    torch.testing.assert_close(means, conv.eval()(batch.x, batch.edge_index), rtol=0, atol=0.6)


@needs_core
@pytest.mark.parametrize(
    ("change", "error", "name"),
    [
        ({"indptr": [0, 1]}, ValueError, "indptr: must end"),
        ({"indices": [0, 3]}, ValueError, "indices: outside"),
        ({"numbers": [0, 2]}, ValueError, "numbers: outside"),
        ({"numbers": [0]}, ValueError, "numbers: needs"),
        ({"heads": 0}, ValueError, "shape: must be positive"),
        ({"weights": 3}, ValueError, "weights: does not fit"),
        ({"out": 5}, ValueError, "out: does not fit"),
    ],
)
def test_wrong_arrays_are_named(change: dict[str, Any], error: type[Exception], name: str) -> None:
    given = {"indptr": [0, 2], "indices": [0, 2], "numbers": [0, 1], "heads": 2, "weights": 4, "out": 4, **change}
    arrays = (np.array(given[key], np.int64) for key in ("indptr", "indices", "numbers"))
    weights, x, out = (np.zeros(size, np.float32) for size in (given["weights"], 3 * given["heads"] * 2, given["out"]))
    with pytest.raises(error, match=f"^{name}"):
        compiled_core().sum_by_head((*arrays, 3, given["heads"], 2), weights, x, out)
