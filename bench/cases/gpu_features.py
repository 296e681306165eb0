"""Features of a batch by the share of rows that lie on the GPU. Ids lie there, where a bulk leaves them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import spsample as sp

from .. import gpu
from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..ours import Calls, graph_of, sampler_of
from .gpu import SECTOR


def tiered(inputs: Inputs) -> Work:
    """`DeviceFeatures`: the rows of the largest scores `posterior` on the GPU, the others read over the bus."""
    gpu.device()
    batches, x, hot = _wanted(inputs), inputs.x, inputs["hot"]
    workload = {"graph": graph_of(inputs), "seeds": inputs.seeds.ravel(), "sampler": sampler_of(inputs)}
    source = sp.DeviceFeatures(x, hot, "posterior", **workload, batch_size=inputs.seeds.shape[1])
    is_cold = np.ones(len(x), np.bool_)
    is_cold[source.hot_vertices] = False
    place, width = np.cumsum(is_cold) - 1, 4 * x.shape[1]
    begin = width * np.concatenate([place[ids[is_cold[ids]]] for ids in batches])
    sectors = ((begin + width - 1) // SECTOR - begin // SECTOR + 1).sum()
    figures = {"hits": 1 - len(begin) / sum(map(len, batches)), "bus_bytes": int(SECTOR * sectors)}
    return _gathered(batches, source.gather, figures)


def by_host(inputs: Inputs) -> Work:
    """Ids to the host, rows gathered by its threads into page-locked memory, one copy back."""
    device = gpu.device()
    import torch

    batches, x = _wanted(inputs), inputs.x
    store, where = sp.FeatureStore(x), gpu.torch_device()
    staged = torch.empty((max(map(len, batches)), x.shape[1]), pin_memory=where.type == "cuda")

    def gather(ids: Any) -> None:
        rows = staged[: len(ids)]
        store.gather(device.to_host(ids), out=rows.numpy())  # the ids wait for the copy before, which read `staged`
        rows.to(where, non_blocking=True)

    return _gathered(batches, gather, {"hits": 0, "bus_bytes": 4 * x.shape[1] * sum(map(len, batches))})


def by_torch(inputs: Inputs) -> Work:
    """`index_select` of rows that lie on the GPU."""
    gpu.device()
    import torch

    x = torch.from_numpy(inputs.x).to(gpu.torch_device())
    gather = lambda ids: x.index_select(0, torch.from_dlpack(ids))  # noqa: E731
    return _gathered(_wanted(inputs), gather, {"hits": 1, "bus_bytes": 0})


def count_rows(inputs: Inputs) -> Work:
    """Bytes of a batch's rows."""
    batches, dim = _wanted(inputs), inputs.x.shape[1]
    return lambda: {"batch_bus_bytes": 4 * dim * sum(map(len, batches)) / len(batches)}


def _wanted(inputs: Inputs) -> list[Any]:
    """The ids of each batch: the same for all sides."""
    return [batch.src_nodes for bulk in Calls(inputs, sampler_of(inputs))() for batch in bulk]


def _gathered(batches: list[Any], gather: Any, figures: Figures) -> Work:
    there = [gpu.device().to_device(ids) for ids in batches]
    figures = {"batches": len(batches), "rows": sum(map(len, batches)), **figures}

    def work() -> Figures:
        for ids in there:
            gather(ids)
        return figures

    return gpu.timed(work)


CASE = Case(
    about="Features of a batch gathered by the host, by zero copy, and with a share of the rows on the GPU.",
    claim="A twentieth of the rows on the GPU halves the time of zero copy, which is less than the host's way.",
    parameters={
        "graph": ("rmat:21,32",),
        "batches": (16,),
        "batch_size": (1024,),
        "fanouts": ("15,10,5",),
        "dim": (100,),
        "threads": (os.cpu_count() or 1,),
    },
    quick={"graph": ("rmat:14,16",), "batch_size": (256,)},
    sides=(
        Side("gathered by the host and copied", by_host),
        Side("zero copy", tiered, {"hot": 0.0}),
        *(Side(f"tiered, {share:.0%} on the GPU", tiered, {"hot": share}) for share in (0.05, 0.1, 0.2, 0.5, 1.0)),
        Side("torch.index_select, all on the GPU", by_torch),
    ),
    job="gpu-rows",
    baselines=("gathered by the host", "zero copy"),
    count=count_rows,
    plots=(Plot("ms", title="ms a batch"), Plot("bus_bytes", title="bytes over the bus")),
)
