"""Epochs of a cell by spsample's loader and layers, on one process and on ranks: what several cases time."""

from __future__ import annotations

import itertools
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

import spsample as sp
from spsample.comm import Communicator, Recorder
from spsample.features import FeatureStore, PartitionedFeatures
from spsample.training import BlockMaker, ModelConfig, build_model, gradients_for, keep_memory

from .case import Figures
from .inputs import Inputs
from .ours import comm_of, graph_of, sampler_of


class Placed(NamedTuple):
    """What a rank trains on."""

    graph: Any
    features: Any
    seeds: NDArray[np.int64]
    y: NDArray[np.int64]


def placed_on(comm: Communicator, inputs: Inputs) -> Placed:
    """The graph as the cell's ``placement`` says, and its features on the ranks, where there are several."""
    seeds = inputs.seeds.ravel()
    if comm.size == 1:
        return Placed(graph_of(inputs), FeatureStore(inputs.x), seeds, inputs.y)
    grid = sp.ProcessGrid(comm, replication=inputs["replication"])
    features = PartitionedFeatures.of(inputs.x, grid)
    if inputs["placement"] == "replicated":
        return Placed(sp.ReplicatedGraph(graph_of(inputs), comm), features, seeds, inputs.y)
    return Placed(
        sp.PartitionedGraph.open(inputs.store, grid, algorithm=inputs["algorithm"]), features, seeds, inputs.y
    )


class Epochs:
    """Epochs over the seeds, each rank a batch of its own in every step; time by phase, bytes, loss.

    Without `placed` the graph is as `placed_on` makes it.
    """

    def __init__(self, inputs: Inputs, placed: Placed | None = None) -> None:
        comm = comm_of(inputs)
        self.comm = comm if isinstance(comm, Recorder) else Recorder(comm)
        self._sampler = sampler_of(inputs)
        graph, features, seeds, y = placed or placed_on(self.comm, inputs)
        self._y = torch.from_numpy(np.array(y))
        self._loader = sp.BulkLoader(
            graph if self._sampler.aggregation == "mean" else graph.normalized("row"),
            seeds,
            self._sampler,
            batch_size=inputs["batch_size"],
            bulk_size=inputs["bulk_size"],
            prefetch=inputs.get("prefetch", 0),
            features=features,
        )
        self._blocks = BlockMaker(graph, self._sampler)
        torch.manual_seed(0)
        config = ModelConfig(inputs.get("model", "sage"), hidden=inputs["hidden"], dropout=inputs.get("dropout", 0.5))
        model = build_model(features.dim, 1 + int(inputs.y.max()), len(inputs.fanouts), config)
        self._gradients = gradients_for(model, self.comm)
        self._optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
        self._kept = ExitStack()
        self._kept.enter_context(keep_memory())  # as a trainer does, for all epochs

    def __call__(self) -> Figures:
        """One epoch."""
        before, sent = dict(self._loader.seconds), self.comm.traffic.total()
        faults, start, loss = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter(), 0.0
        steps = 0
        for batch in self._steps():
            loss, steps = self._step(batch), steps + 1
        seconds = time.perf_counter() - start
        spent = {name: 1e3 * (self._loader.seconds[name] - before[name]) / steps for name in ("sampling", "features")}
        now, used = self.comm.traffic.total(), resource.getrusage(resource.RUSAGE_SELF)
        phases = {f"{name}_ms": value for name, value in spent.items()}
        phases["propagation_ms"] = max(1e3 * seconds / steps - sum(spent.values()), 0.0)
        sums = {"sent_bytes": now.bytes_sent - sent.bytes_sent, "messages": now.messages_sent - sent.messages_sent}
        memory = {"page_faults": (used.ru_minflt - faults) / steps, "peak_mib": used.ru_maxrss / 1024}
        return {"seconds": seconds, "batches": steps, **phases, **sums, **memory, "loss": loss}

    def _steps(self) -> Iterator[Any]:
        """The batches of this rank; None once it has fewer than others."""
        steps = int(self.comm.all_reduce(np.array([len(self._loader)]), "max")[0])
        yield from itertools.islice(itertools.chain(self._loader, itertools.repeat(None)), steps)

    def _step(self, batch: Any) -> float:
        self._optimizer.zero_grad()
        if batch is None or not len(batch.seeds):
            loss, seeds = sum((p.sum() for p in self._gradients.model.parameters()), torch.zeros(())) * 0.0, 0
        else:
            x, blocks = self._blocks.inputs(batch, self._gradients.model)
            y = self._y[torch.from_numpy(batch.seeds).long()]
            loss, seeds = cross_entropy(self._gradients.model(x, blocks), y), len(batch.seeds)
        self._gradients.prepare(loss)
        self._gradients.finish(loss, seeds)
        self._optimizer.step()
        return float(loss.detach())
