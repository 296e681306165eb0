"""Routed features: the rows of the source, from the nearest rank that keeps a copy, on every rank or on none."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import MANY_CALLS, run_job
from routed_cases import DTYPES, gathers_right, links_of, plan_of, routed_on, rows_of, source_of
from test_rank_loader import DATA, alone, assert_shared_out, loader_of

import spsample as sp
from spsample.comm import LocalCommunicator, Recorder, run_threads
from spsample.distributed import ProcessGrid
from spsample.errors import CapacityError, DataError, DTypeError, InputError
from spsample.features import (
    CachedFeatures,
    CopyPlan,
    DiskFeatures,
    FeatureStore,
    PartitionedFeatures,
    RoutedFeatures,
    copy_cost,
    plan_copies,
)
from spsample.features.copies import link_costs, nearest_holders

GRIDS = [(p, c) for p in (1, 2, 3, 4) for c in range(1, p + 1) if p % c == 0]
KINDS = ("host", "owners", "cached owners")
TIMEOUT = 30.0
X = np.arange(24, dtype=np.float32).reshape(12, 2)


@pytest.mark.parametrize(("p", "c"), GRIDS)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6, deadline=None)
@given(st.integers(1, 40), st.integers(0, 5), st.sampled_from(DTYPES), st.integers(0, 2**32 - 1))
def test_equal_to_the_source_to_the_bit(p, c, kind, n, dim, dtype, seed):
    x = rows_of(n, dim, dtype, seed)

    def body(comm):
        routed = routed_on(comm, x if kind == "host" else x.astype(np.float32), c, kind, seed)
        gathers_right(comm, routed, x if kind == "host" else x.astype(np.float32), seed)

    run_threads(p, body, TIMEOUT)


@pytest.mark.slow
@pytest.mark.parametrize("backend", MANY_CALLS)
def test_over_processes(backend):
    status, output = run_job(backend, Path(__file__).with_name("routed_over_ranks.py"), backend)
    assert status == 0, output
    assert output.count(": right") == 3, output


@given(st.integers(1, 30), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_rows_are_read_where_they_cost_least(n, devices, seed):
    """What the routes cost, link by link, is what `copy_cost` says of the plan."""
    plan, scores = plan_of(n, devices, seed), np.random.default_rng(seed).random((devices, n))
    alpha = links_of(devices, seed)
    links = link_costs(alpha, devices)
    paid = []
    for device in range(devices):
        holders = nearest_holders(plan, links, device)
        for v, holder in enumerate(holders.tolist()):
            assert holder == devices or v in plan.vertices[holder]
        paid.append(scores[device] @ np.append(links[device], 1.0)[holders])
    np.testing.assert_allclose(paid, copy_cost(plan, scores, alpha).devices, rtol=1e-12)


def test_holders_at_the_same_distance_share_the_work():
    n, devices = 8000, 5
    every = np.arange(n)
    plan = CopyPlan.of([[], every, every, every, every[: n // 2]], n)
    of_one = nearest_holders(plan, link_costs(0.5, devices), 0)
    counts = np.bincount(of_one, minlength=devices)[1:]
    assert counts.sum() == n
    np.testing.assert_allclose(counts, [n / 8 + n / 6] * 3 + [n / 8], rtol=0.1)
    few = CopyPlan.of([[], [], [], every, every], n)
    asked = [nearest_holders(few, link_costs(0.5, devices), device) for device in range(3)]
    assert (asked[0] != asked[1]).all()  # two that ask for the same vertex ask two ranks
    assert (asked[0] == asked[2]).all()


def test_the_nearest_of_several_holders_is_asked():
    alpha = [[9, 0.8, 0.3, 0.3], [0.8, 9, 2, 2], [1, 1, 9, 1], [0.1, 0.2, 0.3, 9]]
    plan = CopyPlan.of([[0], [0, 1], [1, 2], [3]], 5)
    read = [nearest_holders(plan, link_costs(np.array(alpha), 4), device).tolist() for device in range(4)]
    assert read == [[0, 2, 2, 3, 4], [1, 1, 4, 4, 4], [4, 2, 2, 4, 4], [0, 1, 2, 3, 4]]


def places(counts):
    """Rows from here, from other ranks' copies and from the source."""
    return counts.hits, counts.peer_hits, counts.misses


