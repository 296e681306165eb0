"""PyG's loader names over bulk sampling: a PyG script changes one import. Needs torch and torch_geometric.

Examples
--------
>>> import torch
>>> from torch_geometric.data import Data
>>> from spsample.pyg import NeighborLoader
>>> data = Data(x=torch.eye(4), edge_index=torch.tensor([[1, 2, 3, 0], [0, 0, 1, 3]]))
>>> loader = NeighborLoader(data, num_neighbors=[2], input_nodes=torch.tensor([0, 3]), batch_size=2)
>>> batch = next(iter(loader))
>>> batch.batch_size, batch.n_id.tolist(), batch.edge_index.tolist()
(2, [0, 3, 1, 2], [[2, 3, 0], [0, 0, 1]])
"""

from __future__ import annotations

from spsample.errors import require_module

for _package in ("torch", "torch_geometric"):
    require_module(_package, needed_for="spsample.pyg", extra="pyg")

from spsample.pyg.neighbor_loader import NeighborLoader  # noqa: E402  (after the check)

__all__ = ["NeighborLoader"]
