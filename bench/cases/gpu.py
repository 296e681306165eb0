"""Bulk sampling on a GPU, beside WholeGraph, products of cuSPARSE, DGL, the host, and the rates of memory and bus."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import spsample as sp
from spsample.errors import InputError

from .. import gpu
from ..case import Case, Figures, Plot, Side, Values, Work, unknown
from ..inputs import Inputs
from ..ours import SAMPLERS, Calls
from .sampling import lines

SECTOR, POINTER = 32, 8
LAUNCHES = {"kernel": "name", "source": "source"}
COUNTED = 16
"""Batches of which the bytes that must move are counted."""


def bulk(inputs: Inputs) -> Work:
    """Bulks that are left on the device; seeds come from the host. With `times` each launch is between two events."""
    device = gpu.device()
    graph = sp.DeviceGraph(_graph(inputs), inputs.get("entries", "device"))
    calls = Calls(inputs, _sampler(inputs), graph)
    work = gpu.timed(_sampled(calls))
    return work if inputs["times"] == "bulk" else _by_launch(work, device, inputs["times"])


def _by_launch(sampled: Work, device: Any, times: str) -> Work:
    """Milliseconds of a batch in each kernel, or in all of a source."""
    launch = device.launch

    def work() -> Figures:
        marks = []

        def marked(kernel: Any, variant: Any, pieces: int, arguments: Any) -> None:
            start, end = gpu.event(), gpu.event()
            start.record()
            launch(kernel, variant, pieces, arguments)
            end.record()
            if pieces:  # else nothing is launched
                marks.append((getattr(kernel, LAUNCHES[times]), start, end))

        device.launch = marked
        try:
            figures = sampled()
        finally:
            del device.launch  # the method of its class again
        sums: dict[str, float] = defaultdict(float)
        for name, *pair in marks:
            sums[f"{name}_ms"] += gpu.milliseconds(*pair) / figures["batches"]
        return {**figures, "launches": len(marks), "kernels_ms": sum(sums.values()), **sums}

    return work


def on_host(inputs: Inputs) -> Work:
    """The backend cpu, by as many threads as the cell says."""
    return _sampled(Calls(inputs, _sampler(inputs), _graph(inputs)))


def count_bytes(inputs: Inputs) -> Work:
    """Bytes of a batch that a GPU's memory must move for it, by `node_wise_bytes` and `layer_wise_bytes`."""
    some = replace(inputs, values={**inputs.values, "batches": min(inputs["batches"], COUNTED)})
    calls = Calls(some, _sampler(inputs), _graph(inputs), edge_ids=True)
    is_layer_wise, is_weighted = (gpu.Sampling.of(inputs).name == name for name in ("ladies", "weighted"))

    def work() -> Figures:
        layers = [layer for bulk in calls() for batch in bulk for layer in batch.layers]
        if is_layer_wise:
            moved = sum(layer_wise_bytes(layer, inputs.indptr) for layer in layers)
        else:
            moved = sum(node_wise_bytes(layer, 4 * is_weighted) for layer in layers)
        edges = sum(layer.adj.nnz for layer in layers)
        return {"batch_bytes": moved / calls.batches, "batch_bus_bytes": SECTOR * edges / calls.batches}

    return work


def node_wise_bytes(layer: Any, weight_bytes: int = 0) -> int:
    """The least for one layer of a batch that is sampled row by row, with nothing cached between rows.

    Read: ids of rows, sectors of 32 bytes of their pointers, of the drawn entries and of their weights, and the drawn
    columns once more, for their places among the sources. Written: pointers, drawn columns, their places and weights,
    and the sources.
    """
    itemsize, rows, nnz = layer.src_nodes.dtype.itemsize, layer.dst_nodes, layer.adj.nnz
    drawn = (layer.adj.indptr, layer.edge_ids)
    sectors = lines(rows, *drawn, itemsize, SECTOR)
    if weight_bytes:
        sectors += lines(rows[:0], *drawn, weight_bytes, SECTOR)
    ids = len(rows) + 3 * nnz + len(layer.src_nodes)
    return SECTOR * sectors + itemsize * ids + weight_bytes * nnz + POINTER * (len(rows) + 1)


