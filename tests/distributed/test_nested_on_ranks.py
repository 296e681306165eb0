"""Feature sources nested on ranks, in any order: the plain source's bits, on every rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import run_job
from nested_sources import agrees, build, nests, plain_of, same_batch

import spsample as sp
from spsample.comm import run_threads

GRIDS = [(2, 1), (3, 1), (4, 2), (4, 4)]
TIMEOUT = 60.0
GRAPH = sp.load_dataset("rmat:8,6").graph


@settings(max_examples=60)
@given(nest=nests(), grid=st.sampled_from(GRIDS))
def test_nests_have_the_bits_of_the_plain_source(tmp_path_factory, nest, grid):
    p, c = grid
    folder, plain = tmp_path_factory.mktemp("rows"), plain_of(nest)
    run_threads(p, lambda comm: agrees(build(nest, folder, comm, c), plain, nest.seed, comm), TIMEOUT)


@settings(max_examples=20)
@given(
    nest=nests(st.just(GRAPH.num_nodes)),
    grid=st.sampled_from(GRIDS),
    fetch=st.sampled_from(["batch", "bulk"]),
    prefetch=st.integers(0, 2),
    bulk_size=st.integers(4, 12),
)
def test_batches_have_the_bits_of_plain_ones(tmp_path_factory, nest, grid, fetch, prefetch, bulk_size):
    """Two epochs on ranks: the batches of one rank with plain features, shared out."""
    folder, seeds, sampler = tmp_path_factory.mktemp("rows"), np.arange(0, GRAPH.num_nodes, 2), sp.GraphSAGE([3, 2])
    options = {"batch_size": 16, "labels": np.arange(GRAPH.num_nodes), "random_seed": 3}
    plain = sp.BulkLoader(GRAPH, seeds, sampler, features=plain_of(nest), prefetch=0, **options)
    expected = [list(plain) for _ in range(2)]

    def body(comm):
        ahead = {"fetch": fetch, "prefetch": prefetch, "bulk_size": bulk_size // comm.size * comm.size}
        graph, features = sp.ReplicatedGraph(GRAPH, comm), build(nest, folder, comm, grid[1])
        loader = sp.BulkLoader(graph, seeds, sampler, features=features, **ahead, **options)
        passes = [list(loader) for _ in range(2)]
        loader.close()
        agrees(features, plain_of(nest), nest.seed, comm, steps=2)  # it outlives the loader
        return passes

    for epoch, of_ranks in enumerate(zip(*run_threads(grid[0], body, TIMEOUT), strict=True)):
        found = {batch.batch_id: batch for own in of_ranks for batch in own if len(batch.seeds)}
        assert sorted(found) == list(range(len(expected[epoch])))
        for its in expected[epoch]:
            same_batch(found[its.batch_id], its)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "examples"),
    [pytest.param("mpi", 8, marks=pytest.mark.needs("mpi")), pytest.param("gloo", 4, marks=pytest.mark.needs("gloo"))],
)
def test_over_processes(backend, examples):
    status, output = run_job(backend, Path(__file__).with_name("nested_over_ranks.py"), backend, examples)
    assert status == 0, output
    assert "right on 4 ranks" in output, output
