"""PyG's NeighborLoader and SAGEConv, each layer on the part of the subgraph that it needs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import trim_to_layer

from peers.pyg_loader import PACKAGES
from peers.task import Inputs, Options, Task, Work
from peers.training import Batches, Side, epochs, read_data

__all__ = ["PACKAGES", "TASKS"]


class Sage(torch.nn.Module):
    """As `spsample`'s: dropout, convolution, ReLU."""

    def __init__(self, dims: list[int], dropout: float) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(SAGEConv(a, b) for a, b in itertools.pairwise(dims))
        self.dropout = dropout

    def forward(self, batch: Any) -> torch.Tensor:
        """Logits of the seeds."""
        x, edges, last = batch.x, batch.edge_index, len(self.convs) - 1
        for number, conv in enumerate(self.convs):
            x, edges, _ = trim_to_layer(number, batch.num_sampled_nodes, batch.num_sampled_edges, x, edges)
            x = conv(torch.nn.functional.dropout(x, self.dropout, self.training), edges)
            x = x if number == last else x.relu()
        return x[: batch.batch_size]


def sage(inputs: Inputs, options: Options) -> Work:
    """Steps with a loader of `workers` processes."""
    data = read_data(inputs)
    colptr, row = torch.from_numpy(inputs.indptr), torch.from_numpy(inputs.indices64)
    target = torch.repeat_interleave(torch.arange(len(colptr) - 1), colptr.diff())
    whole = Data(x=data.x, y=data.y, edge_index=torch.stack([row, target]), num_nodes=len(colptr) - 1)
    torch.manual_seed(options["seed"])
    dims = [data.x.shape[1], *[options["hidden"]] * (len(options["fanouts"]) - 1), data.classes]
    loaders: dict[bool, NeighborLoader] = {}

    def batches(seeds: np.ndarray, shuffle: bool) -> Batches:
        if shuffle not in loaders:
            loaders[shuffle] = NeighborLoader(
                whole,
                num_neighbors=options["fanouts"],
                is_sorted=True,
                input_nodes=torch.from_numpy(seeds),
                batch_size=options["batch_size"],
                shuffle=shuffle,
                num_workers=options["workers"],
                persistent_workers=options["workers"] > 0,
            )
        for batch in loaders[shuffle]:
            yield (batch,), batch.y[: batch.batch_size]

    return epochs(Side(Sage(dims, options["dropout"]), batches), inputs, options)


TASKS: dict[str, Task] = {"sage": sage}
