"""PyG on pyg-lib or torch-sparse: NeighborLoader, pyg-lib's operation alone, and SAGEConv."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from .. import gpu
from ..case import Figures, Peer, Side, Work
from ..inputs import Inputs
from ..script import layers_of, loader_of, net_of, run
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
    import torch_geometric.nn

    values = {"model": "sage", "dropout": 0.5, **inputs.values}
    options = replace(inputs, values=values)
    net = net_of(layers_of(torch_geometric.nn, options), options, torch.nn.functional.dropout, trims=True).to(where)
    return run(_loader(inputs, shuffle=True), net, where)


def script(inputs: Inputs) -> Work:
    """A script as PyG's examples write it: every layer computes all rows."""
    return _script(inputs, trims=False)


def script_trimmed(inputs: Inputs) -> Work:
    """The same with PyG's ``trim_to_layer``."""
    return _script(inputs, trims=True)


def _script(inputs: Inputs, trims: bool) -> Work:
    import torch
    import torch_geometric.nn

    net = net_of(layers_of(torch_geometric.nn, inputs), inputs, torch.nn.functional.dropout, trims)
    return run(_loader(inputs, shuffle=True), net)


def _loader(inputs: Inputs, *, shuffle: bool = False) -> Any:
    from torch_geometric.loader import NeighborLoader

    warnings.filterwarnings("ignore", "Using 'NeighborSampler' without a 'pyg-lib'")
    workers = inputs.get("workers", 0)
    more = {"is_sorted": True, "num_workers": workers, "persistent_workers": workers > 0}
    return loader_of(NeighborLoader, inputs, shuffle=shuffle, **more)


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
        "scripts": (Side("PyG", script), Side("PyG, trim_to_layer", script_trimmed)),
        "epoch": (Side("PyG", sage), Side("PyG, malloc alike", sage, environment=MALLOC)),
    },
)
