"""Locality-aware sampling: node-wise samplers that prefer the neighbours of a set."""

from __future__ import annotations

import pickle
from itertools import chain

import numpy as np
import pytest
from scipy import stats

import spsample as sp
from spsample.comm import run_threads
from spsample.errors import DTypeError, InputError
from spsample.features import draw_shift
from spsample.reorder import reorder
from spsample.sampling import Sampler
from spsample.sparse import extract, its_sample, normalize_rows, pattern

RNG = np.random.default_rng(5)
N = 60


def graph(weighted: bool = False) -> sp.Graph:
    edges = RNG.integers(0, N, (2, 900))
    return sp.Graph.from_edge_index(edges, num_nodes=N, edge_weight=RNG.random(900) + 0.1 if weighted else None)


CACHED = np.arange(0, N, 3)


def assert_equal_bulks(a: sp.BulkSample, b: sp.BulkSample) -> None:
    for left, right in zip(a, b, strict=True):
        np.testing.assert_array_equal(left.src_nodes, right.src_nodes)
        for one, other in zip(left.layers, right.layers, strict=True):
            np.testing.assert_array_equal(one.adj.indptr, other.adj.indptr)
            np.testing.assert_array_equal(one.adj.indices, other.adj.indices)
            np.testing.assert_array_equal(one.adj.data, other.adj.data)
            np.testing.assert_array_equal(one.edge_ids, other.edge_ids)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("options", [{}, {"replace": True}, {"layout": "subgraph"}, {"weighted": False}])
@pytest.mark.parametrize("importance", [False, True])
def test_backends_agree_and_draws_are_those_of_a_graph_with_scaled_weights(weighted, options, importance):
    A = graph(weighted)
    sampler = sp.Biased(sp.GraphSAGE([3, 4], **options), CACHED, 4.0, importance_weights=importance)
    bulks = [
        sp.bulk_sample(A, np.arange(N), sampler, batch_size=16, edge_ids=True, backend=backend, random_seed=3)
        for backend in ("reference", "cpu")
    ]
    assert_equal_bulks(*bulks)
    by_weight = weighted and options.get("weighted") is not False
    own = A.data if by_weight else np.ones(A.num_edges, np.float32)
    scaled = sp.Graph(A.indptr, A.indices, own * np.where(A.indices % 3 == 0, np.float32(4), np.float32(1)))
    plain = sp.GraphSAGE([3, 4], **{**options, "weighted": True})
    expected = sp.bulk_sample(scaled, np.arange(N), plain, batch_size=16, random_seed=3)
    for left, right in zip(bulks[0], expected, strict=True):
        np.testing.assert_array_equal(left.src_nodes, right.src_nodes)
        for one, other in zip(left.layers, right.layers, strict=True):
            np.testing.assert_array_equal(one.adj.indices, other.adj.indices)


def test_values_are_those_of_the_graph():
    A = graph(weighted=True)
    bulk = sp.bulk_sample(A, np.arange(N), sp.Biased(sp.GraphSAGE([3]), CACHED, 8), batch_size=16, edge_ids=True)
    inverse = np.argsort(A.edge_ids) if A.edge_ids is not None else np.arange(A.num_edges)
    for batch in bulk:
        layer = batch.layers[0]
        np.testing.assert_array_equal(layer.adj.data, A.data[inverse[layer.edge_ids]])