def test_counts_and_messages():
    plan = CopyPlan.of([[0, 1, 2], [3, 4, 5], []], 12)

    def body(comm):
        recorder = Recorder(comm)
        routed = RoutedFeatures(FeatureStore(X), plan, 0.5, ProcessGrid(recorder))
        recorder.traffic.clear()
        assert routed.gather(np.arange(8)).tolist() == X[:8].tolist()
        rows, requests = (recorder.traffic.phases[phase] for phase in ("copies", "copies requests"))
        assert rows.bytes_received == routed.counts.peer_bytes
        assert requests.bytes_sent == 4 * routed.counts.peer_hits
        assert rows.calls == requests.calls == 1
        counts = routed.counts
        routed.reset_counts()
        assert routed.counts.rows == 0
        return (*places(counts), rows.messages_received), counts.miss_bytes

    found = run_threads(3, body, TIMEOUT)
    assert found == [((3, 3, 2, 1), 16), ((3, 3, 2, 1), 16), ((0, 6, 2, 2), 16)]


@pytest.mark.parametrize("alpha", [1.0, 4])
def test_nothing_goes_over_links_that_spare_nothing(alpha):
    plan = CopyPlan.of([[0, 1], [2, 3]], 12)

    def body(comm):
        recorder = Recorder(comm)
        routed = RoutedFeatures(FeatureStore(X), plan, alpha, ProcessGrid(recorder))
        recorder.traffic.clear()
        routed.gather(np.arange(6))
        return [*recorder.traffic.phases], places(routed.counts)

    assert run_threads(2, body, TIMEOUT) == [(["status"], (2, 0, 4))] * 2


def test_a_rank_reads_its_own_block_and_asks_nobody():
    """Vertices 0 to 5 are in block 0: rank 0 reads them there, whoever has a copy."""
    plan = CopyPlan.of([[0, 6], [1, 2, 7]], 12)

    def body(comm):
        recorder = Recorder(comm)
        grid = ProcessGrid(recorder)
        routed = RoutedFeatures(PartitionedFeatures.of(X, grid), plan, 0.5, grid)
        recorder.traffic.clear()
        assert routed.gather(np.arange(8)).tolist() == X[:8].tolist()
        phases = recorder.traffic.phases
        return places(routed.counts), phases["copies"].bytes_received // 8, phases["features"].bytes_received // 8

    assert run_threads(2, body, TIMEOUT) == [((7, 1, 0), 1, 0), ((4, 1, 3), 1, 3)]


def trace(p):
    """What each of p ranks asks for in its batches of an epoch."""
    graph = sp.load_dataset("rmat:9,8").graph
    loader = sp.BulkLoader(graph, np.arange(512), sp.GraphSAGE([4, 3]), batch_size=32, shuffle=True, bulk_size=4)
    batches = [np.array(batch.src_nodes) for batch in loader]
    return graph.num_nodes, [batches[rank::p] for rank in range(p)]


