"""What one rank finds wrong every rank raises, naming that rank and the value; the next call is right."""

from __future__ import annotations

import shutil
import threading
from functools import partial

import numpy as np
import pytest
from hooked import Fault, Hooked
from partitioned_cases import ALGORITHMS, GRAPHS, batches_of, gathered, same_batches

import spsample as sp
from spsample.comm import Channel, Sent, collective, run_threads
from spsample.distributed import PartitionedGraph, ProcessGrid, ReplicatedGraph
from spsample.errors import CommunicationError, DataError, DTypeError, InputError, RankError, SpSampleError
from spsample.features import PartitionedFeatures
from spsample.sampling.workload import Workload, sample_batches

TIMEOUT = 20  # where ranks wait for each other for ever, a CommunicationError in the end
P, FAULTY = 4, 2
GIVEN = {"batch_size": 9, "random_seed": 5, "epoch": 2, "edge_ids": True}
SAGE, LADIES, FASTGCN = sp.GraphSAGE([3, 4]), sp.LADIES([5, 6]), sp.FastGCN([6, 7])

rng = np.random.default_rng(1)
SEEDS = rng.integers(0, 64, 100)


def caught(action):
    """What an action raises. Other ranks that are lost, or do not come, are no part of any test here."""
    try:
        action()
    except CommunicationError:
        raise
    except SpSampleError as error:
        return error
    return None


def sample(graph, seeds=SEEDS, sampler=SAGE, **changed):
    return sp.bulk_sample(graph, seeds, sampler, **GIVEN | changed)


def want(graph, sampler=SAGE):
    return batches_of(sample(GRAPHS[graph](), sampler=sampler))


def partitioned(graph="plain", c=1, algorithm="column", hubs=None):
    def make(comm):
        parts = {"algorithm": algorithm, "replicate_hubs": hubs}
        return sp.PartitionedGraph.from_graph(GRAPHS[graph](), ProcessGrid(comm, c), **parts)

    return make


MAKES = {
    "replicated": lambda comm: ReplicatedGraph(GRAPHS["plain"](), comm),
    "hubs": partitioned(hubs=1500),
    **{algorithm: partitioned(c=2, algorithm=algorithm) for algorithm in ALGORITHMS},
}

# ---------------------------------------------------------------------------------------------------- bad arguments

OUT_OF_RANGE = np.where(np.arange(100) == 17, 10**6, SEEDS)
REFUSED = [
    ({"seeds": OUT_OF_RANGE}, InputError, r"seeds: got 1000000 at position 17 \(on rank 2\)"),
    ({"seeds": SEEDS * 0.5}, DTypeError, r"seeds: got .*float64.* \(on rank 2\)"),
    ({"sampler": "GraphSAGE"}, DTypeError, r"sampler: got 'GraphSAGE' \(on rank 2\)"),
    ({"batch_size": 0}, InputError, r"batch_size: got 0 \(on rank 2\)"),
    ({"random_seed": -1}, InputError, r"random_seed: got -1 \(on rank 2\)"),
    ({"epoch": 1.5}, DTypeError, r"epoch: got 1.5.* \(on rank 2\)"),
    ({"first_batch": 2**32}, InputError, r"first_batch: got 4294967296 \(on rank 2\)"),
    ({"duplicates": "keep"}, InputError, r"duplicates: got 'keep' \(on rank 2\)"),
    ({"edge_ids": 3}, DTypeError, r"edge_ids: got 3.* \(on rank 2\)"),
    ({"backend": "abacus"}, InputError, r"backend: got 'abacus' \(on rank 2\)"),
    ({"seeds": SEEDS[::-1]}, InputError, "seeds: got something else on rank 2 than on rank 0"),
    ({"seeds": SEEDS[:-1]}, InputError, "seeds: got something else on rank 2"),
    ({"seeds": []}, InputError, "seeds: got something else on rank 2"),
    ({"sampler": sp.GraphSAGE([3, 5])}, InputError, "sampler: got something else on rank 2"),
    ({"sampler": LADIES}, InputError, "sampler: got something else on rank 2"),
    ({"batch_size": 10}, InputError, "batch_size: got something else on rank 2"),
    ({"random_seed": 6}, InputError, "random_seed: got something else on rank 2"),
    ({"epoch": 3}, InputError, "random_seed: got something else on rank 2"),
    ({"first_batch": 1}, InputError, "first_batch: got something else on rank 2"),
    ({"duplicates": "error"}, InputError, "duplicates: got something else on rank 2"),
    ({"edge_ids": False}, InputError, "edge_ids: got something else on rank 2"),
    ({"backend": "reference"}, InputError, "backend: got something else on rank 2"),
]


