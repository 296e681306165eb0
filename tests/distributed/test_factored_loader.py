"""Loading on ranks that sample and ranks that train: the batches of one process, each on one rank, and nobody left."""

import gc
import itertools
import re
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from hooked import Counted, Hooked

import spsample as sp
from spsample.comm import run_threads
from spsample.data import planted
from spsample.distributed import PartitionedGraph, ProcessGrid
from spsample.errors import BackendError, CapacityError, CommunicationError, DTypeError, InputError, SpSampleError
from spsample.features import PartitionedFeatures
from spsample.loading.factored import Roles

TIMEOUT = 20.0
DATA = planted(500, random_seed=3)
SEEDS = np.random.default_rng(4).permutation(500)[:130]
WEIGHTED = sp.Graph(
    DATA.graph.indptr, DATA.graph.indices, np.random.default_rng(5).random(DATA.graph.num_edges).astype(np.float32)
)


def loader_of(comm, graph=DATA.graph, sampler=None, **options):
    given = {"batch_size": 8, "bulk_size": 3, "features": DATA.x, "labels": DATA.y, "random_seed": 5, **options}
    sampler = sp.GraphSAGE([3, 2]) if sampler is None else sampler
    return sp.FactoredLoader(sp.ReplicatedGraph(graph, comm), given.pop("seeds", SEEDS), sampler, **given)


def streams(monkeypatch):
    """A torch whose streams are names, one for each thread; new threads are on the default one."""
    local = threading.local()

    @contextmanager
    def entered(stream):
        before, local.stream = getattr(local, "stream", "default"), stream
        yield
        local.stream = before

    cuda = SimpleNamespace(
        is_initialized=lambda: True, device=nullcontext, stream=entered, current_stream=lambda: local.stream
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, Tensor=()))
    return local


def facts(batch):
    layers = [
        (layer.adj.indptr, layer.adj.indices, layer.adj.data, layer.src_nodes, layer.edge_ids) for layer in batch.layers
    ]
    arrays = batch.seeds, batch.x, batch.y, batch.input_id, *itertools.chain(*layers)
    return [None if array is None else np.asarray(array).tolist() for array in arrays]


def alone(epochs=1, graph=DATA.graph, sampler=None, **options):
    """What each batch of one process has, by epoch."""
    given = {"batch_size": 8, "features": DATA.x, "labels": DATA.y, "random_seed": 5, **options}
    sampler = sp.GraphSAGE([3, 2]) if sampler is None else sampler
    loader = sp.BulkLoader(graph, given.pop("seeds", SEEDS), sampler, **given)
    return [{batch.batch_id: facts(batch) for batch in loader} for _ in range(epochs)]


def shared(of_ranks):
    """The batches of all ranks; each is on one of them."""
    together = {}
    for own in of_ranks:
        assert not set(own) & set(together)
        together |= own
    return together


def no_threads_are_left():
    until = time.monotonic() + 10
    while left := [thread.name for thread in threading.enumerate() if thread.name.startswith("spsample")]:
        assert time.monotonic() < until, left
        gc.collect()
        time.sleep(0.01)


