"""Cached features on ranks: the rows of the source, on every rank, whatever each of them has cached."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_rank_loader import DATA, alone, assert_shared_out, loader_of

from spsample import GraphSAGE
from spsample.comm import Recorder, run_threads
from spsample.distributed import ProcessGrid, ReplicatedGraph
from spsample.errors import InputError
from spsample.features import CachedFeatures, FeatureStore, PartitionedFeatures
from spsample.features import keeper as budgets
from spsample.features.gathering import slot_map_bytes

GRIDS = [(p, c) for p in (1, 2, 3, 4) for c in range(1, p + 1) if p % c == 0]
TIMEOUT = 30.0


def cached_on(comm, x, rows, c=1, seed=0):
    """Caches of other sizes and scores on each rank."""
    source = PartitionedFeatures.of(x, ProcessGrid(comm, c))
    n, dim = x.shape
    size = rows * dim * 4 + (slot_map_bytes(n) if 0 < rows < n else 0)
    return CachedFeatures(source, size, np.random.default_rng([seed, comm.rank]).random(n))


@pytest.mark.parametrize(("p", "c"), GRIDS)
@settings(max_examples=10, deadline=None)
@given(n=st.integers(2, 40), dim=st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
def test_equal_to_the_local_store_to_the_bit(p, c, n, dim, seed):
    x = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    sizes = np.random.default_rng(seed).integers(0, n + 1, p)

    def body(comm):
        rng = np.random.default_rng([seed, comm.rank])
        one = cached_on(comm, x, int(sizes[comm.rank]), c, seed)
        assert one.cached_rows in (sizes[comm.rank], n)  # all, where the map would take more than they do
        for count in rng.integers(0, 50, 3):
            ids, at = rng.integers(0, n, count), rng.permutation(count + 2)[:count]
            np.testing.assert_array_equal(one.gather(ids), x[ids], strict=True)
            out = np.full((count + 2, dim), 7, np.float32)
            assert one.gather(ids, out, at) is out
            np.testing.assert_array_equal(out[at], x[ids])
            assert (np.delete(out, at, axis=0) == 7).all()

    run_threads(p, body, TIMEOUT)


def test_a_rank_whose_rows_all_hit_takes_part():
    x = np.arange(24, dtype=np.float32).reshape(12, 2)

    def body(comm):
        one = cached_on(comm, x, 12 if comm.rank == 1 else 0)
        rows = one.gather(np.arange(12))
        return rows.tolist() == x.tolist(), one.counts[:2]

    assert run_threads(3, body, TIMEOUT) == [(True, (0, 12)), (True, (12, 0)), (True, (0, 12))]


def test_caches_of_caches():
    x = np.arange(80, dtype=np.float32).reshape(40, 2)

    def body(comm):
        inner = cached_on(comm, x, 20)
        outer = CachedFeatures(inner, 8 * (1 + 3 * comm.rank) + slot_map_bytes(40), np.arange(40.0))
        twin = outer.duplicate()
        assert twin.comm is not outer.comm
        assert twin.gather(np.arange(40)).tolist() == x.tolist()
        twin.close()
        assert outer.counts.hits == 1 + 3 * comm.rank
        return outer.gather([39, 0, 39]).tolist() == x[[39, 0, 39]].tolist()

    assert run_threads(2, body, TIMEOUT) == [True, True]


def test_hits_send_nothing():
    x = np.arange(400, dtype=np.float32).reshape(100, 4)

    def body(comm):
        recorder = Recorder(comm)
        one = cached_on(recorder, x, 100 if comm.rank == 0 else 0)
        recorder.traffic.clear()
        one.gather(np.arange(100))
        return recorder.traffic.phases["features"].bytes_received

    assert run_threads(2, body, TIMEOUT) == [0, 50 * 16]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ids": [0, 12]}, "ids: got 12 at position 1"),
        ({"ids": [0, 1], "out": np.zeros((3, 2), np.float32)}, "out: got 3 rows"),
        ({"ids": [0, 1], "out": np.zeros((2, 2))}, "out: got dtype float64"),
        ({"ids": [0, 1], "at": [0, 1]}, "at: got places without out"),
    ],
)
def test_what_one_rank_cannot_use_every_rank_refuses(arguments, words):
    x = np.arange(24, dtype=np.float32).reshape(12, 2)

    def body(comm):
        one = cached_on(comm, x, 5)
        one = CachedFeatures(one, "1KiB", np.ones(12)) if comm.rank == 0 else CachedFeatures(one, 0, np.ones(12))
        with pytest.raises(InputError, match=rf"{words}.* \(on rank 1\)"):
            one.gather(**(arguments if comm.rank == 1 else {"ids": [3]}))
        return one.gather([7]).tolist()

    assert run_threads(3, body, TIMEOUT) == [[[14, 15]]] * 3


@pytest.mark.parametrize(
    ("budget", "score", "words"),
    [(3, np.ones(12), "budget: got 3 B"), (100, np.ones(11), "score: got length 11")],
)
def test_arguments_of_one_rank_that_are_refused_on_all(budget, score, words):
    def body(comm):
        source = PartitionedFeatures.of(np.ones((12, 2), np.float32), ProcessGrid(comm))
        with pytest.raises(InputError, match=rf"{words} \(on rank 1\)"):
            CachedFeatures(source, *((budget, score) if comm.rank == 1 else (0, np.ones(12))))
        return source.gather([5]).tolist()

    assert run_threads(2, body, TIMEOUT) == [[[1, 1]]] * 2


@pytest.mark.parametrize("of", ["features", "graph", "both"])
def test_scores_of_a_name(of):
    """Computed by all ranks together where the graph is theirs, by each for itself else; some need none."""
    n = len(DATA.x)

    def body(comm):
        x = PartitionedFeatures.of(DATA.x, ProcessGrid(comm)) if of != "graph" else FeatureStore(DATA.x)
        graph = ReplicatedGraph(DATA.graph, comm) if of != "features" else DATA.graph
        batches = {"graph": graph, "seeds": range(50), "sampler": GraphSAGE([3, 2]), "batch_size": 8}
        one = CachedFeatures(x, "4KiB" if comm.rank == 1 else 0, **batches)
        rows = one.gather(np.arange(n))
        np.testing.assert_array_equal(rows, DATA.x)
        return one.counts.hits

    alone = CachedFeatures(
        FeatureStore(DATA.x), "4KiB", graph=DATA.graph, seeds=range(50), sampler=GraphSAGE([3, 2]), batch_size=8
    )
    assert run_threads(2, body, TIMEOUT) == [0, alone.cached_rows]


@pytest.mark.parametrize("of", ["features", "graph"])
def test_ranks_of_a_machine_share_what_a_loader_leaves(of, monkeypatch):
    n = len(DATA.x)
    batches = {"seeds": range(50), "sampler": GraphSAGE([3, 2]), "batch_size": 8}

    def left(comm):
        x = PartitionedFeatures.of(DATA.x, ProcessGrid(comm)) if of == "features" else FeatureStore(DATA.x)
        graph = ReplicatedGraph(DATA.graph, comm) if of == "graph" else DATA.graph
        one = CachedFeatures(x, "auto", graph=graph, **batches)
        np.testing.assert_array_equal(one.gather(np.arange(n)), DATA.x)
        return budgets.left_beside_loader(x, {"graph": graph, **batches}, comm, looks_ahead=False)

    monkeypatch.setattr(budgets, "available_memory", lambda: 1 << 30)
    first, second = run_threads(2, left, TIMEOUT)
    assert first == second
    assert 0.4 * 2**30 < first < 0.5 * 2**30


@pytest.mark.parametrize(
    ("mine", "words"),
    [
        ({"budget": "auto"}, "budget: got something else on rank 1"),
        ({"budget": 3}, "budget: got 3 B"),
        ({"score": "degree"}, "score: got 'degree'"),
        ({"score": np.ones(11)}, "score: got length 11"),
        ({"score": np.ones(len(DATA.x))}, "graph: got it without the name"),
        ({"score": "inclusion"}, "score: got "),
        ({"seeds": [10**6]}, "seeds: got 1000000"),
        ({"batch_size": None}, "batch_size: got nothing"),
        ({"epochs": 0}, "epochs: got 0|options: got something else on rank 1"),
    ],
)
@pytest.mark.parametrize("of", ["features", "graph"])
def test_workloads_of_one_rank_that_are_refused_on_all(mine, words, of):
    def body(comm):
        x = PartitionedFeatures.of(DATA.x, ProcessGrid(comm)) if of == "features" else FeatureStore(DATA.x)
        graph = ReplicatedGraph(DATA.graph, comm) if of == "graph" else DATA.graph
        given = {"budget": "4KiB", "graph": graph, "seeds": range(50), "sampler": GraphSAGE([3, 2]), "batch_size": 8}
        with pytest.raises(InputError, match=words):
            CachedFeatures(x, **(given | mine if comm.rank == 1 else given))
        return comm.all_reduce(np.array([1])).tolist()

    assert run_threads(2, body, TIMEOUT) == [[2]] * 2


def test_caches_over_ranks_are_not_pickled():
    def body(comm):
        with pytest.raises(InputError, match="features: got CachedFeatures on several ranks"):
            pickle.dumps(cached_on(comm, np.ones((4, 2), np.float32), 4))

    run_threads(2, body, TIMEOUT)


@pytest.mark.parametrize(("p", "c"), GRIDS)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_of_loaders(p, c, prefetch):
    expected = alone()[0]

    def body(comm):
        one = cached_on(comm, DATA.x, 100 + 30 * comm.rank, c)
        before = one.counts
        loader = loader_of(comm, c, prefetch=prefetch, features=one)
        batches = list(loader)
        loader.close()
        seen = sum(len(batch.x) for batch in batches)
        counted = one.counts.hits + one.counts.misses - before.hits - before.misses
        goes_over = prefetch > 0 and comm.size == 1  # to taking turns: rows of batches made ahead are gathered again
        assert counted == seen or (goes_over and counted > seen)
        return batches

    assert_shared_out(run_threads(p, body, TIMEOUT), expected)


@pytest.mark.parametrize("p", [1, 2])
def test_losses_of_a_training(p):
    """Equal to the bit, from features on one rank and on several."""
    pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    from spsample.training import ModelConfig, TrainConfig, Trainer

    def losses(comm, x):
        graph = DATA.graph if comm.size == 1 else ReplicatedGraph(DATA.graph, comm)
        config = TrainConfig(epochs=2, batch_size=32, bulk_size=4)
        model = ModelConfig(hidden=8, dropout=0.0)
        result = Trainer(replace(DATA, graph=graph, x=x), GraphSAGE([3, 2]), model, config).fit()
        return [record.loss for record in result.history], result.val

    def body(comm):
        plain = FeatureStore(DATA.x) if comm.size == 1 else PartitionedFeatures.of(DATA.x, ProcessGrid(comm))
        one = CachedFeatures(plain, "8KiB", np.arange(len(DATA.x)))
        pairs = losses(comm, plain), losses(comm, one)
        return *pairs, one.counts.hits

    for plain, mine, hits in run_threads(p, body, TIMEOUT):
        assert plain == mine
        assert hits > 0
