"""Bulks sampled on p ranks are those of one rank, bit for bit."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from covers import pairs
from partitioned_cases import GRAPHS, SAMPLERS, batches_of, divisors, gathered, same_batches
from stages_variants import ALL_ALGORITHMS, VARIANTS, ComparedGraph

import spsample as sp
from spsample.backends import get_backend
from spsample.comm import Channel, run_threads
from spsample.distributed import PartitionedGraph, ProcessGrid
from spsample.distributed.blocks import GraphRows, block_row, hub_vertices, with_hubs
from spsample.distributed.placement import balanced
from spsample.errors import CapacityError, InputError
from spsample.planning.cluster.exchanges import hub_rows
from spsample.sparse import RowSelector

TIMEOUT = 60
GRIDS = [(p, c) for p in (1, 2, 3, 4, 6, 8) for c in divisors(p)]
SOME = [sp.GraphSAGE([3, 2]), sp.LADIES([4, 5]), sp.FastGCN([4])]


def sampled(A, sampler, seeds, arguments, comm, *, c, partition=None, hubs=None, algorithm="column"):
    grid = ProcessGrid(comm, c)
    parts = ComparedGraph.from_graph(A, grid, partition=partition, replicate_hubs=hubs, algorithm=algorithm)
    return batches_of(sp.bulk_sample(parts, seeds, sampler, **arguments))


@pytest.mark.parametrize(
    ("algorithm", "sampler", "grid", "graph", "edge_ids"),
    pairs(ALL_ALGORITHMS, SAMPLERS, GRIDS, GRAPHS, [True, False]),
    ids=str,
)
def test_partitioned_equals_local(algorithm, sampler, grid, graph, edge_ids):
    p, c = grid
    A = GRAPHS[graph]()
    seeds = np.random.default_rng(1).integers(0, A.num_nodes, 100)
    arguments = {"batch_size": 9, "random_seed": 5, "epoch": 2, "first_batch": 3, "edge_ids": edge_ids}
    want = batches_of(sp.bulk_sample(A, seeds, sampler, **arguments))
    body = partial(sampled, A, sampler, seeds, arguments, algorithm=algorithm)
    for partition, hubs in ((None, None), (np.random.default_rng(0).integers(0, p // c, A.num_nodes), 1500)):
        same_batches(gathered(run_threads(p, partial(body, c=c, partition=partition, hubs=hubs), TIMEOUT)), want)


@pytest.mark.parametrize(
    ("algorithm", "sampler", "num_seeds", "c"), pairs(ALL_ALGORITHMS, SOME, [0, 1, 3], divisors(8)), ids=str
)
def test_ranks_without_batches(algorithm, sampler, num_seeds, c):
    A = GRAPHS["weighted"]()
    arguments = {"batch_size": 1, "random_seed": 5}
    want = batches_of(sp.bulk_sample(A, np.arange(num_seeds), sampler, **arguments))
    body = partial(sampled, A, sampler, np.arange(num_seeds), arguments, algorithm=algorithm)
    same_batches(gathered(run_threads(8, partial(body, c=c), TIMEOUT)), want)


@pytest.mark.parametrize(("algorithm", "sampler", "c"), pairs(ALL_ALGORITHMS, SOME, [1, 2, 4]), ids=str)
def test_a_rank_that_fails_fails_on_all(algorithm, sampler, c, monkeypatch):
    A = GRAPHS["plain"]()

    def body(comm):
        parts = ComparedGraph.from_graph(A, ProcessGrid(comm, c), algorithm=algorithm)
        operand = parts.operand()
        if comm.rank == 2:
            operand.held.block.matrix = None  # its memory is gone
        with pytest.raises(Exception, match="rank 2"):
            sp.bulk_sample(parts, np.arange(20), sampler, batch_size=2)
        return True

    assert all(run_threads(4, body, TIMEOUT))


def test_an_algorithm_that_there_is_not():
    def body(comm):
        return PartitionedGraph.from_graph(GRAPHS["plain"](), ProcessGrid(comm), algorithm="rows")

    with pytest.raises(InputError, match="stages"):
        run_threads(2, body, TIMEOUT)


@pytest.mark.parametrize("algorithm", VARIANTS)
def test_a_variant_is_no_choice_of_users(algorithm):
    def body(comm):
        return PartitionedGraph.from_graph(GRAPHS["plain"](), ProcessGrid(comm), algorithm=algorithm)

    with pytest.raises(InputError, match=f"algorithm: got '{algorithm}'; expected one of 'auto', 'column', 'stages'"):
        run_threads(2, body, TIMEOUT)


@pytest.mark.parametrize(
    ("algorithm", "graph", "sampler"),
    pairs(ALL_ALGORITHMS, GRAPHS, [sp.LADIES([5, 6]), sp.LADIES([5], law="squared_count"), sp.FastGCN([6])]),
    ids=str,
)
def test_the_reference_backend_on_ranks(algorithm, graph, sampler):
    A = GRAPHS[graph]()
    arguments = {"batch_size": 9, "backend": "reference"}
    want = batches_of(sp.bulk_sample(A, np.arange(30), sampler, **arguments))
    body = partial(sampled, A, sampler, np.arange(30), arguments, algorithm=algorithm, c=2)
    same_batches(gathered(run_threads(4, body, TIMEOUT)), want)


@pytest.mark.parametrize("algorithm", ALL_ALGORITHMS)
def test_a_size_of_just_the_columns_that_there_are(algorithm):
    A = GRAPHS["plain"]()
    sampler = sp.FastGCN([len(np.unique(A.indices))])
    want = batches_of(sp.bulk_sample(A, np.arange(9), sampler, batch_size=3))
    body = partial(sampled, A, sampler, np.arange(9), {"batch_size": 3}, algorithm=algorithm, c=2)
    same_batches(gathered(run_threads(4, body, TIMEOUT)), want)


@pytest.mark.parametrize("algorithm", ALL_ALGORITHMS)
def test_the_same_vertices_in_other_batches(algorithm):
    A = GRAPHS["plain"]()
    vertices = np.arange(4, dtype=np.int32)
    selectors = [RowSelector(np.array([0, end, 4]), vertices, np.array([0, 1])) for end in (1, 2)]

    def body(comm):
        parts = ComparedGraph.from_graph(A, ProcessGrid(comm), algorithm=algorithm)
        operand = parts.operand()
        with parts.sampling():
            return [operand.frontier(Q).batch_statistics.counts.tolist() for Q in selectors]

    want = [A.operand().frontier(Q).batch_statistics.counts.tolist() for Q in selectors]
    assert run_threads(2, body, TIMEOUT) == [want, want]


def test_a_duplicate_does_not_see_what_the_other_thread_reads():
    def body(comm):
        parts = PartitionedGraph.from_graph(GRAPHS["plain"](), ProcessGrid(comm))
        twin = parts.duplicate()
        if comm.rank == 0:  # its other thread is a little earlier
            parts._held["cpu"] = None
        return len(sp.bulk_sample(twin, np.arange(8), sp.GraphSAGE([2]), batch_size=2, backend="cpu"))

    assert run_threads(2, body, TIMEOUT) == [2, 2]


def test_memory_that_runs_out_on_one_rank():
    class Greedy(sp.GraphSAGE):
        def layer(self, A, Q, draw, want):
            if A.channel.group.rank == 1:
                raise MemoryError
            return super().layer(A, Q, draw, want)

    def body(comm):
        parts = PartitionedGraph.from_graph(GRAPHS["plain"](), ProcessGrid(comm))
        with pytest.raises(CapacityError, match="rank 1"):
            sp.bulk_sample(parts, np.arange(8), Greedy([2]), batch_size=2)
        return True

    assert all(run_threads(2, body, TIMEOUT))


def test_no_more_hubs_than_ids_can_count():
    """Ids of 120 vertices in eight bits, as those of almost 2^31 in 32: few places are left for hub rows."""
    A = sp.Graph(np.arange(121), np.concatenate([np.arange(60) // 10, np.arange(60, 120)]))

    def body(comm):
        rows = GraphRows(A)
        block = block_row(rows, balanced(A.indptr, comm.size), comm.rank, get_backend())
        every = hub_vertices(Channel(comm), block, rows, 10**6)
        rows.index_dtype = np.dtype(np.int8)
        few = hub_vertices(Channel(comm), block, rows, 10**6)
        placed = with_hubs(balanced(A.indptr, comm.size), few, 120)
        return len(every), few.tolist(), placed.position[few].tolist()

    for every, few, places in run_threads(2, body, TIMEOUT):
        assert every == 66
        assert few == list(range(6))  # seven places are left, and the next hub rows would be 60
        assert places == list(range(120, 126))


@pytest.mark.parametrize("budget", [0, 24, 500, 3000, 10**6])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_plan_knows_the_hubs(budget, weighted):
    """Plans count how often a vertex is a source for themselves."""
    rng = np.random.default_rng(8)
    ends = rng.integers(0, 90, (2, 700))
    ends[0] = np.minimum(ends[0], rng.integers(0, 90, 700))  # low ids are sources of many edges
    A = sp.Graph.from_edge_index(ends, num_nodes=90, edge_weight=rng.random(700) if weighted else None)
    entry_bytes = A.indices.itemsize + (A.data.itemsize if weighted else 0)

    def body(comm):
        rows = GraphRows(A)
        block = block_row(rows, balanced(A.indptr, comm.size), comm.rank, get_backend())
        return hub_vertices(Channel(comm), block, rows, budget).tolist()

    for hubs in run_threads(3, body, TIMEOUT):
        assert hubs == hub_rows(A, budget, entry_bytes).tolist()


def lopsided():
    """Half of the rows name column 40 nearly always, the others 16 columns evenly: only batches of the first redraw."""
    often = [[40] * 3000 + [v, v + 8, v + 30, v + 50] for v in range(6)]
    evenly = [[(v + 3 * k) % 64 for k in range(16)] for v in range(6)]
    rows = [*often, *evenly, *([[]] * 52)]
    return sp.Graph(np.cumsum([0, *map(len, rows)]), np.concatenate(rows).astype(np.int32))


@pytest.mark.parametrize(
    ("algorithm", "sampler", "grid"),
    pairs(
        ALL_ALGORITHMS,
        [sp.LADIES([6]), sp.LADIES([6], law="squared_count"), sp.FastGCN([7])],
        [grid for grid in GRIDS if grid[0] in (2, 4)],
    ),
    ids=str,
)
def test_ranks_that_redraw_more_often_than_others(algorithm, sampler, grid):
    p, c = grid
    A = lopsided()
    batches = [range(6), range(6, 12)] * 8  # on two ranks, one has all that redraw
    seeds, arguments = np.concatenate(batches), {"batch_size": 6, "random_seed": 5}
    want = batches_of(sp.bulk_sample(A, seeds, sampler, **arguments))
    body = partial(sampled, A, sampler, seeds, arguments, algorithm=algorithm)
    same_batches(gathered(run_threads(p, partial(body, c=c), TIMEOUT)), want)