KINDS = {
    "GraphSAGE": {},
    "in order": {"shuffle": False, "edge_ids": True},
    "whole batches": {"drop_last": True, "sampler": sp.GraphSAGE([2])},
    "LADIES": {"sampler": sp.LADIES([20, 30])},
    "FastGCN": {"sampler": sp.FastGCN([40])},
    "weighted": {"graph": WEIGHTED, "sampler": sp.GraphSAGE([3, 3], weighted=True)},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_batches_are_those_of_one_process(kind, ranks):
    """Two epochs, for every number of samplers; each time with another step, bulk, queue and switching."""
    expected = alone(2, **KINDS[kind])
    steps, bulks, queues = itertools.cycle([1, 7, 4, 2]), itertools.cycle([1, 5, "auto"]), itertools.cycle(["4MiB", 0])

    for samplers in range(1, ranks):
        per_step, bulk, queue = next(steps), next(bulks), next(queues)
        more = {"step_batches": per_step, "bulk_size": bulk, "switches": samplers % 2 == 1, **KINDS[kind]}
        if queue:
            more["queue_memory"] = queue

        def body(comm, more=more, samplers=samplers):
            loader = loader_of(comm, sampler_ranks=samplers, **more)
            epochs = [{batch.batch_id: facts(batch) for batch in loader} for _ in range(2)]
            told = len(loader), loader.num_batches, loader.epoch, loader.trained, loader.queue_peak
            loader.close()
            return epochs, told, loader.queue_memory

        runs = run_threads(ranks, body, TIMEOUT)
        for epoch in range(2):
            assert shared([epochs[epoch] for epochs, *_ in runs]) == expected[epoch]
        for epochs, (steps_told, batches, epoch, trained, peak), most in runs:
            assert batches == len(expected[0])
            assert steps_told == -(-batches // per_step)
            assert epoch == 2
            assert trained == sum(map(len, epochs))
            assert peak <= most
    no_threads_are_left()


def test_a_queue_of_hardly_one_bulk():
    """Samplers wait for trainers then."""
    expected = alone()[0]
    with pytest.raises(CapacityError) as raised:
        run_threads(3, lambda comm: loader_of(comm, bulk_size=1, queue_memory=1), TIMEOUT)
    least = re.search(r"room for one bulk: ([0-9.]+ \w+) for 1 minibatch", str(raised.value))

    def body(comm):
        loader = loader_of(comm, bulk_size=1, queue_memory=least[1].replace(" ", ""))
        own = {}
        for batch in loader:
            time.sleep(0.002)
            own[batch.batch_id] = facts(batch)
        return own, loader.queue_peak, loader.queue_memory

    runs = run_threads(3, body, TIMEOUT)
    assert shared([own for own, *_ in runs]) == expected
    assert 0 < runs[2][1] <= runs[2][2]
    assert runs[0][1] == runs[1][1] == 0


def test_steps_are_fixed_lists_of_batches():
    """Step t has the batches t B to (t + 1) B - 1, whoever trains them; a rank that does not train may have none."""

    def body(comm):
        loader = loader_of(comm, step_batches=4, switches=False)
        return [sorted(batch.batch_id for batch in step) for step in loader.steps()]

    runs = run_threads(3, body, TIMEOUT)
    assert len(runs[0]) == 5
    for step, of_ranks in enumerate(zip(*runs, strict=True)):
        assert sorted(itertools.chain(*of_ranks)) == list(range(17))[4 * step : 4 * step + 4]
        assert of_ranks[2] == []


@pytest.mark.parametrize("ranks", [2, 4])
def test_no_seeds_and_fewer_batches_than_ranks(ranks):
    for seeds in ([], [7]):
        runs = run_threads(
            ranks, lambda comm, s=seeds: [facts(b) for b in loader_of(comm, seeds=np.array(s, np.int64))], TIMEOUT
        )
        assert list(itertools.chain(*runs)) == [*alone(seeds=np.array(seeds, np.int64))[0].values()]


def test_a_state_of_every_step_goes_on_elsewhere():
    """On as many ranks, and on other numbers of ranks and samplers, the last step of an epoch included."""
    expected = alone(2)
    per_step = 3

    def whole(comm):
        loader = loader_of(comm, step_batches=per_step)
        states, own = [loader.state_dict()], []
        for _ in range(2):
            for step in loader.steps():
                own.append({batch.batch_id: facts(batch) for batch in step})
                states.append(loader.state_dict())
        return states, own

    def rest(comm, state, samplers):
        loader = loader_of(comm, step_batches=per_step, sampler_ranks=samplers)
        loader.load_state_dict(state)
        first = {batch.batch_id: facts(batch) for batch in loader}
        second = {batch.batch_id: facts(batch) for batch in loader} if state["epoch"] == 0 else {}
        assert loader.state_dict()["next_batch"] == 0
        return first, second

    runs = run_threads(3, whole, TIMEOUT)
    states = runs[0][0]
    assert all(run[0] == states for run in runs)
    assert [state["next_batch"] for state in states] == [0, *([3, 6, 9, 12, 15, 17] * 2)]
    for number, state in enumerate(states):
        ranks, samplers = [(3, 1), (2, 1), (4, 3), (5, 2)][number % 4]
        after = run_threads(ranks, lambda comm, s=state, n=samplers: rest(comm, s, n), TIMEOUT)
        epoch, first = state["epoch"], state["next_batch"]
        left = {batch: what for batch, what in expected[epoch].items() if batch >= first}
        assert shared([own for own, _ in after]) == left
        assert shared([own for _, own in after]) == (expected[1] if epoch == 0 else {})


def test_states_that_do_not_fit():
    def body(comm):
        loader = loader_of(comm, step_batches=3)
        state = loader.state_dict()
        loader.load_state_dict({**state, "next_batch": 4})
        with pytest.raises(InputError, match="state: got batch 4 of an epoch, within a step of 3 batches"):
            next(loader.steps())
        with pytest.raises(InputError, match="random_seed"):
            loader.load_state_dict({**state, "random_seed": 6})
        with pytest.raises(DTypeError, match="state: got"):
            loader.load_state_dict(3)
        return len(list(loader_of(comm)))

    assert sum(run_threads(2, body, TIMEOUT)) == 17


def test_an_epoch_that_is_chosen():
    expected = alone(4)

    def body(comm):
        loader = loader_of(comm)
        epochs = []
        for epoch in (3, 1):
            loader.set_epoch(epoch)
            epochs.append({batch.batch_id: facts(batch) for batch in loader})
        return epochs, loader.epoch

    runs = run_threads(3, body, TIMEOUT)
    assert shared([epochs[0] for epochs, _ in runs]) == expected[3]
    assert shared([epochs[1] for epochs, _ in runs]) == expected[1]
    assert {epoch for _, epoch in runs} == {2}


def test_another_number_of_samplers_from_the_next_pass_on():
    expected = alone(3)

    def body(comm):
        loader = loader_of(comm, switches=False)
        epochs = []
        for samplers in (1, 3, 2):
            loader.set_sampler_ranks(samplers)
            epochs.append({batch.batch_id: facts(batch) for batch in loader})
        with pytest.raises(InputError, match="sampler_ranks: got 4 of 4 ranks"):
            loader.set_sampler_ranks(4)
        return epochs

    runs = run_threads(4, body, TIMEOUT)
    for epoch, samplers in enumerate((1, 3, 2)):
        own = [epochs[epoch] for epochs in runs]
        assert shared(own) == expected[epoch]
        assert own[4 - samplers :] == [{}] * samplers


# --------------------------------------------------------------------------------------------------- leaving early


@pytest.mark.parametrize("after", [1, 3])
def test_all_leave_a_loop(after):
    """Nobody is told of an error, and the next pass is whole."""
    expected = alone()[0]

    def body(comm):
        loader = loader_of(comm, switches=False)
        for _ in range(3):
            for number, _step in enumerate(loader.steps(), 1):
                for _batch in _step:
                    pass
                comm.barrier()  # as a sum of gradients
                if number == after:
                    break
            comm.barrier()
        loader.set_epoch(0)
        own = {batch.batch_id: facts(batch) for batch in loader}
        loader.close()
        return own

    assert shared(run_threads(3, body, TIMEOUT)) == expected
    no_threads_are_left()


@pytest.mark.parametrize("how", ["break", "raise", "garbage"])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_one_rank_leaves_a_loop(rank, how):
    """A trainer or the sampler: the others say which, and all go on with a pass of all batches."""
    expected = alone()[0]

    def leave(loader):
        steps = loader.steps()
        for step in steps:
            for _ in step:
                break
            if how == "raise":
                raise ArithmeticError("mine")
            if how == "break":
                break
            del step, steps
            gc.collect()
            return

    def body(comm):
        loader = loader_of(comm, batch_size=2)
        if comm.rank == rank:
            with pytest.raises(ArithmeticError) if how == "raise" else nullcontext():
                leave(loader)
            told = ""
        else:
            with pytest.raises(SpSampleError) as raised:
                list(loader)
            told = str(raised.value)
        comm.barrier()
        loader.close()
        again = loader_of(comm)
        own = {batch.batch_id: facts(batch) for batch in again}
        again.close()
        return told, own

    runs = run_threads(3, body, TIMEOUT)
    for told, _ in runs[:rank] + runs[rank + 1 :]:
        assert told.startswith(f"rank {rank} failed: it left the loop over the steps")
        assert told.endswith("(rank 2 samples, ranks 0 to 1 train)")
    assert shared([own for _, own in runs]) == expected
    no_threads_are_left()


def test_a_rank_whose_body_fails_ends_all():
    """Without a word of the caller's: its end is heard of."""

    def body(comm):
        for batch in loader_of(comm, batch_size=2):
            if comm.rank == 0 and batch.batch_id > 3:
                raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        run_threads(3, body, TIMEOUT)
    no_threads_are_left()


def test_a_rank_tells_the_others_what_it_failed_with():
    def body(comm):
        loader = loader_of(comm, batch_size=2)

        def train():
            for _ in loader:
                if comm.rank == 0:
                    loader.fail(ZeroDivisionError("mine"))

        with pytest.raises(SpSampleError, match=r"rank 0 failed: .*mine.*\(rank 2 samples, ranks 0 to 1 train\)"):
            train()
        return True

    assert run_threads(3, body, TIMEOUT) == [True] * 3
    no_threads_are_left()


def test_a_step_whose_batches_are_not_taken():
    def body(comm):
        loader = loader_of(comm)
        with pytest.raises(SpSampleError, match=r"it left step \d of an epoch before its batches were trained"):
            list(loader.steps())
        return True

    assert run_threads(2, body, TIMEOUT) == [True] * 2
    no_threads_are_left()


def test_a_pass_begins_while_another_one_is_held():
    """As in the handler of an exception: passes do not mix."""
    expected = alone()[0]

    def body(comm):
        loader = loader_of(comm)
        held = loader.steps()
        next(held)
        loader.set_epoch(0)
        own = {batch.batch_id: facts(batch) for batch in loader}
        with pytest.raises(SpSampleError, match="it left"):
            list(held)
        loader.close()
        return own

    assert shared(run_threads(3, body, TIMEOUT)) == expected
    no_threads_are_left()


@pytest.mark.parametrize(("samplers", "batch"), [(1, 0), (1, 9), (2, 4)])
def test_a_sampler_that_fails(samplers, batch, monkeypatch):
    """The rank of that batch's bulk; the loader is usable afterwards."""
    original = sp.FactoredLoader._sampled

    def sampled(self, epoch, positions, first, end):
        for minibatch in original(self, epoch, positions, first, end):
            if minibatch.batch_id == batch and epoch == 0:
                raise MemoryError("no room")
            yield minibatch

    monkeypatch.setattr(sp.FactoredLoader, "_sampled", sampled)
    expected = alone(2)[1]
    shares = Roles(4, samplers).shares(0, 17, 3)
    rank = next(sampler for sampler, begin, end in shares if begin <= batch < end)

    def body(comm):
        loader = loader_of(comm, sampler_ranks=samplers)
        with pytest.raises(SpSampleError) as raised:
            list(loader)
        loader.set_epoch(1)
        return str(raised.value), {batch.batch_id: facts(batch) for batch in loader}

    runs = run_threads(4, body, TIMEOUT)
    for told, _ in runs:
        assert told.startswith(f"rank {rank} failed: MemoryError: no room")
        assert " train)" in told
    assert shared([own for _, own in runs]) == expected
    no_threads_are_left()


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_rank_that_is_lost(lost):
    """It answers no message any more; the others name it and say what it did."""

    def hook(method, phase):
        if phase == "messages of samplers and trainers" and threading.current_thread().name.startswith("spsample"):
            calls.append(phase)
            if len(calls) > 6:
                time.sleep(2)

    calls: list = []

    def body(comm):
        if comm.rank == lost:
            comm = Hooked(comm, hook)
        loader = loader_of(comm, batch_size=2)
        try:
            for _ in loader:
                time.sleep(0.01)
        except CommunicationError as error:
            return str(error)
        return "all"

    runs = run_threads(4, body, 1.0)
    for told in runs[:lost] + runs[lost + 1 :]:
        assert re.search(rf"nothing was heard of rank {lost}\b", told), told
        assert "messages of samplers and trainers" in told
        assert "(rank 3 samples, ranks 0 to 2 train)" in told


# -------------------------------------------------------------------------------------------------------- bad input


def test_what_is_closed_leaves_no_communicators():
    def body(comm):
        comm = Counted(comm)
        graph = sp.ReplicatedGraph(DATA.graph, comm)
        before = set(comm.made)
        for leaves in (False, True):
            loader = sp.FactoredLoader(graph, SEEDS, sp.GraphSAGE([3]), batch_size=4)
            for _ in loader.steps():
                if leaves:
                    break
                list(_)
            assert len(comm.made) == len(before) + 1
            comm.barrier()
            loader.close()
            assert comm.made == before
            with pytest.raises(InputError, match="loader: got one that was closed"):
                next(iter(loader))
            loader.close()
        return True

    assert run_threads(3, body, TIMEOUT) == [True] * 3


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"sampler_ranks": 3}, "sampler_ranks: got 3 of 3 ranks"),
        ({"sampler_ranks": 0}, "sampler_ranks: got 0"),
        ({"sampler_ranks": 1.5}, "sampler_ranks: got 1.5"),
        ({"step_batches": 0}, "step_batches: got 0"),
        ({"bulk_size": 0}, "bulk_size: got 0"),
        ({"queue_memory": -1}, "queue_memory: got -1"),
        ({"queue_memory": 50}, r"queue_memory: got 50 B.*room for one bulk"),
        ({"memory_budget": 50}, "memory_budget: got 50 B"),
        ({"switches": "on"}, "switches: got 'on'"),
        ({"shuffle": 2}, "shuffle: got 2"),
        ({"batch_size": 0}, "batch_size: got 0"),
        ({"seeds": [1, 5000]}, "seeds: got 5000 at position 1"),
        ({"labels": np.zeros(3)}, "labels: got"),
        ({"features": np.zeros((3, 3))}, "features: got"),
        ({"backend": "abacus"}, "backend: got 'abacus'"),
        ({"sampler": "GraphSAGE"}, "sampler: got 'GraphSAGE'"),
    ],
)
def test_arguments_that_cannot_be(option, said):
    """Refused by all, where all give them, and where one does."""
    for faulty in ({0, 1, 2}, {1}):
        if faulty == {1} and set(option) & {"memory_budget", "queue_memory"} and "50" in said:
            continue  # a trainer plans no bulk: its budget is another argument than the sampler's

        def body(comm, faulty=faulty):
            with pytest.raises(SpSampleError, match=said):
                loader_of(comm, **(option if comm.rank in faulty else {}))
            return True

        assert run_threads(3, body, TIMEOUT) == [True] * 3


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("seeds", SEEDS[::-1]),
        ("batch_size", 4),
        ("bulk_size", 2),
        ("sampler_ranks", 2),
        ("step_batches", 5),
        ("switches", False),
        ("queue_memory", "2GiB"),
        ("shuffle", False),
        ("drop_last", True),
        ("random_seed", 1),
        ("sampler", sp.GraphSAGE([2, 2])),
        ("edge_ids", True),
    ],
)
def test_arguments_that_differ(name, other):
    def body(comm):
        with pytest.raises(InputError, match=f"{name}: got something else on rank 1"):
            loader_of(comm, **({name: other} if comm.rank == 1 else {}))
        return True

    assert run_threads(3, body, TIMEOUT) == [True] * 3