@pytest.mark.parametrize("method", ["best-copies", "song-jiang", "interleaved", "replicated"])
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_bytes_on_the_wire_are_those_of_the_forecast(method, alpha):
    """Host bytes + alpha x peer bytes, as counted and as recorded, are `copy_cost` of the trace, on every rank."""
    p = 4
    n, batches = trace(p)
    x = np.ones((n, 3), np.float32)
    counts = np.array([np.bincount(np.concatenate(mine), minlength=n) for mine in batches])
    plan = plan_copies(counts.sum(axis=0), p, n // 10, alpha, method=method)
    forecast = copy_cost(plan, counts, alpha).devices * 12

    def body(comm):
        recorder = Recorder(comm)
        routed = RoutedFeatures(FeatureStore(x), plan, alpha, ProcessGrid(recorder))
        recorder.traffic.clear()
        for ids in batches[comm.rank]:
            routed.gather(ids)
        phase = recorder.traffic.phases.get("copies")
        received = 0 if phase is None else phase.bytes_received
        assert received == routed.counts.peer_bytes
        assert routed.counts.peer_cost == pytest.approx(alpha * routed.counts.peer_hits)
        assert routed.expected_counts(counts[comm.rank]) == pytest.approx(routed.counts, rel=1e-12)
        return routed.counts.miss_bytes + alpha * received

    np.testing.assert_allclose(run_threads(p, body, TIMEOUT), forecast, rtol=1e-12)


@pytest.mark.parametrize("c", [1, 2])
def test_bytes_from_owners_are_those_of_the_forecast(c):
    """Rows of a rank's own block cost it nothing: it is given no score for them."""
    p, alpha = 4, 0.3
    n, batches = trace(p)
    x = np.ones((n, 3), np.float32)
    counts = np.array([np.bincount(np.concatenate(mine), minlength=n) for mine in batches])

    def body(comm):
        recorder = Recorder(comm)
        grid = ProcessGrid(recorder, c)
        source = PartitionedFeatures.of(x, grid)
        remote = counts.copy()
        for rank in range(p):
            remote[rank, rank // c * n * c // p : (rank // c + 1) * n * c // p] = 0
        plan = plan_copies(remote, p, n // 10, alpha)
        routed = RoutedFeatures(source, plan, alpha, grid)
        recorder.traffic.clear()
        for ids in batches[comm.rank]:
            routed.gather(ids)
        phases = recorder.traffic.phases
        received = phases["features"].bytes_received + alpha * phases["copies"].bytes_received
        return received, copy_cost(plan, remote, alpha).devices[comm.rank] * 12

    for received, forecast in run_threads(p, body, TIMEOUT):
        assert received == pytest.approx(forecast, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"ids": [0, 12]}, InputError, "ids: got 12 at position 1"),
        ({"ids": [0.5]}, DTypeError, "ids: got"),
        ({"ids": [0, 1], "out": np.zeros((3, 2), np.float32)}, InputError, "out: got 3 rows"),
        ({"ids": [0, 1], "out": np.zeros((2, 2))}, DTypeError, "out: got dtype float64"),
        ({"ids": [0, 1], "at": [0, 1]}, InputError, "at: got places without out"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_what_one_rank_cannot_use_every_rank_refuses(arguments, error, words, kind, alpha):
    def body(comm):
        grid = ProcessGrid(comm)
        routed = RoutedFeatures(source_of(kind, X, grid), CopyPlan.of([[3], [4], []], 12), alpha, grid)
        with pytest.raises(error, match=rf"{words}.* \(on rank 1\)"):
            routed.gather(**(arguments if comm.rank == 1 else {"ids": [3]}))
        return routed.gather([7]).tolist()

    assert run_threads(3, body, TIMEOUT) == [[[14, 15]]] * 3


def test_a_source_that_fails_on_one_rank_fails_on_all():
    class Broken(FeatureStore):
        def _read(self, ids, out, at=None):
            if 11 in ids:
                raise DataError(argument="x", given="a torn page", expected="rows")
            super()._read(ids, out, at)

    def body(comm):
        grid = ProcessGrid(comm)
        with pytest.raises(DataError, match=r"torn page.*\(on rank 1\)"):
            RoutedFeatures(Broken(X), CopyPlan.of([[3], [11]], 12), 0.5, grid)
        routed = RoutedFeatures(Broken(X), CopyPlan.of([[3], [4]], 12), 0.5, grid)
        with pytest.raises(DataError, match=r"torn page.*\(on rank 1\)"):
            routed.gather([4, 11 if comm.rank == 1 else 5])
        return routed.gather([4]).tolist()

    assert run_threads(2, body, TIMEOUT) == [[[8, 9]]] * 2


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        ({"source": "rows"}, DTypeError, "source: got"),
        ({"plan": "plan"}, DTypeError, "plan: got"),
        ({"plan": CopyPlan.of([[0]], 12)}, InputError, "plan: got copies on 1 devices"),
        ({"plan": CopyPlan.of([[0], [0]], 11)}, InputError, "plan: got copies of 11 rows"),
        ({"alpha": 0}, InputError, "alpha: got 0"),
        ({"alpha": -0.5}, InputError, "alpha: got -0.5"),
        ({"alpha": np.inf}, InputError, "alpha: got inf"),
        ({"alpha": np.nan}, InputError, "alpha: got nan"),
        ({"alpha": "near"}, DTypeError, "alpha: got"),
        ({"alpha": np.ones((3, 3))}, InputError, r"alpha: got shape \(3, 3\)"),
    ],
)
def test_arguments_of_one_rank_that_are_refused_on_all(bad, error, words):
    good = {"source": FeatureStore(X), "plan": CopyPlan.of([[0], [1]], 12), "alpha": 0.5}

    def body(comm):
        grid = ProcessGrid(comm)
        with pytest.raises(error, match=rf"{words}.*\(on rank 1\)"):
            RoutedFeatures(**{**good, **(bad if comm.rank == 1 else {})}, grid=grid)
        return RoutedFeatures(**good, grid=grid).gather([5]).tolist()

    assert run_threads(2, body, TIMEOUT) == [[[10, 11]]] * 2


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("plan", CopyPlan.of([[0], [2]], 12)),
        ("alpha", 0.4),
        ("alpha", [[0, 0.5], [0.4, 0]]),
        ("source", FeatureStore(X[:, :1])),
        ("source", FeatureStore(X.astype(np.float16))),
    ],
)
def test_arguments_that_differ_between_ranks_are_refused(name, other):
    good = {"source": FeatureStore(X), "plan": CopyPlan.of([[0], [1]], 12), "alpha": 0.5}

    def body(comm):
        with pytest.raises(InputError, match=f"{name}: got something else on rank 1"):
            RoutedFeatures(**{**good, **({name: other} if comm.rank else {})}, grid=ProcessGrid(comm))

    run_threads(2, body, TIMEOUT)


