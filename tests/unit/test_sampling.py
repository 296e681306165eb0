"""What minibatches are: order, numbering, edge ids, layouts, values, views."""

from __future__ import annotations

import copy
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample.backends import available_backends
from spsample.errors import CapacityError, DTypeError, InputError

backends = pytest.mark.parametrize("backend", available_backends())

RNG = np.random.default_rng(2)
NUM_NODES, NUM_EDGES = 60, 500
EDGE_INDEX = np.concatenate(
    [
        RNG.integers(0, NUM_NODES - 4, (2, NUM_EDGES - 60)),  # the last four vertices have no edges but those below
        RNG.integers(0, 10, (2, 56)),  # parallel edges and self loops
        [[58, 58, 0, 1], [59, 59, 58, 58]],
    ],
    axis=1,
)
WEIGHTS = RNG.exponential(size=NUM_EDGES) + 0.01
WEIGHTS[::17] = 0.0
SEEDS = np.array([3, 59, 0, 3, 12, 56, 58, 5, 40, 41, 3, 2])

PLAIN = sp.Graph.from_edge_index(EDGE_INDEX, num_nodes=NUM_NODES)
WEIGHTED = sp.Graph.from_edge_index(EDGE_INDEX, num_nodes=NUM_NODES, edge_weight=WEIGHTS)
GRAPHS = {"unweighted": PLAIN, "row": PLAIN.normalized("row"), "weighted": WEIGHTED, "sym": PLAIN.normalized("sym")}

SAMPLERS = [
    sp.GraphSAGE([4, 3]),
    sp.GraphSAGE([4, 3], replace=True),
    sp.GraphSAGE([2, -1], include_targets=False),
    sp.GraphSAGE([3, 2, 2], layout="subgraph"),
    sp.GraphSAGE([4, 3], weighted=False),
    sp.LADIES([8, 6]),
    sp.LADIES([8, 6], include_targets=False),
    sp.LADIES([8, 6], law="squared_count", replace=True),
    sp.LADIES([8, 6], values="reference"),
    sp.FastGCN([20, 15]),
    sp.FastGCN([20, 15], replace=True, include_targets=False),
]


def sampled(sampler, graph=PLAIN, seeds=SEEDS, **options):
    return sp.bulk_sample(graph, seeds, sampler, **{"batch_size": 5, "edge_ids": True, **options})


def entries(layer):
    """(target, source) global ids of each entry of a layer."""
    target = np.repeat(layer.dst_nodes, np.diff(layer.adj.indptr))
    return target, layer.src_nodes[layer.adj.indices]


def neighbours(v):
    """In-neighbours of v, parallel edges each, with the positions of the edges, in the law's order."""
    where = np.flatnonzero(EDGE_INDEX[1] == v)
    where = where[np.argsort(EDGE_INDEX[0, where], kind="stable")]
    return EDGE_INDEX[0, where], where


# --- structure ------------------------------------------------------------------------------------------------------


@backends
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_structure_of_every_layer(sampler, kind, backend):
    bulk = sampled(sampler, GRAPHS[kind], backend=backend)
    assert len(bulk) == 3
    for i, minibatch in enumerate(bulk):
        given_seeds = SEEDS[5 * i : 5 * i + 5]
        assert minibatch.batch_id == bulk.batch_ids[i] == i
        assert minibatch.seeds.tolist() == list(dict.fromkeys(given_seeds.tolist()))
        np.testing.assert_array_equal(minibatch.seeds[minibatch.seed_inverse], given_seeds)
        assert minibatch.seed_inverse.dtype == np.int64
        assert len(minibatch.layers) == len(sampler.sizes)
        np.testing.assert_array_equal(minibatch.layers[-1].dst_nodes, minibatch.seeds)
        np.testing.assert_array_equal(minibatch.layers[0].src_nodes, minibatch.src_nodes)
        for layer in minibatch.layers:
            check_layer(layer, sampler)
        if getattr(sampler, "layout", "blocks") == "blocks":
            for nearer, farther in zip(minibatch.layers[1:], minibatch.layers[:-1], strict=True):
                np.testing.assert_array_equal(farther.dst_nodes, nearer.src_nodes)


