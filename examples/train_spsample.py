"""Train GraphSAGE on sampled neighbourhoods."""

import sys
import time

import torch
from spsample.nn import SAGEConv
from spsample.pyg import NeighborLoader

from graph_data import SAGE, accuracy, load

source, seed, epochs, *workers = sys.argv[1:]
num_workers = int(workers[0]) if workers else 0
data = load(source)
torch.manual_seed(int(seed))
loader = NeighborLoader(
    data,
    num_neighbors=[10, 10],
    input_nodes=data.train_mask,
    batch_size=512,
    shuffle=True,
    num_workers=num_workers,
    persistent_workers=num_workers > 0,
)
model = SAGE(data.num_features, int(data.y.max()) + 1, conv=SAGEConv)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
seconds = []
for _ in range(int(epochs)):
    model.train()
    start = time.perf_counter()
    for batch in loader:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        optimizer.step()
    seconds.append(time.perf_counter() - start)
print(f"accuracy {accuracy(model, data):.4f} epoch {sorted(seconds)[len(seconds) // 2]:.4f} s")