@pytest.mark.parametrize("make", MAKES)
def test_bad_arguments(make):
    """One after the other on one graph: as its first calls, and then with right ones between them."""

    def body(comm):
        graph = MAKES[make](comm)
        errors = [[caught(partial(sample, graph, **bad if comm.rank == FAULTY else {})) for bad, *_ in REFUSED]]
        right = [batches_of(sample(graph))]
        for bad, *_ in REFUSED:
            errors.append([caught(partial(sample, graph, **bad if comm.rank == FAULTY else {}))])
            right.append(batches_of(sample(graph)))
        return [*errors[0], *(error for (error,) in errors[1:])], right

    errors, right = zip(*run_threads(P, body, TIMEOUT), strict=True)
    for of_rank in errors:
        for error, (_, kind, message) in zip(of_rank, REFUSED + REFUSED, strict=True):
            with pytest.raises(kind, match=message):
                raise error
    for bulks in zip(*right, strict=True):
        same_batches(gathered(bulks), want("plain"))


def test_two_ranks_compare_their_arguments():
    def body(comm):
        return caught(partial(sample, MAKES["replicated"](comm), random_seed=comm.rank))

    for error in run_threads(2, body, TIMEOUT):
        assert "random_seed: got something else on rank 1 than on rank 0" in str(error)


@pytest.mark.parametrize("make", MAKES)
def test_all_ranks_give_the_same_bad_argument(make):
    def body(comm):
        graph = MAKES[make](comm)
        return caught(partial(sample, graph, [1, 1], duplicates="error")), batches_of(sample(graph))

    errors, right = zip(*run_threads(P, body, TIMEOUT), strict=True)
    assert len({str(error) for error in errors}) == 1
    assert "on rank" not in str(errors[0])
    same_batches(gathered(right), want("plain"))


# ----------------------------------------------------------------------------------------------------- graphs and grids

GRIDS = [
    ({"replication": 3}, r"replication: got c = 3 for p = 4 ranks \(on rank 2\)"),
    ({"replication": 2}, "replication: got something else on rank 2 than on rank 0"),
]
LAYOUTS = [
    ({"algorithm": "rows"}, r"algorithm: got 'rows' \(on rank 2\)"),
    ({"replicate_hubs": "many"}, r"replicate_hubs: got 'many'.* \(on rank 2\)"),
    ({"replicate_hubs": 1500}, "replicate_hubs: got something else on rank 2"),
    ({"partition": np.zeros(63, int)}, r"partition: got dtype int64 and shape \(63,\) \(on rank 2\)"),
    ({"partition": np.full(64, 4)}, r"partition: got parts from 4 to 4 \(on rank 2\)"),
    ({"partition": [0, [1]]}, r"partition: got a list of uneven lengths or shapes .*\(on rank 2\)"),
    ({"partition": np.arange(64) % 4}, "partition: got something else on rank 2"),
    ({"graph": "other"}, "graph: got other contents on rank 2 than on rank 0"),
    ({"graph": "weighted"}, "graph: got other weighting, dtypes on rank 2 than on rank 0"),
]