def check_layer(layer, sampler):
    adj = layer.adj
    assert adj.shape == (len(layer.dst_nodes), len(layer.src_nodes))
    assert adj.indptr.dtype == np.int64
    assert len(adj.indptr) == adj.shape[0] + 1
    assert adj.indptr[0] == 0
    assert adj.indptr[-1] == adj.nnz == len(adj.indices) == len(layer.edge_ids)
    assert (np.diff(adj.indptr) >= 0).all()
    assert adj.nnz == 0 or (adj.indices.min() >= 0 and adj.indices.max() < adj.shape[1])
    assert len(set(layer.src_nodes.tolist())) == adj.shape[1]
    if sampler.include_targets:
        np.testing.assert_array_equal(layer.src_nodes[: adj.shape[0]], layer.dst_nodes)
        if getattr(sampler, "layout", "blocks") == "blocks":
            assert (np.diff(layer.src_nodes[adj.shape[0] :]) > 0).all()
    else:
        assert (np.diff(layer.src_nodes) > 0).all()
    if isinstance(sampler, sp.GraphSAGE):  # no column without an entry, but for those of targets
        used = np.zeros(adj.shape[1], bool)
        used[adj.indices] = True
        assert used[adj.shape[0] if sampler.include_targets else 0 :].all()
    target, source = entries(layer)
    np.testing.assert_array_equal(EDGE_INDEX[:, layer.edge_ids], [source, target])


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_edge_ids_only_where_asked(sampler):
    with_ids, without = sampled(sampler), sampled(sampler, edge_ids=False)
    for one, other in zip(with_ids, without, strict=True):
        for a, b in zip(one.layers, other.layers, strict=True):
            assert b.edge_ids is None
            np.testing.assert_array_equal(a.adj.indices, b.adj.indices)


def test_edge_ids_of_a_csr_graph_in_another_order():
    """`edge_ids` are positions in the arrays given to Graph, also where its rows had to be sorted."""
    indptr, indices = np.array([0, 3, 5, 5]), np.array([2, 0, 1, 1, 0])
    graph = sp.Graph(indptr, indices, [5.0, 6.0, 7.0, 8.0, 9.0])
    layer = sampled(sp.GraphSAGE([-1]), graph, [0, 1], batch_size=2)[0].layers[0]
    assert layer.edge_ids.tolist() == [1, 2, 0, 4, 3]
    assert layer.adj.data.tolist() == [6.0, 7.0, 5.0, 9.0, 8.0]


@backends
def test_given_edge_ids_are_passed_on(backend):
    graph = sp.Graph([0, 2, 2], [0, 1], edge_ids=[900, 7])
    for sampler in (sp.GraphSAGE([1]), sp.GraphSAGE([-1]), sp.LADIES([5]), sp.FastGCN([5])):
        layer = sampled(sampler, graph, [0], backend=backend)[0].layers[0]
        expected = {0: 900, 1: 7}
        assert layer.edge_ids.tolist() == [expected[v] for v in entries(layer)[1].tolist()]


# --- seeds ----------------------------------------------------------------------------------------------------------


def test_duplicate_seeds_are_merged_in_their_batch_only():
    bulk = sampled(sp.GraphSAGE([2]), seeds=[7, 3, 7, 7, 3, 7, 3], batch_size=4)
    assert [minibatch.seeds.tolist() for minibatch in bulk] == [[7, 3], [3, 7]]
    assert [minibatch.seed_inverse.tolist() for minibatch in bulk] == [[0, 1, 0, 0], [0, 1, 0]]


def test_duplicates_refused_on_request():
    with pytest.raises(InputError, match=r"seeds: got 5 again at position 4, in batch 1 of the call") as caught:
        sampled(sp.GraphSAGE([2]), seeds=[5, 6, 7, 5, 5, 8], batch_size=3, duplicates="error")
    assert caught.value.argument == "seeds"
    bulk = sampled(sp.GraphSAGE([2]), seeds=[5, 6, 5, 6], batch_size=2, duplicates="error")
    assert [minibatch.seeds.tolist() for minibatch in bulk] == [[5, 6], [5, 6]]


@backends
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_no_seeds(sampler, backend):
    bulk = sampled(sampler, seeds=np.zeros(0, np.int64), backend=backend)
    assert (len(bulk), list(bulk), bulk.num_edges) == (0, [], 0)
    assert bulk.batch_ids.dtype == np.int64


