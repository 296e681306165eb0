"""DGL's DataLoader and SAGEConv on its blocks."""

from __future__ import annotations

import itertools
from typing import Any

import dgl
import numpy as np
import torch
from dgl.nn import SAGEConv

from peers.dgl_loader import PACKAGES
from peers.task import Inputs, Options, Task, Work
from peers.training import Batches, Side, epochs, read_data, sage_forward

__all__ = ["PACKAGES", "TASKS"]


class Sage(torch.nn.Module):
    """As `spsample`'s: dropout, convolution, ReLU."""

    def __init__(self, dims: list[int], dropout: float) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(SAGEConv(a, b, "mean") for a, b in itertools.pairwise(dims))
        self.dropout = dropout
        for linear in (module for module in self.modules() if isinstance(module, torch.nn.Linear)):
            linear.reset_parameters()  # as the other sides' begin; DGL's own weights are larger

    def forward(self, blocks: list[Any]) -> torch.Tensor:
        """Logits of the seeds."""
        convs = [lambda x, block, conv=conv: conv(block, x) for conv in self.convs]
        logits: torch.Tensor = sage_forward(convs, blocks[0].srcdata["x"], blocks, self.dropout, self.training)
        return logits


def sage(inputs: Inputs, options: Options) -> Work:
    """Steps with a loader of `workers` processes."""
    data = read_data(inputs)
    indptr, indices = torch.from_numpy(inputs.indptr), torch.from_numpy(inputs.indices64)
    graph = dgl.graph(("csc", (indptr, indices, [])), num_nodes=len(indptr) - 1)
    graph.ndata["x"], graph.ndata["y"] = data.x, data.y
    torch.manual_seed(options["seed"])
    dims = [data.x.shape[1], *[options["hidden"]] * (len(options["fanouts"]) - 1), data.classes]
    fanouts = options["fanouts"][::-1]
    sampler = dgl.dataloading.NeighborSampler(fanouts, prefetch_node_feats=["x"], prefetch_labels=["y"])

    def batches(seeds: np.ndarray, shuffle: bool) -> Batches:
        loader = dgl.dataloading.DataLoader(
            graph,
            torch.from_numpy(seeds),
            sampler,
            batch_size=options["batch_size"],
            shuffle=shuffle,
            num_workers=options["workers"],
        )
        for _, _, blocks in loader:
            yield (blocks,), blocks[-1].dstdata["y"]

    return epochs(Side(Sage(dims, options["dropout"]), batches), inputs, options)


TASKS: dict[str, Task] = {"sage": sage}
