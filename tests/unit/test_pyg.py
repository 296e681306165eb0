"""`spsample.pyg.NeighborLoader`: PyG's arguments, PyG's attributes, and where they can be had PyG's own batches."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spsample.errors import DTypeError, InputError, SpSampleError

torch = pytest.importorskip("torch")
torch_geometric = pytest.importorskip("torch_geometric")

from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler  # noqa: E402
from torch_geometric.data import Batch, Data, HeteroData  # noqa: E402
from torch_geometric.sampler import NumNeighbors, SamplerOutput  # noqa: E402
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE  # noqa: E402

from spsample import Graph  # noqa: E402
from spsample.pyg import NeighborLoader  # noqa: E402

needs_pygs_own = pytest.mark.skipif(not WITH_PYG_LIB, reason="PyG's loader needs pyg-lib, which is not installed")
N, E = 50, 200


def edges_of(n=N, e=E, seed=0):
    return torch.randint(0, n, (2, e), generator=torch.Generator().manual_seed(seed))


def data_of(**changes):
    """Attributes of every kind."""
    generator = torch.Generator().manual_seed(1)
    attributes = {
        "edge_index": edges_of(),
        "x": torch.randn(N, 3, generator=generator),
        "y": torch.arange(N) % 5,
        "half": torch.randn(N, 2, 2, generator=generator).half(),
        "numpy": np.arange(N, dtype=np.int16),
        "train_mask": torch.arange(N) % 3 == 0,
        "names": [f"v{i}" for i in range(N)],
        "edge_attr": torch.randn(E, 4, generator=generator).double(),
        "edge_weight": torch.rand(E, generator=generator),
        "edge_kinds": tuple(range(E)),
        "mean": torch.tensor([1.0, 2.0]),
        "count": torch.tensor(7),
        "title": "a graph",
        "facts": {"source": [1, 2]},
        "num_nodes": N,
    }
    return Data(**{**attributes, **changes})


def loader_of(data=None, num_neighbors=(3, 2), **options):
    options = {"batch_size": 8, "random_seed": 5, **options}
    return NeighborLoader(data_of() if data is None else data, num_neighbors, **options)


def assert_same(one, other):
    """Two batches are equal in every attribute."""
    assert sorted(one.keys()) == sorted(other.keys())
    for key in sorted(one.keys()):
        assert torch.is_tensor(one[key]) is torch.is_tensor(other[key]), key
        same = torch.equal(one[key], other[key]) if torch.is_tensor(one[key]) else np.array_equal(one[key], other[key])
        assert same, key


# --------------------------------------------------------------------------------------------------- what is in a batch


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"weight_attr": "edge_weight"}, {"prefetch": 0}])
def test_every_attribute_passes_through(options):
    data, nodes = data_of(), torch.arange(N).flip(0)
    before = data.clone()
    for batch in loader_of(data, input_nodes=nodes, **options):
        n_id, e_id = batch.n_id, batch.e_id
        assert n_id.dtype == e_id.dtype == batch.edge_index.dtype == torch.int64
        assert torch.equal(n_id[batch.edge_index], data.edge_index[:, e_id])
        for key in ("x", "y", "half", "train_mask"):
            assert torch.equal(batch[key], data[key][n_id]), key
        for key in ("edge_attr", "edge_weight"):
            assert torch.equal(batch[key], data[key][e_id]), key
        assert torch.equal(batch.numpy, torch.from_numpy(data.numpy)[n_id])
        assert batch.names == [data.names[i] for i in n_id]
        assert batch.edge_kinds == e_id.tolist()
        assert batch.mean is data.mean
        assert (int(batch.count), batch.title, batch.facts) == (7, "a graph", {"source": [1, 2]})
        assert batch.num_nodes == len(n_id) == sum(batch.num_sampled_nodes)
        assert sum(batch.num_sampled_edges) == len(e_id)
        assert batch.batch_size == len(batch.input_id)
        assert torch.equal(n_id[: batch.batch_size], nodes[batch.input_id])
        assert isinstance(batch, Data)
        assert batch.is_undirected() in (True, False)
    assert_same(data, before)


EXPECTED = {
    "batch_size": "int",
    "count": "torch.int64 0",
    "e_id": "torch.int64 1",
    "edge_attr": "torch.float64 2",
    "edge_index": "torch.int64 2",
    "edge_weight": "torch.float32 1",
    "facts": "dict",
    "half": "torch.float16 3",
    "input_id": "torch.int64 1",
    "mean": "torch.float32 1",
    "n_id": "torch.int64 1",
    "num_nodes": "int",
    "num_sampled_edges": "list",
    "num_sampled_nodes": "list",
    "numpy": "torch.int16 1",
    "title": "str",
    "train_mask": "torch.bool 1",
    "x": "torch.float32 2",
    "y": "torch.int64 1",
}
"""Attributes of a batch of PyG 2.8.1 with pyg-lib 0.9.0, of the data without their lists, which fail there."""


def described(batch):
    return {
        key: f"{value.dtype} {value.dim()}" if torch.is_tensor(value) else type(value).__name__
        for key, value in batch.to_dict().items()
        if value is not None
    }


def without_lists():
    data = data_of()
    del data.names, data.edge_kinds
    return data


def test_what_data_had_is_printed_before_what_a_batch_has_besides():
    data = Data(x=torch.ones(N, 1), edge_index=edges_of())
    (batch,) = loader_of(data, [1], input_nodes=[0], batch_size=1)
    assert list(batch._store._mapping)[:4] == ["x", "edge_index", "n_id", "e_id"]


def test_attributes_and_dtypes_are_those_of_pyg():
    batch = next(iter(loader_of(without_lists())))
    assert described(batch) == EXPECTED
    assert batch.batch is None
    assert "seed_time" not in batch


@needs_pygs_own
@pytest.mark.parametrize("options", [{}, {"replace": True}, {"weight_attr": "edge_weight"}])
def test_attributes_are_those_of_pygs_own_loader(options):
    theirs = torch_geometric.loader.NeighborLoader(without_lists(), [3, 2], batch_size=8, **options)
    batch = next(iter(theirs))
    assert described(batch) == EXPECTED
    assert list(batch.to_dict()) == list(next(iter(loader_of(without_lists(), **options))).to_dict())


def edges_as_set(batch):
    """Sorted (source, target, edge id) in the vertices of the data, a target that is a seed by its place."""
    source, target = batch.edge_index
    place = torch.where(target < batch.batch_size, target - N, batch.n_id[target])
    return sorted(zip(batch.n_id[source].tolist(), place.tolist(), batch.e_id.tolist(), strict=True))


def neighbourhood(edge_index, seeds, hops):
    """What a batch with all neighbours holds, hop by hop: as `edges_as_set`, and the vertices."""
    sources, targets = edge_index.tolist()
    known, edges, fresh = list(seeds), [], [(seed, place - N) for place, seed in enumerate(seeds)]
    for _ in range(hops):
        into = [
            (s, place, e) for v, place in fresh for e, (s, t) in enumerate(zip(sources, targets, strict=True)) if t == v
        ]
        edges += into
        fresh = [(v, v) for v in sorted({s for s, _, _ in into} - set(known))]
        known += [v for v, _ in fresh]
    return sorted(edges), sorted(known)


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("nodes", [[3, 7, 11, 2, 9], [3, 5, 3, 7, 3, 5, 20]])
def test_whole_neighbourhoods(hops, nodes):
    data = without_lists()
    for batch in loader_of(data, [-1] * hops, input_nodes=nodes, batch_size=4):
        seeds = [nodes[i] for i in batch.input_id]
        edges, known = neighbourhood(data.edge_index, seeds, hops)
        assert edges_as_set(batch) == edges
        assert sorted(batch.n_id.tolist()) == known
        assert batch.num_sampled_nodes[0] == batch.batch_size == len(seeds)
        assert sum(batch.num_sampled_edges) == len(batch.e_id)


@needs_pygs_own
@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("nodes", [[3, 7, 11, 2, 9], [3, 5, 3, 7, 3, 5, 20], list(range(N))])
@pytest.mark.parametrize("replace", [False, True])
def test_whole_neighbourhoods_are_those_of_pygs_own_loader(hops, nodes, replace):
    data, options = without_lists(), {"batch_size": 4, "replace": replace}
    ours = loader_of(data, [-1] * hops, input_nodes=nodes, **options)
    theirs = torch_geometric.loader.NeighborLoader(data, [-1] * hops, input_nodes=torch.tensor(nodes), **options)
    for one, other in zip(ours, theirs, strict=True):
        edges, their_edges = edges_as_set(one), edges_as_set(other)
        if len(set(nodes)) < len(nodes):  # there pyg-lib numbers the sources wrongly
            edges, their_edges = (sorted(edge[1:] for edge in of) for of in (edges, their_edges))
        assert edges == their_edges
        assert sorted(one.n_id.tolist()) == sorted(other.n_id.tolist())
        for key in ("num_sampled_nodes", "num_sampled_edges", "batch_size"):
            assert one[key] == other[key], key
        assert torch.equal(one.input_id, other.input_id)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_samples_are_samples(draw):
    n = draw.draw(st.integers(1, 12))
    pairs = draw.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
    edge_index = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t().contiguous()
    nodes = draw.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=12))
    assume(len(nodes) != n or n <= 2 or max(nodes) > 1)  # else they may be a mask
    fanouts = draw.draw(st.lists(st.sampled_from([-1, 1, 2, 5]), min_size=1, max_size=3))
    replace = draw.draw(st.booleans())
    data = Data(edge_index=edge_index, num_nodes=n, edge_w=torch.arange(len(pairs)))
    degrees = torch.bincount(edge_index[1], minlength=n)
    loader = loader_of(data, fanouts, input_nodes=nodes, replace=replace, batch_size=draw.draw(st.integers(1, 5)))
    delivered = list(loader)
    assert len(delivered) == len(loader)
    assert [nodes[i] for batch in delivered for i in batch.input_id] == nodes
    for batch in delivered:
        assert batch.n_id[: batch.batch_size].tolist() == [nodes[i] for i in batch.input_id]
        assert torch.equal(batch.n_id[batch.edge_index], edge_index[:, batch.e_id])
        assert torch.equal(batch.edge_w, batch.e_id)
        assert len(set(batch.n_id[batch.batch_size :].tolist())) == len(batch.n_id) - batch.batch_size
        assert sum(batch.num_sampled_nodes) == len(batch.n_id)
        hop = torch.repeat_interleave(torch.arange(len(fanouts) + 1), torch.tensor(batch.num_sampled_nodes))
        of_hop = torch.repeat_interleave(torch.arange(len(fanouts)), torch.tensor(batch.num_sampled_edges))
        drawn = torch.bincount(batch.edge_index[1], minlength=len(batch.n_id))
        assert torch.equal(hop[batch.edge_index[1]], of_hop)
        for place, number in enumerate(drawn.tolist()):
            degree = int(degrees[batch.n_id[place]])
            s = 0 if hop[place] == len(fanouts) else fanouts[hop[place]]
            assert number == (degree if s == -1 else s * (degree > 0) if replace else min(s, degree))


def test_repeated_seeds_share_a_sample_and_keep_their_places():
    data = without_lists()
    (batch,) = loader_of(data, [2, 2], input_nodes=[4, 9, 4, 4], batch_size=4)
    (merged,) = loader_of(data, [2, 2], input_nodes=[4, 9], batch_size=4)
    assert batch.n_id[:4].tolist() == [4, 9, 4, 4]
    assert batch.y[:4].tolist() == data.y[[4, 9, 4, 4]].tolist()
    into = [batch.e_id[batch.edge_index[1] == place].tolist() for place in range(4)]
    assert into[0] == into[2] == into[3] == merged.e_id[merged.edge_index[1] == 0].tolist()
    assert into[1] == merged.e_id[merged.edge_index[1] == 1].tolist()
    assert batch.num_sampled_nodes[1:] == merged.num_sampled_nodes[1:]


@pytest.mark.parametrize("num_neighbors", [[3], [-1, 2]])
def test_each_of_the_repeated_seeds_has_the_edges_of_its_first_place(num_neighbors):
    data = without_lists()
    nodes = torch.randint(0, 20, (500,), generator=torch.Generator().manual_seed(1))
    (batch,) = loader_of(data, num_neighbors, input_nodes=nodes, batch_size=500)
    assert torch.equal(batch.n_id[:500], nodes)
    assert torch.equal(torch.stack([batch.n_id[ends] for ends in batch.edge_index]), data.edge_index[:, batch.e_id])
    target = batch.edge_index[1, : batch.num_sampled_edges[0]]
    assert torch.equal(target, target.sort().values)
    into = [batch.e_id[: len(target)][target == place].tolist() for place in range(500)]
    first = {node: place for place, node in reversed(list(enumerate(nodes.tolist())))}
    assert into == [into[first[node]] for node in nodes.tolist()]


def test_weights_decide_what_is_drawn():
    weight = torch.zeros(E)
    weight[::7] = 1.0
    for batch in loader_of(data_of(w=weight), [4, 4], weight_attr="w"):
        assert torch.all(batch.e_id % 7 == 0)
        assert torch.all(batch.w == 1)
    assert any(torch.any(batch.w == 0) for batch in loader_of(data_of(w=weight), [4, 4]))


def test_bidirectional_edges_have_their_reverse():
    options = {"input_nodes": torch.arange(20)}
    for one, both in zip(loader_of(**options), loader_of(subgraph_type="bidirectional", **options), strict=True):
        assert torch.equal(one.n_id, both.n_id)
        expected = set(map(tuple, one.edge_index.t().tolist()))
        assert set(map(tuple, both.edge_index.t().tolist())) == expected | {(b, a) for a, b in expected}
        assert torch.equal(both.edge_attr, data_of().edge_attr[both.e_id])
        assert "num_sampled_edges" not in both


@pytest.mark.skipif(not WITH_TORCH_SPARSE, reason="torch-sparse is not installed")
def test_adj_t():
    sparse = pytest.importorskip("torch_sparse")
    edge_index = edges_of()
    adj_t = sparse.SparseTensor(row=edge_index[1], col=edge_index[0], value=torch.arange(float(E)), sparse_sizes=(N, N))
    target, source, value = adj_t.coo()
    data = Data(adj_t=adj_t, x=torch.randn(N, 2), w=torch.arange(E))
    for batch in loader_of(data, weight_attr="w"):
        col, row, values = batch.adj_t.coo()
        assert sorted(values.tolist()) == sorted(value[batch.e_id].tolist())
        for s, t, v in zip(batch.n_id[row].tolist(), batch.n_id[col].tolist(), values.tolist(), strict=True):
            at = int((value == v).nonzero())
            assert (int(source[at]), int(target[at])) == (s, t)
        assert torch.equal(batch.w, batch.e_id)
        assert "edge_index" not in batch


class Wide(Data):
    """Data with an attribute whose columns are vertices."""

    def __cat_dim__(self, key, value, *args, **kwargs):
        return 1 if key == "wide" else super().__cat_dim__(key, value, *args, **kwargs)


def odd_data():
    edge_index, x = edges_of(30, 100), torch.arange(60.0).reshape(30, 2)
    square = edges_of(30, 30)  # as many edges as vertices
    return {
        "class of edges": Data(edge_index=torch_geometric.EdgeIndex(edge_index, sparse_size=(30, 30)), x=x),
        "several graphs": Batch.from_data_list([Data(x=x[:10], edge_index=edges_of(10, 40)) for _ in range(3)]),
        "class of data": Wide(edge_index=edge_index, x=x, wide=torch.randn(4, 30)),
        "sparse": Data(edge_index=edge_index, x=torch.eye(30).to_sparse()),
        "numbered": Data(edge_index=edge_index, x=x, n_id=torch.arange(30) * 10, e_id=torch.arange(100) * 10),
        "label of a graph": Data(edge_index=edge_index, x=x, y=torch.tensor([[1.0]])),
        "ambiguous": Data(edge_index=square, x=x, edge_attr=torch.randn(30, 1), w=torch.randn(30)),
        "gradients": Data(edge_index=edge_index, x=x.clone().requires_grad_()),
        "bfloat16": Data(edge_index=edge_index, x=x.bfloat16()),
        "no attributes": Data(edge_index=edge_index, num_nodes=30),
    }


def shapes(batch):
    return {
        key: (value.dtype, value.shape, value.layout, value.requires_grad) if torch.is_tensor(value) else type(value)
        for key, value in sorted(batch.to_dict().items())
    }


def test_odd_data():
    odd = odd_data()
    found = {name: next(iter(loader_of(data, [-1], input_nodes=[4, 1]))) for name, data in odd.items()}
    plain = found["no attributes"]
    assert torch.equal(found["class of data"].wide, odd["class of data"].wide[:, plain.n_id])
    assert torch.equal(found["sparse"].x.to_dense(), torch.eye(30)[plain.n_id])
    assert torch.equal(found["numbered"].n_id, 10 * plain.n_id)
    assert torch.equal(found["numbered"].e_id, 10 * plain.e_id)
    assert torch.equal(found["label of a graph"].y, torch.tensor([[1.0]]))
    assert torch.equal(found["ambiguous"].w, odd["ambiguous"].w[found["ambiguous"].n_id])
    assert torch.equal(found["ambiguous"].edge_attr, odd["ambiguous"].edge_attr[found["ambiguous"].e_id])
    assert found["gradients"].x.requires_grad
    assert found["several graphs"].batch is None  # PyG's loaders keep this name for themselves


@needs_pygs_own
@pytest.mark.parametrize("name", odd_data())
def test_odd_data_as_pygs_own_loader_has_them(name):
    data = odd_data()[name]
    ours = next(iter(loader_of(data, [-1], input_nodes=[4, 1])))
    theirs = next(iter(torch_geometric.loader.NeighborLoader(data, [-1], input_nodes=[4, 1], batch_size=8)))
    assert shapes(ours) == shapes(theirs)
    assert isinstance(ours, type(theirs))
    assert sorted(ours.n_id.tolist()) == sorted(theirs.n_id.tolist())


# ------------------------------------------------------------------------------------------------- seeds, order, epochs


def seeds_of(loader):
    return torch.cat([batch.n_id[: batch.batch_size] for batch in loader]).tolist()


@pytest.mark.parametrize(
    ("given_nodes", "expected"),
    [
        (None, list(range(N))),
        (torch.tensor([5, 3, 8]), [5, 3, 8]),
        (torch.tensor([5, 3, 8], dtype=torch.int32), [5, 3, 8]),
        ([5, 3, 8], [5, 3, 8]),
        (np.array([5, 3, 8]), [5, 3, 8]),
        (torch.arange(N) % 10 == 4, [4, 14, 24, 34, 44]),
        (np.arange(N) % 10 == 4, [4, 14, 24, 34, 44]),
    ],
)
def test_input_nodes(given_nodes, expected):
    loader = loader_of(input_nodes=given_nodes)
    assert seeds_of(loader) == expected
    assert len(loader.dataset) == len(expected)


@needs_pygs_own
@pytest.mark.parametrize("given_nodes", [None, torch.tensor([5, 3, 8]), torch.arange(N) % 10 == 4])
def test_input_ids_are_those_of_pygs_own_loader(given_nodes):
    theirs = torch_geometric.loader.NeighborLoader(without_lists(), [2], input_nodes=given_nodes, batch_size=2)
    ours = loader_of(without_lists(), [2], input_nodes=given_nodes, batch_size=2)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one.input_id, other.input_id)
        assert torch.equal(one.n_id[: one.batch_size], other.n_id[: other.batch_size])


def test_input_ids_of_ones_own():
    nodes, ids = torch.tensor([5, 3, 8]), torch.tensor([100, 101, 102])
    (batch,) = loader_of(input_nodes=nodes, input_id=ids, shuffle=True)
    assert torch.equal(nodes[batch.input_id - 100], batch.n_id[:3])


def test_shuffling_is_new_each_epoch_and_the_same_by_seed():
    loader = loader_of(shuffle=True)
    first, second = seeds_of(loader), seeds_of(loader)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(N))
    again = loader_of(shuffle=True)
    assert [seeds_of(again), seeds_of(again)] == [first, second]
    assert seeds_of(loader_of(shuffle=True, random_seed=6)) != first
    plain = loader_of()
    batches = [list(plain), list(plain)]
    assert [torch.cat([b.n_id[: b.batch_size] for b in epoch]).tolist() for epoch in batches] == [list(range(N))] * 2
    assert not torch.equal(batches[0][0].e_id, batches[1][0].e_id)


def test_a_pass_after_one_that_was_left_is_new():
    """As with PyG: a script that takes three batches a pass does not see the same three each time."""
    whole = loader_of(shuffle=True)
    epochs = [[batch.n_id for batch in whole] for _ in range(4)]
    loader = loader_of(shuffle=True)
    assert torch.equal(next(iter(loader)).n_id, epochs[0][0])
    for expected, batch in zip(epochs[1], loader, strict=False):  # left at its last batch
        assert torch.equal(batch.n_id, expected)
    one = iter(loader)
    first = next(one).n_id
    assert torch.equal(first, epochs[2][0])
    assert torch.equal(next(iter(loader)).n_id, epochs[3][0])  # while the other is under way
    assert torch.equal(next(one).n_id, epochs[2][1])
    loader.set_epoch(1)
    assert torch.equal(next(iter(loader)).n_id, epochs[1][0])
    state = loader.state_dict()
    assert torch.equal(next(iter(loader)).n_id, epochs[2][0])
    loader.load_state_dict(state)
    assert torch.equal(next(iter(loader)).n_id, epochs[1][1])


def test_without_a_random_seed_torch_decides():
    def seeded(seed, **options):
        torch.manual_seed(seed)
        return seeds_of(loader_of(shuffle=True, random_seed=None, **options))

    assert seeded(0) == seeded(0) != seeded(1)
    torch.manual_seed(0)
    assert seeds_of(loader_of(shuffle=True, random_seed=None)) != seeds_of(loader_of(shuffle=True, random_seed=None))
    state = torch.random.get_rng_state()
    orders = [
        seeds_of(loader_of(shuffle=True, random_seed=None, generator=torch.Generator().manual_seed(seed)))
        for seed in (3, 3, 4)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert torch.equal(torch.random.get_rng_state(), state)


def test_drop_last():
    loader = loader_of(drop_last=True, shuffle=True)
    assert len(loader) == len(list(loader)) == 6
    assert {batch.batch_size for batch in loader} == {8}
    assert len(loader_of()) == 7


class Backwards(BatchSampler):
    def __iter__(self):
        return reversed(list(super().__iter__()))


class Buckets:
    """Batches of positions that belong together; no class of torch's."""

    batch_size, drop_last, sampler = 2, False, range(7)

    def __iter__(self):
        return iter([[5, 3], [0, 1], [6, 2], [4]])