def test_bad_grids():
    def body(comm):
        bad = [given if comm.rank == FAULTY else {"replication": 1} for given, _ in GRIDS]
        errors = [caught(partial(ProcessGrid, comm, **given)) for given in bad]
        return errors, ProcessGrid(comm, 2).column_group.size

    for errors, size in run_threads(P, body, TIMEOUT):
        assert size == 2
        for error, (_, message) in zip(errors, GRIDS, strict=True):
            with pytest.raises(InputError, match=message):
                raise error


def test_bad_layouts(tmp_path):
    for name in ("plain", "weighted"):
        GRAPHS[name]().save(tmp_path / name)
    sp.Graph(GRAPHS["plain"]().indptr, GRAPHS["plain"]().indices[::-1]).save(tmp_path / "other")

    def body(comm):
        grid = ProcessGrid(comm, 1)
        errors = []
        for given, _ in LAYOUTS:
            bad = dict(given) if comm.rank == FAULTY else {}
            errors.append(caught(partial(PartitionedGraph.open, tmp_path / bad.pop("graph", "plain"), grid, **bad)))
        return errors, batches_of(sample(PartitionedGraph.open(tmp_path / "plain", grid)))

    errors, right = zip(*run_threads(P, body, TIMEOUT), strict=True)
    for of_rank in errors:
        for error, (_, message) in zip(of_rank, LAYOUTS, strict=True):
            with pytest.raises(InputError, match=message):
                raise error
    same_batches(gathered(right), want("plain"))


# --------------------------------------------------------------------------------------------------------- stores


def remove(store):
    shutil.rmtree(store)


def remove_meta(store):
    (store / "meta.json").unlink()


def remove_indices(store):
    (store / "indices.npy").unlink()


def truncate_indices(store):
    content = (store / "indices.npy").read_bytes()
    (store / "indices.npy").write_bytes(content[:-8])


def another_number(store):
    text = (store / "meta.json").read_text()
    (store / "meta.json").write_text(text.replace('"num_nodes": 64', '"num_nodes": 63'))
    (store / "meta.json.sha256").unlink()  # as in a store that is older than it


def no_json(store):
    (store / "meta.json").write_text("{")


DAMAGES = {
    remove: "broken",
    remove_meta: "meta.json",
    remove_indices: "indices.npy",
    truncate_indices: "indices.npy",
    another_number: "meta.json",
    no_json: "meta.json",
}


@pytest.mark.parametrize(("damage", "file"), DAMAGES.items())
def test_store_of_one_rank(tmp_path, damage, file):
    """As where the disk of one machine is damaged."""
    GRAPHS["plain"]().save(tmp_path / "good")
    shutil.copytree(tmp_path / "good", tmp_path / "broken")
    damage(tmp_path / "broken")

    def body(comm):
        grid = ProcessGrid(comm, 2)
        path = tmp_path / ("broken" if comm.rank == FAULTY else "good")
        error = caught(partial(PartitionedGraph.open, path, grid))
        return error, batches_of(sample(PartitionedGraph.open(tmp_path / "good", grid)))

    errors, right = zip(*run_threads(P, body, TIMEOUT), strict=True)
    for error in errors:
        assert isinstance(error, DataError)
        assert file in str(error)
        assert "(on rank 2)" in str(error)
    same_batches(gathered(right), want("plain"))


def test_store_that_is_damaged_after_it_was_opened(tmp_path):
    """Its rows are mapped at the first call."""
    GRAPHS["plain"]().save(tmp_path / "good")
    shutil.copytree(tmp_path / "good", tmp_path / "broken")

    def body(comm):
        graph = PartitionedGraph.open(tmp_path / ("broken" if comm.rank == FAULTY else "good"), ProcessGrid(comm, 2))
        comm.barrier()
        if comm.rank == FAULTY:
            truncate_indices(tmp_path / "broken")
        first = caught(partial(sample, graph))
        comm.barrier()
        if comm.rank == FAULTY:
            shutil.copy(tmp_path / "good" / "indices.npy", tmp_path / "broken" / "indices.npy")
        return first, caught(partial(sample, graph))

    for errors in run_threads(P, body, TIMEOUT):
        for error in errors:  # it is another file now, whose contents nobody knows
            assert isinstance(error, DataError)
            assert "indices.npy" in str(error)
            assert "(on rank 2)" in str(error)


