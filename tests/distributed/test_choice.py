"""`algorithm="auto"`: bulks of a kind are sampled by each algorithm in turn, and then by the faster one."""

from __future__ import annotations

import numpy as np
import pytest
from partitioned_cases import GRAPHS, SAMPLERS, batches_of, gathered, same_batches

import spsample as sp
from spsample.comm import Recorder, run_threads
from spsample.distributed import PartitionedGraph, ProcessGrid, partitioned
from spsample.distributed.algorithms import CANDIDATES, MAX_KINDS, RUNS, AlgorithmChoice, BulkKind
from spsample.errors import RankError, SpSampleError

TIMEOUT = 60
TRIAL = RUNS * len(CANDIDATES)


def tried(choice, kind, seconds):
    """Run a trial; the names in the order that they were tried."""
    names = []
    while choice.is_tried(kind):
        names.append(choice.next(kind))
        choice.ran(kind, names[-1], seconds[names[-1]](len(names)))
    return names


def constant(column, stages):
    return {"column": lambda i: column, "stages": lambda i: stages}


def test_both_are_tried_in_turn():
    choice, kind = AlgorithmChoice(), BulkKind("one", 8)
    assert tried(choice, kind, constant(2.0, 1.0)) == ["column", "stages"] * RUNS
    assert choice.next(kind) == "stages"
    assert choice.chosen[0].seconds == {"column": 2.0, "stages": 1.0}


@pytest.mark.parametrize(("stages", "expected"), [(0.98, "column"), (0.96, "stages"), (1.5, "column")])
def test_another_one_has_to_be_clearly_faster(stages, expected):
    choice, kind = AlgorithmChoice(), BulkKind("one", 8)
    tried(choice, kind, constant(1.0, stages))
    assert choice.next(kind) == expected


def test_the_first_bulk_by_each_does_not_count():
    choice, kind = AlgorithmChoice(), BulkKind("one", 8)
    tried(choice, kind, {"column": lambda i: 99.0 if i <= 2 else 1.0, "stages": lambda i: 2.0})
    assert choice.next(kind) == "column"


def test_bulks_of_about_as_many_batches_are_alike():
    choice = AlgorithmChoice()
    tried(choice, BulkKind("one", 16), constant(2.0, 1.0))
    assert [choice.is_tried(BulkKind("one", k)) for k in (7, 8, 32, 33)] == [True, False, False, True]
    assert choice.is_tried(BulkKind("two", 16))
    tried(choice, BulkKind("one", 64), constant(1.0, 2.0))
    assert [choice.next(BulkKind("one", k)) for k in (16, 31, 33, 64)] == ["stages", "stages", "column", "column"]


def test_a_duplicate_knows_what_was_chosen_and_tells_what_it_chooses():
    choice = AlgorithmChoice()
    tried(choice, BulkKind("one", 8), constant(2.0, 1.0))
    other = choice.duplicate(choice.known)
    assert other.next(BulkKind("one", 8)) == "stages"
    tried(other, BulkKind("two", 8), constant(1.0, 2.0))
    assert [one.algorithm for one in choice.chosen] == ["stages", "column"]
    assert choice.is_tried(BulkKind("two", 8))  # other ranks may not know of it yet
    third = choice.duplicate(choice.known)
    assert not choice.is_tried(BulkKind("two", 8))
    assert not third.is_tried(BulkKind("two", 8))


def test_what_duplicates_chose_is_reported_once():
    choice = AlgorithmChoice()
    for number in range(3 * MAX_KINDS):
        other = choice.duplicate(choice.known)
        tried(other, BulkKind(number, 8), constant(2.0, 1.0))
        tried(other, BulkKind(number, 8), constant(2.0, 1.0))
    assert [one.kind.workload for one in choice.chosen] == list(range(2 * MAX_KINDS, 3 * MAX_KINDS))
    assert len(choice.known) == MAX_KINDS


