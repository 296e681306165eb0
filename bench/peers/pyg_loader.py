"""PyG on pyg-lib or torch-sparse: NeighborLoader, with features too, and the sampling operation of pyg-lib."""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from importlib.util import find_spec

import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

from peers.task import Inputs, Options, Task, Work

_LIBRARY = "pyg_lib" if find_spec("pyg_lib") else "torch_sparse"
"""What NeighborLoader samples with: the faster one, where it is there."""
importlib.import_module(_LIBRARY)  # registers its operations

PACKAGES = ("torch_geometric", _LIBRARY, "torch")


@cache
def _csc(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(inputs.indptr), torch.from_numpy(inputs.indices64)


def neighbor_loader(inputs: Inputs, options: Options) -> Work:
    """One pass of the loader with `workers` processes, which stay alive from pass to pass; with features, if `dim`.

    Its minibatches hold an `edge_index`; those of a loader over a SparseTensor have to be sorted first.
    """
    warnings.filterwarnings("ignore", "Using 'NeighborSampler' without a 'pyg-lib'")
    colptr, row = _csc(inputs)
    target = torch.repeat_interleave(torch.arange(len(colptr) - 1), colptr.diff())
    seeds = inputs.seeds(options)
    x = torch.from_numpy(inputs.features(options)) if "dim" in options else None
    loader = NeighborLoader(
        Data(x=x, edge_index=torch.stack([row, target]), num_nodes=len(colptr) - 1),
        num_neighbors=options["fanouts"],
        is_sorted=True,
        input_nodes=torch.from_numpy(seeds.ravel()),
        batch_size=seeds.shape[1],
        shuffle=False,
        num_workers=options["workers"],
        persistent_workers=options["workers"] > 0,
    )

    def work() -> dict[str, float]:
        edges = rows = 0
        for batch in loader:
            edges += batch.edge_index.size(1)
            rows += batch.num_nodes
        return {"batches": len(seeds), "edges": edges, "rows": rows}

    return work


def pyg_lib_sample(inputs: Inputs, options: Options) -> Work:
    """`torch.ops.pyg.neighbor_sample` alone, batch after batch: COO with edge ids."""
    colptr, row = _csc(inputs)
    seeds = [torch.from_numpy(batch) for batch in inputs.seeds(options)]
    sample = torch.ops.pyg.neighbor_sample

    def work() -> dict[str, float]:
        edges = sum(len(sample(colptr, row, batch, options["fanouts"], csc=True)[0]) for batch in seeds)
        return {"batches": len(seeds), "edges": edges}

    return work


TASKS: dict[str, Task] = {
    "neighbor_loader": neighbor_loader,
    "pyg_lib_sample": pyg_lib_sample,
}
