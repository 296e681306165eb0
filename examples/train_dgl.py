"""Train GraphSAGE in a loop of DGL's: `train_dgl.py SOURCE EPOCHS`."""

import sys

import dgl
import torch
from dgl.nn import SAGEConv
from torch.nn.functional import cross_entropy, relu

import spsample as sp
from spsample.store import from_dgl


class SAGE(torch.nn.Module):
    """Two layers of GraphSAGE."""

    def __init__(self, dim: int, classes: int, hidden: int = 64) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([SAGEConv(dim, hidden, "mean"), SAGEConv(hidden, classes, "mean")])

    def forward(self, blocks, x):
        """Logits of the last block's targets."""
        return self.layers[1](blocks[1], relu(self.layers[0](blocks[0], x)))


def load(source: str):
    """A data set as DGL has it: a graph with features and labels, and the ids to train and to test on."""
    dataset = sp.load_dataset(source)
    n, in_degrees = dataset.graph.num_nodes, torch.from_numpy(dataset.graph.in_degrees())
    target = torch.repeat_interleave(torch.arange(n), in_degrees)
    graph = dgl.graph((torch.tensor(dataset.graph.indices).long(), target), num_nodes=n)
    x = torch.from_numpy(sp.FeatureStore(dataset.x).gather(range(n)))
    graph.ndata["feat"] = (x - x.mean(0)) / x.std(0).clamp(min=1e-6)
    graph.ndata["label"] = torch.from_numpy(dataset.y).long()
    return graph, torch.from_numpy(dataset.train_idx), torch.from_numpy(dataset.test_idx)


def make_loader(graph: sp.Graph, ids, sizes, data, **options):
    """What stands for `dgl.dataloading.DataLoader(data, ids, NeighborSampler(sizes), ...)`."""
    sampler = sp.GraphSAGE(sizes)
    return sp.BulkLoader(graph, ids, sampler, features=data["feat"], labels=data["label"], **options).dgl()


source, epochs = sys.argv[1:]
g, train_ids, test_ids = load(source)
graph = from_dgl(g)
loader = make_loader(graph, train_ids, [10, 10], g.ndata, batch_size=512)
torch.manual_seed(0)
model = SAGE(g.ndata["feat"].shape[1], int(g.ndata["label"].max()) + 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(int(epochs)):
    model.train()
    for input_nodes, output_nodes, blocks in loader:
        loss = cross_entropy(model(blocks, blocks[0].srcdata["feat"]), blocks[-1].dstdata["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
model.eval()
hits = 0
with torch.no_grad():
    for _, _, blocks in make_loader(graph, test_ids, [-1, -1], g.ndata, batch_size=512, shuffle=False):
        found = model(blocks, blocks[0].srcdata["feat"]).argmax(1)
        hits += int((found == blocks[-1].dstdata["label"]).sum())
print(f"accuracy {hits / len(test_ids):.4f}")