def test_the_law_of_one_draw():
    """P of a cached neighbour is f / (f c + d - c)."""
    A = sp.Graph(np.r_[0, np.full(N, 10)], np.arange(10))
    sampler = sp.Biased(sp.GraphSAGE([1]), [0, 1, 2], 4.0)
    drawn = [sp.bulk_sample(A, [0], sampler, batch_size=1, random_seed=seed)[0].layers[0] for seed in range(4000)]
    ids = np.array([layer.src_nodes[layer.adj.indices[0]] for layer in drawn])
    counts = np.bincount(ids, minlength=10)
    expected = np.where(np.arange(10) < 3, 4, 1) / 19 * len(ids)
    assert stats.chisquare(counts, expected).pvalue > 1e-4


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("replace", [False, True])
def test_importance_weights_are_unbiased(weighted, replace):
    """The mean of values @ x over many draws is the sum over the whole row."""
    A = graph(weighted)
    x = RNG.standard_normal(N)
    sampler = sp.Biased(sp.GraphSAGE([4], replace=replace), CACHED, 8.0, importance_weights=True)
    bulk = sp.bulk_sample(A, np.tile(np.arange(N), 1500), sampler, batch_size=N)
    sums = np.stack([batch.layers[0].adj.to_scipy() @ x[batch.src_nodes] for batch in bulk])
    weights = np.ones(A.num_edges) if A.data is None else A.data
    expected = np.add.reduceat(np.r_[weights * x[A.indices], 0], A.indptr[:-1]) * (np.diff(A.indptr) > 0)
    error = sums.std(axis=0, ddof=1) / np.sqrt(len(sums))
    z = (sums.mean(axis=0) - expected) / np.maximum(error, 1e-6)
    assert np.abs(z).max() < 4.5


def test_a_large_factor_hides_no_weights():
    """Both cached neighbours are drawn first; 20 others are left then."""
    A = sp.Graph(np.r_[0, np.full(22, 22)], np.arange(22))
    sampler = sp.Biased(sp.GraphSAGE([5]), [3, 7], 2.0**60, importance_weights=True)
    values = sp.bulk_sample(A, [0], sampler, batch_size=1)[0].layers[0].adj.data
    np.testing.assert_allclose(values, [(2 + 4) / 5, (1 + 3) / 5, (20 + 2) / 5, (19 + 1) / 5, 18 / 5], rtol=1e-6)


@pytest.mark.parametrize("replace", [False, True])
def test_importance_weights_of_a_reordered_store(tmp_path, replace):
    A = graph(weighted=True)
    A.save(tmp_path / "plain")
    reorder(tmp_path / "plain", tmp_path / "moved", RNG.random(N))
    sampler = sp.Biased(sp.GraphSAGE([3], replace=replace), CACHED, 4, importance_weights=True)
    graphs = [sp.Graph.open(tmp_path / name) for name in ("plain", "moved")]
    assert_equal_bulks(*(sp.bulk_sample(one, np.arange(N), sampler, batch_size=16, edge_ids=True) for one in graphs))


def test_whole_rows_are_not_weighed():
    A = graph()
    sampler = sp.Biased(sp.GraphSAGE([-1, 1000]), CACHED, 8.0, importance_weights=True)
    batch = sp.bulk_sample(A, np.arange(8), sampler, batch_size=8)[0]
    for layer in batch.layers:
        assert layer.adj.data is None or (layer.adj.data == 1).all()


def test_factor_1_is_the_sampler_itself():
    A, plain = graph(), sp.GraphSAGE([3, 2])
    bulks = [
        sp.bulk_sample(A, np.arange(N), s, batch_size=16, edge_ids=True) for s in (plain, sp.Biased(plain, CACHED, 1))
    ]
    assert_equal_bulks(*bulks)


def test_a_sampler_of_ones_own():
    class NearUniform(Sampler):
        def layer(self, A, Q, draw, options):
            P = normalize_rows(Q @ (pattern(A) if draw.hop == 0 else A))
            return extract(its_sample(P, draw, edge_ids=options.edge_ids), options)

    A = graph(weighted=True)
    batch = sp.bulk_sample(A, np.arange(N), sp.Biased(NearUniform([2, 2]), CACHED, 1e9), batch_size=N)[0]
    for layer in batch.layers:
        adj = layer.adj.to_scipy()
        for vertex, row in zip(layer.dst_nodes, adj, strict=True):
            cached = np.isin(A.indices[A.indptr[vertex] : A.indptr[vertex + 1]], CACHED).sum()
            assert np.isin(layer.src_nodes[row.indices], CACHED).sum() == min(cached, 2)


