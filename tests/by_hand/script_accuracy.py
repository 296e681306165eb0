"""Test accuracy of one training script in six forms: PyG alone, and with more and more of spsample.

python tests/by_hand/script_accuracy.py planted:20000 --epochs 5 --seeds 5
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch_geometric.nn
from torch.nn import functional
from torch_geometric.loader import NeighborLoader

import spsample.nn
import spsample.pyg

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from graph_data import load

FORMS = {
    "PyG": (torch_geometric.nn, functional.dropout, NeighborLoader),
    "one import": (torch_geometric.nn, functional.dropout, spsample.pyg.NeighborLoader),
    "one import and trim": (torch_geometric.nn, functional.dropout, spsample.pyg.NeighborLoader),
    "two imports": (spsample.nn, functional.dropout, spsample.pyg.NeighborLoader),
    "two imports and dropout": (spsample.nn, spsample.nn.functional.dropout, spsample.pyg.NeighborLoader),
    "the same, bfloat16 products": (spsample.nn, spsample.nn.functional.dropout, spsample.pyg.NeighborLoader),
}


class Net(torch.nn.Module):
    """Two layers, with dropout before each."""

    def __init__(self, layers, dropout, sizes):
        super().__init__()
        self.convs = torch.nn.ModuleList(layers(a, b) for a, b in itertools.pairwise(sizes))
        self.dropout = dropout

    def forward(self, x, edge_index):
        for number, conv in enumerate(self.convs):
            x = conv(self.dropout(x if number == 0 else x.relu(), 0.3, self.training), edge_index)
        return x


def accuracy(form, data, seed, epochs, layer):
    layers, dropout, loader_class = FORMS[form]
    torch.manual_seed(seed)
    loader = loader_class(data, [10, 10], input_nodes=data.train_mask, batch_size=512, shuffle=True)
    net = Net(getattr(layers, layer), dropout, [data.num_features, 64, int(data.y.max()) + 1])
    net = spsample.pyg.trim(net) if form.endswith("trim") else net
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    cast = torch.autocast("cpu", torch.bfloat16) if form.endswith("products") else nullcontext()
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            with cast:
                out = net(batch.x, batch.edge_index)[: batch.batch_size]
            functional.cross_entropy(out.float(), batch.y[: batch.batch_size]).backward()
            optimizer.step()
    if layers is spsample.nn or form.endswith("trim"):
        assert not any(slow for _, slow in spsample.nn.calls(net).values()), "a call computed all rows"
    net.eval()
    with torch.no_grad():
        found = net(data.x, data.edge_index)[data.test_mask].argmax(1)
    return 100 * (found == data.y[data.test_mask]).double().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("--layer", default="SAGEConv", choices=["SAGEConv", "GCNConv", "GATConv"])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    data = load(options.source)
    for form in FORMS:
        if form.endswith("trim") and options.layer == "GCNConv":
            continue
        found = [accuracy(form, data, seed, options.epochs, options.layer) for seed in range(options.seeds)]
        print(f"{form:28} {statistics.mean(found):.2f} ± {statistics.stdev(found):.2f} %", flush=True)


if __name__ == "__main__":
    main()
