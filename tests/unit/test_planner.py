"""The planner: what it predicts is kept to, and never changes a sample."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spsample as sp
from spsample.backends.cpu import CpuBackend
from spsample.comm import Communicator, run_threads
from spsample.common.memory import available_memory, control_groups
from spsample.errors import CapacityError, InputError
from spsample.planning import BulkPlan
from spsample.planning.budget import MostEntries, TooManyEntriesError, largest_fitting
from spsample.planning.bulk_counts import BulkCounts, most_counts
from spsample.planning.bulk_plan import MODEL_MARGIN, bulk_ranges, warm_up_divisor
from spsample.planning.bulk_sampling import sample_within
from spsample.sampling.workload import sample_batches
from spsample.sparse import get_num_threads, set_num_threads
from spsample.sparse.local import LocalFrontier

GRAPH = sp.load_dataset("rmat:12,8").graph
SEEDS = np.flatnonzero(GRAPH.in_degrees())
SAMPLERS = {
    "blocks": sp.GraphSAGE([5, 3]),
    "subgraph": sp.GraphSAGE([5, 3], layout="subgraph"),
    "replaced": sp.GraphSAGE([5, 3], replace=True),
    "whole rows": sp.GraphSAGE([-1, 3]),
    "LADIES": sp.LADIES([64, 64]),
    "LADIES squared": sp.LADIES([64, 64], law="squared_count"),
    "FastGCN": sp.FastGCN([64, 64]),
}
samplers = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """Each thread has scratch: budgets below are for two, however many the machine has."""
    before = get_num_threads()
    set_num_threads(2)
    yield
    set_num_threads(before)


def plan(**options: Any) -> BulkPlan:
    given = {"batch_size": 32, "memory_budget": "1GiB", **options}
    return sp.plan_bulk(GRAPH, SEEDS, given.pop("sampler", sp.GraphSAGE([5, 3])), **given)


def fingerprint(minibatch: sp.MiniBatch) -> list[Any]:
    layers = [[one.adj.indptr.tolist(), one.adj.indices.tolist(), one.src_nodes.tolist()] for one in minibatch.layers]
    return [minibatch.batch_id, layers]


@samplers
@pytest.mark.parametrize("edge_ids", [False, True])
def test_bytes_of_a_bulk_are_those_of_its_arrays(sampler: sp.Sampler, edge_ids: bool) -> None:
    bulk = sp.bulk_sample(GRAPH, SEEDS[:256], sampler, batch_size=32, edge_ids=edge_ids)
    layers = bulk.layers[:1] if getattr(sampler, "layout", "") == "subgraph" else bulk.layers
    seeds = bulk.layers[-1].dst_ranges.total * GRAPH.indices.itemsize
    result = BulkCounts.of(bulk).result_bytes(GRAPH.indices.itemsize)
    assert result >= sum(layer.nbytes for layer in layers) + seeds
    assert result <= 1.1 * sum(layer.nbytes for layer in layers) + seeds + 4096


def test_the_largest_bulk_is_the_largest() -> None:
    most = plan(memory_budget=16 << 20, sampler=sp.GraphSAGE([15, 10, 5]))
    k = most.bulk_size
    assert 1 <= k < most.num_batches
    assert most.peak(k) <= 16 << 20 < most.peak(k + 1)


def test_the_search_leaves_none_out() -> None:
    for most in range(9):
        for end in range(11):
            assert largest_fitting(most, range(1, end + 1).__contains__) == min(most, end)


def test_a_bulk_of_the_whole_budget_fits() -> None:
    made = plan()
    assert replace(made, memory_budget=made.peak(5)).fits(5)
    assert not replace(made, memory_budget=made.peak(5) - 1).fits(5)


def test_equal_calls_give_equal_plans() -> None:
    first, second = plan(), plan()
    assert first.counts == second.counts
    assert first.peak(5) == second.peak(5)


def test_pilots_are_few() -> None:
    assert plan(batch_size=8).counts.batches <= max(2, plan(batch_size=8).num_batches // 16)
    assert plan(shuffle=False).counts.batches == plan().counts.batches


@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_bulk_that_cannot_fit_is_refused_with_the_one_that_can(prefetch: int) -> None:
    options: dict[str, Any] = {"batch_size": 32, "memory_budget": 14 << 20, "prefetch": prefetch}
    sampler = sp.GraphSAGE([15, 10, 5])
    with pytest.raises(CapacityError, match=r"^bulk_size: got .*; expected at most (\d+) within") as error:
        sp.BulkLoader(GRAPH, SEEDS, sampler, bulk_size=1000, **options)
    largest = int(error.value.expected.split()[2])
    assert sp.BulkLoader(GRAPH, SEEDS, sampler, bulk_size=largest, **options).bulk_size == largest
    if prefetch == 0:  # else a bulk is at most an eighth of an epoch
        assert sp.BulkLoader(GRAPH, SEEDS, sampler, bulk_size="auto", **options).bulk_size == largest


def test_the_peak_is_that_of_the_bulks_an_epoch_is_cut_into() -> None:
    made = sp.plan_bulk(GRAPH, SEEDS, sp.GraphSAGE([15, 10]), batch_size=8, memory_budget="1GiB", prefetch=1)
    n, at = made.num_batches, made._peak
    assert n == 375  # cut into 46, 92, 184 and 53
    assert made.peak(n) == max(at(184, 92), at(53, 184))
    assert made.peak(n // 16) == at(n // 16, n // 16)
    assert made.peak(n) < at(n, n)
    alone = sp.plan_bulk(GRAPH, SEEDS, sp.GraphSAGE([15, 10]), batch_size=8, memory_budget="1GiB")
    assert alone.peak(n) == at(n, n)
    assert alone.peak(n - 1) == at(n - 1, n - 1)  # of a pass that goes on at the second batch, and of the one after it


def bulks_of_passes(n: int, k: int, prefetch: int, first: int, left_at: int) -> list[tuple[int, int]]:
    """Batches of each bulk made, and of those held then, in a pass from `first`, left early or not, and a whole one."""
    most = max(prefetch, 1)
    begun = [end - begin for begin, end in bulk_ranges(first, n, k, warm_up_divisor(prefetch))][: left_at + 1]
    steps, held = [], deque([0] * most, most)
    for sizes in (begun, [end - begin for begin, end in bulk_ranges(0, n, k, warm_up_divisor(prefetch))]):
        for size in sizes:
            steps.append((size, sum(held)))
            held.append(size)
        held = deque([0] * (most - 1) + [held[-1]], most)  # what was ahead is gone, the last batch is in use
    return steps


@pytest.mark.parametrize("prefetch", [0, 1, 2, 5])
def test_no_pass_takes_more_than_the_peak(prefetch: int) -> None:
    for n in (1, 2, 7, 15, 16, 30, 45):
        made = replace(plan(), num_batches=n, held=max(prefetch, 1), warm_up=warm_up_divisor(prefetch))
        for k in range(1, n + 1):
            predicted = max(map(sum, made._steps(k)))
            for first in range(n):
                for left_at in range(-(-n // k) + 4):
                    assert max(map(sum, bulks_of_passes(n, k, prefetch, first, left_at))) <= predicted


def test_entries_that_a_bulk_may_have() -> None:
    """Of bulks as large as the next: all of them fit. Of one that is planned beside smaller ones: as planned."""
    made = replace(plan(prefetch=1), num_batches=375)
    made = replace(made, memory_budget=made.peak(375))  # cut into 46, 92, 184 and 53
    entries = [made.most_entries(batches) for batches in (46, 92, 184, 375)]
    steady = max(k for k in range(375) if made._peak(k, k) <= made.memory_budget)
    assert 92 < steady < 184
    assert entries == [made._at_most(k, MODEL_MARGIN).entries for k in (steady, steady, 184, steady)]


def test_arrays_are_planned_a_third_larger_than_the_pilots_promise() -> None:
    """And larger still where batches differ."""
    made = plan()
    alike = replace(made, counts=replace(made.counts, spread=0.0))
    for k in (1, 10, 100):
        promised = made.counts.scaled(k).result_bytes(made.id_bytes)
        assert alike.result_bytes(k) == pytest.approx(1.35 * promised, rel=0.02)
        assert alike.result_bytes(k) < made.result_bytes(k)


def test_a_batch_that_cannot_fit_is_refused() -> None:
    with pytest.raises(CapacityError, match=r"^memory_budget: got 1\.00 MiB for batches"):
        plan(memory_budget="1MiB")
    with pytest.raises(InputError, match=r"^memory_budget"):
        plan(memory_budget="much")


def test_no_seeds_need_no_memory() -> None:
    empty = sp.plan_bulk(GRAPH, np.zeros(0, np.int64), sp.GraphSAGE([2]), batch_size=4, memory_budget=1)
    assert empty.bulk_size == 1


@samplers
def test_a_bulk_that_would_pass_is_split_and_stays_the_same(sampler: sp.Sampler) -> None:
    options = {"batch_size": 32, "first_batch": 3, "epoch": 1}
    whole = sp.bulk_sample(GRAPH, SEEDS[:500], sampler, **options)
    entries = BulkCounts.of(whole).entries

    class Plan:
        most = entries // 3

        def most_entries(self, batches: int) -> int:
            return self.most

    parts = list(sample_within(Plan(), GRAPH, SEEDS[:500], sampler, **options))  # type: ignore[arg-type]
    assert len(parts) > 2
    assert all(BulkCounts.of(part).entries <= entries // 3 for part in parts)
    assert [fingerprint(one) for part in parts for one in part] == [fingerprint(one) for one in whole]
    Plan.most = 3
    with pytest.raises(CapacityError, match="batch 3"):
        list(sample_within(Plan(), GRAPH, SEEDS[:500], sampler, **options))  # type: ignore[arg-type]


@samplers
def test_exactly_enough_entries_are_enough(sampler: sp.Sampler) -> None:
    entries = BulkCounts.of(sp.bulk_sample(GRAPH, SEEDS[:200], sampler, batch_size=32)).entries
    bulk = sample_batches(GRAPH, SEEDS[:200], sampler, batch_size=32, limit=MostEntries(entries))
    assert BulkCounts.of(bulk).entries == entries
    with pytest.raises(TooManyEntriesError):
        sample_batches(GRAPH, SEEDS[:200], sampler, batch_size=32, limit=MostEntries(entries - 1))


@pytest.mark.parametrize("repeats", [1, 50])
@pytest.mark.parametrize("sampler", [sp.LADIES([9, 9]), sp.FastGCN([9, 9])], ids=repr)
def test_layers_made_by_one_kernel_count_their_entries(
    sampler: sp.Sampler, repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where parallel edges are more than pairs of a row and a column, which the kernel is called by."""
    rng, calls = np.random.default_rng(0), []
    edges = np.repeat(rng.integers(0, 30, (2, 900 if repeats == 1 else 40)), repeats, axis=1)
    graph = sp.Graph.from_edge_index(edges, num_nodes=30)
    extract = CpuBackend.extract_unbiased
    monkeypatch.setattr(CpuBackend, "extract_unbiased", lambda *given: calls.append(1) or extract(*given))
    whole = sample_batches(graph, np.arange(20), sampler, batch_size=10, backend="cpu")
    assert len(calls) == 2
    entries = BulkCounts.of(whole).entries
    limited = sample_batches(graph, np.arange(20), sampler, batch_size=10, backend="cpu", limit=MostEntries(entries))
    assert [fingerprint(one) for one in limited] == [fingerprint(one) for one in whole]
    assert repeats == 1 or len(calls) == 4  # else a layer may pass what is left, and is made step by step
    with pytest.raises(TooManyEntriesError):
        sample_batches(graph, np.arange(20), sampler, batch_size=10, backend="cpu", limit=MostEntries(entries - 1))