# ---------------------------------------------------------------------------------------------- in the middle of a bulk

SAMPLERS = [
    ("plain", SAGE),
    ("plain", LADIES),
    ("plain", FASTGCN),
    ("weighted", SAGE),
    ("weighted", LADIES),
    ("row_normalized", LADIES),
    ("plain", sp.LADIES([4, 5], replace=True)),
    ("plain", sp.LADIES([5, 6], law="squared_count")),
]


MIDDLE = [("column", c, *which) for c in (1, 2) for which in SAMPLERS]
MIDDLE += [(algorithm, 2, *which) for algorithm in ALGORITHMS if algorithm != "column" for which in SAMPLERS[1:5]]


@pytest.mark.parametrize(("algorithm", "c", "graph", "sampler"), MIDDLE, ids=repr)
def test_faults_in_the_middle(algorithm, c, graph, sampler):
    """A kernel of one rank fails before an exchange of a call, those that read A at the first call included."""
    make = partitioned(graph, c, algorithm, hubs=1500)

    def body(comm):
        fault = Fault()
        sample(make(Hooked(comm, fault)), sampler=sampler)
        errors = []
        for number in first_and_last(comm, fault.phases):
            parts = make(Hooked(comm, fault))
            fault.in_exchange(number if comm.rank == FAULTY else 0)
            errors.append((number, caught(partial(sample, parts, sampler=sampler))))
        return errors, batches_of(sample(parts, sampler=sampler))

    errors, right = zip(*run_threads(P, body, TIMEOUT), strict=True)
    for of_rank in errors:
        assert len(of_rank) > 4
        for number, error in of_rank:
            assert isinstance(error, RankError)
            assert str(error) == f"rank 2 failed: ArithmeticError: kernel {number}"
    same_batches(gathered(right), want(graph, sampler))


def first_and_last(comm, phases):
    """Numbers of the faulty rank's exchanges, told to all ranks: the first and the last one of each phase."""
    numbers = {phase: number for number, phase in enumerate(phases, 1)}
    numbers = {*numbers.values(), *(phases.index(phase) + 1 for phase in numbers)}
    told = np.zeros(99, np.int64)
    told[: len(numbers)] = sorted(numbers)
    return [number for number in comm.broadcast(told, FAULTY).tolist() if number]


class Failing(sp.Sampler):
    """Fails on some ranks, after the exchanges of its last layer."""

    def __init__(self, sizes, faulty):
        super().__init__(sizes)
        self.faulty = faulty

    def layer(self, A, Q, draw, want):
        layer = SAGE.layer(A, Q, draw, want)
        if draw.hop == 1 and A.channel.scope.rank in self.faulty:
            raise MemoryError("no room for layer 1")
        return layer

    def options(self):
        return {}


@pytest.mark.parametrize("faulty", [(1,), (1, 2), (0, 1, 2, 3)])
def test_fault_after_the_last_exchange(faulty):
    def body(comm):
        graph = partitioned()(comm)
        return caught(partial(sample, graph, sampler=Failing([3, 4], faulty))), batches_of(sample(graph))

    errors, right = zip(*run_threads(P, body, TIMEOUT), strict=True)
    where = "" if len(faulty) == P else " (on rank 1)"  # else it fits nowhere
    told = f"seeds: got 12 batches of up to 9 seeds for Failing([3, 4]){where}; expected a bulk that fits in memory"
    assert all(str(error).startswith(told) for error in errors)
    same_batches(gathered(right), want("plain"))