@backends
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_isolated_seeds_and_graphs_without_edges(sampler, backend):
    empty = sp.Graph(np.zeros(4, np.int64), np.zeros(0, np.int32))
    for graph, seeds in ((empty, [2, 0]), (PLAIN, [56, 57])):
        minibatch = sampled(sampler, graph, seeds, backend=backend)[0]
        for layer in minibatch.layers:
            if isinstance(sampler, sp.FastGCN) and graph is PLAIN:
                continue  # draws from the whole graph
            assert layer.adj.nnz == 0
            assert layer.src_nodes.tolist() == (layer.dst_nodes.tolist() if sampler.include_targets else [])
        assert minibatch.seeds.tolist() == list(seeds)


def test_last_batch_may_be_short_and_first_batch_counts_on():
    bulk = sampled(sp.GraphSAGE([2]), seeds=np.arange(7), batch_size=3, first_batch=40)
    assert [minibatch.batch_id for minibatch in bulk] == [40, 41, 42]
    assert [len(minibatch.seeds) for minibatch in bulk] == [3, 3, 1]


# --- GraphSAGE ------------------------------------------------------------------------------------------------------


@backends
def test_whole_rows(backend):
    """A fanout of -1, or one that no row passes, takes every neighbour, in A's order."""
    for sampler in (sp.GraphSAGE([-1]), sp.GraphSAGE([NUM_EDGES]), sp.GraphSAGE([-1], replace=True)):
        layer = sampled(sampler, seeds=[1, 59, 4], backend=backend)[0].layers[0]
        for r, v in enumerate([1, 59, 4]):
            row = slice(layer.adj.indptr[r], layer.adj.indptr[r + 1])
            sources, where = neighbours(v)
            assert layer.edge_ids[row].tolist() == where.tolist()
            assert layer.src_nodes[layer.adj.indices[row]].tolist() == sources.tolist()


@backends
def test_fanout_minus_one_takes_entries_of_weight_zero_and_large_fanouts_do_not(backend):
    for sampler, zeros in ((sp.GraphSAGE([-1]), True), (sp.GraphSAGE([NUM_EDGES]), False)):
        layer = sampled(sampler, WEIGHTED, seeds=np.arange(NUM_NODES), batch_size=99, backend=backend)[0].layers[0]
        assert (layer.adj.data == 0).any() == zeros
        assert layer.adj.nnz == (NUM_EDGES if zeros else (WEIGHTS > 0).sum())


@backends
@pytest.mark.parametrize("kind", ["unweighted", "weighted"])
def test_numbers_of_entries(kind, backend):
    seeds = np.arange(NUM_NODES)
    available = np.bincount(EDGE_INDEX[1], WEIGHTS > 0 if kind == "weighted" else None, NUM_NODES)
    layer = sampled(sp.GraphSAGE([6]), GRAPHS[kind], seeds, batch_size=99, backend=backend)[0].layers[0]
    assert np.diff(layer.adj.indptr).tolist() == np.minimum(available, 6).tolist()
    assert len(set(layer.edge_ids.tolist())) == layer.adj.nnz
    layer = sampled(sp.GraphSAGE([6], replace=True), GRAPHS[kind], seeds, batch_size=99, backend=backend)[0].layers[0]
    assert np.diff(layer.adj.indptr).tolist() == np.where(available > 0, 6, 0).tolist()
    assert len(set(layer.edge_ids.tolist())) < layer.adj.nnz


def test_values_are_the_weights_of_the_edges():
    for dtype in (np.float32, np.float64):
        graph = sp.Graph.from_edge_index(EDGE_INDEX, num_nodes=NUM_NODES, edge_weight=WEIGHTS.astype(dtype))
        for options in ({}, {"weighted": False}, {"replace": True}, {"layout": "subgraph"}):
            for layer in sampled(sp.GraphSAGE([4, -1], **options), graph)[1].layers:
                assert layer.adj.data.dtype == dtype
                assert layer.adj.data.tolist() == WEIGHTS.astype(dtype)[layer.edge_ids].tolist()


def test_values_of_unweighted_and_row_normalised_graphs():
    for options in ({}, {"replace": True}, {"layout": "subgraph"}):
        sampler = sp.GraphSAGE([4, -1], **options)
        assert all(layer.adj.data is None for layer in sampled(sampler)[0].layers)
        for layer in sampled(sampler, GRAPHS["row"])[0].layers:
            degrees = PLAIN.in_degrees()[entries(layer)[0]]
            assert layer.adj.data.dtype == np.float32
            assert layer.adj.data.tolist() == (1.0 / degrees).astype(np.float32).tolist()