def test_graphs_features_and_ranks_that_cannot_be():
    with pytest.raises(InputError, match="pipeline: got 'factored' on 1 rank"):
        sp.FactoredLoader(DATA.graph, SEEDS, sp.GraphSAGE([2]), batch_size=4)
    with pytest.raises(DTypeError, match="graph: "):
        sp.FactoredLoader("graph", SEEDS, sp.GraphSAGE([2]), batch_size=4)

    def partitioned(comm):
        graph = PartitionedGraph.from_graph(DATA.graph, ProcessGrid(comm))
        with pytest.raises(InputError, match=r"graph: got .*expected a ReplicatedGraph: a sampler has all of it"):
            sp.FactoredLoader(graph, SEEDS, sp.GraphSAGE([2]), batch_size=4)
        with pytest.raises(InputError, match="features: got PartitionedFeatures, which all ranks gather at once"):
            loader_of(comm, features=PartitionedFeatures.of(DATA.x, ProcessGrid(comm)))
        return True

    assert run_threads(2, partitioned, TIMEOUT) == [True] * 2


def test_threads_need_a_communicator_that_allows_them():
    class OneThread(Hooked):
        def duplicate(self):
            raise BackendError("only one thread may communicate.")

    def body(comm):
        with pytest.raises(BackendError, match=r"one thread may communicate\. Pipelines without threads: sync"):
            loader_of(OneThread(comm, lambda method, phase: None))
        return True

    assert run_threads(2, body, TIMEOUT) == [True] * 2