@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_are_those_that_a_batch_sampler_gives(drop_last):
    for batches in (Buckets(), Backwards(SequentialSampler(range(12)), 4, drop_last)):
        loader = loader_of(None, input_nodes=torch.arange(12), batch_sampler=batches, batch_size=1)
        for _ in range(2):
            assert [batch.input_id.tolist() for batch in loader] == list(batches)


def test_lightning_sees_the_batches_of_a_prediction():
    distributed = pytest.importorskip("pytorch_lightning.overrides.distributed")
    shuffled = RandomSampler(range(10), generator=torch.Generator().manual_seed(0))
    batches = distributed._IndexBatchSamplerWrapper(BatchSampler(shuffled, 4, drop_last=False))
    loader = loader_of(None, input_nodes=torch.arange(10), batch_sampler=batches, batch_size=1)
    assert [batch.input_id.tolist() for batch in loader] == batches.seen_batch_indices
    assert [len(seen) for seen in batches.seen_batch_indices] == [4, 4, 2]


def test_states():
    loader = loader_of(shuffle=True)
    batches = iter(loader)
    seen = [next(batches) for _ in range(3)]
    resumed = loader_of(shuffle=True, bulk_size=2)
    resumed.load_state_dict(loader.state_dict())
    loader.set_epoch(0)
    for one, other in zip([*seen, *resumed], loader, strict=True):
        assert_same(one, other)


