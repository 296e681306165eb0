"""Equal samples: reference = cpu bit for bit, on any number of threads, in bulks of any size, with any index type."""

from __future__ import annotations

import numpy as np
import pytest
from equality import (
    KINDS,
    assert_bulks_same,
    assert_same,
    calls,
    edge_lists,
    every_sampler,
    examples,
    looks_like_a_mask,
    make_graph,
    needs_cpu,
    samplers,
    threads,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample.backends import available_backends
from spsample.sparse import CSRMatrix, select_rows, spgemm

cases = st.tuples(edge_lists(), st.sampled_from(KINDS), samplers)


def drawn_calls(data, edges):
    return data.draw(calls(edges.num_nodes), label="call")


@needs_cpu
@given(case=cases, index=st.sampled_from([np.int32, np.int64]), data=st.data())
@settings(max_examples=examples(500))
def test_reference_equals_cpu(case, index, data):
    edges, kind, sampler = case
    graph, call = make_graph(edges, kind, index), drawn_calls(data, edges)
    reference = sp.bulk_sample(graph, sampler=sampler, backend="reference", **call)
    assert_bulks_same(reference, sp.bulk_sample(graph, sampler=sampler, backend="cpu", **call))


@needs_cpu
@given(case=cases, data=st.data())
@settings(max_examples=examples(100))
def test_threads_change_nothing(case, data):
    edges, kind, sampler = case
    graph, call = make_graph(edges, kind), drawn_calls(data, edges)
    bulks = []
    for count in (1, 2, 4):
        with threads(count):
            fresh = make_graph(edges, kind)  # what is derived from a whole graph is derived on these threads, too
            bulks.append(sp.bulk_sample(fresh, sampler=sampler, backend="cpu", **call))
    for bulk in (bulks[1], bulks[2], sp.bulk_sample(graph, sampler=sampler, backend="reference", **call)):
        assert_bulks_same(bulks[0], bulk)


@pytest.mark.parametrize("backend", available_backends())
@given(case=cases, data=st.data())
@settings(max_examples=examples(100))
def test_splits_change_nothing(backend, case, data):
    """Batches [0, k) in one call are those of several calls with `first_batch`."""
    edges, kind, sampler = case
    graph, call = make_graph(edges, kind), drawn_calls(data, edges)
    whole = sp.bulk_sample(graph, sampler=sampler, backend=backend, **call)
    seeds, first, size = call.pop("seeds"), call.pop("first_batch"), call["batch_size"]
    at = 0
    while at < len(whole):
        k = data.draw(st.integers(1, len(whole) - at), label="bulk size")
        part = seeds[at * size : (at + k) * size]
        assume(not looks_like_a_mask(part, edges.num_nodes))
        bulk = sp.bulk_sample(graph, part, sampler, backend=backend, first_batch=first + at, **call)
        assert len(bulk) == k
        for i in range(k):
            assert_same(whole[at + i], bulk[i])
        at += k


@pytest.mark.parametrize("backend", available_backends())
@given(case=cases, data=st.data())
@settings(max_examples=examples(100))
def test_index_types_give_equal_values(backend, case, data):
    edges, kind, sampler = case
    call = drawn_calls(data, edges)
    bulks = [
        sp.bulk_sample(make_graph(edges, kind, index), sampler=sampler, backend=backend, **call)
        for index in (np.int32, np.int64)
    ]
    assert_bulks_same(*bulks, types=False)
    for bulk, index in zip(bulks, (np.int32, np.int64), strict=True):
        for minibatch in bulk:
            for layer in minibatch.layers:
                assert layer.src_nodes.dtype == layer.dst_nodes.dtype == layer.adj.indices.dtype == index
                assert layer.adj.indptr.dtype == np.int64


@pytest.mark.parametrize("backend", available_backends())
@given(edges=edge_lists(), kind=st.sampled_from(KINDS), data=st.data())
@settings(max_examples=examples(30))
def test_the_order_of_other_batches_changes_nothing(backend, edges, kind, data):
    """A batch is the same whatever the other batches of its bulk are."""
    graph = make_graph(edges, kind)
    sampler = data.draw(samplers)
    seeds = st.lists(st.integers(0, edges.num_nodes - 1), min_size=3, max_size=3)
    first, second, third = (data.draw(seeds) for _ in range(3))
    assume(not any(looks_like_a_mask([*before, *second], edges.num_nodes) for before in (first, third)))
    one = sp.bulk_sample(graph, [*first, *second], sampler, batch_size=3, backend=backend)
    other = sp.bulk_sample(graph, [*third, *second], sampler, batch_size=3, backend=backend)
    assert_same(one[1], other[1])


def test_seed_epoch_and_batch_change_the_sample():
    n = 50
    graph = sp.Graph.from_edge_index(np.stack([np.tile(np.arange(n), n), np.repeat(np.arange(n), n)]))
    seeds = np.arange(10)

    def drawn(**options):
        bulk = sp.bulk_sample(graph, seeds, sp.GraphSAGE([5]), batch_size=10, **options)
        return bulk[0].layers[0].adj.to_scipy().indices.tolist(), bulk[0].src_nodes.tolist()

    samples = [
        drawn(),
        drawn(random_seed=1),
        drawn(random_seed=2**32),
        drawn(epoch=1),
        drawn(epoch=2**32),
        drawn(first_batch=1),
    ]
    assert drawn() == samples[0]
    for i, one in enumerate(samples):
        assert one not in samples[:i]


@needs_cpu
@pytest.mark.parametrize("count", [1, 2, 4])
def test_threads_on_many_rows(count):
    """Enough rows, batches and entries that kernels do run in parallel."""
    rng = np.random.default_rng(5)
    n = 3000
    source = np.concatenate([rng.integers(0, n, 40_000), rng.integers(0, 30, 20_000)])
    edge_index = np.stack([source, rng.integers(0, n, 60_000)])
    weights = rng.exponential(size=60_000) * 10.0 ** rng.integers(-12, 1, 60_000)
    weighted = sp.Graph.from_edge_index(edge_index, num_nodes=n, edge_weight=weights)
    plain = sp.Graph.from_edge_index(edge_index, num_nodes=n)
    seeds = rng.integers(0, n, 2048)
    for graph in (plain, weighted, plain.normalized("row")):
        for sampler in every_sampler():
            options = {"batch_size": 64, "edge_ids": True, "backend": "cpu"}
            with threads(1):
                one = sp.bulk_sample(graph, seeds, sampler, **options)
            with threads(count):
                other = sp.bulk_sample(graph, seeds, sampler, **options)
            assert_bulks_same(one, other)


# --- the general algebra --------------------------------------------------------------------------------------------


def random_csr(rng, rows, columns, dtype, index):
    lengths = rng.integers(0, 6, rows) if columns else np.zeros(rows, np.int64)
    indices = rng.integers(0, max(columns, 1), lengths.sum()).astype(index)
    data = (rng.normal(size=len(indices)) * 10.0 ** rng.integers(-9, 9, len(indices))).astype(dtype)
    return CSRMatrix(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), indices, data, (rows, columns))