@pytest.mark.parametrize("place", [{"epoch": 1}, {"next_batch": 8}])
def test_ranks_at_different_places_are_refused(place):
    """On all of them, before a batch is sampled; of the batch within a step, too, which one rank alone has."""

    def body(comm):
        loader = loader_of(comm, step_batches=4)
        if comm.rank == 0:
            loader.load_state_dict({**loader.state_dict(), **place})
        with pytest.raises(InputError, match=next(iter(place))):
            list(loader)
        loader.load_state_dict({**loader.state_dict(), "epoch": 0, "next_batch": 4 if comm.rank else 6})
        with pytest.raises(InputError, match="within a step of 4"):
            list(loader)
        loader.set_epoch(0)
        count = len(list(loader))
        loader.close()
        return count

    assert sum(run_threads(3, body, TIMEOUT)) == 17


def test_a_state_within_a_step_repeats_it():
    """Batches that were not delivered are never left out."""

    def body(comm):
        loader = loader_of(comm, step_batches=6, switches=False)
        before, within = [], set()
        for step in loader.steps():
            for _ in step:
                within.add(loader.state_dict()["next_batch"])
            before.append((max(within, default=0), loader.state_dict()["next_batch"]))
            within.clear()
        loader.close()
        return before

    for rank, found in enumerate(run_threads(3, body, TIMEOUT)):
        ends = [6, 12, 17]
        assert [end for _, end in found] == ends
        if rank < 2:
            assert all(within in (0, begin) for (within, _), begin in zip(found, [0, 6, 12], strict=True))