@pytest.mark.parametrize(
    "bad",
    [
        {"devices": 0},
        {"alpha": 0},
        {"alpha": float("nan")},
        {"scores": [1, float("nan")]},
        {"scores": [1, -1]},
        {"budget": -1},
        {"method": "none"},
    ],
)
def test_a_plan_that_one_rank_cannot_make_is_refused_on_all(bad):
    """Planning is no collective call: within one, what a rank refuses all do, and none hangs."""
    from spsample.comm import collective

    good = {"scores": [2, 1], "devices": 2, "budget": 1, "alpha": 0.5}
    (name,) = bad

    def body(comm):
        with pytest.raises(InputError, match=rf"{name}: got.*\(on rank 1\)"), collective(comm):
            plan_copies(**{**good, **(bad if comm.rank == 1 else {})})

    run_threads(2, body, TIMEOUT)


def test_a_grid_is_asked_for():
    with pytest.raises(DTypeError, match="grid: got"):
        RoutedFeatures(FeatureStore(X), CopyPlan.of([[0]], 12), 0.5, LocalCommunicator())


def test_features_of_other_ranks_are_refused():
    def body(comm):
        halves = comm.split(comm.rank % 2)
        source = PartitionedFeatures.of(X, ProcessGrid(halves))
        with pytest.raises(InputError, match="source: got features on rank 0 of 2"):
            RoutedFeatures(source, CopyPlan.of([[]] * 4, 12), 0.5, ProcessGrid(comm))

    run_threads(4, body, TIMEOUT)


def test_copies_that_do_not_fit_are_refused_on_all(monkeypatch):
    monkeypatch.setattr("spsample.features.keeper.available_memory", lambda: 100)

    def body(comm):
        plan = CopyPlan.of([[0], np.arange(12)], 12)
        with pytest.raises(CapacityError, match=r"plan: got 12 rows on rank 1.*\(on rank 1\)"):
            RoutedFeatures(FeatureStore(X), plan, 0.5, ProcessGrid(comm))
        return RoutedFeatures(FeatureStore(X), CopyPlan.of([[0], [1]], 12), 0.5, ProcessGrid(comm)).nbytes

    assert run_threads(2, body, TIMEOUT) == [8 + 8 + 12] * 2


