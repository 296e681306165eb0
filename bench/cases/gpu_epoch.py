"""An epoch of GraphSAGE on a GPU: by phase, by loaders that sample there or on the host, beside DGL and PyG."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

import spsample as sp

from .. import gpu
from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..ours import Calls, graph_of, sampler_of
from ..steps import epoch


def by_phase(inputs: Inputs) -> Work:
    """Sampling, features and steps in turn; phases are between events on one stream, ``*_ms`` of a batch."""
    step = _Steps(inputs)
    import torch

    calls = Calls(inputs, step.sampler, step.graph)
    features, y = sp.DeviceFeatures(inputs.x, 1.0), torch.from_numpy(inputs.y).to(step.where)
    marks: list[tuple[str, Any]] = []

    def mark(phase: str) -> None:
        marks.append((phase, gpu.event()))
        marks[-1][1].record()

    def batches() -> Iterator[Any]:
        mark("begin")
        for bulk in calls():
            mark("sampling")
            for batch in bulk:
                x = torch.from_dlpack(features.gather(batch.src_nodes))
                mark("features")
                yield (x, [step.maker(layer) for layer in batch.layers]), y[torch.from_dlpack(batch.seeds).long()]
                mark("propagation")

    whole = step.epoch(batches)

    def work() -> Figures:
        marks.clear()
        figures: Figures = whole()
        times: dict[str, float] = defaultdict(float)
        for (_, before), (phase, after) in pairwise(marks):
            times[f"{phase}_ms"] += gpu.milliseconds(before, after) / calls.batches
        return {**figures, **times}

    return work


def by_loader(inputs: Inputs) -> Work:
    """A `BulkLoader` with all on the GPU, or (``place`` host) one on the host, which copies batches there."""
    step, is_there = _Steps(inputs), inputs["place"] == "device"
    import torch

    place = {"features": sp.DeviceFeatures(inputs.x, 1.0)} if is_there else {"features": inputs.x, "device": step.where}
    if is_there:
        place["bulk_size"] = inputs["bulk_size"]
    loader = sp.BulkLoader(
        step.graph,
        inputs.seeds.ravel(),
        step.sampler,
        batch_size=inputs.seeds.shape[1],
        labels=inputs.y,
        prefetch=inputs["prefetch"],
        **place,
    )

    def batches() -> Iterator[Any]:
        for batch in loader:
            yield step.maker.inputs(batch, step.model), torch.from_dlpack(batch.y).to(step.where)

    return step.epoch(batches)


class _Steps:
    """A model on the GPU, and the graph there or (``place`` host) on the host."""

    def __init__(self, inputs: Inputs) -> None:
        gpu.device()
        import torch

        from spsample.training import BlockMaker, ModelConfig, build_model

        self.where, self.sampler = gpu.torch_device(), sampler_of(inputs)
        graph = graph_of(inputs)
        self.graph = graph if inputs.get("place") == "host" else sp.DeviceGraph(graph)
        self.maker = BlockMaker(self.graph, self.sampler)
        torch.manual_seed(0)
        config = ModelConfig("sage", hidden=inputs["hidden"])
        sizes = (inputs.x.shape[1], int(np.max(inputs.y)) + 1, len(inputs.fanouts))
        self.model = build_model(*sizes, config).to(self.where)

    def epoch(self, batches: Callable[[], Iterator[Any]]) -> Work:
        """A pass over batches, timed."""
        return gpu.timed(epoch(self.model, batches))


CASE = Case(
    about="An epoch of GraphSAGE with graph and features on a GPU, or sampled on the host and copied ahead.",
    claim="Sampling takes at most 3 % of an epoch on a GPU; batches of the host cost less where they are copied ahead.",
    parameters={
        "graph": ("rmat:21,32",),
        "batches": (196,),
        "batch_size": (1024,),
        "bulk_size": (196,),
        "fanouts": ("15,10,5",),
        "dim": (100,),
        "hidden": (256,),
        "threads": (os.cpu_count() or 1,),
    },
    quick={"graph": ("rmat:14,16",), "batches": (16,), "batch_size": (256,)},
    sides=(
        Side("spsample, all on the GPU, by phase", by_phase),
        Side("spsample, all on the GPU", by_loader, {"place": "device", "prefetch": 0}),
        Side("spsample, all on the GPU, prefetch", by_loader, {"place": "device", "prefetch": 1}),
        Side("spsample, sampled by the host and copied", by_loader, {"place": "host", "prefetch": 0}),
        Side("spsample, sampled by the host and copied ahead", by_loader, {"place": "host", "prefetch": 1}),
    ),
    job="gpu-epoch",
    baselines=("spsample, all on the GPU, by phase",),
    plots=(
        Plot("ms", title="ms a batch"),
        Plot(
            ("sampling_ms", "features_ms", "propagation_ms"), title="phases", only="spsample, all on the GPU, by phase"
        ),
    ),
)