@pytest.mark.parametrize(
    "options", [{"bulk_size": 1}, {"bulk_size": "auto", "memory_budget": "64MiB"}, {"prefetch": 0}]
)
def test_how_bulks_are_made_changes_nothing(options):
    for one, other in zip(loader_of(shuffle=True, **options), loader_of(shuffle=True), strict=True):
        assert_same(one, other)


def test_what_samples_a_call_can_be_set_later():
    loader = loader_of()
    loader([3])
    loader.node_sampler.num_neighbors = [-1]
    assert len(loader([3]).num_sampled_nodes) == 2


def test_single_batches_by_call():
    loader, again = loader_of(input_nodes=torch.arange(10, 40)), loader_of(input_nodes=torch.arange(10, 40))
    batch = loader([3, 1, 4])
    assert batch.n_id[:3].tolist() == [13, 11, 14]
    assert torch.equal(batch.x, data_of().x[batch.n_id])
    assert batch.input_id.tolist() == [3, 1, 4]
    assert_same(batch, again(torch.tensor([3, 1, 4])))
    assert_same(loader.filter_fn(loader.node_sampler.sample_from_nodes(loader.input_data[[2]])), again([2]))
    assert loader([]).num_nodes == 0
    assert not all(torch.equal(loader([3]).e_id, batch.e_id) for batch in [loader([3]) for _ in range(20)])


