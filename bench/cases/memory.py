"""The peak of a bulk in a fresh process, beside the bytes of its result and beside what is planned."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

import spsample as sp
from spsample.planning import scratch_bytes
from spsample.sparse import get_num_threads, measured_pool

from ..case import Case, Figures, Plot, Side, Task, Values, Work
from ..inputs import Inputs
from ..memory_use import begin_peak, peak_bytes
from ..ours import Calls, graph_of, sampler_of
from ..process import SideProcess

_BULKS = 5


def one_call(inputs: Inputs) -> Work:
    """A call of `bulk_sample`, beside its result and the scratch that is documented."""
    return _fresh(call_here, inputs)


def loader(inputs: Inputs) -> Work:
    """The plan and some bulks of a loader, one in use while the next is made, beside what `plan_bulk` predicts."""
    return _fresh(loader_here, inputs)


def _fresh(task: Task, inputs: Inputs) -> Work:
    """The task in a process of its own, which no other call has given memory to keep."""

    def work() -> Figures:
        side = Side("fresh", task)
        with SideProcess(sys.executable, ("spsample",), {}) as process:
            process.prepare(side, inputs.store, inputs.values)
            done = process.run(side)
        return {**done["figures"], "seconds": done["seconds"], "cpu_seconds": done["cpu_seconds"]}

    return work


def call_here(inputs: Inputs) -> Work:
    """The call, in this process."""
    graph, sampler = _loaded(inputs)
    calls = Calls(inputs, sampler, graph, edge_ids=bool(inputs["edge_ids"]))

    def work() -> Figures:
        with measured_pool() as pool:
            peak, (bulk,) = _peak_beyond(lambda: list(calls()))
        scratch = scratch_bytes(graph, bulk, get_num_threads())
        exact = {"pool_peak_bytes": pool.peak_bytes, "result_bytes": bulk.nbytes, "scratch_bytes": scratch}
        return {"batches": calls.batches, "peak_bytes": peak, "peak_over_result": peak / bulk.nbytes, **exact}

    return work


def loader_here(inputs: Inputs) -> Work:
    """The loader's bulks, in this process."""
    (graph, sampler), k = _loaded(inputs), inputs["batches"]
    seeds = np.flatnonzero(np.diff(graph.indptr))
    options: Any = {"batch_size": inputs["batch_size"], "edge_ids": bool(inputs["edge_ids"]), "prefetch": 1}
    options["memory_budget"] = "1TiB"

    def bulks() -> int:
        return sum(1 for _ in islice(sp.BulkLoader(graph, seeds, sampler, bulk_size=k, **options), _BULKS * k))

    def work() -> Figures:
        peak, batches = _peak_beyond(bulks)
        predicted = sp.plan_bulk(graph, seeds, sampler, **options).peak(k)
        return {"batches": batches, "peak_bytes": peak, "plan_bytes": predicted, "plan_over_peak": predicted / peak}

    return work


def _loaded(inputs: Inputs) -> tuple[sp.Graph, sp.Sampler]:
    """Both, and all modules that a first call and a first loader import."""
    graph, sampler, seeds = graph_of(inputs), sampler_of(inputs), inputs.seeds
    for _ in sp.BulkLoader(graph, seeds[0], sampler, batch_size=seeds.shape[1]):
        pass
    sp.clear_pool()
    return graph, sampler


def _peak_beyond(call: Callable[[], Any]) -> tuple[int, Any]:
    """Bytes resident at the peak of a call beyond those before it, and its result."""
    before = begin_peak()
    result = call()
    return peak_bytes() - before, result


_SAMPLERS: dict[str, Values] = {
    "blocks": {"sampler": "sage"},
    "blocks, edge ids": {"sampler": "sage", "edge_ids": 1},
    "subgraph": {"sampler": "sage-subgraph"},
    "LADIES": {"sampler": "ladies", "fanouts": "512,512"},
    "LADIES, squared_count": {"sampler": "ladies-squared-count", "fanouts": "512,512"},
    "FastGCN": {"sampler": "fastgcn", "fanouts": "512,512"},
}
CASE = Case(
    about="The most memory that a call, and the bulks of a loader, take beyond the graph; in fresh processes.",
    claim="A call takes its result and the scratch that is documented; a plan says a loader's peak, within a third.",
    parameters={
        "graph": ("rmat:18,16",),
        "threads": (2,),
        "batches": (32,),
        "batch_size": (1024,),
        "fanouts": ("15,10,5",),
        "edge_ids": (0,),
    },
    quick={"graph": ("rmat:16,16",)},
    sides=tuple(
        Side(f"{what}: {name}", task, options)
        for what, task in (("call", one_call), ("loader", loader))
        for name, options in _SAMPLERS.items()
    ),
    plots=(Plot("peak_bytes", title="bytes at the peak"),),
    exact=True,
)