def test_a_new_loader_for_each_epoch_tries_nothing_twice():
    """Its duplicates of the graph are closed, and what they chose is reported once."""
    A = GRAPHS["plain"]()

    def body(comm):
        parts = PartitionedGraph.from_graph(A, ProcessGrid(comm))
        found = []
        for _ in range(3):
            loader = sp.BulkLoader(parts, range(40), sp.LADIES([4]), batch_size=5, bulk_size=1, prefetch=1)
            for _ in range(3):
                list(loader)
            loader.close()
            found.append(len(parts.chosen_algorithms))
            twin = parts.duplicate()
            found.append(twin.for_bulks(sp.LADIES([4]), (5, False, None), 1)._report is None)
            twin.close()
        return found

    assert run_threads(2, body, TIMEOUT) == [[1, True] * 3] * 2


def test_few_kinds_are_kept():
    choice = AlgorithmChoice()
    for number in range(3 * MAX_KINDS):
        tried(choice, BulkKind(number, 8), constant(2.0, 1.0))
    assert len(choice.chosen) == MAX_KINDS
    assert choice.is_tried(BulkKind(0, 8))
    assert not choice.is_tried(BulkKind(3 * MAX_KINDS - 1, 8))


@pytest.mark.parametrize(
    ("graph", "sampler"), [(list(GRAPHS)[at % len(GRAPHS)], sampler) for at, sampler in enumerate(SAMPLERS)], ids=repr
)
def test_samples_are_the_same_during_the_trial_and_after(graph, sampler):
    A = GRAPHS[graph]()
    seeds = np.arange(min(A.num_nodes, 40))

    def body(comm):
        parts = PartitionedGraph.from_graph(A, ProcessGrid(comm))
        bulks = [sp.bulk_sample(parts, seeds, sampler, batch_size=7, epoch=epoch) for epoch in range(TRIAL + 2)]
        assert len(parts.chosen_algorithms) == (sampler.kind == "layer-wise")
        return [batches_of(bulk) for bulk in bulks], [one.algorithm for one in parts.chosen_algorithms]

    ranks = run_threads(4, body, TIMEOUT)
    assert len({str(chosen) for _, chosen in ranks}) == 1
    for epoch in range(TRIAL + 2):
        want = batches_of(sp.bulk_sample(A, seeds, sampler, batch_size=7, epoch=epoch))
        same_batches(gathered([rank[0][epoch] for rank in ranks]), want)


def test_what_is_tried_is_what_runs():
    """Whole rows travel in the phase "rows" by stages only, where the sampler is layer-wise."""

    def body(comm):
        recorder = Recorder(comm)
        parts = PartitionedGraph.from_graph(GRAPHS["plain"](), ProcessGrid(recorder))
        found = []
        for epoch in range(TRIAL):
            recorder.traffic.clear()
            sp.bulk_sample(parts, np.arange(20), sp.LADIES([4, 4]), batch_size=5, epoch=epoch)
            found.append("rows" in recorder.traffic.phases)
        return found

    assert run_threads(2, body, TIMEOUT) == [[False, True] * RUNS] * 2


@pytest.mark.parametrize(("p", "c"), [(2, 2), (4, 2)])
def test_several_copies_of_a_block_row_need_no_trial(p, c):
    assert run_threads(p, lambda comm: trials(comm, c), TIMEOUT) == [0] * p


def test_rows_are_not_fetched_where_memory_may_not_hold_them(monkeypatch):
    """Four times all entries have to fit."""
    bytes_of_entries = 4 * GRAPHS["plain"]().num_edges
    for free, expected in ((4 * bytes_of_entries - 1, 0), (4 * bytes_of_entries, 1)):
        monkeypatch.setattr(partitioned, "available_memory", lambda free=free: free)
        assert run_threads(3, lambda comm: trials(comm, 1), TIMEOUT) == [expected] * 3


class Marked(sp.LADIES):
    """A sampler of a user's own, whose options may not be hashable."""

    def __init__(self, sizes, marks=()):
        super().__init__(sizes)
        self.marks = marks

    def options(self):
        return super().options() | {"marks": self.marks}


