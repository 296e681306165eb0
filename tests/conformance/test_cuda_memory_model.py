"""What a bulk takes on the device, counted array by array, against what is planned for it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from emulated_backend import emulated, needs_compiler
from emulated_device import EmulatedArray

import spsample as sp
from spsample.planning.bulk_counts import BulkCounts
from spsample.planning.scratch import device_scratch

pytestmark = needs_compiler
__all__ = ["emulated"]

CALL_BYTES = 1 << 18  # of these small bulks
BATCH_SIZE, BATCHES = 32, 24


class Live:
    """Bytes of the arrays on the device, now and at most."""

    def __init__(self, patch):
        self.now = self.most = 0
        self._known = {}
        begin = EmulatedArray.__init__

        def counted(array, host, *rest):
            begin(array, host, *rest)
            self._add(host)

        patch.setattr(EmulatedArray, "__init__", counted)

    def _add(self, memory):
        while isinstance(memory.base, np.ndarray):
            memory = memory.base
        key = id(memory)
        if key in self._known and self._known[key]() is memory:
            return
        self._known[key] = weakref.ref(memory)
        weakref.finalize(memory, self._remove, memory.nbytes)
        self.now += memory.nbytes
        self.most = max(self.most, self.now)

    def _remove(self, nbytes):
        self.now -= nbytes


SAMPLERS = [
    sp.GraphSAGE([10, 5]),
    sp.GraphSAGE([10, 5], layout="subgraph"),
    sp.GraphSAGE([5, -1]),
    sp.GraphSAGE([5, -1], layout="subgraph"),
    sp.GraphSAGE([300]),
    sp.GraphSAGE([5, 5], replace=True),
    sp.LADIES([128, 128]),
    sp.LADIES([128], law="squared_count"),
    sp.LADIES([400], replace=True),
    sp.FastGCN([128, 128]),
]


@pytest.mark.parametrize("edge_ids", [False, True])
@pytest.mark.parametrize("kind", ["unweighted", "weighted"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_no_more_than_planned(emulated, monkeypatch, sampler, kind, edge_ids):
    graph = sp.load_dataset("rmat:10,8").graph
    if kind == "weighted":
        weights = np.random.default_rng(0).exponential(size=graph.num_edges).astype(np.float32)
        graph = sp.Graph(graph.indptr, graph.indices, weights)
    gpu = sp.DeviceGraph(graph)
    sp.bulk_sample(gpu, [0], sampler, batch_size=1)  # what is kept with the graph
    monkeypatch.setattr("spsample.planning.scratch.CALL_BYTES", CALL_BYTES)
    gc.collect()
    live = Live(monkeypatch)
    seeds = np.random.default_rng(1).integers(0, graph.num_nodes, BATCH_SIZE * BATCHES)
    bulk = sp.bulk_sample(gpu, seeds, sampler, batch_size=BATCH_SIZE, edge_ids=edge_ids)
    counts = BulkCounts.of(bulk)
    results, scratch = counts.result_bytes(4), device_scratch(gpu, counts)
    assert live.most <= results + scratch