@needs_cpu
@given(
    shape=st.tuples(*[st.integers(0, 20)] * 3),
    dtype=st.sampled_from([np.float32, np.float64, np.int64, np.uint64]),
    index=st.sampled_from([np.int32, np.int64]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=examples(150))
def test_algebra_reference_equals_cpu(shape, dtype, index, seed):
    rng = np.random.default_rng(seed)
    A, B = (
        random_csr(rng, shape[0], shape[1], np.float64, index),
        random_csr(rng, shape[1], shape[2], np.float64, index),
    )
    if np.dtype(dtype).kind in "iu":
        A, B = (CSRMatrix(M.indptr, M.indices, rng.integers(0, 2**40, M.nnz), M.shape) for M in (A, B))
    A, B = (CSRMatrix(M.indptr, M.indices, M.data.astype(dtype), M.shape) for M in (A, B))
    rows = rng.integers(0, shape[0], 7) if shape[0] else np.zeros(0, np.int64)
    for one, other in (
        [spgemm(A, B, backend=name) for name in ("reference", "cpu")],
        [select_rows(A, rows, backend=name) for name in ("reference", "cpu")],
    ):
        for name in ("indptr", "indices", "data"):
            left, right = getattr(one, name), getattr(other, name)
            assert left.dtype == right.dtype
            assert left.tobytes() == right.tobytes()


@needs_cpu
@given(count=st.integers(0, 300), seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 2**64 - 1))
@settings(max_examples=examples(50))
def test_shuffle_reference_equals_cpu(count, seed, epoch):
    one, other = (sp.shuffle(count, seed, epoch) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    from spsample.sparse import shuffle

    np.testing.assert_array_equal(shuffle(count, seed, epoch, backend="reference"), one)
