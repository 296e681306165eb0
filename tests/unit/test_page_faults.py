"""Calls that repeat find their memory in the pool: no page is fetched from the system in steady state."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

import spsample as sp

core = pytest.importorskip("spsample._core", reason="the compiled core is not built")
resource = pytest.importorskip("resource")

pytestmark = [
    pytest.mark.skipif(bool(core.build_info()["sanitizers"]), reason="sanitizers touch memory of their own"),
    pytest.mark.skipif(sys.platform != "linux", reason="counts pages as Linux gives them"),
]

BATCH = 64


def faults_of(call: Callable[[], None]) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    call()
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


def steady_faults(call: Callable[[], None], warm_up: int, calls: int) -> float:
    """The median after the warm-up."""
    for _ in range(warm_up):
        call()
    return statistics.median(faults_of(call) for _ in range(calls))


@pytest.fixture(scope="module")
def graph() -> sp.Graph:
    return sp.load_dataset("rmat:14,8").graph


@pytest.mark.parametrize("k", [1, 8, 64])
@pytest.mark.parametrize("edge_ids", [False, True])
@pytest.mark.parametrize("layout", ["blocks", "subgraph"])
def test_bulks_fetch_no_pages_in_steady_state(
    graph: sp.Graph, layout: Literal["blocks", "subgraph"], edge_ids: bool, k: int
) -> None:
    sampler = sp.GraphSAGE([15, 10, 5], layout=layout)
    rng = np.random.default_rng(0)
    sp.clear_pool()

    def call() -> None:
        seeds = rng.integers(0, graph.num_nodes, k * BATCH)
        bulk = sp.bulk_sample(graph, seeds, sampler, batch_size=BATCH, edge_ids=edge_ids, backend="cpu")
        for minibatch in bulk:
            assert minibatch.layers
            if edge_ids:
                minibatch.to_pyg()

    # The objects of a batch lie in Python's own heap, whose end moves by a page now and then.
    assert steady_faults(call, 30, 25) <= 2 + k // 8, "at most a page for every eight batches"


@pytest.mark.parametrize("prefetch", [0, 1])
@pytest.mark.parametrize("layout", ["blocks", "subgraph"])
def test_a_loader_fetches_next_to_no_pages_in_steady_state(
    graph: sp.Graph, layout: Literal["blocks", "subgraph"], prefetch: int
) -> None:
    """Batches that a loop holds for a while come back late, and out of turn."""
    sampler = sp.GraphSAGE([15, 10, 5], layout=layout)
    seeds = np.random.default_rng(0).integers(0, graph.num_nodes, 64 * BATCH)
    loader = sp.BulkLoader(graph, seeds, sampler, batch_size=BATCH, bulk_size=8, edge_ids=True, prefetch=prefetch)
    held: list[sp.Batch] = []
    sp.clear_pool()

    def epoch() -> None:
        for batch in loader:
            held.append(batch)
            del held[:-5]

    assert steady_faults(epoch, 4, 7) <= 64, "one a batch"
