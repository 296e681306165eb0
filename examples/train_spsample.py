"""Train GraphSAGE with spsample's BulkLoader."""

import sys
import time

import torch

import spsample as sp
from graph_data import SAGE, accuracy, load

source, seed, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
data = load(source)
torch.manual_seed(seed)
loader = sp.BulkLoader(
    sp.Graph.from_edge_index(data.edge_index, num_nodes=data.num_nodes),
    sampler=sp.GraphSAGE([10, 10], layout="subgraph"),
    features=data.x,
    labels=data.y,
    random_seed=seed,
    seeds=data.train_mask,
    batch_size=512,
    shuffle=True,
).pyg()
model = SAGE(data.num_features, int(data.y.max()) + 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
seconds = []
for _ in range(epochs):
    model.train()
    start = time.perf_counter()
    for batch in loader:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        optimizer.step()
    seconds.append(time.perf_counter() - start)
print(f"accuracy {accuracy(model, data):.4f} epoch {sorted(seconds)[len(seconds) // 2]:.4f} s")
