"""On ranks: caches that look ahead and fetches by the bulk give the batches of one rank, each row exchanged once."""

from __future__ import annotations

import numpy as np
import pytest
from covers import pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from test_rank_loader import DATA, alone, assert_shared_out, loader_of

import spsample as sp
from spsample.comm import Recorder, run_threads
from spsample.distributed import ProcessGrid, ReplicatedGraph
from spsample.errors import InputError, SpSampleError
from spsample.features import CachedFeatures, PartitionedFeatures

TIMEOUT = 30.0
GRIDS = [(p, c) for p in (1, 2, 3, 4) for c in range(1, p + 1) if p % c == 0]
N, DIM = DATA.x.shape
BESIDE = 6 * N + 512
"""Bytes of a cache that looks ahead, beside its rows and 24 for each."""


def cache_of(source, rank, rows, way="lookahead"):
    """Of another size and score on each rank; on one of them rows that never change."""
    score = np.random.default_rng(rank).random(N)
    return CachedFeatures(source, BESIDE + rows * (4 * source.dim + 25), score, replacement=way)


def wide(x):
    return np.tile(x, (1, 4))


def cached_loader(comm, c, rows, **options):
    source = PartitionedFeatures.of(DATA.x, ProcessGrid(comm, c))
    way = "static" if comm.rank == 1 else "lookahead"
    return loader_of(comm, c, features=cache_of(source, comm.rank, rows + 10 * comm.rank, way), **options)


@pytest.mark.parametrize(("grid", "prefetch", "fetch"), pairs(GRIDS, [0, 1, 2], ["batch", "bulk"]))
def test_batches_are_those_of_one_rank(grid, prefetch, fetch):
    """One rank has a static cache: all go the same way all the same. A pass is left, and gone on with."""
    p, c = grid
    expected = alone(epochs=3)

    def body(comm):
        loader = cached_loader(comm, c, 30, prefetch=prefetch, fetch=fetch)
        for step, _ in enumerate(loader):
            if step == 1:
                break
        state = loader.state_dict()
        loader.set_epoch(0)
        whole = [list(loader) for _ in range(3)]
        loader.load_state_dict(state)
        rest = list(loader)
        loader.close()
        return whole, rest

    passes = run_threads(p, body, TIMEOUT)
    for epoch in range(3):
        assert_shared_out([whole[epoch] for whole, _ in passes], expected[epoch])
    for whole, rest in passes:
        assert [batch.batch_id for batch in rest] == [batch.batch_id for batch in whole[0][2:]]
        for one, other in zip(rest, whole[0][2:], strict=True):
            np.testing.assert_array_equal(one.x, other.x)


@settings(max_examples=15, deadline=None)
@given(p=st.sampled_from([2, 3]), seed=st.integers(0, 2**32 - 1), bulk=st.integers(1, 3))
def test_gathers_announced_or_not_are_those_of_the_store(p, seed, bulk):
    x = wide(np.random.default_rng(seed).standard_normal((N, DIM)).astype(np.float32))

    def body(comm):
        rng = np.random.default_rng([seed, comm.rank])
        source = PartitionedFeatures.of(x, ProcessGrid(comm))
        inner = CachedFeatures(source, BESIDE + 60 * (x[0].nbytes + 25), rng.random(N), replacement="lookahead")
        outer = CachedFeatures(inner, BESIDE + 30 * (x[0].nbytes + 25), rng.random(N), replacement="lookahead")
        batches = [rng.choice(N, rng.integers(0, 80), replace=False) for _ in range(4 * bulk)]
        for begin in range(0, len(batches), bulk):
            outer.prefetch_hint(batches[begin : begin + bulk])
        for number, ids in enumerate(batches):
            if number == 2 * bulk and comm.rank == 0:
                outer.prefetch_hint(None)
            np.testing.assert_array_equal(outer.gather(ids), x[ids])
            other = rng.integers(0, N, 10)
            np.testing.assert_array_equal(outer.gather(other), x[other])
        return outer.counts.hits + inner.counts.hits > 0

    assert all(run_threads(p, body, TIMEOUT))


def test_ranks_that_fetch_in_other_ways_are_refused():
    with pytest.raises(InputError, match="fetch"):
        run_threads(2, lambda comm: loader_of(comm, fetch="bulk" if comm.rank else "batch"), TIMEOUT)


@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_rank_that_leaves_leaves_nobody_waiting(prefetch):
    def body(comm):
        loader = cached_loader(comm, 1, 30, prefetch=prefetch, bulk_size=2, fetch="bulk")
        batches = iter(loader)
        next(batches)
        if comm.rank == 1:
            batches.close()
            return "left"
        try:
            list(batches)
        except SpSampleError as error:
            return str(error)
        return "all"

    if prefetch == 0:  # the others find out at their time-out
        return
    left = run_threads(3, body, TIMEOUT)
    assert left[1] == "left"
    assert all("rank 1 failed: it left the loop" in text for text in (left[0], left[2]))


def test_a_bulk_is_one_exchange_of_each_row_once():
    def body(comm, fetch):
        recorder = Recorder(comm)
        source = PartitionedFeatures.of(DATA.x, ProcessGrid(recorder))
        graph = ReplicatedGraph(DATA.graph, comm)
        seeds = np.arange(256)
        loader = sp.BulkLoader(
            graph,
            seeds,
            sp.GraphSAGE([3, 2]),
            batch_size=8,
            bulk_size=8 * comm.size,
            features=source,
            prefetch=0,
            fetch=fetch,
        )
        first = source.first_row
        remote = 0
        for bulk in loader.bulks(0):
            ids = [batch.src_nodes for batch in bulk]
            for one in [np.unique(np.concatenate(ids))] if fetch == "bulk" else ids:
                remote += np.count_nonzero((one < first) | (one >= first + source.block_rows))
        recorder.traffic.clear()
        list(loader)
        return remote * 4 * DIM, recorder.traffic.phases["features"]

    for fetch, exchanges in (("batch", 16), ("bulk", 2)):
        for forecast, seen in run_threads(2, lambda comm, way=fetch: body(comm, way), TIMEOUT):
            assert seen.bytes_received == forecast
            assert seen.calls == exchanges
