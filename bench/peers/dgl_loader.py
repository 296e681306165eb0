"""DGL: DataLoader over NeighborSampler, whose blocks hold int64 COO edges, node ids and edge ids; features, too."""

from __future__ import annotations

import warnings

import dgl
import numpy as np
import torch
from numpy.typing import NDArray

from peers.task import Inputs, Options, Task, Work

PACKAGES = ("dgl", "torch")


def blocks(inputs: Inputs, options: Options) -> Work:
    """One pass of the loader without workers, its fastest form."""
    seeds = inputs.seeds(options)
    loader = _loader(_graph(inputs), seeds, options, [])

    def work() -> dict[str, float]:
        edges = sum(block.num_edges() for _, _, layers in loader for block in layers)
        return {"batches": len(seeds), "edges": edges}

    return work


def sample_blocks(inputs: Inputs, options: Options) -> Work:
    """The sampler alone, batch after batch."""
    seeds, graph = [torch.from_numpy(batch) for batch in inputs.seeds(options)], _graph(inputs)
    sampler = dgl.dataloading.NeighborSampler(options["fanouts"][::-1])

    def work() -> dict[str, float]:
        edges = sum(block.num_edges() for batch in seeds for block in sampler.sample_blocks(graph, batch)[2])
        return {"batches": len(seeds), "edges": edges}

    return work


def blocks_with_features(inputs: Inputs, options: Options) -> Work:
    """The same; the loader puts features to the sources of each batch."""
    seeds, graph = inputs.seeds(options), _graph(inputs)
    graph.ndata["feat"] = torch.from_numpy(inputs.features(options))
    loader = _loader(graph, seeds, options, ["feat"])

    def work() -> dict[str, float]:
        edges = rows = 0
        for _, _, layers in loader:
            edges += sum(block.num_edges() for block in layers)
            rows += len(layers[0].srcdata["feat"])
        return {"batches": len(seeds), "edges": edges, "rows": rows}

    return work


def _graph(inputs: Inputs) -> dgl.DGLGraph:
    indptr, indices = torch.from_numpy(inputs.indptr), torch.from_numpy(inputs.indices64)
    return dgl.graph(("csc", (indptr, indices, [])), num_nodes=len(indptr) - 1)


def _loader(
    graph: dgl.DGLGraph, seeds: NDArray[np.int64], options: Options, features: list[str]
) -> dgl.dataloading.DataLoader:
    """DGL lists fanouts farthest from the seeds first."""
    warnings.filterwarnings("ignore", "Dataloader CPU affinity")  # it needs workers
    return dgl.dataloading.DataLoader(
        graph,
        torch.from_numpy(seeds.ravel()),
        dgl.dataloading.NeighborSampler(options["fanouts"][::-1], prefetch_node_feats=features),
        batch_size=seeds.shape[1],
        shuffle=False,
        num_workers=0,
    )


TASKS: dict[str, Task] = {
    "blocks": blocks,
    "blocks_with_features": blocks_with_features,
    "sample_blocks": sample_blocks,
}
