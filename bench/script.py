"""A training script as PyG's examples write it: a model, a loader, Adam. Imports within functions only."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from .case import Figures, Work
from .inputs import Inputs
from .steps import epoch

HEADS = 4


def dims_of(inputs: Inputs) -> list[int]:
    """Widths of the features, of what each layer but the last gives, and of the logits."""
    return [inputs.x.shape[1], *[inputs["hidden"]] * (len(inputs.fanouts) - 1), int(inputs.y.max()) + 1]


def layers_of(nn: Any, inputs: Inputs) -> Any:
    """The convolutions of ``model``: of `torch_geometric.nn`, or of a module that has its names."""
    import torch

    hidden, dims = inputs["hidden"], dims_of(inputs)
    torch.manual_seed(0)
    if inputs["model"] == "gat":
        widths = [*[(hidden // HEADS, True)] * (len(dims) - 2), (dims[-1], False)]
        pairs = zip(dims, widths, strict=False)
        return torch.nn.ModuleList(nn.GATConv(a, b, heads=HEADS, concat=joined) for a, (b, joined) in pairs)
    conv = {"sage": nn.SAGEConv, "gcn": nn.GCNConv}[inputs["model"]]
    return torch.nn.ModuleList(conv(a, b) for a, b in itertools.pairwise(dims))


def data_of(inputs: Inputs) -> Any:
    """The graph, features and labels as `torch_geometric.data.Data`."""
    import torch
    from torch_geometric.data import Data

    colptr, row = torch.from_numpy(inputs.indptr), torch.from_numpy(inputs.indices64)
    target = torch.repeat_interleave(torch.arange(len(colptr) - 1), colptr.diff())
    data = Data(edge_index=torch.stack([row, target]), num_nodes=len(colptr) - 1)
    data.x, data.y = torch.from_numpy(inputs.x), torch.from_numpy(inputs.y)
    return data


def loader_of(loader: Any, inputs: Inputs, *, shuffle: bool = True, **options: Any) -> Any:
    """A loader of PyG's name and arguments."""
    import torch

    return loader(
        data_of(inputs),
        num_neighbors=inputs.fanouts,
        input_nodes=torch.from_numpy(inputs.seeds.ravel()),
        batch_size=inputs["batch_size"],
        shuffle=shuffle,
        **options,
    )


def net_of(convs: Any, inputs: Inputs, dropout: Any, trims: bool = False) -> Any:
    """The model of the script; with `trims` it calls PyG's ``trim_to_layer``."""
    import torch
    from torch_geometric.utils import trim_to_layer

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = convs

        def forward(self, batch: Any) -> Any:
            x, edges = batch.x, batch.edge_index
            for number, conv in enumerate(self.convs):
                if trims:
                    x, edges, _ = trim_to_layer(number, batch.num_sampled_nodes, batch.num_sampled_edges, x, edges)
                x = conv(dropout(x, p=inputs["dropout"], training=self.training), edges)
                x = x if number == len(self.convs) - 1 else x.relu()
            return x[: batch.batch_size]

    return Net()


def run(loader: Any, net: Any, where: Any = "cpu") -> Work:
    """Epochs of the script, batches copied to a device."""

    def batches() -> Iterator[Any]:
        for batch in loader:
            there = batch.to(where)
            yield (there,), there.y[: there.batch_size]

    return epoch(net, batches)


def counting_slow_calls(work: Work, net: Any) -> Work:
    """The same, and how many calls of layers computed all rows."""

    def counted() -> Figures:
        from spsample.nn import calls

        return {**work(), "slow_calls": sum(slow for _, slow in calls(net).values())}

    return counted