def test_samplers_that_train_need_the_features_of_trainers():
    def body(comm, switches, sampler_has_them):
        has_them = comm.rank < 2 or sampler_has_them
        loader = loader_of(comm, switches=switches, features=DATA.x if has_them else None)
        count = sum(batch.x is not None for batch in loader)
        loader.close()
        return count

    with pytest.raises(InputError, match="features: got no features, labels on rank 2, features of"):
        run_threads(3, lambda comm: body(comm, True, False), TIMEOUT)
    assert sum(run_threads(3, lambda comm: body(comm, False, False), TIMEOUT)) == 17


def test_what_is_no_exception_ends_all():
    """A thread that ends otherwise than by an Exception leaves nobody waiting."""

    class Exits(sp.features.FeatureSource):
        num_rows, dim = DATA.x.shape

        def _read(self, ids, out, at=None):
            raise SystemExit(3)

    def body(comm):
        features = Exits() if comm.rank == 0 else DATA.x
        loader = loader_of(comm, features=features)
        with pytest.raises(SpSampleError, match="rank 0 failed: SystemExit: 3"):
            list(loader)
        loader.close()

    run_threads(3, body, TIMEOUT)
    no_threads_are_left()


def test_samplers_that_cannot_be_close_the_loader():
    def body(comm):
        loader = loader_of(comm)
        loader.queue_memory = 100
        with pytest.raises(CapacityError, match="queue_memory"):
            loader.set_sampler_ranks(2)
        with pytest.raises(InputError, match="closed"):
            list(loader)
        loader.close()

    run_threads(3, body, TIMEOUT)


