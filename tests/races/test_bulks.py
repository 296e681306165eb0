"""Bulks of every sampler over all weightings and index widths, watched, and equal to those of `cpu`."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_backend import emulated
from equality import assert_bulks_same
from small_bulk import samplers, small_graph

import spsample as sp

__all__ = ["emulated"]


def graph_of(form, index):
    graph = small_graph(form)
    if index == np.int32:
        return graph
    wide = sp.Graph(graph.indptr, graph.indices.astype(index), graph.data)
    return wide.normalized("row") if form == "row" else wide


def check(graph, seeds, sampler, batch_size, times=1):
    call = {"seeds": seeds, "sampler": sampler, "batch_size": batch_size, "random_seed": 7, "edge_ids": True}
    placed = sp.DeviceGraph(graph)
    expected = sp.bulk_sample(graph, **call, backend="cpu")
    for _ in range(times):
        assert_bulks_same(expected, sp.bulk_sample(placed, **call).to_host())


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("form", ["unweighted", "row", "weighted", "weighted float32"])
@pytest.mark.parametrize("sampler", samplers(), ids=str)
def test_bulk(emulated, sampler, form, index):
    """Where there are weights, twice: the second time with what is known of rows by then."""
    times = 2 if form.startswith("weighted") else 1
    check(graph_of(form, index), np.random.default_rng(0).integers(0, 300, 5 * 24), sampler, 24, times)


SMALL = [
    sp.GraphSAGE([3]),
    sp.LADIES([8, 8]),  # more than 2,048 rows in the second
    sp.LADIES([8], replace=True, normalize_rows=True),
    sp.LADIES([8], law="squared_count", values="reference"),
    sp.FastGCN([8], include_targets=False),
]


@pytest.mark.parametrize("sampler", SMALL, ids=str)
def test_more_batches_than_threads_of_a_block(emulated, sampler):
    check(small_graph("row"), np.random.default_rng(0).integers(0, 300, 260), sampler, 1)