def test_cached_rows_are_drawn_more_often():
    A = graph()
    shares = []
    for factor in (1, 4, 64):
        bulk = sp.bulk_sample(A, np.arange(N), sp.Biased(sp.GraphSAGE([2]), CACHED, factor), batch_size=N)
        shares.append(np.isin(bulk[0].layers[0].adj.indices, np.flatnonzero(np.isin(bulk[0].src_nodes, CACHED))).mean())
    assert shares[0] < shares[1] < shares[2]


def test_ranks_draw_as_one_process():
    A = graph(weighted=True)
    sampler = sp.Biased(sp.GraphSAGE([3, 2]), CACHED, 4.0)
    alone = sp.bulk_sample(A, np.arange(N), sampler, batch_size=10, edge_ids=True)

    def on_rank(comm, c, algorithm):
        graph = sp.PartitionedGraph.from_graph(A, sp.ProcessGrid(comm, c), algorithm=algorithm)
        bulk = sp.bulk_sample(graph, np.arange(N), sampler, batch_size=10, edge_ids=True)
        return [(b.batch_id, b.src_nodes.tolist(), [x.adj.data.tolist() for x in b.layers]) for b in bulk]

    for c, algorithm in ((1, "column"), (2, "column"), (1, "stages")):
        found = list(chain(*run_threads(4, lambda comm, c=c, a=algorithm: on_rank(comm, c, a))))
        expected = [(b.batch_id, b.src_nodes.tolist(), [x.adj.data.tolist() for x in b.layers]) for b in alone]
        assert sorted(found) == expected


def test_it_is_made_again_and_compared():
    sampler = sp.Biased(sp.GraphSAGE([3, 2]), CACHED, 4.0, importance_weights=True)
    mask = np.zeros(N + 7, bool)
    mask[CACHED] = True
    assert sampler == sp.Biased(sp.GraphSAGE([3, 2]), mask, 4, importance_weights=True)
    assert hash(sampler) == hash(pickle.loads(pickle.dumps(sampler)))
    assert sampler != sp.Biased(sp.GraphSAGE([3, 2]), CACHED[1:], 4.0, importance_weights=True)
    assert sampler != sp.Biased(sp.GraphSAGE([3, 2]), CACHED, 2.0, importance_weights=True)
    assert sampler.with_sizes([5]) == sp.Biased(sp.GraphSAGE([5]), CACHED, 4.0, importance_weights=True)
    assert repr(sampler).startswith("Biased(GraphSAGE([3, 2]), 20 vertices (")


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ((sp.LADIES([8]), [1], 2), InputError, "sampler"),
        (("GraphSAGE", [1], 2), DTypeError, "sampler"),
        ((sp.Biased(sp.GraphSAGE([2]), [1], 2), [1], 2), InputError, "sampler"),
        ((sp.GraphSAGE([2]), [1], 0), InputError, "factor"),
        ((sp.GraphSAGE([2]), [1], float("nan")), InputError, "factor"),
        ((sp.GraphSAGE([2]), [1], float("inf")), InputError, "factor"),
        ((sp.GraphSAGE([2]), [1], True), DTypeError, "factor"),
        ((sp.GraphSAGE([2]), [-1], 2), InputError, "cached"),
        ((sp.GraphSAGE([2]), [[1]], 2), InputError, "cached"),
        ((sp.GraphSAGE([2]), [2**62], 2), InputError, "cached"),
        ((sp.GraphSAGE([2]), [0.5], 2), DTypeError, "cached"),
    ],
)
def test_what_is_refused(arguments, error, named):
    with pytest.raises(error, match=named):
        sp.Biased(*arguments)


def test_vertices_that_the_graph_has_not():
    with pytest.raises(InputError, match="cached"):
        sp.bulk_sample(graph(), [0], sp.Biased(sp.GraphSAGE([2]), [N], 2), batch_size=1)