def test_pickled_as_a_recipe_on_one_rank():
    x = X.copy()
    routed = RoutedFeatures(FeatureStore(x), CopyPlan.of([[5, 2]], 12), 0.5, ProcessGrid(LocalCommunicator()))
    routed.gather([5, 6])
    pickled = pickle.dumps(routed)
    again = pickle.loads(pickled)
    assert again.kept_rows == 2
    assert again.counts.rows == 0
    assert again.gather([2, 5, 9]).tolist() == X[[2, 5, 9]].tolist()
    x[2] += 1
    with pytest.raises(DataError, match="whose rows have changed"):
        pickle.loads(pickle.dumps(routed))


def test_on_several_ranks_they_are_not_pickled():
    def body(comm):
        with pytest.raises(InputError, match="features: got RoutedFeatures on several ranks"):
            pickle.dumps(routed_on(comm, X))

    run_threads(2, body, TIMEOUT)


def test_a_duplicate_has_communicators_of_its_own():
    def body(comm):
        routed = RoutedFeatures(FeatureStore(X), CopyPlan.of([[0], [1]], 12), 0.5, ProcessGrid(comm))
        twin = routed.duplicate()
        assert twin.comm is not routed.comm
        assert twin.gather([1, 0, 3]).tolist() == X[[1, 0, 3]].tolist()
        twin.close()
        assert places(routed.counts) == (1, 1, 1)
        return routed.gather([0]).tolist()

    assert run_threads(2, body, TIMEOUT) == [[[0, 1]]] * 2


def test_a_cache_in_front_of_routed_features():
    def body(comm):
        cached = CachedFeatures(routed_on(comm, X, seed=4), "50B", np.arange(12.0))
        assert cached.comm.size == comm.size
        return cached.gather(np.arange(12)).tolist() == X.tolist()

    assert run_threads(3, body, TIMEOUT) == [True] * 3


def test_a_source_that_knows_the_future_is_told_its_part():
    class Told(FeatureStore):
        looks_ahead = True

        def _hint(self, batches):
            self.told = batches and [ids.tolist() for ids in batches]

    def body(comm):
        source = Told(X)
        routed = RoutedFeatures(source, CopyPlan.of([[0, 1], [2]], 12), 0.5, ProcessGrid(comm))
        assert routed.looks_ahead
        routed.prefetch_hint([np.array([0, 2, 9, 4]), np.array([1])])
        assert routed.looks_ahead
        assert source.told == [[9, 4], []]
        with pytest.raises(InputError, match="batches: got 12"):
            routed.prefetch_hint([np.array([12])])
        routed.prefetch_hint(None)
        assert source.told is None
        untold = RoutedFeatures(FeatureStore(X), CopyPlan.of([[], []], 12), 0.5, ProcessGrid(comm))
        untold.prefetch_hint([np.array([1])])
        assert not untold.looks_ahead

    run_threads(2, body, TIMEOUT)


def test_closing_a_duplicate_leaves_a_shared_source_open(tmp_path):
    """Two loaders one after the other, each of which closes its own duplicates."""
    np.save(tmp_path / "x.npy", X)

    def body(comm):
        with DiskFeatures(tmp_path / "x.npy", 0) as disk:
            cached = CachedFeatures(disk, "50B", np.arange(12.0))
            routed = RoutedFeatures(cached, CopyPlan.of([[0, 1], [2]], 12), 0.5, ProcessGrid(comm))
            twin = routed.duplicate()
            twin.close()
            cached.close()
            assert routed.gather(np.arange(12)).tolist() == X.tolist()
        disk.prefetch_hint(None)

    run_threads(2, body, TIMEOUT)


@pytest.mark.parametrize(("p", "c"), GRIDS)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_of_loaders(p, c, prefetch):
    expected = alone()[0]

    def body(comm):
        grid = ProcessGrid(comm, c)
        plan = plan_of(len(DATA.x), p, 5)
        routed = RoutedFeatures(PartitionedFeatures.of(DATA.x, grid), plan, 0.5, grid)
        loader = loader_of(comm, c, prefetch=prefetch, features=routed)
        batches = list(loader)
        loader.close()
        assert routed.counts.rows == sum(len(batch.x) for batch in batches)
        return batches

    assert_shared_out(run_threads(p, body, TIMEOUT), expected)
