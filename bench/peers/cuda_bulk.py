"""spsample on a GPU: the graph in its memory, one call for all batches."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np

import spsample as sp
from peers.cuda_timing import timed
from peers.task import Figures, Inputs, Options, Task, Work

PACKAGES = ("spsample", "cupy")

_METHODS: dict[str, Any] = {"GraphSAGE": sp.GraphSAGE, "LADIES": sp.LADIES, "FastGCN": sp.FastGCN}


@cache
def _graph(inputs: Inputs, form: str) -> Any:
    """The graph on the device: "unweighted", or with the "exponential" weights that all peers have."""
    weights = None
    if form == "exponential":
        weights = np.random.default_rng(2).standard_exponential(len(inputs.indices), np.float32)
    return sp.DeviceGraph(sp.Graph(inputs.indptr, inputs.indices, weights, validate=False))


def bulk(inputs: Inputs, options: Options) -> Work:
    """All batches in one call, left on the device; every call is an epoch of its own. Seeds come from the host."""
    graph, seeds = _graph(inputs, options.get("graph", "unweighted")), inputs.seeds(options)
    sampler = _METHODS[options.get("method", "GraphSAGE")](options["fanouts"], **options.get("sampler", {}))
    epochs = iter(range(1, 1 << 62))

    def work() -> Figures:
        call = {"batch_size": seeds.shape[1], "epoch": next(epochs), "backend": "cuda"}
        return {"batches": len(seeds), "edges": sp.bulk_sample(graph, seeds.ravel(), sampler, **call).num_edges}

    return timed(work, cupy.cuda.Event)


TASKS: dict[str, Task] = {"bulk": bulk}
