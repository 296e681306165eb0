"""Arrays that all ranks must give alike are compared by contents; who gives others is named on all ranks."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from partitioned_cases import batches_of, gathered, same_batches
from scipy import sparse

import spsample as sp
from spsample.comm import run_threads
from spsample.data import planted
from spsample.distributed import PartitionedGraph, ProcessGrid, ReplicatedGraph
from spsample.errors import InputError
from spsample.features import FeatureStore, PartitionedFeatures
from spsample.features.partitioned import even_placement

TIMEOUT = 20
P = 4
DATA = planted(300, degree=5, random_seed=2)
N, M = DATA.graph.num_nodes, DATA.graph.num_edges
WEIGHTS = np.random.default_rng(0).random(M, np.float32) + 0.5
IDS = np.arange(M)[::-1].copy()

MAKES = {
    "replicated": ReplicatedGraph,
    "partitioned": lambda graph, comm: PartitionedGraph.from_graph(graph, ProcessGrid(comm, 2)),
}


def graph_of(change="none"):
    """The same graph made anew, or one that differs from it in one entry of one array."""
    indices, weights, ids = DATA.graph.indices.copy(), WEIGHTS.copy(), IDS.copy()
    row = int(np.flatnonzero(np.diff(DATA.graph.indptr) > 1)[0])
    first = int(DATA.graph.indptr[row])
    if change == "edge":
        indices[first] = indices[first] - 1 if indices[first] else 0
        assert indices[first] != DATA.graph.indices[first]
    if change == "weight":
        weights[M // 2] = np.nextafter(weights[M // 2], np.float32(9))
    if change == "ids":
        ids[M - 1] += M
    indptr = DATA.graph.indptr.copy()
    if change == "rows":
        indptr[row + 1] -= 1
    return sp.Graph(indptr, indices, weights, edge_ids=ids, validate=change != "rows")


def refused(call):
    with pytest.raises(InputError) as raised:
        call()
    return str(raised.value)


NAMES = {"edge": "sources", "weight": "weights", "ids": "edge ids", "rows": "row pointers"}


@pytest.mark.parametrize("odd", [(2,), (0,), (1, 3)])
@pytest.mark.parametrize("change", NAMES)
@pytest.mark.parametrize("kind", MAKES)
def test_graphs_that_differ_in_one_entry(kind, change, odd):
    def body(comm):
        return refused(lambda: MAKES[kind](graph_of(change if comm.rank in odd else "none"), comm))

    ranks, first = {(2,): ("rank 2", 0), (0,): ("rank 0", 1), (1, 3): ("ranks 1, 3", 0)}[odd]
    told = f"graph: got other {NAMES[change]} on {ranks} than on rank {first}; expected the same graph on every rank"
    assert run_threads(P, body, TIMEOUT) == [told] * P


@pytest.mark.parametrize("kind", MAKES)
def test_equal_graphs_of_each_rank(kind):
    """Made by each rank on its own, or opened from a store by some."""

    def sample(graph):
        return batches_of(sp.bulk_sample(graph, np.arange(N), sp.GraphSAGE([3, 2]), batch_size=32, edge_ids=True))

    right = run_threads(P, lambda comm: sample(MAKES[kind](graph_of(), comm)), TIMEOUT)
    same_batches(gathered(right), sample(graph_of()))


@pytest.mark.parametrize("kind", MAKES)
def test_a_store_on_some_ranks(kind, tmp_path):
    graph_of().save(tmp_path / "good")
    graph_of("weight").save(tmp_path / "bad")

    def body(comm, name):
        graph = sp.Graph.open(tmp_path / name) if comm.rank == 1 else graph_of()
        return MAKES[kind](graph, comm).num_edges

    assert run_threads(P, lambda comm: body(comm, "good"), TIMEOUT) == [M] * P
    told = run_threads(P, lambda comm: refused(lambda: body(comm, "bad")), TIMEOUT)
    assert told == ["graph: got other weights on rank 1 than on rank 0; expected the same graph on every rank"] * P


def test_contents_are_looked_at_once():
    graph = graph_of()
    assert graph.fingerprint() is graph.fingerprint()
    plain = DATA.graph
    assert plain.normalized("row").fingerprint() is plain.fingerprint()  # whichever is asked first
    for other in (copy.copy(graph), copy.deepcopy(graph), pickle.loads(pickle.dumps(graph)), graph_of()):
        assert other.fingerprint() == graph.fingerprint()
    assert graph_of("weight").fingerprint() != graph.fingerprint()


# ------------------------------------------------------------------------------------------------------------- features


def x_of(comm, odd=2):
    x = DATA.x.copy()
    if comm.rank == odd:
        x[N - 1, 0] = np.nextafter(x[N - 1, 0], np.float32(9))
    return x


@pytest.mark.parametrize("form", [np.array, np.asfortranarray, sparse.csr_array])
def test_features_that_differ_in_one_number(form):
    def body(comm):
        grid = ProcessGrid(comm)
        return refused(lambda: PartitionedFeatures.of(form(x_of(comm)), grid))

    assert (
        run_threads(P, body, TIMEOUT)
        == ["x: got other rows on rank 2 than on rank 0; expected the same on every rank"] * P
    )


def test_blocks_of_one_row_of_the_grid():
    """Each rank gives its rows only; the c ranks that have the same block must have the same rows."""

    def body(comm, odd):
        grid = ProcessGrid(comm, 2)
        placement = even_placement(N, grid.num_blocks)
        first, end = placement.bounds[grid.row : grid.row + 2]
        block = x_of(comm, odd)[first:end]
        return PartitionedFeatures(block, grid, placement).gather([0, N - 1]).tolist()

    assert run_threads(P, lambda comm: body(comm, None), TIMEOUT) == [DATA.x[[0, N - 1]].tolist()] * P
    told = run_threads(P, lambda comm: refused(lambda: body(comm, 3)), TIMEOUT)
    assert (
        told
        == ["block: got other rows on rank 3 than on rank 2; expected the same on every rank of a row of the grid"] * P
    )


def test_features_of_a_map_are_not_read(tmp_path):
    """Where a rank maps a file each reads its rows alone."""
    np.save(tmp_path / "x.npy", DATA.x)

    def body(comm):
        x = np.load(tmp_path / "x.npy", mmap_mode="r")
        if comm.rank == 2:
            x = np.load(tmp_path / "x.npy", mmap_mode="c")
            x[0] += 1  # not in this rank's block
        return PartitionedFeatures.of(x, ProcessGrid(comm)).gather([0]).tolist()

    assert run_threads(P, body, TIMEOUT) == [DATA.x[[0]].tolist()] * P


# -------------------------------------------------------------------------------------------------------------- loaders


def loader_of(comm, odd, **given):
    """A loader for which one rank gives something else."""
    arrays = {"seeds": np.arange(N), "features": DATA.x.copy(), "labels": DATA.y.copy(), **given}
    if comm.rank == 2:
        arrays[odd] = change_of(arrays[odd])
    graph = ReplicatedGraph(DATA.graph, comm)
    return sp.BulkLoader(graph, arrays.pop("seeds"), sp.GraphSAGE([2]), batch_size=8, **arrays)


def change_of(array):
    if isinstance(array, FeatureStore):
        return FeatureStore(change_of(array._reader.rows))
    changed = array.copy()
    changed[7] = changed[7] + 1
    return changed


@pytest.mark.parametrize("odd", ["seeds", "features", "labels"])
def test_what_a_loader_is_given(odd):
    told = run_threads(P, lambda comm: refused(lambda: loader_of(comm, odd)), TIMEOUT)
    assert len(set(told)) == 1
    assert told[0].startswith(f"{odd}: got ")
    assert "on rank 2 than on rank 0; expected the same on every rank" in told[0]


def test_features_of_a_store_in_memory():
    given = {"features": FeatureStore(DATA.x)}
    told = run_threads(P, lambda comm: refused(lambda: loader_of(comm, "features", **given)), TIMEOUT)
    assert all("features: got " in text and "on rank 2" in text for text in told)


def test_labels_of_other_vertices_may_differ():
    """Of those that nobody trains on."""

    def body(comm):
        return len(loader_of(comm, "labels", seeds=np.arange(100, N)))

    assert run_threads(P, body, TIMEOUT) == [-(-(N - 100) // 8 // P)] * P


@pytest.mark.parametrize("odd", ["y", "val_idx", "test_idx", "train_idx"])
def test_a_data_set_that_is_trained_on(odd):
    pytest.importorskip("torch")
    from spsample.training import ModelConfig, TrainConfig, Trainer

    def body(comm):
        data = dataclasses.replace(DATA, graph=ReplicatedGraph(DATA.graph, comm), x=DATA.x)
        if comm.rank == 2:
            changed = getattr(data, odd).copy()
            changed[DATA.test_idx[3] if odd == "y" else 0] = 1 - changed[DATA.test_idx[3]] if odd == "y" else changed[1]
            data = dataclasses.replace(data, **{odd: changed})
        config = TrainConfig(epochs=1, batch_size=32)
        return refused(lambda: Trainer(data, sp.GraphSAGE([2]), ModelConfig(hidden=4), config))

    told = run_threads(P, body, TIMEOUT)
    assert len(set(told)) == 1
    assert "on rank 2 than on rank 0" in told[0]
