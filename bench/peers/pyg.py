"""PyG on pyg-lib or torch-sparse: NeighborLoader, pyg-lib's operation alone, and SAGEConv."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

from .. import gpu
from ..case import Figures, Peer, Side, Work
from ..inputs import Inputs
from ..steps import epoch
from .dgl import MALLOC


def neighbor_loader(inputs: Inputs) -> Work:
    """One pass of the loader with features and `workers` processes, which stay from pass to pass."""
    loader = _loader(inputs)

    def work() -> Figures:
        rows = edges = 0
        for batch in loader:
            edges += batch.edge_index.size(1)
            rows += batch.num_nodes
        return {"batches": len(inputs.seeds), "edges": edges, "rows": rows}

    return work


def pyg_lib_sample(inputs: Inputs) -> Work:
    """`torch.ops.pyg.neighbor_sample` alone, batch after batch: COO with edge ids."""
    import pyg_lib  # noqa: F401  (registers its operations)
    import torch

    colptr, row = torch.from_numpy(inputs.indptr), torch.from_numpy(inputs.indices64)
    seeds = [torch.from_numpy(batch) for batch in inputs.seeds]
    sample = torch.ops.pyg.neighbor_sample

    def work() -> Figures:
        edges = sum(len(sample(colptr, row, batch, inputs.fanouts, csc=True)[0]) for batch in seeds)
        return {"batches": len(seeds), "edges": edges}

    return work


def sage_on_gpu(inputs: Inputs) -> Work:
    """`sage` with the model on the GPU, to which each batch is copied when it is asked for."""
    return gpu.timed(sage(inputs, gpu.torch_gpu()))


def sage(inputs: Inputs, where: Any = "cpu") -> Work:
    """An epoch of training, each layer on the part of the subgraph that it needs."""
    import torch
    from torch_geometric.nn import SAGEConv
    from torch_geometric.utils import trim_to_layer

    torch.manual_seed(0)
    dims = [inputs.x.shape[1], *[inputs["hidden"]] * (len(inputs.fanouts) - 1), int(inputs.y.max()) + 1]
    convs = torch.nn.ModuleList(SAGEConv(a, b) for a, b in itertools.pairwise(dims))

    class Sage(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = convs

        def forward(self, batch: Any) -> Any:
            x, edges = batch.x, batch.edge_index
            for number, conv in enumerate(self.convs):
                x, edges, _ = trim_to_layer(number, batch.num_sampled_nodes, batch.num_sampled_edges, x, edges)
                x = conv(torch.nn.functional.dropout(x, inputs.get("dropout", 0.5)), edges)
                x = x if number == len(self.convs) - 1 else x.relu()
            return x[: batch.batch_size]

    loader = _loader(inputs, shuffle=True)

    def batches() -> Iterator[Any]:
        for batch in loader:
            there = batch.to(where)
            yield (there,), there.y[: there.batch_size]

    return epoch(Sage().to(where), batches)


def _loader(inputs: Inputs, *, shuffle: bool = False) -> Any:
    import torch
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    warnings.filterwarnings("ignore", "Using 'NeighborSampler' without a 'pyg-lib'")
    colptr, row = torch.from_numpy(inputs.indptr), torch.from_numpy(inputs.indices64)
    target = torch.repeat_interleave(torch.arange(len(colptr) - 1), colptr.diff())
    data = Data(edge_index=torch.stack([row, target]), num_nodes=len(colptr) - 1)
    data.x, data.y = torch.from_numpy(inputs.x), torch.from_numpy(inputs.y)
    workers = inputs.get("workers", 0)
    return NeighborLoader(
        data,
        num_neighbors=inputs.fanouts,
        is_sorted=True,
        input_nodes=torch.from_numpy(inputs.seeds.ravel()),
        batch_size=inputs["batch_size"],
        shuffle=shuffle,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


_LOADERS = (
    Side("PyG NeighborLoader", neighbor_loader),
    Side("PyG NeighborLoader, 2 workers", neighbor_loader, {"workers": 2}),
)
PEER = Peer(
    "PyG",
    ("torch_geometric", "torch"),
    {
        "blocks": (Side("pyg-lib operation, subgraph", pyg_lib_sample, {"threads": 1}),),
        "whole-rows": (Side("pyg-lib operation, subgraph", pyg_lib_sample, {"threads": 1}),),
        "small-calls": (Side("pyg-lib operation, subgraph", pyg_lib_sample, {"threads": 1, "fanouts": "10,5"}),),
        "loader-subgraph": _LOADERS,
        "gpu-epoch": (Side("PyG, copied to the GPU", sage_on_gpu),),
        "epoch": (Side("PyG", sage), Side("PyG, malloc alike", sage, environment=MALLOC)),
    },
)
