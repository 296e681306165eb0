"""What both training scripts share: a graph as PyG's `Data`, a model, and how it is tested."""

from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import spsample as sp


def load(source: str) -> Data:
    """A data set as PyG has it: `x, y, edge_index, train_mask, test_mask`."""
    dataset = sp.load_dataset(source)
    graph = dataset.graph
    target = torch.repeat_interleave(torch.arange(graph.num_nodes), torch.from_numpy(graph.in_degrees()))
    edge_index = torch.stack([torch.from_numpy(graph.indices.astype("int64")), target])
    x = torch.from_numpy(sp.FeatureStore(dataset.x).gather(range(graph.num_nodes)))
    x = (x - x.mean(0)) / x.std(0).clamp(min=1e-6)
    data = Data(x=x, y=torch.from_numpy(dataset.y).long(), edge_index=edge_index)
    for name, ids in (("train_mask", dataset.train_idx), ("test_mask", dataset.test_idx)):
        mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
        mask[torch.from_numpy(ids)] = True
        data[name] = mask
    return data


class SAGE(torch.nn.Module):
    """Two layers of GraphSAGE, of PyG or by its name."""

    def __init__(self, dim: int, classes: int, hidden: int = 64, conv: type[torch.nn.Module] = SAGEConv) -> None:
        super().__init__()
        self.first, self.second = conv(dim, hidden), conv(hidden, classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Logits of all vertices."""
        return self.second(self.first(x, edge_index).relu(), edge_index)


@torch.no_grad()
def accuracy(model: SAGE, data: Data) -> float:
    """On the test vertices, with all neighbours."""
    model.eval()
    found = model(data.x, data.edge_index)[data.test_mask].argmax(1)
    return (found == data.y[data.test_mask]).double().mean().item()
