"""Loaders on several ranks: the batches of one rank, shared out, and nobody left waiting."""

import threading
import time

import numpy as np
import pytest
from hooked import Counted

import spsample as sp
from spsample.comm import run_threads
from spsample.data import planted
from spsample.distributed import PartitionedGraph, ProcessGrid, ReplicatedGraph
from spsample.errors import BackendError, CapacityError, InputError, SpSampleError
from spsample.features import FeatureSource, FeatureStore, PartitionedFeatures

TIMEOUT = 30.0
SHAPES = [(p, c) for p in (1, 2, 3, 4) for c in range(1, p + 1) if p % c == 0]
DATA = planted(500, random_seed=3)


def loader_of(comm, c=1, seeds=None, **options):
    graph = ReplicatedGraph(DATA.graph, comm)
    features = PartitionedFeatures.of(DATA.x, ProcessGrid(comm, c))
    seeds = np.arange(260) if seeds is None else seeds
    options = {"batch_size": 16, "bulk_size": 6, "features": features, "labels": DATA.y, "random_seed": 5, **options}
    return sp.BulkLoader(graph, seeds, options.pop("sampler", sp.GraphSAGE([3, 2])), **options)


def facts(batch):
    layers = [(layer.adj.indptr, layer.adj.indices, layer.src_nodes) for layer in batch.layers]
    return [batch.seeds, batch.x, batch.y, batch.input_id, *(array for layer in layers for array in layer)]


def alone(seeds=None, epochs=1, **options):
    """Batches of one rank, by epoch."""
    seeds = np.arange(260) if seeds is None else seeds
    options = {"batch_size": 16, "features": FeatureStore(DATA.x), "labels": DATA.y, "random_seed": 5, **options}
    loader = sp.BulkLoader(DATA.graph, seeds, options.pop("sampler", sp.GraphSAGE([3, 2])), **options)
    return [list(loader) for _ in range(epochs)]


