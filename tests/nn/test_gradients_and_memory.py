"""Layers on sampled batches: gradients of gradients, what a batch keeps alive, numbers of half precision."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch_geometric.nn as pyg
from layer_cases import Case, both
from test_layer_rules import batch_of

import spsample.nn as ours
from spsample.errors import InputError
from spsample.pyg import trim


def by_edge(h, edge_index):
    """Edge weights that are made of the rows that they weigh."""
    return (h[edge_index[0]] * h[edge_index[1]]).sum(1).sigmoid()


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("share", [False, True])
def test_gradients_with_a_graph_of_their_own(create_graph, share):
    batch = batch_of()
    theirs, mine = both(Case("GATv2Conv", {"heads": 2, "share_weights": share}), 1)
    for net, edge_index in ((theirs, batch.edge_index.clone()), (mine, batch.edge_index)):
        net(batch.x, edge_index)[: batch.batch_size].square().sum().backward(create_graph=create_graph)
    for one, other in zip(theirs.parameters(), mine.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad)
    theirs.zero_grad(set_to_none=True)
    mine.zero_grad(set_to_none=True)


@pytest.mark.parametrize("layer", ["GraphConv", "GCNConv"])
def test_gradients_of_gradients_of_weights_made_of_rows(layer):
    batch, found = batch_of(), []
    theirs, mine = both(Case(layer), 1)
    for net, edge_index in ((theirs, batch.edge_index.clone()), (mine, batch.edge_index)):
        h = batch.x.clone().requires_grad_()
        out = net(h, edge_index, by_edge(h, batch.edge_index))[: batch.batch_size]
        (first,) = torch.autograd.grad(out.square().sum(), h, create_graph=True)
        found.append((first.detach(), *torch.autograd.grad(first.square().sum(), h)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one)


def test_weights_that_were_changed_behind_torchs_back():
    batch, (theirs, mine) = batch_of(), both(Case("GCNConv"), 1)
    weight = torch.rand(batch.num_edges, dtype=torch.float64)
    mine(batch.x, batch.edge_index, weight)
    weight.data.mul_(torch.rand(len(weight)))
    expected = theirs(batch.x, batch.edge_index.clone(), weight)[: batch.batch_size]
    torch.testing.assert_close(mine(batch.x, batch.edge_index, weight)[: batch.batch_size], expected)


LAYERS = [
    ("SAGEConv", {}, False),
    ("GCNConv", {}, True),
    ("GATConv", {}, False),
    ("GATConv", {"add_self_loops": False}, False),
    ("GATv2Conv", {"add_self_loops": False}, False),
    ("GraphConv", {}, True),
]


@pytest.mark.parametrize(("layer", "options", "is_weighted"), LAYERS)
def test_a_batch_is_let_go(layer, options, is_weighted):
    net, batch = getattr(ours, layer)(batch_of().num_features, 4, **options).double(), batch_of()
    weights = [torch.rand(batch.num_edges, dtype=torch.float64, requires_grad=True)] if is_weighted else []
    net(batch.x, batch.edge_index, *weights).sum().backward()
    kept = weakref.ref(batch.edge_index.hops)
    del batch
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("layer", ["SAGEConv", "GCNConv", "GATConv", "GraphConv"])
def test_models_of_half_precision(layer):
    batch = batch_of()
    theirs = getattr(pyg, layer)(batch.num_features, 4).bfloat16()
    mine = getattr(ours, layer)(batch.num_features, 4).bfloat16()
    mine.load_state_dict(theirs.state_dict())
    x = batch.x.bfloat16()
    expected = theirs(x, batch.edge_index.clone())[: batch.batch_size]
    torch.testing.assert_close(mine(x, batch.edge_index)[: batch.batch_size], expected, rtol=0.05, atol=0.05)


def test_layers_with_positions_are_not_cut():
    with pytest.raises(InputError, match="PointNetConv"):
        trim(pyg.PointNetConv())


@pytest.mark.filterwarnings("ignore")
def test_dropout_is_traced():
    traced = torch.jit.trace(ours.Dropout(0.5), torch.ones(100, 8), check_trace=False)
    assert 0 < int((traced(torch.ones(100, 8)) == 0).sum()) < 800