@pytest.mark.parametrize("given", [(2, 7, 2), (1, 2, 2)])
def test_other_numbers_of_samplers_on_other_ranks_are_refused(given):
    """By all, whose roles stay as they were."""

    def body(comm):
        loader = loader_of(comm, sampler_ranks=1)
        with pytest.raises(InputError, match="sampler_ranks"):
            loader.set_sampler_ranks(given[comm.rank])
        found = loader.roles.samplers, loader.bulk_size, sorted(batch.batch_id for batch in loader)
        loader.close()
        return found

    runs = run_threads(3, body, TIMEOUT)
    assert {found[:2] for found in runs} == {runs[0][:2]}
    assert runs[0][0] == 1
    assert sorted(batch for *_, batches in runs for batch in batches) == list(range(-(-len(SEEDS) // 8)))


def test_features_by_role():
    """A rank is asked again where its role changes; all batches have the same rows."""
    expected = {
        batch.batch_id: batch.x
        for batch in sp.BulkLoader(
            DATA.graph, SEEDS, sp.GraphSAGE([3, 2]), batch_size=8, features=DATA.x, random_seed=5
        )
    }

    def body(comm):
        asked = []

        def of_role(samples):
            asked.append(samples)
            return sp.FeatureStore(DATA.x)

        loader = loader_of(comm, features=of_role)
        for samplers in (1, 3, 2):
            loader.set_sampler_ranks(samplers)
        loader.set_epoch(0)
        rows = {batch.batch_id: batch.x for batch in loader}
        loader.close()
        return asked, rows

    runs = run_threads(4, body, TIMEOUT)
    assert [asked for asked, _ in runs] == [[False], [False, True, False], [False, True], [True]]
    found = {batch: x for _, rows in runs for batch, x in rows.items()}
    assert found.keys() == expected.keys()
    for batch, x in expected.items():
        np.testing.assert_array_equal(found[batch], x)


def test_features_by_role_that_cannot_be_had():
    """On one rank alone: all raise, and the loader is closed."""

    def body(comm):
        def of_role(samples):
            if samples and comm.rank == 1:
                raise MemoryError("no room")
            return DATA.x

        loader = loader_of(comm, features=of_role, sampler_ranks=1)
        with pytest.raises(Exception, match="no room"):
            loader.set_sampler_ranks(2)
        with pytest.raises(InputError, match="closed"):
            list(loader)
        with pytest.raises(InputError, match="all ranks gather at once"):
            loader_of(comm, features=lambda samples: PartitionedFeatures.of(DATA.x, ProcessGrid(comm)))

    run_threads(3, body, TIMEOUT)


def test_features_are_gathered_on_the_stream_of_the_loop(monkeypatch):
    """Rows that a GPU gathers are read there: on another stream they could be read before they are done."""
    local = streams(monkeypatch)

    class Noting(sp.FeatureStore):
        def _read(self, ids, out, at=None):
            found.append(getattr(local, "stream", "default"))
            super()._read(ids, out, at)

    found = []

    def body(comm):
        local.stream = SimpleNamespace(device=1)
        loader = loader_of(comm, sampler_ranks=1, features=Noting(DATA.x))
        batches = len(list(loader))
        loader.close()
        return batches, local.stream

    of_ranks = run_threads(2, body)
    assert sum(batches for batches, _ in of_ranks) == -(-len(SEEDS) // 8)
    assert all(any(one is stream for _, stream in of_ranks) for one in found)
    assert found