def test_samplers_whose_options_are_not_hashable():
    A = GRAPHS["plain"]()

    def body(comm):
        parts = PartitionedGraph.from_graph(A, ProcessGrid(comm))
        given = {"batch_size": 5, "epoch": 1}
        bulks = [batches_of(sp.bulk_sample(parts, range(20), Marked([4], [1, 2]), **given)) for _ in range(TRIAL)]
        assert len(parts.chosen_algorithms) == 1
        return bulks

    want = batches_of(sp.bulk_sample(A, range(20), sp.LADIES([4]), batch_size=5, epoch=1))
    for bulks in zip(*run_threads(2, body, TIMEOUT), strict=True):
        same_batches(gathered(bulks), want)


@pytest.mark.parametrize("algorithm", ["auto", "column"])
def test_a_sampler_of_one_rank_that_cannot_be_compared(algorithm):
    """An array is not equal to a default of another shape, nor unequal: all ranks learn of it."""

    def body(comm):
        parts = PartitionedGraph.from_graph(GRAPHS["plain"](), ProcessGrid(comm), algorithm=algorithm)
        with pytest.raises(RankError, match="rank 1 failed: ValueError"):
            sp.bulk_sample(parts, range(20), Marked([4], np.arange(3) if comm.rank else ()), batch_size=5)
        return len(sp.bulk_sample(parts, range(20), Marked([4]), batch_size=5))

    assert run_threads(2, body, TIMEOUT) == [2, 2]


def trials(comm, c):
    """How many kinds of bulks were tried."""
    parts = PartitionedGraph.from_graph(GRAPHS["plain"](), ProcessGrid(comm, c))
    for epoch in range(TRIAL):
        sp.bulk_sample(parts, np.arange(20), sp.LADIES([4]), batch_size=5, epoch=epoch)
    return len(parts.chosen_algorithms)


@pytest.mark.parametrize("failing", range(4))
def test_a_call_that_fails_in_the_trial_is_tried_again(failing):
    A, seeds, sampler = GRAPHS["plain"](), np.arange(20), sp.LADIES([4, 4])

    def body(comm):
        parts = PartitionedGraph.from_graph(A, ProcessGrid(comm))
        bulks = []
        for epoch in range(TRIAL + 1):
            if epoch == failing:
                wrong = seeds if comm.rank else seeds - 1
                with pytest.raises(SpSampleError, match="seeds"):
                    sp.bulk_sample(parts, wrong, sampler, batch_size=5, epoch=epoch)
            bulks.append(batches_of(sp.bulk_sample(parts, seeds, sampler, batch_size=5, epoch=epoch)))
        return bulks, len(parts.chosen_algorithms)

    ranks = run_threads(3, body, TIMEOUT)
    assert [count for _, count in ranks] == [1, 1, 1]
    for epoch in range(TRIAL + 1):
        want = batches_of(sp.bulk_sample(A, seeds, sampler, batch_size=5, epoch=epoch))
        same_batches(gathered([bulks[epoch] for bulks, _ in ranks]), want)


def test_a_loader_chooses_in_its_thread():
    data = sp.load_dataset("planted:600")

    def body(comm):
        parts = PartitionedGraph.from_graph(data.graph, ProcessGrid(comm))
        loader = sp.BulkLoader(parts, data.train_idx, sp.LADIES([16, 16]), batch_size=8, bulk_size=8)
        seeds = [batch.seeds.tolist() for _ in range(3) for batch in loader]
        loader.close()
        return seeds, [one.algorithm for one in parts.chosen_algorithms]

    ranks = run_threads(2, body, TIMEOUT)
    assert ranks[0][1] == ranks[1][1]
    assert ranks[0][1]
    given = [seed for seeds, _ in ranks for batch in seeds for seed in batch]
    assert sorted(given) == sorted(3 * data.train_idx.tolist())
