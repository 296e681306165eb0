"""Which batches are pilots, what they are counted for, and how much is looked at before they are sampled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spsample as sp
from spsample.errors import CapacityError
from spsample.planning.budget import largest_fitting
from spsample.planning.bulk_counts import BulkCounts
from spsample.planning.loader_plan import RankPlan
from spsample.sampling.workload import Workload
from spsample.sparse import keys

GRAPH = sp.load_dataset("rmat:12,8").graph
SEEDS = np.flatnonzero(GRAPH.in_degrees())
SAMPLER = sp.GraphSAGE([15, 10, 5])


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("seeds", "most"), [(0, 4), (5, 4), (32, 4), (100, 1), (100, 2), (1000, 7), (1000, 99)])
def test_pilots_are_full_batches_of_the_epoch(seeds, most, shuffle):
    work = Workload(GRAPH, SEEDS[:seeds], SAMPLER, 32, shuffle=shuffle)
    pilots = work.pilots(most)
    full = seeds // 32 if seeds >= 32 else min(seeds, 1)
    assert pilots.num_batches == min(most, full)
    assert len(pilots.seeds) == pilots.num_batches * work.largest_batch
    assert set(pilots.seeds.tolist()) <= set(work.seeds.tolist())
    assert not pilots.shuffle
    np.testing.assert_array_equal(pilots.seeds, work.pilots(most).seeds)


def test_pilots_of_a_shuffled_epoch_are_the_first_of_an_order_and_else_evenly_spaced():
    shuffled = Workload(GRAPH, SEEDS[:320], SAMPLER, 32, shuffle=True).pilots(3)
    np.testing.assert_array_equal(shuffled.seeds, SEEDS[:320][keys.shuffle(320, 0, 0)[:96]])
    spaced = Workload(GRAPH, SEEDS[:320], SAMPLER, 32).pilots(4)
    np.testing.assert_array_equal(spaced.seeds.reshape(4, 32), SEEDS[:320].reshape(10, 32)[[0, 3, 6, 9]])


def test_counts_of_each_batch_are_those_of_the_bulk():
    bulk = sp.bulk_sample(GRAPH, SEEDS[:200], sp.GraphSAGE([5, 3], layout="subgraph"), batch_size=32)
    whole, each = BulkCounts.of(bulk), list(BulkCounts.of_each(bulk))
    assert len(each) == whole.batches == 7
    for at, layer in enumerate(whole.layers):
        ones = [one.layers[at] for one in each]
        assert layer.entries == sum(one.entries for one in ones)
        assert layer.largest_rows == max(one.rows for one in ones)
    assert whole.result_bytes(4) == sum(one.result_bytes(4) for one in each)


@given(st.integers(0, 1 << 40), st.integers(1, 10_000), st.integers(0, 10_000), st.integers(0, 9999), st.integers(1, 9))
def test_the_largest_bulk_of_ranks_is_whole_steps(budget, one, fixed, sampled, ranks):
    plan = RankPlan(budget, 32, bytes_per_batch=one, copies=3, fixed_bytes=fixed, ranks=ranks, sampled_bytes=sampled)
    k = plan.bulk_size
    assert k == ranks * max((budget - fixed) // (3 * one + sampled), 0)
    assert k == 0 or plan.fits(k)
    assert not plan.fits(k + 1)


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_the_search_finds_the_largest(most, limit):
    assert largest_fitting(most, lambda k: k <= limit) == min(most, limit)


def test_pilots_are_sampled_once_for_calls_that_fit_by_them(monkeypatch):
    from spsample.planning import bulk_plan

    graph, sampled, original = sp.load_dataset("rmat:14,16").graph, [], bulk_plan._counts_within
    ids = np.resize(np.flatnonzero(graph.in_degrees()), 256 * 64)
    monkeypatch.setattr(bulk_plan, "_counts_within", lambda *given: sampled.append(1) or original(*given))
    for available in (80 << 20, 30 << 20):
        monkeypatch.setattr(bulk_plan, "available_memory", lambda available=available: available)
        monkeypatch.setattr(bulk_plan, "most_memory", lambda available=available: available)
        for _ in range(3):
            if available == 80 << 20:
                assert len(sp.bulk_sample(graph, ids, SAMPLER, batch_size=64)) == 256
            else:
                with pytest.raises(CapacityError, match="got 256 batches"):
                    sp.bulk_sample(graph, ids, SAMPLER, batch_size=64)
        assert len(sampled) == (1 if available == 80 << 20 else 4)  # what is refused is refused for pilots of its own


def test_pilots_without_edge_ids_do_not_serve_calls_with_them(monkeypatch):
    from spsample.planning import bulk_plan

    graph, sampled, original = sp.load_dataset("rmat:14,16").graph, [], bulk_plan._counts_within
    ids = np.resize(np.flatnonzero(graph.in_degrees()), 256 * 64)
    monkeypatch.setattr(bulk_plan, "_counts_within", lambda *given: sampled.append(1) or original(*given))
    for name in ("available_memory", "most_memory"):
        monkeypatch.setattr(bulk_plan, name, lambda: 140 << 20)
    for edge_ids in (False, True, False, True):
        sp.bulk_sample(graph, ids, SAMPLER, batch_size=64, edge_ids=edge_ids)
    assert len(sampled) == 2