def test_attributes_that_are_replaced_removed_or_added_are_seen():
    data = data_of()
    loader = loader_of(data)
    loader([1])
    data.x, data.mean = torch.randn(N, 7), torch.arange(N)  # rows of vertices now
    del data.half
    data.edge_extra = torch.arange(E)
    batch = loader([1, 2])
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.mean, batch.n_id)
    assert torch.equal(batch.edge_extra, batch.e_id)
    assert "half" not in batch
    data.y[:] = 9  # in place
    assert set(loader([1, 2]).y.tolist()) == {9}


def test_edges_of_a_batch_are_not_put_together_twice_unless_a_transform_replaces_them():
    def flipped(output):
        output.row, output.col = output.col, output.row
        return output

    def shorter(output):
        output.row, output.col, output.edge = output.row[:1], output.col[:1], output.edge[:1]
        return output

    sampler = loader_of().node_sampler
    output = sampler.sample_from_nodes(loader_of().input_data[[3]])
    assert loader_of().filter_fn(output).edge_index.data_ptr() == output.row.data_ptr()
    plain = loader_of()([3]).edge_index
    assert torch.equal(loader_of(transform_sampler_output=flipped)([3]).edge_index, plain.flip(0))
    assert torch.equal(loader_of(transform_sampler_output=shorter)([3]).edge_index, plain[:, :1])


