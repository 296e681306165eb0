"""DGL's graphs and loops; DGL is stood in for where it is not installed (`examples/train_dgl.py` is a whole run)."""

from __future__ import annotations

import sys
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

import spsample as sp
from spsample.errors import DTypeError, InputError, MissingDependencyError
from spsample.store import from_dgl

torch = pytest.importorskip("torch")

from spsample.loading import DglLoader  # noqa: E402

SOURCE, TARGET = torch.randint(0, 20, (2, 90), generator=torch.Generator().manual_seed(0))
X, Y = torch.randn(20, 3), torch.arange(20)


class FakeGraph:
    """What `from_dgl` asks of a DGLGraph."""

    is_homogeneous, is_block = True, False
    edata = MappingProxyType({"w": torch.rand(90), "short": torch.rand(3)})

    def num_nodes(self):
        return 20

    def edges(self, order):
        assert order == "eid"
        return SOURCE.int(), TARGET.int()


class FakeBlock(SimpleNamespace):
    pass


@pytest.fixture
def dgl(monkeypatch):
    def create_block(ends, num_src_nodes, num_dst_nodes):
        return FakeBlock(ends=ends, srcdata={}, dstdata={}, edata={})

    fake = SimpleNamespace(NID="_ID", EID="_ID", create_block=create_block)
    monkeypatch.setitem(sys.modules, "dgl", fake)
    return fake


def test_edge_ids_are_those_of_dgl():
    graph = from_dgl(FakeGraph())
    assert (graph.num_nodes, graph.num_edges, graph.weighting) == (20, 90, "unweighted")
    target = np.repeat(np.arange(20), graph.in_degrees())
    np.testing.assert_array_equal(SOURCE.numpy()[graph.edge_ids], graph.indices)
    np.testing.assert_array_equal(TARGET.numpy()[graph.edge_ids], target)
    weighted = from_dgl(FakeGraph(), "w")
    np.testing.assert_array_equal(weighted.data, FakeGraph.edata["w"].numpy()[weighted.edge_ids])


@pytest.mark.parametrize("sampler", [sp.GraphSAGE([3, 2]), sp.GraphSAGE([-1], layout="subgraph"), sp.LADIES([6, 6])])
@pytest.mark.parametrize("names", [(), ("x", "y")])
def test_a_loop_has_what_dgls_loop_reads(dgl, sampler, names):
    graph, seeds = from_dgl(FakeGraph()), np.arange(12)
    options = {"batch_size": 5, "features": X, "labels": Y, "edge_ids": True}
    feature_name, label_name = names or ("feat", "label")
    loader = sp.BulkLoader(graph, seeds, sampler, **options).dgl(*names)
    batches = list(sp.BulkLoader(graph, seeds, sampler, **options))
    assert len(loader) == len(batches) == 3
    for batch, (input_nodes, output_nodes, blocks) in zip(batches, loader, strict=True):
        assert input_nodes.tolist() == batch.src_nodes.tolist()
        assert output_nodes.tolist() == batch.seeds.tolist()
        assert len(blocks) == len(batch.layers)
        assert torch.equal(blocks[0].srcdata[feature_name], X[input_nodes])
        assert torch.equal(blocks[-1].dstdata[label_name], Y[output_nodes])
        for layer, block in zip(batch.layers, blocks, strict=True):
            assert block.edata["_ID"].tolist() == layer.edge_ids.tolist()


def test_a_name_of_features_that_is_dgls_own(dgl):
    graph = from_dgl(FakeGraph())
    options = {"batch_size": 5, "features": X, "labels": Y}
    loader = sp.BulkLoader(graph, range(12), sp.GraphSAGE([3]), **options).dgl("_ID", "_ID")
    for batch, (input_nodes, output_nodes, _) in zip(loader.loader, loader, strict=True):
        assert input_nodes.tolist() == batch.src_nodes.tolist()
        assert output_nodes.tolist() == batch.seeds.tolist()


def test_order_and_state_are_the_loaders(dgl):
    loader = sp.BulkLoader(from_dgl(FakeGraph()), range(12), sp.GraphSAGE([2]), batch_size=4).dgl()
    first = next(iter(loader))[1].tolist()
    state = loader.state_dict()
    rest = [seeds.tolist() for _, seeds, _ in loader][1:]
    loader.load_state_dict(state)
    assert [seeds.tolist() for _, seeds, _ in loader] == rest
    loader.set_epoch(0)
    assert next(iter(loader))[1].tolist() == first


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (SimpleNamespace(a=1), r"^graph: got namespace\(a=1\)"),
        (3, r"^graph: got 3 of type int; expected a dgl.DGLGraph"),
        (type("Typed", (FakeGraph,), {"is_homogeneous": False})(), r"^graph: got a graph of several types.*homogen"),
        (type("Block", (FakeGraph,), {"is_block": True})(), r"^graph: got a block"),
    ],
)
def test_what_is_no_graph_of_one_type_is_refused(graph, message):
    with pytest.raises(DTypeError, match=message):
        from_dgl(graph)


@pytest.mark.parametrize(
    ("name", "message"),
    [("nope", r"^weight_name: got 'nope'; .*'w', 'short'"), ("short", r"^graph.edata\['short'\]: got")],
)
def test_weights_that_are_none_are_refused(name, message):
    with pytest.raises(InputError, match=message):
        from_dgl(FakeGraph(), name)


def test_what_makes_no_blocks_is_refused(dgl, monkeypatch):
    graph = from_dgl(FakeGraph())
    with pytest.raises(InputError, match=r"^sampler: .*include_targets=True"):
        sp.BulkLoader(graph, [0], sp.LADIES([4], include_targets=False), batch_size=1).dgl()
    plain = sp.BulkLoader(graph, [0], sp.GraphSAGE([2]), batch_size=1)
    for names in ((3,), ("x", None)):
        with pytest.raises(DTypeError, match=r"^(feature|label)_name: got"):
            plain.dgl(*names)
    with pytest.raises(DTypeError, match=r"^loader: got 3"):
        DglLoader(3)
    changed = sp.BulkLoader(graph, [0], sp.GraphSAGE([2]), batch_size=1, transform=len)
    with pytest.raises((DTypeError, TypeError)):
        list(changed.dgl())
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(MissingDependencyError, match="pip install dgl"):
        plain.dgl()
