"""DGL: DataLoader over NeighborSampler, whose blocks hold int64 COO edges with ids, and its SAGEConv."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from .. import gpu
from ..case import Figures, Peer, Side, Work
from ..inputs import Inputs
from ..script import HEADS, dims_of
from ..steps import Model, epoch


def blocks(inputs: Inputs, where: Any = "cpu") -> Work:
    """One pass of the loader without workers, its fastest form."""
    loader = _loader(_graph(inputs).to(where), inputs.seeds.ravel(), inputs)

    def work() -> Figures:
        edges = sum(block.num_edges() for _, _, layers in loader for block in layers)
        return {"batches": len(inputs.seeds), "edges": edges}

    return work


def blocks_with_features(inputs: Inputs) -> Work:
    """The same; the loader puts features to the sources of each batch."""
    import torch

    graph = _graph(inputs)
    graph.ndata["x"] = torch.from_numpy(inputs.x)
    loader = _loader(graph, inputs.seeds.ravel(), inputs, features=["x"])

    def work() -> Figures:
        rows = sum(len(layers[0].srcdata["x"]) for _, _, layers in loader)
        return {"batches": len(inputs.seeds), "rows": rows}

    return work


def blocks_on_gpu(inputs: Inputs) -> Work:
    """`blocks` of a graph in the memory of the GPU, which samples it."""
    where, sampling = gpu.torch_gpu(), gpu.Sampling.of(inputs)
    sampling.require("sage")
    values = {**inputs.values, "fanouts": ",".join(map(str, sampling.fanouts))}
    return gpu.timed(blocks(replace(inputs, values=values), where))


def sage_on_gpu(inputs: Inputs) -> Work:
    """`sage` with the graph, the features and the model in the memory of the GPU."""
    return gpu.timed(sage(inputs, gpu.torch_gpu()))


def sage(inputs: Inputs, where: Any = "cpu") -> Work:
    """An epoch of training."""
    from dgl.nn import SAGEConv

    convs = [SAGEConv(a, b, "mean") for a, b in itertools.pairwise(dims_of(inputs))]
    return _training(inputs, convs, [_plain] * len(convs), where)


def script(inputs: Inputs) -> Work:
    """An epoch of a script with DGL's layer for ``model``."""
    from dgl.nn import GATConv, GraphConv

    dims, model, zero = dims_of(inputs), inputs["model"], {"allow_zero_in_degree": True}
    if model == "sage":
        return sage(inputs)
    if model == "gcn":
        convs = [GraphConv(a, b, **zero) for a, b in itertools.pairwise(dims)]
        return _training(inputs, convs, [_plain] * len(convs), "cpu")
    widths = [*[inputs["hidden"] // HEADS] * (len(dims) - 2), dims[-1]]
    convs = [GATConv(a, b, HEADS, **zero) for a, b in zip(dims, widths, strict=False)]
    joined = [lambda conv, x, block: conv(block, x).flatten(1)] * (len(convs) - 1)
    return _training(inputs, convs, [*joined, lambda conv, x, block: conv(block, x).mean(1)], "cpu")


def _plain(conv: Any, x: Any, block: Any) -> Any:
    return conv(block, x)


def _training(inputs: Inputs, convs: list[Any], calls: list[Any], where: Any) -> Work:
    import torch

    graph = _graph(inputs)
    graph.ndata["x"], graph.ndata["y"] = torch.from_numpy(inputs.x), torch.from_numpy(inputs.y)
    loader = _loader(graph.to(where), inputs.seeds.ravel(), inputs, ["x"], ["y"], shuffle=True)
    torch.manual_seed(0)
    for linear in (part for conv in convs for part in conv.modules() if isinstance(part, torch.nn.Linear)):
        linear.reset_parameters()  # as the other sides' begin; DGL's own weights are larger
    model = Model([conv.to(where) for conv in convs], calls, inputs.get("dropout", 0.5))
    return epoch(
        model, lambda: (((layers[0].srcdata["x"], layers), layers[-1].dstdata["y"]) for _, _, layers in loader)
    )


def _graph(inputs: Inputs) -> Any:
    import dgl
    import torch

    indptr, indices = torch.from_numpy(inputs.indptr), torch.from_numpy(inputs.indices64)
    return dgl.graph(("csc", (indptr, indices, [])), num_nodes=len(indptr) - 1)


def _loader(
    graph: Any, seeds: np.ndarray, inputs: Inputs, features: Any = (), labels: Any = (), *, shuffle: bool = False
) -> Any:
    """DGL lists fanouts farthest from the seeds first."""
    import dgl
    import torch

    warnings.filterwarnings("ignore", "Dataloader CPU affinity")  # it needs workers
    sampler = dgl.dataloading.NeighborSampler(
        inputs.fanouts[::-1], prefetch_node_feats=list(features), prefetch_labels=list(labels)
    )
    return dgl.dataloading.DataLoader(
        graph,
        torch.from_numpy(seeds).to(graph.device),
        sampler,
        batch_size=inputs["batch_size"],
        shuffle=shuffle,
        num_workers=inputs.get("workers", 0),
    )


MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1)}
"""Memory that is freed is kept: what `spsample.training.keep_memory` does for spsample."""

PEER = Peer(
    "DGL",
    ("dgl", "torch"),
    {
        "blocks": (Side("DGL DataLoader", blocks),),
        "whole-rows": (Side("DGL DataLoader", blocks),),
        "loader-blocks": (Side("DGL DataLoader", blocks_with_features),),
        "gpu-bulks": (Side("DGL DataLoader, graph on the GPU", blocks_on_gpu),),
        "gpu-epoch": (Side("DGL, all on the GPU", sage_on_gpu),),
        "scripts": (Side("DGL", script),),
        "epoch": (Side("DGL", sage), Side("DGL, malloc alike", sage, environment=MALLOC)),
    },
)
