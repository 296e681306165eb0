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

from typing import NoReturn

from spsample.errors import require_module

for _package in ("torch", "torch_geometric"):
    require_module(_package, needed_for="spsample.pyg", extra="pyg")

from torch_geometric import loader as _pyg_loader  # noqa: E402  (after the check)

from spsample.pyg.neighbor_loader import NeighborLoader  # noqa: E402
from spsample.pyg.neighbor_sampler import NeighborSampler  # noqa: E402
from spsample.pyg.trimming import trim, untrim  # noqa: E402

__all__ = ["NeighborLoader", "NeighborSampler", "trim", "untrim"]


def __getattr__(name: str) -> NoReturn:
    """Refuse the names of PyG's other loaders, which are not here."""
    if name not in _pyg_loader.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    instead = f"It has NeighborLoader and NeighborSampler. Use PyG's own: from torch_geometric.loader import {name}"
    # an import would drop the text of an AttributeError
    raise ImportError(f"spsample.pyg has no {name}. {instead}", name=__name__)
