"""Train GraphSAGE on any number of ranks, in a loop of one's own: `own_loop_ranks.py STORE`."""

import sys

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GraphSAGE

import spsample as sp
from spsample.training import gradients_for

store = sys.argv[1]
comm = sp.init()  # this process is rank comm.rank of comm.size
grid = sp.ProcessGrid(comm)
graph = sp.PartitionedGraph.open(store, grid)  # each rank maps its own rows alone
data = sp.load_dataset(store)  # for labels and splits
options = {"batch_size": 256 // comm.size, "labels": data.y}  # a step has 256 seeds
options["features"] = sp.FeatureStore.open(store, grid=grid)
sampler = sp.GraphSAGE([10, 10], layout="subgraph")
train = sp.BulkLoader(graph, data.train_idx, sampler, **options).pyg()
test = sp.BulkLoader(graph, data.test_idx, sampler, shuffle=False, **options).pyg()
torch.manual_seed(0)  # the same first weights on every rank
model = GraphSAGE(data.x.shape[1], 64, num_layers=2, out_channels=data.num_classes)
gradients = gradients_for(model, comm)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(6):
    for batch in train:  # as many steps on every rank; in the last one a rank may have no seeds
        optimizer.zero_grad()
        logits = gradients.model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = cross_entropy(logits, batch.y[: len(logits)], reduction="sum") / max(len(logits), 1)
        gradients.prepare(loss)
        step = gradients.finish(loss, len(logits))  # collective: the mean over the seeds of all ranks
        optimizer.step()
    with torch.no_grad():
        hits = sum(int((model(b.x, b.edge_index).argmax(1) == b.y)[: b.batch_size].sum()) for b in test)
    accuracy = comm.all_reduce(np.array([hits]))[0] / len(data.test_idx)
    if comm.rank == 0:
        print(f"epoch {epoch}: loss {step.mean:.6f}, test accuracy {accuracy:.4f}")
