"""Faults that the comparisons of this folder are to find: one function at a time is made wrong."""

from __future__ import annotations

import pytest
import torch
from layer_cases import Case, worst_of

from spsample.nn import conv, dropout, trimming
from spsample.nn.functional import dropout as dropped
from spsample.sampling.hops import Hops

SAGE, GCN, GAT = Case("SAGEConv"), Case("GCNConv"), Case("GATConv")
EPS = 1e-6


def is_found(case):
    """By another result, by a shape that does not fit, or by a slow call."""
    try:
        return worst_of(case, seed=5, batches=12) > EPS
    except (RuntimeError, ValueError, IndexError, AssertionError):
        return True


@pytest.mark.parametrize("case", [SAGE, GCN, GAT], ids=str)
def test_without_a_fault_nothing_is_found(case):
    assert not is_found(case)


@pytest.mark.parametrize("case", [SAGE, GCN, GAT], ids=str)
@pytest.mark.parametrize("further", [-1, 1])
def test_rows_of_the_wrong_hop(monkeypatch, case, further):
    right = trimming._hop_of

    def wrong(hops, num_rows):
        return min(max(right(hops, num_rows) + further, 1), len(hops.nodes) - 1)

    monkeypatch.setattr(trimming, "_hop_of", wrong)
    if further == -1:
        assert is_found(case)
    else:  # more edges to more targets are right, too, where there are rows for them
        assert is_found(case) or case is not SAGE


@pytest.mark.parametrize("case", [SAGE, GCN, GAT], ids=str)
def test_edges_of_the_wrong_hop(monkeypatch, case):
    right = trimming.Trimmed.matrix

    def wrong(self, has_own_loops):
        pointers, sources = right(self, has_own_loops)
        half = len(sources) // 2
        return pointers.clamp(max=half), sources[:half]

    monkeypatch.setattr(trimming.Trimmed, "matrix", wrong)
    assert is_found(case)


def test_degrees_of_the_edges_that_are_left(monkeypatch):
    right = conv.GCNConv._on

    def wrong(self, part, x, edge_weight=None):
        edges = part.edge_index[:, : part.num_edges].clone()
        hops = Hops.put_on(edges, [part.num_src], [part.num_edges]).hops
        return right(self, part._replace(edge_index=edges, hops=hops), x, edge_weight)

    monkeypatch.setattr(conv.GCNConv, "_on", wrong)
    assert is_found(GCN)


@pytest.mark.parametrize("case", [SAGE, Case("GINConv"), Case("GraphConv")], ids=str)
def test_the_row_of_a_vertex_itself_is_missing(monkeypatch, case):
    right = trimming.Trimmed.pair
    monkeypatch.setattr(trimming.Trimmed, "pair", lambda self, x: (right(self, x)[0], None))
    assert is_found(case)


def test_loops_are_missing(monkeypatch):
    right = trimming.Trimmed.with_loops

    def wrong(self, of_edges, of_loops):
        return right(self, of_edges, of_loops * 0 if of_loops.is_floating_point() else of_loops)

    monkeypatch.setattr(trimming.Trimmed, "with_loops", wrong)
    assert is_found(GCN)


def test_means_by_the_counts_of_other_vertices(monkeypatch):
    right = trimming.Trimmed.shares
    monkeypatch.setattr(trimming.Trimmed, "shares", lambda self, dtype: right(self, dtype).roll(1))
    assert is_found(SAGE)


def test_a_stale_version_is_taken(monkeypatch):
    from test_layer_rules import test_an_edit_after_a_layer_has_seen_the_edges as check

    check()
    monkeypatch.setattr(Hops, "is_of", lambda self, edge_index: True)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check()


@pytest.mark.parametrize("case", [SAGE, GCN, GAT], ids=str)
def test_always_all_rows(monkeypatch, case):
    monkeypatch.setattr(conv, "trimmed", lambda layer, x, edge_index: None)
    with pytest.raises(AssertionError, match="a slow call"):
        worst_of(case, seed=5, batches=12)


def test_another_mask_on_the_way_back(monkeypatch):
    def check():
        x = torch.ones(1000, requires_grad=True)
        out = dropped(x, 0.5)
        out.sum().backward()
        return torch.equal(x.grad, out)

    assert check()
    right, keys = dropout._dropped, iter(range(1000))
    monkeypatch.setattr(dropout, "_dropped", lambda kernel, h, p, key: right(kernel, h, p, key + next(keys)))
    assert not check()