def test_importance_weights_of_a_partitioned_graph_are_refused():
    A = graph()
    sampler = sp.Biased(sp.GraphSAGE([2]), CACHED, 2, importance_weights=True)

    def on_rank(comm):
        graph = sp.PartitionedGraph.from_graph(A, sp.ProcessGrid(comm, 1))
        with pytest.raises(InputError, match="importance_weights"):
            sp.bulk_sample(graph, np.arange(N), sampler, batch_size=10)

    run_threads(2, on_rank)


def test_an_empty_set_draws_uniformly_by_weight():
    A, sampler = graph(), sp.Biased(sp.GraphSAGE([2]), [], 1e-9)
    np.full(N, 77, np.uint8)  # what memory holds that is used again
    assert not sampler.members(N).any()
    bulks = [
        sp.bulk_sample(A, np.arange(N), sampler, batch_size=N, edge_ids=True, backend=name)
        for name in ("reference", "cpu")
    ]
    assert_equal_bulks(*bulks)
    assert bulks[0][0].layers[0].adj.nnz > 0


def test_shift_of_the_draw():
    A = graph()
    plain = sp.GraphSAGE([2, 2])
    shifts = [draw_shift(A, np.arange(N), sp.Biased(plain, CACHED, f), 8, epochs=3) for f in (1, 2, 8)]
    assert shifts[0].total_variation == shifts[0].inclusion == 0
    assert shifts[0].rows == shifts[0].biased_rows
    assert shifts[1].total_variation < shifts[2].total_variation <= shifts[2].largest_total_variation < 1
    assert shifts[2].biased_rows < shifts[1].biased_rows < shifts[1].rows
    assert 0 < shifts[1].inclusion < shifts[2].inclusion < 1
    row = A.indices[A.indptr[3] : A.indptr[4]]
    own = np.isin(row, CACHED).mean()
    expected = abs(8 * own / (1 + 7 * own) - own)
    only_row = draw_shift(sp.Graph(np.r_[0, np.full(N, len(row))], row), [0], sp.Biased(plain, CACHED, 8), 1)
    assert only_row.largest_total_variation == pytest.approx(expected)


def test_ranks_are_kept_for_the_set_once_they_are_worth_it():
    A, plain = graph(), sp.GraphSAGE([3, 2])
    sampler = sp.Biased(plain, CACHED, 4)
    few, all_of_it = (
        [sp.bulk_sample(A, seeds, sampler, batch_size=8) for _ in range(2)] for seeds in ([0], np.arange(N))
    )
    assert A.kept_nbytes == 8 * (A.num_edges // 32 + 16)
    assert_equal_bulks(*few)
    assert_equal_bulks(*all_of_it)
    ranks = A.operand().kept.entry_ranks(sampler._scale, 0)
    assert ranks is not None
    other = sp.Biased(plain, CACHED.tolist(), 16)
    assert A.operand().kept.entry_ranks(other._scale, 0) is ranks
    assert A.operand().kept.entry_ranks(sp.Biased(plain, [1], 4)._scale, 0) is None


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"layout": "subgraph"}])
def test_bulks_of_stores_and_reordered_stores(tmp_path, options):
    """A row is drawn the same before ranks are made and after it, also of memory maps and of rows in another order."""
    A = graph()
    A.save(tmp_path / "plain")
    reorder(tmp_path / "plain", tmp_path / "moved", RNG.random(N))
    sampler = sp.Biased(sp.GraphSAGE([3, 2], **options), CACHED, 4, importance_weights=True)
    graphs = [A, *(sp.Graph.open(tmp_path / name) for name in ("plain", "moved"))]
    for seeds in ([3, 7], np.arange(N), [3, 7]):
        bulks = [sp.bulk_sample(one, seeds, sampler, batch_size=16, edge_ids=True) for one in graphs]
        expected = sp.bulk_sample(A, seeds, sampler, batch_size=16, edge_ids=True, backend="reference")
        for bulk in bulks:
            assert_equal_bulks(bulk, expected)