# ----------------------------------------------------------------------------------------------------------- transforms


@pytest.mark.parametrize("how", [None, False, True])
def test_transforms(how):
    calls = []

    def of_output(output):
        assert isinstance(output, SamplerOutput)
        calls.append(("output", threading.current_thread()))
        output.node, output.marked = output.node.clone(), True
        return output

    def of_batch(batch):
        calls.append(("batch", threading.current_thread()))
        batch.doubled = batch.x * 2
        return batch

    loader = loader_of(transform=of_batch, transform_sampler_output=of_output, filter_per_worker=how)
    for batch, plain in zip(loader, loader_of(), strict=True):
        assert torch.equal(batch.doubled, 2 * plain.x)
        assert torch.equal(batch.e_id, plain.e_id)
    kinds, threads = zip(*calls, strict=True)
    made = len(kinds) // 2  # batches made ahead are made again where the loader goes over to taking turns
    assert kinds == ("output", "batch") * made
    assert made == 7 or (how and made > 7)
    assert (threads[0] is threading.main_thread()) is (how is not True)
    assert how or set(threads) == {threading.main_thread()}
    assert "doubled" in loader([1])


def test_a_pass_that_is_left_ends_its_threads():
    def at_work():
        return sum(thread.name.startswith("spsample ") for thread in threading.enumerate())

    loader = loader_of(bulk_size=1, prefetch=3)
    for _ in loader:
        assert at_work() > 0
        break
    assert at_work() == 0

    def fails():
        for _ in loader:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert at_work() == 0
    assert len(list(loader)) == 7


