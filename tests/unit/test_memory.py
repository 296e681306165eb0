"""What a call takes beside its result: stated and measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import spsample as sp
from spsample.common.threads import get_num_threads
from spsample.planning import scratch_bytes
from spsample.sparse import measured_pool

pytest.importorskip("spsample._core", reason="the compiled core is not built")


@pytest.mark.parametrize("edge_ids", [False, True])
@pytest.mark.parametrize(
    "sampler",
    [sp.GraphSAGE([10, 5]), sp.GraphSAGE([10, 5], layout="subgraph"), sp.LADIES([64, 64]), sp.FastGCN([64, 64])],
    ids=str,
)
def test_the_pool_stays_within_the_result_and_the_stated_scratch(sampler: Any, edge_ids: bool) -> None:
    graph = sp.load_dataset("rmat:14,8").graph
    sp.clear_pool()
    with measured_pool() as memory:
        bulk = sp.bulk_sample(graph, np.arange(8192), sampler, batch_size=256, edge_ids=edge_ids, backend="cpu")
    output = sum(layer.nbytes for layer in bulk.layers)
    assert memory.peak_bytes <= 1.15 * output + scratch_bytes(graph, bulk, threads=64)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_so_does_a_bulk_of_many_groups_of_batches_that_share_rows(threads: int) -> None:
    graph = sp.load_dataset("rmat:14,16").graph
    sp.clear_pool()
    seeds = np.arange(64 * 640) % graph.num_nodes
    with on_threads(threads), measured_pool() as memory:
        bulk = sp.bulk_sample(graph, seeds, sp.LADIES([256, 256]), batch_size=64, edge_ids=True, backend="cpu")
    output = sum(layer.nbytes for layer in bulk.layers)
    assert memory.peak_bytes <= 1.15 * output + scratch_bytes(graph, bulk, threads=threads)


@pytest.mark.parametrize("law", ["norm", "squared_count"])
def test_the_sums_of_a_weighted_frontier_are_stated(law: Any) -> None:
    """A hub of a weighted graph: the thread that draws for it adds up weights by column, 8 bytes for each vertex."""
    n, degree = 1 << 21, 1 << 16
    edges = np.stack([np.arange(degree), np.zeros(degree, np.int64)])
    graph = sp.Graph.from_edge_index(edges, num_nodes=n, edge_weight=np.linspace(0.5, 1.0, degree, dtype=np.float32))
    assert (peak := peak_beside_the_result(graph, sp.LADIES([16], law=law))) > 8 * n
    assert peak <= scratch_of_one_thread(graph, sp.LADIES([16], law=law))


def test_counts_above_16_bits_take_no_more_than_weights() -> None:
    """More than 65535 parallel entries: counting starts again in 64 bits, and the first counts are let go of."""
    n, degree = 1 << 21, 1 << 17
    edges = np.zeros((2, degree), np.int64)
    edges[0, -1] = 1
    graph = sp.Graph.from_edge_index(edges, num_nodes=n)
    most = (9 * n + n // 2 + (5 << 20)) * 9 // 8
    assert peak_beside_the_result(graph, sp.LADIES([16], law="squared_count")) <= most


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Kernels on so many threads."""
    before = get_num_threads()
    sp.set_num_threads(count)
    try:
        yield
    finally:
        sp.set_num_threads(before)


def of_one_seed(graph: sp.Graph, sampler: Any) -> sp.BulkSample:
    return sp.bulk_sample(graph, [0], sampler, batch_size=1, backend="cpu")


def peak_beside_the_result(graph: sp.Graph, sampler: Any) -> int:
    sp.clear_pool()
    with on_threads(1), measured_pool() as memory:
        bulk = of_one_seed(graph, sampler)
    return memory.peak_bytes - sum(layer.nbytes for layer in bulk.layers)


def scratch_of_one_thread(graph: sp.Graph, sampler: Any) -> int:
    return scratch_bytes(graph, of_one_seed(graph, sampler), threads=1)