@pytest.mark.parametrize("sampler", [sp.GraphSAGE([5]), sp.GraphSAGE([5], replace=True), sp.GraphSAGE([-1])], ids=repr)
def test_too_many_entries_are_refused_before_they_are_drawn(
    sampler: sp.Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = BulkCounts.of(sp.bulk_sample(GRAPH, SEEDS[:200], sampler, batch_size=32)).entries
    for name in ("sample_rows", "take_rows", "take_compacted"):
        monkeypatch.setattr(LocalFrontier, name, None)
    with pytest.raises(TooManyEntriesError):
        sample_batches(GRAPH, SEEDS[:200], sampler, batch_size=32, limit=MostEntries(entries - 1))


def test_no_limit_stops_one_of_several_ranks() -> None:
    def body(comm: Communicator) -> None:
        for graph in (sp.ReplicatedGraph(GRAPH, comm), sp.PartitionedGraph.from_graph(GRAPH, sp.ProcessGrid(comm))):
            with pytest.raises(InputError, match="limit: got a limit of entries for 2 ranks; expected none"):
                sample_batches(graph, SEEDS[:64], sp.GraphSAGE([2]), batch_size=32, limit=MostEntries(10**9))

    run_threads(2, body, 30)


@pytest.mark.parametrize("budget", ["14MiB", "1GiB"])
@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_the_budget_changes_no_batch(budget: str, prefetch: int) -> None:
    options: dict[str, Any] = {"batch_size": 64, "random_seed": 3}
    expected = [fingerprint(b.minibatch) for b in sp.BulkLoader(GRAPH, SEEDS, sp.GraphSAGE([5, 3]), **options)]
    loader = sp.BulkLoader(
        GRAPH, SEEDS, sp.GraphSAGE([5, 3]), bulk_size="auto", memory_budget=budget, prefetch=prefetch, **options
    )
    assert [fingerprint(batch.minibatch) for batch in loader] == expected


def test_memory_of_the_machine_and_of_its_groups(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (groups / "a" / "b").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    8000 kB\n")
    (proc / "self" / "cgroup").write_text("0::/a/b\n")
    assert available_memory(proc, groups) == 8000 << 10
    for folder, limit in ((groups / "a", "4096000"), (groups / "a" / "b", "max")):
        (folder / "memory.max").write_text(limit)
        (folder / "memory.current").write_text("3000000")
        (folder / "memory.stat").write_text("anon 1\ninactive_file 1000000\n")
    assert available_memory(proc, groups) == 2096000
    # what is read again and again is in the other list; both can be given up
    (groups / "a" / "memory.stat").write_text("file 9\ninactive_file 1000000\nactive_file 500000\ninactive_anon 7\n")
    assert available_memory(proc, groups) == 2596000
    (proc / "self" / "cgroup").write_text("4:cpu,memory:/x\n")
    (groups / "memory" / "x").mkdir(parents=True)
    (groups / "memory" / "x" / "memory.limit_in_bytes").write_text("5000000")
    (groups / "memory" / "x" / "memory.usage_in_bytes").write_text("1000000")
    (groups / "memory" / "x" / "memory.stat").write_text(
        "inactive_file 5\nactive_file 6\ntotal_inactive_file 0\ntotal_active_file 0\n"
    )
    assert available_memory(proc, groups) == 4000000


def test_control_groups(tmp_path: Path) -> None:
    text = "4:cpu,cpuacct:/x/y\n1:name=systemd:/\nodd\n0::/../z\n"
    of_cpu = [tmp_path / "cpu" / "x" / "y", tmp_path / "cpu" / "x", tmp_path / "cpu"]
    of_all = [tmp_path / ".." / "z", tmp_path / "..", tmp_path]
    expected = [(folder, 1) for folder in of_cpu] + [(folder, 2) for folder in of_all]
    assert list(control_groups(text, "cpu", tmp_path)) == expected
    assert list(control_groups(text, "memory", tmp_path)) == expected[3:]
    (tmp_path / "cpu,cpuacct").mkdir()
    assert next(control_groups(text, "cpuacct", tmp_path)) == (tmp_path / "cpu,cpuacct" / "x" / "y", 1)
    assert list(control_groups("", "cpu", tmp_path)) == []


MEASURED = """
import json, sys
from itertools import islice
import numpy as np
import spsample as sp
from spsample.sparse import measured_pool
graph = sp.load_dataset("rmat:16,16").graph
seeds = np.flatnonzero(graph.in_degrees())
sampler = eval(sys.argv[1], vars(sp))
with measured_pool() as memory:
    # with numbers of threads given, so that a loop as light as this one keeps them
    options = dict(batch_size=64, bulk_size=256, memory_budget="64GiB", stage_threads=(2, 2))
    loader = sp.BulkLoader(graph, seeds, sampler, **options)
    for batch in loader:
        pass
print(json.dumps([loader.plan.peak(256), memory.peak_bytes]))
"""


@pytest.mark.parametrize(
    "sampler", ["GraphSAGE([15, 10, 5])", "GraphSAGE([15, 10, 5], layout='subgraph')", "LADIES([512, 512])"]
)
def test_the_prediction_holds_in_a_fresh_process(sampler: str) -> None:
    pytest.importorskip("spsample._core", reason="the compiled core is not built")
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, sampler], env=environment, capture_output=True, text=True, check=True
    )
    predicted, measured = json.loads(done.stdout)
    assert measured <= predicted <= 1.35 * measured  # of the pool; stacks and small arrays are not in it