def test_an_error_of_a_transform_is_raised_in_the_loop():
    def fails(batch):
        raise ZeroDivisionError

    for how in (None, True):
        with pytest.raises(ZeroDivisionError):
            list(loader_of(transform=fails, filter_per_worker=how))


# ------------------------------------------------------------------------------------------------------- as PyG uses it


def test_it_is_one_of_pygs():
    loader = loader_of(shuffle=True)
    assert isinstance(loader, torch_geometric.loader.NeighborLoader)
    assert isinstance(loader, torch.utils.data.DataLoader)
    assert repr(loader) == "NeighborLoader()"
    assert (loader.batch_size, loader.drop_last, loader.num_workers) == (8, False, 0)
    assert loader.data.num_nodes == N


def test_inference_of_pygs_models():
    data = without_lists()
    model = torch_geometric.nn.GraphSAGE(3, 4, num_layers=2).eval()
    loader = loader_of(data, [-1])
    with torch.no_grad():
        expected = model(data.x, data.edge_index)
        found = model.inference(loader)
    assert torch.allclose(found, expected, atol=1e-5)


def test_trimmed_layers_give_the_seeds_what_whole_ones_do():
    data = without_lists()
    model = torch_geometric.nn.GraphSAGE(3, 4, num_layers=2).eval()
    with torch.no_grad():
        for batch in loader_of(data, [-1, -1]):
            whole = model(batch.x, batch.edge_index)
            trimmed = model(
                batch.x,
                batch.edge_index,
                num_sampled_nodes_per_hop=batch.num_sampled_nodes,
                num_sampled_edges_per_hop=batch.num_sampled_edges,
            )
            seeds = slice(batch.batch_size)
            assert torch.allclose(whole[seeds], trimmed[seeds], atol=1e-5)