def layer_wise_bytes(layer: Any, indptr: NDArray[np.int64]) -> int:
    """The same where columns are drawn for all rows together, and then all entries of the rows are looked through.

    Row pointers are read twice, and a sector for each drawn column; entries that are kept are written with values.
    """
    itemsize, rows, sources = layer.src_nodes.dtype.itemsize, layer.dst_nodes, len(layer.src_nodes)
    begin, end = (indptr[rows.astype(np.int64) + step] * itemsize for step in (0, 1))
    whole = int(np.where(end > begin, (end - 1) // SECTOR - begin // SECTOR + 1, 0).sum())
    new = sources - len(rows)
    sectors = 2 * lines(rows, layer.adj.indptr, layer.edge_ids[:0], itemsize, SECTOR) + new + whole
    entry_bytes = itemsize + (0 if layer.adj.data is None else layer.adj.data.dtype.itemsize)
    return SECTOR * sectors + itemsize * (2 * sources) + entry_bytes * layer.adj.nnz + POINTER * (len(rows) + 1)


def _graph(inputs: Inputs) -> sp.Graph:
    return sp.Graph(inputs.indptr, inputs.indices, gpu.Sampling.of(inputs).weights(inputs), validate=False)


def _sampler(inputs: Inputs) -> sp.Sampler:
    name, fanouts = gpu.Sampling.of(inputs)
    sampler: sp.Sampler = SAMPLERS["ladies" if name == "ladies" else "sage"](fanouts)
    return sampler


def _sampled(calls: Calls) -> Work:
    return lambda: {"batches": calls.batches, "edges": sum(bulk.num_edges for bulk in calls())}


def _is_known(values: Values) -> bool:
    name, _, fanouts = str(values["sampling"]).partition(":")
    if name not in gpu.SAMPLINGS or not all(word.isdigit() for word in fanouts.split(",")):
        expected = f"NAME:FANOUTS, as weighted:15,10,5, and a name of {', '.join(gpu.SAMPLINGS)}"
        raise InputError(argument="sampling", given=repr(values["sampling"]), expected=expected)
    if values["times"] not in ("bulk", *LAUNCHES):
        raise unknown("times", str(values["times"]), ["bulk", *LAUNCHES])
    return True


CASE = Case(
    about="Bulks on a GPU, the graph in its memory or in the host's, beside WholeGraph, cuSPARSE, DGL and limits.",
    claim="Twice WholeGraph's speed, ten times that of the same algebra by cuSPARSE; the limit is the memory's rate.",
    parameters={
        "graph": ("rmat:21,32",),
        "sampling": ("sage:15,10,5", "weighted:15,10,5", "ladies:512,512,512"),
        "batches": (196,),
        "batch_size": (1024,),
        "bulk_size": (196,),
        "threads": (os.cpu_count() or 1,),
        "times": ("bulk",),
    },
    quick={
        "graph": ("rmat:14,16",),
        "sampling": ("sage:15,10,5", "ladies:64,64,64"),
        "batches": (8,),
        "batch_size": (128,),
    },
    sides=(
        Side("spsample cuda", bulk),
        Side("spsample cuda, entries on the host", bulk, {"entries": "host"}),
        Side("spsample cuda, a fifth of the entries cached", bulk, {"entries": 0.2}),
        Side("spsample cpu", on_host),
    ),
    job="gpu-bulks",
    baselines=("spsample cuda", "spsample cpu"),
    count=count_bytes,
    few={"cuSPARSE": 16, "DGL": 32},
    plots=(Plot("ms", facet="sampling", logarithmic=True, title="ms a batch"),),
    valid=_is_known,
)