def assert_same_batch(one, other):
    assert one.batch_id == other.batch_id
    for mine, theirs in zip(facts(one), facts(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def assert_shared_out(passes, expected):
    """Step t of rank r is batch t p + r, or one without seeds."""
    p, steps = len(passes), -(-len(expected) // len(passes))
    for rank, batches in enumerate(passes):
        assert len(batches) == steps
        for step, batch in enumerate(batches):
            assert batch.batch_id == step * p + rank
            if batch.batch_id < len(expected):
                assert_same_batch(batch, expected[batch.batch_id])
            else:
                assert_is_empty(batch)


def assert_is_empty(batch):
    assert len(batch.seeds) == len(batch.src_nodes) == len(batch.input_id) == 0
    assert batch.x.shape == (0, DATA.x.shape[1])
    assert [layer.adj.shape for layer in batch.layers] == [(0, 0)] * len(batch.layers)


@pytest.mark.parametrize(("p", "c"), SHAPES)
@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_batches_are_those_of_one_rank(p, c, prefetch):
    expected = alone(epochs=2)

    def body(comm):
        loader = loader_of(comm, c, prefetch=prefetch)
        assert len(loader) == -(-17 // p)
        assert loader.num_batches == 17
        assert loader.bulk_size % p == 0
        return [list(loader) for _ in range(2)]

    passes = run_threads(p, body, TIMEOUT)
    for epoch in range(2):
        assert_shared_out([own[epoch] for own in passes], expected[epoch])


@pytest.mark.parametrize("sampler", [sp.LADIES([20, 30]), sp.FastGCN([40]), sp.GraphSAGE([3, 3], layout="subgraph")])
def test_other_samplers(sampler):
    expected = alone(sampler=sampler)[0]
    assert_shared_out(run_threads(3, lambda comm: list(loader_of(comm, sampler=sampler)), TIMEOUT), expected)


@pytest.mark.parametrize(("p", "seeds", "batch_size"), [(4, 4097, 64), (8, 3, 1), (8, 3, 512), (3, 0, 4)])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_uneven_numbers_of_seeds(p, seeds, batch_size, prefetch):
    ids = np.random.default_rng(0).integers(0, 500, seeds)
    expected = alone(ids, batch_size=batch_size)[0]

    def body(comm):
        return list(loader_of(comm, seeds=ids, batch_size=batch_size, prefetch=prefetch))

    assert_shared_out(run_threads(p, body, TIMEOUT), expected)


@pytest.mark.parametrize("prefetch", [0, 1])
def test_drop_last(prefetch):
    ids = np.arange(1, 140)
    expected = alone(ids, batch_size=16)[0][:8]

    def body(comm):
        loader = loader_of(comm, seeds=ids, batch_size=16, prefetch=prefetch, drop_last=True)
        return (loader.num_batches, len(loader)), list(loader)

    passes = run_threads(3, body, TIMEOUT)
    assert all(sizes == (8, 3) for sizes, _ in passes)
    assert_shared_out([own for _, own in passes], expected)


def test_ranks_that_differ_in_drop_last_are_refused():
    with pytest.raises(InputError, match="drop_last"):
        run_threads(2, lambda comm: loader_of(comm, drop_last=comm.rank == 0), TIMEOUT)


def test_an_empty_batch_as_pyg_has_it():
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")

    def body(comm):
        sampler = sp.GraphSAGE([2, 2], layout="subgraph")
        return list(loader_of(comm, seeds=[1, 2, 3], batch_size=1, sampler=sampler, edge_ids=True).pyg())

    *_, (data,) = run_threads(4, body, TIMEOUT)
    assert data.x.shape == (0, DATA.x.shape[1])
    assert data.edge_index.shape == (2, 0)
    assert data.e_id.dtype == torch.int64
    assert data.num_sampled_nodes == [0, 0, 0]


@pytest.mark.parametrize("prefetch", [0, 1])
@pytest.mark.parametrize(("before", "steps", "after"), [((4, 2), 2, (3, 1)), ((3, 1), 1, (4, 2)), ((2, 1), 5, (1, 1))])
def test_a_pass_goes_on_on_other_ranks(before, steps, after, prefetch):
    expected = alone()[0]

    def first(comm):
        loader = loader_of(comm, before[1], prefetch=prefetch)
        batches = iter(loader)
        taken = [next(batches) for _ in range(steps)]
        return taken, loader.state_dict()

    def second(comm):
        loader = loader_of(comm, after[1], prefetch=prefetch)
        loader.load_state_dict(state)
        return list(loader)

    begun = run_threads(before[0], first, TIMEOUT)
    state = begun[0][1]
    assert all(own == state for _, own in begun)
    assert state["next_batch"] == steps * before[0]
    rest = run_threads(after[0], second, TIMEOUT)
    batches = [batch for own in [*(taken for taken, _ in begun), *rest] for batch in own if len(batch.seeds)]
    assert sorted(batch.batch_id for batch in batches) == list(range(17))
    for batch in batches:
        assert_same_batch(batch, expected[batch.batch_id])


@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_a_pass_that_all_leave_early_leaves_nobody_waiting(prefetch):
    expected = alone()[0]

    def body(comm):
        loader = loader_of(comm, prefetch=prefetch)
        for stop in (0, 2, 1):
            for step, _ in enumerate(loader):
                time.sleep(0.002 * comm.rank)
                if step == stop:
                    break
        batches = list(loader)
        loader.close()
        return batches

    assert_shared_out(run_threads(4, body, TIMEOUT), expected)
    assert_no_threads()


@pytest.mark.parametrize("partitioned", [True, False])
def test_what_is_closed_leaves_no_communicators(partitioned):
    def body(comm):
        comm = Counted(comm)
        grid = ProcessGrid(comm, 2)
        graph = PartitionedGraph.from_graph(DATA.graph, grid) if partitioned else ReplicatedGraph(DATA.graph, comm)
        features = PartitionedFeatures.of(DATA.x, grid)
        before = set(comm.made)
        for _ in range(2):
            loader = sp.BulkLoader(graph, np.arange(60), sp.GraphSAGE([3]), features=features, batch_size=4)
            assert len(list(loader)) == 4
            assert len(comm.made) > len(before)
            loader.close()
            assert comm.made == before
            for batches in (iter(loader), loader.bulks(0)):
                with pytest.raises(InputError, match="loader: got one that was closed"):
                    next(batches)
            loader.close()
        assert len(features.gather([1, 2])) == 2  # the caller's own are open
        grid.close()
        return len(comm.made)

    assert run_threads(4, body, TIMEOUT) == [0, 0, 0, 0]


def assert_no_threads():
    deadline = time.monotonic() + 5
    while any(thread.name.startswith("spsample") for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_others_hear_of_a_rank_that_leaves_alone():
    def body(comm):
        loader = loader_of(comm, seeds=np.arange(500), batch_size=2, bulk_size=12)
        batches = iter(loader)
        next(batches)
        if comm.rank == 1:
            batches.close()
            return "left"
        with pytest.raises(SpSampleError, match="rank 1 failed: it left the loop"):
            list(batches)
        return "told"

    assert run_threads(3, body, TIMEOUT) == ["told", "left", "told"]
    assert_no_threads()


class Broken(FeatureSource):
    """Features that one rank cannot read any more."""

    def __init__(self, comm, good):
        self._comm, self._good, self._left = comm, FeatureStore(DATA.x), good

    num_rows, dim = 500, DATA.x.shape[1]

    def _read(self, ids, out, at=None):
        self._left -= 1
        if self._comm.rank == 2 and self._left < 0:
            raise OSError("the disk is gone")
        self._good.gather(ids, out, at)


@pytest.mark.parametrize("good", [0, 1, 3])
def test_local_features_that_fail_on_one_rank_end_the_pass_on_all(good):
    def body(comm):
        loader = loader_of(comm, features=Broken(comm, good), seeds=np.arange(500), batch_size=2, bulk_size=12)
        expected = (OSError, "the disk is gone") if comm.rank == 2 else (SpSampleError, "rank 2 failed: OSError")
        with pytest.raises(expected[0], match=expected[1]):
            list(loader)

    run_threads(4, body, TIMEOUT)
    assert_no_threads()


@pytest.mark.parametrize("prefetch", [0, 1])
def test_partitioned_features_that_fail_on_one_rank_raise_on_all(prefetch, monkeypatch):
    from spsample.features import partitioned

    def answers(self, rows, counts):
        if self.comm.rank == 1 and threading.current_thread().name != "pytest":
            calls.append(1)
            if len(calls) > 3:
                raise OSError("the disk is gone")
        return original(self, rows, counts)

    original, calls = partitioned.RowExchange.answers, []
    monkeypatch.setattr(partitioned.RowExchange, "answers", answers)

    def body(comm):
        with pytest.raises(SpSampleError, match="rank 1 failed: OSError: the disk is gone"):
            list(loader_of(comm, prefetch=prefetch))

    run_threads(3, body, TIMEOUT)
    assert_no_threads()


def test_what_one_rank_cannot_complete_ends_the_pass_on_all():
    def body(comm):
        loader = loader_of(comm, seeds=np.arange(500), batch_size=2, bulk_size=12)

        def complete(minibatch, positions, x):
            if minibatch.batch_id == 7:
                raise ValueError("no")
            return minibatch

        with pytest.raises(Exception, match=r"rank 1 failed: (ValueError: no|it left)|^no$"):
            list(loader.batches(complete))

    run_threads(3, body, TIMEOUT)
    assert_no_threads()


def test_seeds_that_differ_between_ranks_are_refused():
    def body(comm):
        with pytest.raises(InputError):
            list(loader_of(comm, seeds=np.arange(100) + comm.rank))

    run_threads(2, body, TIMEOUT)
    assert_no_threads()


def test_a_budget_on_several_ranks():
    def planned(comm):
        loader = loader_of(comm, bulk_size="auto", memory_budget="64MiB")
        return loader.bulk_size, loader.plan

    plans = run_threads(4, planned, TIMEOUT)
    assert len({plan for _, plan in plans}) == 1
    assert plans[0][0] % 4 == 0

    def refused(comm):
        with pytest.raises(CapacityError, match="memory_budget"):
            loader_of(comm, bulk_size=8, memory_budget=1000)
        least = plans[0][1].bytes_per_batch * plans[0][1].copies + plans[0][1].fixed_bytes
        with pytest.raises(CapacityError, match="at most 4 within"):
            loader_of(comm, bulk_size=8, memory_budget=least)

    run_threads(4, refused, TIMEOUT)


@pytest.mark.parametrize("sampler", [sp.GraphSAGE([3, 2]), sp.LADIES([64, 64]), sp.FastGCN([64, 64])])
def test_a_budget_counts_what_ranks_have_of_shared_batches(sampler):
    """Rank 0 owns nine vertices in ten: it has several times as much of a batch as the ranks that sampled it."""

    def body(comm, parts, budget):
        options = {"sampler": sampler, "batches": "cooperative", "parts": parts, "batch_size": 32, "prefetch": 0}
        loader = loader_of(comm, bulk_size="auto", memory_budget=budget, **options)
        shared = loader._assignment.of_rank(sp.bulk_sample(loader.graph, np.arange(256), sampler, batch_size=32), comm)
        shared_bytes = loader.plan.copies * shared.nbytes * loader.bulk_size // len(shared)
        return loader.plan, loader.bulk_size, shared_bytes

    even, skewed = np.arange(500) % 4, np.where(np.arange(500) % 10, 0, np.arange(500) // 10 % 3 + 1)
    told = run_threads(4, lambda comm: body(comm, even, "8MiB"), TIMEOUT)
    plan, size, _ = told[0]
    assert size == 12  # the epoch
    budget = plan.peak(20)
    others = run_threads(4, lambda comm: body(comm, skewed, budget), TIMEOUT)
    for same, most in ((told, 8 << 20), (others, budget)):
        assert len({(plan, size) for plan, size, _ in same}) == 1
        assert max(bytes_ for _, _, bytes_ in same) < most
    assert others[0][0].sampled_bytes == plan.sampled_bytes > 0
    assert others[0][0].bytes_per_batch > 2 * plan.bytes_per_batch
    assert others[0][1] < size


def test_threads_need_a_communicator_that_allows_them():
    class OneThread(ReplicatedGraph):
        def duplicate(self):
            raise BackendError("only one thread may communicate.")

    def body(comm):
        graph = OneThread(DATA.graph, comm)
        with pytest.raises(BackendError, match=r"one thread may communicate\. Without threads: prefetch=0"):
            sp.BulkLoader(graph, [1, 2], sp.GraphSAGE([2]), batch_size=1)
        return len(list(sp.BulkLoader(graph, [1, 2], sp.GraphSAGE([2]), batch_size=1, prefetch=0)))

    assert run_threads(2, body, TIMEOUT) == [1, 1]


def test_features_of_other_ranks_are_refused():
    def body(comm):
        features = PartitionedFeatures.of(DATA.x, ProcessGrid(comm.split(comm.rank % 2)))
        with pytest.raises(InputError, match="2 ranks"):
            loader_of(comm, features=features)

    run_threads(4, body, TIMEOUT)


def test_bulks_without_features_are_each_ranks_own():
    bulks = run_threads(2, lambda comm: [b.batch_ids.tolist() for b in loader_of(comm).bulks(0)], TIMEOUT)
    assert bulks[0] == [[0, 2, 4], [6, 8, 10], [12, 14, 16]]
    assert bulks[1] == [[1, 3, 5], [7, 9, 11], [13, 15]]


@pytest.mark.parametrize(
    "option",
    [{"seeds": [1, 5000]}, {"labels": np.zeros(3)}, {"bulk_size": 0}, {"prefetch": -1}, {"prefetch": 0}],
    ids=lambda option: next(iter(option)),
)
def test_what_one_rank_gives_wrong_is_refused_on_all(option):
    def body(comm):
        with pytest.raises(InputError, match=f"{next(iter(option))}: .*rank 1"):
            loader_of(comm, **(option if comm.rank == 1 else {}))
        return True

    assert all(run_threads(2, body, TIMEOUT))
    assert_no_threads()
