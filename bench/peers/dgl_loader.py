"""DGL: DataLoader over NeighborSampler, whose blocks hold int64 COO edges, node ids and edge ids."""

from __future__ import annotations

import warnings

import dgl
import torch

from peers.task import Inputs, Options, Task, Work

PACKAGES = ("dgl", "torch")


def blocks(inputs: Inputs, options: Options) -> Work:
    """One pass of the loader without workers, its fastest form. DGL lists fanouts farthest from the seeds first."""
    warnings.filterwarnings("ignore", "Dataloader CPU affinity")  # it needs workers
    indptr, indices = torch.from_numpy(inputs.indptr), torch.from_numpy(inputs.indices64)
    graph = dgl.graph(("csc", (indptr, indices, [])), num_nodes=len(indptr) - 1)
    seeds = inputs.seeds(options)
    loader = dgl.dataloading.DataLoader(
        graph,
        torch.from_numpy(seeds.ravel()),
        dgl.dataloading.NeighborSampler(options["fanouts"][::-1]),
        batch_size=seeds.shape[1],
        shuffle=False,
        num_workers=0,
    )

    def work() -> dict[str, float]:
        edges = sum(block.num_edges() for _, _, layers in loader for block in layers)
        return {"batches": len(seeds), "edges": edges}

    return work


TASKS: dict[str, Task] = {"blocks": blocks}
