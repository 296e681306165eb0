"""Stores whose rows were moved, opened by ranks: batches, features and digests are those of the store before."""

from __future__ import annotations

import numpy as np
import pytest
from covers import pairs
from partitioned_cases import GRAPHS, SAMPLERS, batches_of, gathered, same_batches

import spsample as sp
from spsample.comm import run_threads
from spsample.data import planted, save_dataset
from spsample.distributed import PartitionedGraph, ProcessGrid, ReplicatedGraph
from spsample.reorder import reorder

TIMEOUT = 60


@pytest.mark.parametrize(
    ("graph", "sampler", "grid", "algorithm", "edge_ids", "parted", "hubs"),
    pairs(
        GRAPHS,
        SAMPLERS,
        [(2, 1), (2, 2), (4, 1), (4, 2), (4, 4)],
        ["column", "stages", "oblivious"],
        [True, False],
        [True, False],
        [None, 1500],
    ),
    ids=str,
)
def test_partitioned_and_replicated(graph, sampler, grid, algorithm, edge_ids, parted, hubs, tmp_path):
    p, c = grid
    A = GRAPHS[graph]()
    A.save(tmp_path / "plain")
    reorder(tmp_path / "plain", tmp_path / "moved", np.random.default_rng(0).random(A.num_nodes))
    seeds = np.random.default_rng(1).integers(0, A.num_nodes, 100)
    call = {"sampler": sampler, "batch_size": 9, "random_seed": 5, "edge_ids": edge_ids}
    want = batches_of(sp.bulk_sample(A, seeds, **call))
    parts = np.random.default_rng(0).integers(0, p // c, A.num_nodes) if parted else None

    def body(comm):
        options = {"partition": parts, "replicate_hubs": hubs}
        grid = ProcessGrid(comm, c)
        opened = PartitionedGraph.open(tmp_path / "moved", grid, algorithm=algorithm, **options)
        assert opened.digest == sp.Graph.open(tmp_path / "plain").digest
        cut = PartitionedGraph.from_graph(sp.Graph.open(tmp_path / "moved"), grid, **options)
        whole = ReplicatedGraph(sp.Graph.open(tmp_path / ("moved" if comm.rank else "plain")), comm)
        return [batches_of(sp.bulk_sample(shared, seeds, **call)) for shared in (opened, cut, whole)]

    for batches in zip(*run_threads(p, body, TIMEOUT), strict=True):
        same_batches(gathered(list(batches)), want)


@pytest.mark.parametrize("dtype", [None, "float16", "int8"])
@pytest.mark.parametrize(("p", "c"), [(1, 1), (3, 1), (4, 2)])
def test_features(p, c, dtype, tmp_path):
    data = planted(90, 4, 3)
    save_dataset(data, tmp_path / "plain")
    reorder(tmp_path / "plain", tmp_path / "moved", np.random.default_rng(0).random(90))

    def body(comm):
        grid = ProcessGrid(comm, c)
        ids = np.random.default_rng(comm.rank).integers(0, 90, 40)
        for partition in (None, np.random.default_rng(0).integers(0, p // c, 90)):
            one, two = (
                sp.FeatureStore.open(tmp_path / name, grid=grid, dtype=dtype, partition=partition)
                for name in ("plain", "moved")
            )
            np.testing.assert_array_equal(one.gather(ids), two.gather(ids))
            np.testing.assert_array_equal(one.block_features(), two.block_features())
            assert one.nbytes == two.nbytes
        return True

    assert run_threads(p, body, TIMEOUT) == [True] * p