# ------------------------------------------------------------------------------------------------------------ arguments


def test_needless_arguments_warn_once():
    options = {"num_workers": 4, "persistent_workers": True, "prefetch_factor": 2, "pin_memory": True}
    with pytest.warns(
        UserWarning, match="num_workers, persistent_workers: threads.*prefetch_factor.*pin_memory"
    ) as seen:
        loader = loader_of(**options)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    assert len(list(loader)) == 7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader_of(num_workers=0, persistent_workers=False, prefetch_factor=None, pin_memory=False, is_sorted=True)
        loader_of(
            temporal_strategy="uniform", disjoint=False, directed=True, subgraph_type="directional", input_time=None
        )


def test_what_is_for_workers_does_nothing_and_says_so():
    loader = loader_of()
    for context in (loader.enable_cpu_affinity, loader.enable_multithreading):
        with pytest.warns(UserWarning, match="needs no workers: threads") as seen, context():
            assert len(list(loader)) == 7
        assert seen[0].filename == __file__
    with pytest.warns(UserWarning, match="needs no workers"), loader.enable_multithreading(worker_threads=2):
        pass


def typed():
    data = HeteroData()
    data["a"].x = torch.zeros(3, 1)
    data["a", "to", "a"].edge_index = edges_of(3, 4)
    return data


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": typed()}, r"^data: got a HeteroData; .*data\.to_homogeneous\(\)"),
        ({"data": (1, 2)}, r"^data: got a tuple; .*FeatureStore\.open"),
        ({"data": [data_of()]}, r"^data: got a list"),
        ({"data": "cora"}, r"^data: got a str; expected torch_geometric.data.Data\. Pass .*dataset\[0\]"),
        ({"data": Data(x=torch.zeros(3, 1))}, r"^data: got Data without edge_index"),
        ({"num_neighbors": {("a", "to", "a"): [2]}}, r"^num_neighbors: got \{"),
        ({"num_neighbors": [0]}, r"^num_neighbors\[0\]: got 0"),
        ({"num_neighbors": []}, r"^num_neighbors: got 0 layers"),
        ({"input_nodes": ("paper", torch.arange(3))}, r"^input_nodes: got \('paper'.*no types"),
        ({"input_nodes": "paper"}, r"^input_nodes: got 'paper'"),
        ({"input_nodes": [3, N]}, rf"^input_nodes: got {N} at position 1; expected vertex ids in \[0, {N}\)"),
        ({"input_nodes": torch.ones(3, dtype=torch.bool)}, r"^input_nodes: got a mask of shape \(3,\)"),
        ({"input_nodes": torch.ones(N, 10, dtype=torch.bool)}, rf"^input_nodes: got a mask of shape \({N}, 10\)"),
        ({"input_nodes": torch.rand(3)}, r"^input_nodes: got dtype float32"),
        ({"time_attr": "time"}, r"^time_attr: got 'time'; expected None.*by time"),
        ({"input_time": torch.arange(3)}, r"^input_time: got tensor"),
        ({"temporal_strategy": "last"}, r"^temporal_strategy: got 'last'"),
        ({"disjoint": True}, r"^disjoint: got True; expected False.*batch_size=1"),
        (
            {"subgraph_type": "induced"},
            r"^subgraph_type: got 'induced'; expected 'directional' or 'bidirectional'\. .*subgraph",
        ),
        ({"subgraph_type": 3}, r"^subgraph_type: got '3'"),
        ({"directed": False}, r"^directed: got False"),
        ({"neighbor_sampler": object()}, r"^neighbor_sampler: got .*BulkLoader"),
        ({"custom_cls": Data}, r"^custom_cls"),
        ({"weight_attr": "cost"}, r"^weight_attr: got 'cost'"),
        ({"weight_attr": "edge_attr"}, r"^data.edge_attr: got shape"),
        ({"replace": 1}, r"^replace: got 1"),
        ({"random_seed": -1}, r"^random_seed: got -1"),
        ({"bulk_size": 0}, r"^bulk_size: got 0"),
    ],
)
def test_refused(options, message):
    with pytest.raises(SpSampleError, match=message) as caught:
        loader_of(**options)
    assert isinstance(caught.value, InputError)


def test_a_name_that_nobody_takes():
    with pytest.raises(TypeError, match="unexpected keyword argument 'shufle'"):
        loader_of(shufle=True)