def test_row_normalised_graphs_are_drawn_uniformly():
    for sampler in (sp.GraphSAGE([4, 3]), sp.GraphSAGE([4, 3], weighted=True)):
        for one, other in zip(sampled(sampler, GRAPHS["row"]), sampled(sp.GraphSAGE([4, 3])), strict=True):
            for a, b in zip(one.layers, other.layers, strict=True):
                np.testing.assert_array_equal(a.edge_ids, b.edge_ids)


def test_unweighted_draws_of_a_weighted_graph_ignore_its_weights():
    weighted = sampled(sp.GraphSAGE([4, 3], weighted=False), WEIGHTED)
    for one, other in zip(weighted, sampled(sp.GraphSAGE([4, 3])), strict=True):
        for a, b in zip(one.layers, other.layers, strict=True):
            np.testing.assert_array_equal(a.edge_ids, b.edge_ids)


# --- subgraph layout ------------------------------------------------------------------------------------------------


def naive_subgraph(seeds, fanouts, drawn):
    """Hop by hop, with dictionaries; `drawn[v]` are the sources drawn for v at the hop that found it."""
    known = list(dict.fromkeys(seeds))
    fresh, nodes, edges, targets = known, [len(known)], [], []
    for _ in fanouts:
        targets.append(list(known))
        found = [u for v in fresh for u in drawn[v]]
        edges.append(len(found))
        fresh = sorted(set(found) - set(known))
        known = known + fresh
        nodes.append(len(fresh))
    return known, nodes, edges, targets