def test_few_batches_are_enough_to_see_a_loader_at_work() -> None:
    loader = sp.BulkLoader(GRAPH, SEEDS, sp.GraphSAGE([2]), batch_size=16, bulk_size="auto", memory_budget="64MiB")
    assert loader.bulk_size == -(-len(loader) // 8)
    assert len(list(islice(loader, 3))) == 3


@samplers
@pytest.mark.parametrize("edge_ids", [False, True])
def test_no_bulk_passes_what_can_be_drawn(sampler: sp.Sampler, edge_ids: bool) -> None:
    for graph in (GRAPH, GRAPH.normalized("sym")):
        bulk = sp.bulk_sample(graph, SEEDS[:256], sampler, batch_size=32, edge_ids=edge_ids)
        made, most = BulkCounts.of(bulk), most_counts(graph, sampler, 32, edge_ids)
        assert most is not None
        for one, bound in zip(made.layers, most.scaled(len(bulk)).layers, strict=True):
            assert one.rows <= bound.rows
            assert one.sources <= bound.sources
            assert one.entries <= bound.entries
            assert one.value_bytes <= bound.value_bytes
            assert one.id_bytes <= bound.id_bytes
        assert made.result_bytes(8) <= most.scaled(len(bulk)).result_bytes(8)


def test_without_a_budget_a_given_size_is_held_against_the_memory_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def loader(available: int, bulk_size: int = 64) -> sp.BulkLoader:
        monkeypatch.setattr("spsample.planning.bulk_plan.available_memory", lambda: available)
        return sp.BulkLoader(GRAPH, SEEDS, sp.GraphSAGE([15, 10, 5]), batch_size=32, bulk_size=bulk_size)

    assert loader(4 << 30).plan is None  # any bulk would fit
    planned = loader(24 << 20)
    assert planned.plan is not None
    assert [fingerprint(one.minibatch) for one in islice(planned, 3)] == [
        fingerprint(one.minibatch) for one in islice(loader(4 << 30, 2), 3)
    ]
    with pytest.raises(CapacityError, match=r"^bulk_size: got 64, .*; expected at most \d+ within") as error:
        loader(14 << 20)
    largest = int(error.value.expected.split()[2])
    assert loader(14 << 20, largest).bulk_size == largest


@pytest.mark.parametrize("sampler", [sp.GraphSAGE([-1]), sp.GraphSAGE([2, 2], layout="subgraph"), sp.LADIES([3])])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_pilot_batches_without_edges_do_not_refuse_others(sampler, prefetch) -> None:
    graph = sp.Graph.from_edge_index(np.stack([np.arange(500), np.zeros(500, np.int64)]), num_nodes=1000)
    seeds = np.concatenate([np.arange(1, 206), [0], np.arange(206, 400)])  # no pilot is at 205
    options = {"batch_size": 1, "shuffle": False, "prefetch": prefetch}
    loader = sp.BulkLoader(graph, seeds, sampler, bulk_size="auto", memory_budget="256MiB", **options)
    assert sum(layer.entries for layer in loader.plan.counts.layers) <= 25 * len(sampler.sizes)
    assert [batch.seeds.tolist() for batch in loader] == seeds.reshape(-1, 1).tolist()
