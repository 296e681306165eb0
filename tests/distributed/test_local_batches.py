"""Batches of local seeds on several ranks: whose they are, that they are right, and what all ranks refuse together."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample.comm import run_threads
from spsample.data import planted
from spsample.distributed import PartitionedGraph, ProcessGrid, ReplicatedGraph
from spsample.errors import InputError, SpSampleError
from spsample.features import PartitionedFeatures

TIMEOUT = 60.0
DATA = planted(500, random_seed=3)
SEEDS = np.random.default_rng(0).permutation(500)[:130]
SHAPES = [(1, 1), (2, 1), (4, 1), (4, 2), (6, 3), (6, 2)]


def parts_of(blocks):
    """Uneven ones: part i is about half as large as part i - 1."""
    return np.minimum(np.random.default_rng(1).geometric(0.4, 500) - 1, blocks - 1)


def loader_of(comm, c=1, kind="partitioned", **options):
    grid = ProcessGrid(comm, c)
    parts = parts_of(grid.num_blocks)
    options = {"batch_size": 8, "bulk_size": 6, "random_seed": 5, "batches": "local", **options}
    if kind == "partitioned":
        graph = PartitionedGraph.from_graph(DATA.graph, grid, partition=parts)
    else:
        graph = ReplicatedGraph(DATA.graph, comm)
        options = {"parts": parts, **options}
    features = PartitionedFeatures.of(DATA.x, grid, partition=parts)
    sampler = options.pop("sampler", sp.GraphSAGE([3, 2]))
    seeds = options.pop("seeds", SEEDS)
    return sp.BulkLoader(graph, seeds, sampler, features=features, labels=DATA.y, **options)


def facts(batch):
    layers = [(layer.adj.indptr, layer.adj.indices, layer.src_nodes) for layer in batch.layers]
    arrays = [batch.seeds, batch.x, batch.y, batch.input_id, *(array for layer in layers for array in layer)]
    return batch.batch_id, [array.tolist() for array in arrays]


def a_pass(comm, c=1, kind="partitioned", **options):
    loader = loader_of(comm, c, kind, **options)
    found = [facts(batch) for batch in loader]
    assert len(found) == len(loader)
    assert loader.num_batches == len(loader) * comm.size
    loader.close()
    return found


@pytest.mark.parametrize(("p", "c"), SHAPES)
@pytest.mark.parametrize("sampler", [sp.GraphSAGE([3, 2]), sp.LADIES([20, 30]), sp.FastGCN([40])], ids=repr)
def test_every_seed_once_on_a_rank_of_its_block_row(p, c, sampler):
    """And each batch is what its id and its seeds make of it, on one rank alone."""
    ranks = run_threads(p, lambda comm: a_pass(comm, c, sampler=sampler), TIMEOUT)
    parts, visited = parts_of(p // c), []
    for rank, batches in enumerate(ranks):
        for step, (batch_id, (seeds, x, _, input_id, *_)) in enumerate(batches):
            assert batch_id == step * p + rank
            assert (parts[seeds] == rank // c).all()
            assert SEEDS[input_id].tolist() == seeds
            visited += seeds
            if not seeds:
                assert x == []
                continue
            alone = sp.bulk_sample(
                DATA.graph, seeds, sampler, batch_size=len(seeds), random_seed=5, first_batch=batch_id
            )
            np.testing.assert_array_equal(DATA.x[alone[0].src_nodes], x)
        sizes = [len(seeds) for _, (seeds, *_) in batches]
        assert max(sizes) - min(sizes) <= 1
    assert sorted(visited) == sorted(SEEDS.tolist())


@pytest.mark.parametrize(("p", "c"), SHAPES[1:])
def test_a_replicated_graph_with_parts_has_the_same_batches(p, c):
    """And so have other bulks and what is prefetched."""
    expected = run_threads(p, lambda comm: a_pass(comm, c), TIMEOUT)
    for kind in ("replicated", "partitioned"):
        for options in ({"bulk_size": 1, "prefetch": 0}, {"bulk_size": 500, "prefetch": 2}, {"bulk_size": "auto"}):
            found = run_threads(p, lambda comm, kind=kind, options=options: a_pass(comm, c, kind, **options), TIMEOUT)
            assert found == expected


@settings(max_examples=12, deadline=None)
@given(st.sampled_from([(2, 1), (4, 2), (3, 1)]), st.integers(0, 4), st.integers(0, 1), st.integers(1, 20))
def test_a_pass_goes_on_where_its_state_was_taken(shape, steps, prefetch, bulk_size):
    p, c = shape

    def whole(comm):
        loader = loader_of(comm, c)
        return [[facts(batch) for batch in loader] for _ in range(2)]

    def in_two(comm):
        loader = loader_of(comm, c, prefetch=prefetch, bulk_size=bulk_size)
        loader.set_epoch(1)
        batches = iter(loader)
        found = [facts(next(batches)) for _ in range(steps)]
        state = copy.deepcopy(loader.state_dict())
        found += [facts(batch) for batch in batches]
        other = loader_of(comm, c, prefetch=1 - prefetch)
        other.load_state_dict(state)
        return found, found[:steps] + [facts(batch) for batch in other]

    expected = run_threads(p, whole, TIMEOUT)
    for (_, second), (found, resumed) in zip(expected, run_threads(p, in_two, TIMEOUT), strict=True):
        assert found == resumed == second
    assert expected[0][0] != expected[0][1]


def refused(p, body, match, kind=InputError):
    """Every rank raises, and names the argument."""

    def caught(comm):
        with pytest.raises(kind, match=match):
            body(comm)
        return True

    assert run_threads(p, caught, TIMEOUT) == [True] * p


def test_a_block_row_without_seeds():
    without = SEEDS[parts_of(4)[SEEDS] != 2]
    said = {
        "partitioned": "^batches: got 'local', with no seeds in block row 2 of 4",
        "replicated": "^parts: got no seeds in part 2 of 4",
    }
    for kind, match in said.items():
        refused(4, lambda comm, kind=kind: loader_of(comm, 1, kind, seeds=without), match)


def test_parts_of_another_graph():
    refused(2, lambda comm: loader_of(comm, kind="replicated", parts=np.zeros(499, int)), r"^parts: .*shape \(499,\)")
    refused(4, lambda comm: loader_of(comm, kind="replicated", parts=parts_of(3)), "^parts: got parts from 0 to 2 on 4")
    refused(2, lambda comm: loader_of(comm, kind="replicated", parts=parts_of(8)), "^parts: got parts from 0 to 7 on 2")


def test_a_bad_argument_of_one_rank():
    def body(comm):
        loader_of(comm, kind="replicated", parts=np.zeros(7, int) if comm.rank == 1 else parts_of(2))

    refused(2, body, "parts: ", SpSampleError)


def test_ranks_that_differ():
    refused(2, lambda comm: loader_of(comm, batches=("local", "shuffled")[comm.rank]), "^batches: got something else")

    def other_parts(comm):
        loader_of(comm, kind="replicated", parts=parts_of(3) if comm.rank else (parts_of(3) + 1) % 3)

    refused(3, other_parts, "^parts: got something else")


def test_local_needs_block_rows_or_parts():
    match = "^batches: got 'local' for a graph that each of 2 ranks has all of"
    refused(2, lambda comm: loader_of(comm, kind="replicated", parts=None), match)
    refused(2, lambda comm: loader_of(comm, 2), match)
    refused(2, lambda comm: loader_of(comm, parts=parts_of(2)), "^parts: got parts for a graph in 2 block rows")


def test_a_state_of_other_ranks_or_parts():
    state = run_threads(4, lambda comm: loader_of(comm).state_dict(), TIMEOUT)[0]
    refused(2, lambda comm: loader_of(comm).load_state_dict(state), "^state: got .*'ranks': 4")
    refused(4, lambda comm: loader_of(comm, 2).load_state_dict(state), "^state: got .*'num_parts': 4")
    other = {"kind": "replicated", "parts": (parts_of(4) + 1) % 4}
    match = "^state: got .*'parts_sha256'.*same partition"
    refused(4, lambda comm: loader_of(comm, **other).load_state_dict(state), match)