@backends
@pytest.mark.parametrize("graph", [PLAIN, WEIGHTED], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanouts", [[3], [3, 2, 2], [-1, 1], [2, 2, 2, 2]], ids=str)
def test_subgraph_layout(graph, fanouts, replace, backend):
    bulk = sampled(sp.GraphSAGE(fanouts, layout="subgraph", replace=replace), graph, backend=backend)
    for minibatch in bulk:
        layers = minibatch.layers
        full = layers[0]
        target, source = entries(full)
        drawn = {v: source[target == v].tolist() for v in full.src_nodes.tolist()}
        known, nodes, edges, targets = naive_subgraph(minibatch.seeds.tolist(), fanouts, drawn)
        assert full.src_nodes.tolist() == known
        assert minibatch.num_sampled_nodes == nodes
        assert minibatch.num_sampled_edges == edges
        assert sum(nodes) == len(minibatch.src_nodes)
        assert sum(edges) == full.adj.nnz
        for hops, layer in enumerate(reversed(layers)):
            assert layer.dst_nodes.tolist() == targets[hops]
            assert layer.adj.nnz == sum(edges[: hops + 1])
            for name in ("indptr", "indices"):  # prefixes of one matrix
                part, whole = getattr(layer.adj, name), getattr(full.adj, name)
                np.testing.assert_array_equal(part, whole[: len(part)])
                assert len(part) == 0 or np.shares_memory(part, whole)


def test_subgraph_hop_zero_is_the_layer_of_the_seeds_in_blocks():
    """The seeds' rows use hop 0 in both layouts: the same edges."""
    blocks, subgraph = (sampled(sp.GraphSAGE([4, 3], layout=layout)) for layout in ("blocks", "subgraph"))
    for one, other in zip(blocks, subgraph, strict=True):
        np.testing.assert_array_equal(one.layers[-1].edge_ids, other.layers[-1].edge_ids)


@pytest.mark.parametrize("name", ["num_sampled_nodes", "num_sampled_edges"])
@pytest.mark.parametrize("sampler", [sp.GraphSAGE([2]), sp.LADIES([2])], ids=repr)
def test_counts_per_hop_need_the_subgraph_layout(sampler, name):
    with pytest.raises(InputError, match=f"{name}: .*layout='subgraph'"):
        getattr(sampled(sampler)[0], name)


# --- layer-wise -----------------------------------------------------------------------------------------------------


@backends
@pytest.mark.parametrize("graph", [PLAIN, GRAPHS["row"], WEIGHTED], ids=["unweighted", "row", "weighted"])
@pytest.mark.parametrize("sampler", [s for s in SAMPLERS if not isinstance(s, sp.GraphSAGE)], ids=repr)
def test_extraction_has_exactly_the_edges_between_dst_and_src(sampler, graph, backend):
    for minibatch in sampled(sampler, graph, backend=backend):
        for layer in minibatch.layers:
            inside = np.isin(EDGE_INDEX[0], layer.src_nodes) & np.isin(EDGE_INDEX[1], layer.dst_nodes)
            assert Counter(layer.edge_ids.tolist()) == Counter(np.flatnonzero(inside).tolist())
            for r, v in enumerate(layer.dst_nodes):
                row = layer.edge_ids[layer.adj.indptr[r] : layer.adj.indptr[r + 1]]
                assert row.tolist() == [e for e in neighbours(v)[1].tolist() if inside[e]]


@pytest.mark.parametrize("law", ["norm", "squared_count"])
def test_numbers_of_columns(law):
    for minibatch in sampled(sp.LADIES([8, 6], law=law, include_targets=False)):
        for layer, size in zip(minibatch.layers, (6, 8), strict=True):
            support = set(EDGE_INDEX[0, np.isin(EDGE_INDEX[1], layer.dst_nodes)].tolist())
            assert len(layer.src_nodes) == min(size, len(support))
            assert set(layer.src_nodes.tolist()) <= support


@backends
@pytest.mark.parametrize("make", [sp.LADIES, sp.FastGCN])
@pytest.mark.parametrize("include_targets", [False, True])
def test_taking_all_gives_the_entries_of_the_matrix(make, include_targets, backend):
    size = [NUM_NODES]
    for graph, value, dtype in (
        (PLAIN, lambda target, ids: np.ones(len(ids)), np.float32),
        (GRAPHS["row"], lambda target, ids: 1.0 / PLAIN.in_degrees()[target], np.float32),
        (WEIGHTED, lambda target, ids: WEIGHTS[ids], np.float64),
    ):
        bulk = sampled(make(size, include_targets=include_targets), graph, backend=backend)
        for minibatch in bulk:
            layer = minibatch.layers[0]
            target, _ = entries(layer)
            assert layer.adj.data.dtype == dtype
            assert layer.adj.data.tolist() == value(target, layer.edge_ids).astype(dtype).tolist()
            if graph is not WEIGHTED:  # columns of weight 0 are no part of the support
                assert layer.adj.nnz == np.isin(EDGE_INDEX[1], layer.dst_nodes).sum()


@backends
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("make", [sp.LADIES, sp.FastGCN])
def test_edges_into_targets_have_weight_one(make, kind, backend):
    for replace in (False, True):
        for minibatch in sampled(make([6, 5], replace=replace), GRAPHS[kind], backend=backend):
            for layer in minibatch.layers:
                among = layer.adj.indices < len(layer.dst_nodes)
                full = sampled(sp.GraphSAGE([-1]), GRAPHS[kind], layer.dst_nodes, batch_size=999)[0].layers[0]
                own = np.ones(full.adj.nnz, np.float32) if full.adj.data is None else full.adj.data
                by_id = dict(zip(full.edge_ids.tolist(), own.tolist(), strict=True))
                expected = [by_id[e] for e in layer.edge_ids[among].tolist()]
                assert layer.adj.data[among].tolist() == expected


@backends
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize(
    "options", [{"normalize_rows": True}, {"normalize_rows": True, "replace": True}, {"values": "reference"}], ids=str
)
@pytest.mark.parametrize("make", [sp.LADIES, sp.FastGCN])
def test_normalised_rows_sum_to_one(make, options, kind, backend):
    for minibatch in sampled(make([12, 9], **options), GRAPHS[kind], backend=backend):
        for layer in minibatch.layers:
            sums = np.add.reduceat(np.append(layer.adj.data.astype(float), 0), layer.adj.indptr[:-1])
            full = np.diff(layer.adj.indptr) > 0
            positive = full & (sums > 0)
            np.testing.assert_allclose(sums[positive], 1.0, rtol=1e-6)
            assert (layer.adj.data >= 0).all()
            if kind == "unweighted" and options != {"values": "reference"}:
                np.testing.assert_array_equal(positive, full)


def test_normalising_rows_does_not_change_the_draw():
    for make in (sp.LADIES, sp.FastGCN):
        for one, other in zip(sampled(make([5, 5])), sampled(make([5, 5], normalize_rows=True)), strict=True):
            for a, b in zip(one.layers, other.layers, strict=True):
                np.testing.assert_array_equal(a.edge_ids, b.edge_ids)


def test_the_law_of_a_small_frontier():
    """One seed with three neighbours, one drawn: its value is the inverse of its probability."""
    graph = sp.Graph.from_edge_index([[1, 2, 2, 3, 3, 3], [0] * 6], num_nodes=4)
    for law, total in (("norm", 6), ("squared_count", 14)):
        for batch in range(20):
            layer = sampled(sp.LADIES([1], law=law, include_targets=False), graph, [0], first_batch=batch)[0].layers[0]
            v = int(layer.src_nodes[0])
            probability = (v if law == "norm" else v * v) / total
            assert layer.adj.data.tolist() == [np.float32(1 / probability)] * v


# --- bulks and views ------------------------------------------------------------------------------------------------


def test_indexing():
    bulk = sampled(sp.GraphSAGE([2]))
    assert [minibatch.batch_id for minibatch in bulk] == [0, 1, 2]
    assert bulk[-1].batch_id == bulk[2].batch_id == bulk[np.int64(2)].batch_id == 2
    for i in (3, -4, 10**9):
        with pytest.raises(IndexError, match=f"minibatch {i} of a bulk of 3"):
            bulk[i]
    assert [minibatch.batch_id for minibatch in bulk[::-2]] == [2, 0]
    assert bulk[5:] == []
    for wrong in (1.5, "1", None, slice(0, "b")):
        with pytest.raises(TypeError):
            bulk[wrong]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_minibatches_are_views(sampler):
    bulk = sampled(sampler, WEIGHTED)
    for minibatch in bulk:
        assert np.shares_memory(minibatch.seed_inverse, bulk.seed_batches.inverse)
        for layer, stacked in zip(minibatch.layers, bulk.layers, strict=True):
            for view, base in (
                (layer.adj.indptr, stacked.indptr),
                (layer.adj.indices, stacked.indices),
                (layer.adj.data, stacked.data),
                (layer.edge_ids, stacked.edge_ids),
                (layer.dst_nodes, stacked.dst),
                (layer.src_nodes, stacked.src),
            ):
                assert len(view) == 0 or np.shares_memory(view, base)


def test_a_minibatch_outlives_its_bulk():
    minibatch = sampled(sp.GraphSAGE([2, 2]))[1]
    assert minibatch.layers[0].adj.shape[0] == len(minibatch.layers[0].dst_nodes)
    assert minibatch.layers is minibatch.layers


def test_law_version_and_num_edges():
    bulk = sampled(sp.LADIES([4, 4]))
    assert bulk.law_version == sp.law_version == 1
    assert bulk.num_edges == sum(layer.adj.nnz for minibatch in bulk for layer in minibatch.layers)
    assert all(layer.nbytes > 0 for layer in bulk.layers)


def test_num_edges_of_a_subgraph_counts_each_edge_once():
    bulk = sampled(sp.GraphSAGE([3, 2], layout="subgraph"))
    assert bulk.num_edges == sum(sum(minibatch.num_sampled_edges) for minibatch in bulk)
    assert bulk.num_edges < sum(layer.adj.nnz for minibatch in bulk for layer in minibatch.layers)


@pytest.mark.parametrize("edge_ids", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_what_a_minibatch_is_made_of_prints_one_line(sampler, edge_ids):
    graph = sp.Graph.from_edge_index(np.random.default_rng(0).integers(0, 99, (2, 900)), num_nodes=99)
    minibatch = sp.bulk_sample(graph, range(50), sampler, batch_size=50, edge_ids=edge_ids)[0]
    for layer in minibatch.layers:
        rows, columns = layer.adj.shape
        assert repr(layer.adj).startswith(f"Adjacency(shape=({rows}, {columns}), nnz={layer.adj.nnz}, data=")
        assert repr(layer).startswith(f"Layer({rows} dst_nodes, {columns} src_nodes, Adjacency(")
        assert max(len(repr(layer)), len(repr(layer.adj))) < 120
        assert repr(layer).endswith(", edge_ids)") == edge_ids
    batch = next(
        iter(sp.BulkLoader(graph, range(50), sampler, batch_size=50, features=np.eye(99), labels=np.arange(99)))
    )
    assert repr(batch).startswith("Batch(MiniBatch(batch_id=0")
    assert "\n" not in repr(batch)
    assert repr(batch).endswith("y=(50,) int64)")


def test_repr():
    bulk = sampled(sp.GraphSAGE([2, 2]), seeds=[0, 1, 2], batch_size=2)
    assert repr(bulk).startswith("BulkSample(2 minibatches, ")
    assert repr(sampled(sp.GraphSAGE([2]), seeds=[0])).startswith("BulkSample(1 minibatch, ")
    assert repr(bulk).endswith(" edges, GraphSAGE([2, 2]))")
    first = bulk[0]
    shapes = " ".join("x".join(map(str, layer.adj.shape)) for layer in first.layers)
    assert repr(first) == f"MiniBatch(batch_id=0, seeds=2, layers=[{shapes}])"


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_repr_of_a_sampler_makes_it_again(sampler):
    again = eval(repr(sampler), {name: getattr(sp, name) for name in ("GraphSAGE", "LADIES", "FastGCN")})
    assert repr(again) == repr(sampler)
    assert again == sampler
    assert hash(again) == hash(sampler)
    assert pickle.loads(pickle.dumps(sampler)) == copy.copy(sampler) == copy.deepcopy(sampler) == sampler
    for one, other in zip(sampled(sampler)[0].layers, sampled(again)[0].layers, strict=True):
        np.testing.assert_array_equal(one.edge_ids, other.edge_ids)


def test_repr_shows_what_differs_from_the_defaults():
    assert repr(sp.GraphSAGE([2], weighted=False)) == "GraphSAGE([2], weighted=False)"
    assert repr(sp.LADIES((2, 3), law="squared_count")) == "LADIES([2, 3], law='squared_count')"
    assert repr(sp.FastGCN([2], include_targets=False)) == "FastGCN([2], include_targets=False)"


def test_equal_samplers():
    assert len({*SAMPLERS, *copy.deepcopy(SAMPLERS)}) == len(SAMPLERS)
    assert sp.LADIES([4]) != sp.FastGCN([4])
    assert sp.GraphSAGE([4]) != "GraphSAGE([4])"


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_samplers_never_change(sampler):
    for name in ("sizes", "replace", "include_targets"):
        with pytest.raises(AttributeError, match=f"a sampler never changes: .*{name}"):
            setattr(sampler, name, getattr(sampler, name))
        with pytest.raises(AttributeError):
            delattr(sampler, name)
    assert type(sampler.sizes) is tuple


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("how", [lambda m: m.copy(), lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
def test_copies_have_arrays_of_their_own(sampler, how):
    bulk = sampled(sampler, WEIGHTED)
    for minibatch in bulk:
        again = how(minibatch)
        assert again.batch_id == minibatch.batch_id
        assert repr(again) == repr(minibatch)
        np.testing.assert_array_equal(again.seed_inverse, minibatch.seed_inverse)
        for layer, one in zip(minibatch.layers, again.layers, strict=True):
            for a, b in (
                (layer.adj.indptr, one.adj.indptr),
                (layer.adj.indices, one.adj.indices),
                (layer.adj.data, one.adj.data),
                (layer.edge_ids, one.edge_ids),
                (layer.dst_nodes, one.dst_nodes),
                (layer.src_nodes, one.src_nodes),
            ):
                assert a.dtype == b.dtype
                assert a.tobytes() == b.tobytes()
                assert not np.shares_memory(a, b)


def test_copies_without_weights_and_edge_ids():
    minibatch = pickle.loads(pickle.dumps(sampled(sp.GraphSAGE([2]), edge_ids=False)[1]))
    assert minibatch.layers[0].adj.data is None
    assert minibatch.layers[0].edge_ids is None


def test_a_pickled_minibatch_is_small():
    bulk = sampled(sp.GraphSAGE([4, 4]), seeds=np.arange(50).repeat(20), batch_size=10)
    assert len(pickle.dumps(bulk[0])) < len(pickle.dumps(bulk)) / 10


def test_a_bulk_without_memory(monkeypatch):
    def no_memory(*args):
        raise MemoryError

    monkeypatch.setattr(sp.GraphSAGE, "run", no_memory)
    with pytest.raises(CapacityError, match=r"3 batches of up to 5 seeds for GraphSAGE\(\[4\]\)") as caught:
        sampled(sp.GraphSAGE([4]))
    assert isinstance(caught.value.__cause__, MemoryError)
    assert "fewer batches" in caught.value.hint


@pytest.mark.parametrize("attributes", [{"operand": 1}, {"operand": PLAIN.operand}, {"operand": 1, "num_nodes": 3}])
def test_what_only_resembles_a_graph(attributes):
    with pytest.raises(DTypeError, match="graph: got an object of type Duck"):
        sampled(sp.GraphSAGE([2]), type("Duck", (), attributes)())


@pytest.mark.parametrize(
    ("module", "maker"),
    [
        ("dgl.heterograph", r"spsample\.store\.from_dgl\(graph\)"),
        ("torch_geometric.data.data", r"Graph\.from_pyg\(data\)"),
        ("dgl2", r"Graph\.from_edge"),
    ],
)
def test_graphs_of_other_libraries_are_told_what_takes_them(module, maker):
    theirs = type("Theirs", (), {"__module__": module})
    for kind in (theirs, type("MadeOfTheirs", (theirs,), {})):
        with pytest.raises(DTypeError, match=rf"graph: got an object of type {kind.__name__}.* Make one by {maker}"):
            sp.BulkLoader(kind(), [0], sp.GraphSAGE([2]), batch_size=1)


@pytest.mark.parametrize("seeds", [[], (), np.array([]), np.zeros(0, np.float32)], ids=repr)
def test_empty_seeds_of_many_kinds(seeds):
    assert len(sampled(sp.GraphSAGE([2]), seeds=seeds)) == 0


@pytest.mark.parametrize(
    "kind", [list, tuple, np.array, lambda s: np.array(s, np.int16), lambda s: np.array(s, np.uint64)]
)
def test_seeds_of_many_kinds(kind):
    expected = sampled(sp.GraphSAGE([2]))
    given = sampled(sp.GraphSAGE([2]), seeds=kind(SEEDS.tolist()))
    for one, other in zip(expected, given, strict=True):
        np.testing.assert_array_equal(one.layers[0].edge_ids, other.layers[0].edge_ids)
        assert other.seeds.dtype == PLAIN.indices.dtype


def test_seeds_as_a_torch_tensor():
    torch = pytest.importorskip("torch")
    bulk = sampled(sp.GraphSAGE([2]), seeds=torch.from_numpy(SEEDS))
    np.testing.assert_array_equal(bulk[0].layers[0].edge_ids, sampled(sp.GraphSAGE([2]))[0].layers[0].edge_ids)


@pytest.mark.parametrize("fanouts", [(2, 3), np.array([2, 3]), [np.int32(2), np.int64(3)]], ids=repr)
def test_fanouts_of_many_kinds(fanouts):
    assert sp.GraphSAGE(fanouts).sizes == (2, 3)


def test_a_sampler_in_few_lines():
    """A new sampler states one layer in the words of spsample.sparse and gets bulks, edge ids and adapters."""
    from spsample.sparse import extract, its_sample, normalize_rows

    class FirstNeighbour(sp.Sampler):
        def layer(self, A, Q, draw, want):
            P = normalize_rows(Q @ A)
            S = its_sample(P, draw._replace(size=1), edge_ids=want.edge_ids)
            return extract(S, want)

    bulk = sampled(FirstNeighbour([9, 9]))
    assert all(np.diff(layer.adj.indptr).max(initial=0) <= 1 for layer in bulk[0].layers)
    assert "FirstNeighbour([9, 9])" in repr(bulk)
    assert FirstNeighbour([9]) != sp.GraphSAGE([9])
    with pytest.raises(InputError, match=r"sizes\[0\]: got 0"):
        FirstNeighbour([0])


@settings(max_examples=30)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(0, 25)),
    batch_size=st.integers(1, 30),
    first_batch=st.integers(0, 2**32 - 26),
)
def test_batches_are_consecutive_chunks(shape, batch_size, first_batch):
    n, count = shape
    seeds = np.random.default_rng(count).integers(0, n, count)
    graph = sp.Graph(np.zeros(n + 1, np.int64), np.zeros(0, np.int32))
    bulk = sp.bulk_sample(graph, seeds, sp.GraphSAGE([1]), batch_size=batch_size, first_batch=first_batch)
    assert bulk.batch_ids.tolist() == [first_batch + i for i in range(-(-count // batch_size))]
    given_back = [m.seeds[m.seed_inverse] for m in bulk]
    np.testing.assert_array_equal(np.concatenate([*given_back, np.zeros(0, np.int64)]), seeds)