def test_no_memory_for_the_call_of_one_rank(monkeypatch):
    """It is in the middle of what all ranks check together, batches of several sizes, too."""

    def body(comm):
        graph = partitioned()(comm)
        ptr = np.array([0, 9, 9, 12])
        if comm.rank == FAULTY:
            is_full.rank = True
        error = caught(lambda: sample_batches(graph, SEEDS[:12], SAGE, **GIVEN, batch_ptr=ptr))
        is_full.rank = False
        return error, sample_batches(graph, SEEDS[:12], SAGE, **GIVEN, batch_ptr=ptr).batch_ids.tolist()

    is_full, make = threading.local(), Workload.__init__

    def made(self, *arguments, **named):
        if getattr(is_full, "rank", False):
            raise MemoryError("no room for the call")
        make(self, *arguments, **named)

    monkeypatch.setattr(Workload, "__init__", made)
    errors, right = zip(*run_threads(P, body, TIMEOUT), strict=True)
    assert all("no room for the call" in str(error) for error in errors)
    assert sorted(batch for ids in right for batch in ids) == [0, 1, 2]


def test_no_memory_for_the_operand_of_one_rank():
    """All learn of it, and the next call is right."""

    def body(comm):
        graph = partitioned()(comm)
        kind = graph._algorithms[graph.algorithm]

        class Full(kind):
            def __init__(self, *arguments):
                raise MemoryError("no room for the operand")

        if comm.rank == FAULTY:
            graph._algorithms = {**graph._algorithms, graph.algorithm: Full}
        error = caught(partial(sample, graph))
        graph._algorithms = type(graph)._algorithms
        return error, batches_of(sample(graph))

    errors, right = zip(*run_threads(P, body, TIMEOUT), strict=True)
    assert all("no room for the operand" in str(error) for error in errors)
    same_batches(gathered(right), want("plain"))


def test_no_memory_in_the_middle_of_an_exchange():
    """The others cannot be told: the rank that fails says so at once, and its end ends the others."""

    class Full(Hooked):
        def all_to_all_v(self, *arguments, **more):
            raise MemoryError("no room for what comes")

        def split(self, color, key=None):
            comm = super().split(color, key)
            return Full(comm._comm, comm._hook) if self.rank == FAULTY else comm

    def body(comm):
        hooked = (Full if comm.rank == FAULTY else Hooked)(comm, lambda method, phase: None)
        sample(partitioned()(hooked))

    with pytest.raises(CommunicationError, match=r"of its exchange in phase .* no room for what comes"):
        run_threads(P, body, TIMEOUT)


def other_calls(comm):
    """What each rank raises where one gathers features while the others sample a bulk, and what calls they were in."""
    graph, features = partitioned()(comm), PartitionedFeatures.of(np.ones((64, 3)), ProcessGrid(comm))
    with pytest.raises(CommunicationError, match="the ranks are in different calls") as raised:
        features.gather([1, 2]) if comm.rank == FAULTY else sample(graph)
    return str(raised.value).partition("different calls: ")[2].partition(". Every")[0]


def test_another_call_on_one_rank():
    told = "ranks 0, 1, 3 in the end of the checks of bulk_sample; rank 2 in exchange in phase 'features requests'"
    assert run_threads(P, other_calls, TIMEOUT) == [told] * P


def test_wrong_counts_of_one_rank():
    """Refused before the others count on them."""

    def body(comm):
        channel = Channel(comm)

        def exchange():
            rows = np.zeros(P - (comm.rank == FAULTY))
            with collective(comm, channel):
                channel.exchange([Sent(rows, np.ones(P, np.int64))], phase="rows")

        return caught(exchange)

    told = "send: got 3 rows for counts of 4 (on rank 2); expected as many rows as are to be sent"
    assert [str(error) for error in run_threads(P, body, TIMEOUT)] == [told] * P