def test_loaders_share_a_graph():
    graph = Graph.from_pyg(data_of(), "edge_weight")
    for options in ({"weight_attr": "edge_weight"}, {}):
        loader = loader_of(graph=graph, **options)
        assert loader.bulk_loader.graph is graph
        for one, other in zip(loader, loader_of(**options), strict=True):
            assert_same(one, other)


def test_loaders_of_the_same_data_share_a_graph_by_themselves():
    data = data_of()
    train, val = loader_of(data), loader_of(data, [-1], weight_attr=None)
    assert val.graph is train.graph
    weighted = [loader_of(data, weight_attr="edge_weight") for _ in range(2)]
    assert weighted[0].graph is weighted[1].graph is not train.graph
    data.edge_weight[0] = 2.0
    assert loader_of(data, weight_attr="edge_weight").graph is not weighted[0].graph
    data.edge_index[0, 0] = (data.edge_index[0, 0] + 1) % N  # in place
    changed = loader_of(data)
    assert changed.graph is not train.graph
    assert_same(changed([3]), loader_of(data, graph=Graph.from_pyg(data))([3]))
    data.edge_index = data.edge_index.clone()
    assert loader_of(data).graph is not changed.graph
    data.num_nodes = N + 1
    assert loader_of(data).graph.num_nodes == N + 1


def test_graphs_of_the_same_edges_or_weights_are_shared_side_by_side():
    data, larger = data_of(), data_of()
    larger.edge_index, larger.num_nodes = data.edge_index, N + 1
    other = data_of(edge_index=edges_of(seed=1))
    other.edge_weight = data.edge_weight
    plain, weighted = [data, larger], [data, other]
    loaders = [*map(loader_of, plain), *(loader_of(one, weight_attr="edge_weight") for one in weighted)]
    graphs = [loader.graph for loader in loaders]
    assert len(set(map(id, graphs))) == 4
    again = [*map(loader_of, plain), *(loader_of(one, weight_attr="edge_weight") for one in weighted)]
    assert all(loader.graph is graph for loader, graph in zip(again, graphs, strict=True))


def test_shared_graphs_keep_nothing_alive():
    data = data_of()
    loader = loader_of(data)
    held = [weakref.ref(one) for one in (data, data.edge_index, loader.graph)]
    del data, loader
    gc.collect()
    assert [one() for one in held] == [None] * 3


def test_graphs_whose_changes_nobody_counts_are_not_shared():
    with torch.inference_mode():
        data = data_of(edge_index=edges_of().clone())
    assert loader_of(data).graph is not loader_of(data).graph


@pytest.mark.parametrize(
    ("graph", "options", "message"),
    [
        (Graph([0, 1], [0]), {}, r"^graph: got Graph\(num_nodes=1, .*; expected Graph.from_pyg\(data\)$"),
        (Graph.from_pyg(data_of()), {"weight_attr": "edge_weight"}, r"expected Graph.from_pyg\(data, 'edge_weight'\)$"),
        ("graph", {}, r"^graph: got an object of type str"),
    ],
)
def test_graphs_that_are_not_the_datas_are_refused(graph, options, message):
    with pytest.raises(InputError, match=message):
        loader_of(graph=graph, **options)


def test_refused_types_are_type_errors():
    with pytest.raises(DTypeError):
        loader_of(typed())
    with pytest.raises(TypeError):
        loader_of(shufle=True)


def test_number_of_neighbours_as_pygs_class():
    assert_same(
        next(iter(loader_of(num_neighbors=[3, 2]))),
        next(iter(NeighborLoader(data_of(), NumNeighbors([3, 2]), batch_size=8, random_seed=5))),
    )


@pytest.mark.parametrize("name", ["torch", "torch_geometric"])
def test_missing_packages(name):
    code = f"import sys; sys.modules[{name!r}] = None; import spsample; import spsample.pyg"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"MissingDependencyError: spsample.pyg needs the package {name}, which is not installed" in done.stderr


@pytest.mark.parametrize(
    "name", ["LinkNeighborLoader", "HGTLoader", "ClusterLoader", "GraphSAINTNodeSampler", "NodeLoader"]
)
def test_loaders_that_are_not_here_say_so(name):
    with pytest.raises(ImportError, match=f"^spsample.pyg has no {name}.*from torch_geometric.loader import {name}$"):
        exec(f"from spsample.pyg import {name}")


def test_names_that_are_no_loaders():
    assert not hasattr(sys.modules["spsample.pyg"], "nothing")
    for name in ("utils", "base", "filter_data"):  # of PyG's package, and no loaders
        with pytest.raises(ImportError, match=f"^cannot import name '{name}'"):
            exec(f"from spsample.pyg import {name}")


def test_names_that_pyg_has_not_either():
    with pytest.raises(ImportError, match=r"^cannot import name 'NeighbourLoader'"):
        exec("from spsample.pyg import NeighbourLoader")
    assert not hasattr(sys.modules["spsample.pyg"], "__wrapped__")
