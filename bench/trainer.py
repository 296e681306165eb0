"""Epochs of a cell by spsample's loader and layers, on one process and on ranks: what several cases time."""

from __future__ import annotations

import itertools
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import spsample as sp
from spsample.comm import Recorder
from spsample.data import Dataset, part_dataset, partition_vertices
from spsample.features import CachedFeatures, FeatureStore, PartitionedFeatures, score
from spsample.training import BlockMaker, ModelConfig, build_model, gradients_for, keep_memory

from .case import Figures
from .inputs import Inputs
from .ours import comm_of, graph_of, sampler_of


class Epochs:
    """Epochs over the seeds, each rank a batch of its own in every step; time by phase, bytes, loss.

    The graph is ``replicated`` or ``partitioned`` as the cell's ``placement`` says, with its ``replication`` and
    ``algorithm``; features lie on the ranks with the same replication, and a share ``cached`` of all rows on each, by
    ``score``. With the placement ``parts`` each rank has what its own part of the seeds can reach, and its features.
    """

    def __init__(self, inputs: Inputs) -> None:
        self.comm = Recorder(comm_of(inputs))
        self._sampler = sampler_of(inputs)
        self._seeds, self._y = inputs.seeds.ravel(), torch.from_numpy(inputs.y)
        graph, features = self._placed(inputs)
        self._loader = sp.BulkLoader(
            graph if self._sampler.aggregation == "mean" else graph.normalized("row"),
            self._seeds,
            self._sampler,
            batch_size=inputs["batch_size"],
            bulk_size=inputs["bulk_size"],
            prefetch=inputs.get("prefetch", 0),
            features=features,
        )
        self._blocks = BlockMaker(graph, self._sampler)
        torch.manual_seed(0)
        config = ModelConfig(inputs.get("model", "sage"), hidden=inputs["hidden"], dropout=inputs.get("dropout", 0.5))
        model = build_model(features.dim, int(inputs.y.max()) + 1, len(inputs.fanouts), config)
        self._gradients = gradients_for(model, self.comm)
        self._optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
        self._kept = ExitStack()
        self._kept.enter_context(keep_memory())  # as a trainer does, for all epochs

    def __call__(self) -> Figures:
        """One epoch."""
        before, sent, fetched = dict(self._loader.seconds), self.comm.traffic.total(), self._fetched()
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
        sums["features_bytes"] = self._fetched() - fetched
        memory = {"page_faults": (used.ru_minflt - faults) / steps, "peak_mib": used.ru_maxrss / 1024}
        return {"seconds": seconds, "batches": steps, **phases, **sums, **memory, "loss": loss}

    def _fetched(self) -> int:
        """Bytes of features that this rank has received."""
        phases = self.comm.traffic.phases.items()
        return sum(counts.bytes_received for phase, counts in phases if phase.startswith("features"))

    def _placed(self, inputs: Inputs) -> tuple[Any, Any]:
        """The graph and its features, on the ranks where there are several."""
        if self.comm.size == 1:
            return graph_of(inputs), FeatureStore(inputs.x)
        if inputs["placement"] == "parts":
            return self._part(inputs)
        grid = sp.ProcessGrid(self.comm, replication=inputs.get("replication", 1))
        features = PartitionedFeatures.of(inputs.x, grid)
        if inputs["placement"] == "replicated":
            graph = sp.ReplicatedGraph(graph_of(inputs), self.comm)
            return graph, self._cached(inputs, graph, features)
        return sp.PartitionedGraph.open(inputs.store, grid, algorithm=inputs["algorithm"]), features

    def _cached(self, inputs: Inputs, graph: Any, features: Any) -> Any:
        """With a cache of the rows that this rank has not itself."""
        if not inputs.get("cached"):
            return features
        scores = score(inputs["score"], graph, self._seeds, self._sampler, inputs["batch_size"]).copy()
        scores[features.block_vertices()] = 0.0
        return CachedFeatures(features, int(inputs["cached"] * inputs.x.nbytes), scores)

    def _part(self, inputs: Inputs) -> tuple[Any, Any]:
        """This rank's part by PaGraph's method, with vertices, seeds and labels of its own."""
        graph, hops, none = graph_of(inputs), len(inputs.fanouts), np.empty(0, np.int64)
        seeds = np.unique(self._seeds)
        parts = partition_vertices(graph, self.comm.size, "pagraph", seeds=seeds, hops=hops)
        whole = Dataset("whole", graph, inputs.x, inputs.y, seeds, none, none, int(inputs.y.max()) + 1)
        mine, _ = part_dataset(whole, parts, self.comm.size, self.comm.rank, hops=hops)
        self._seeds, self._y = mine.train_idx, torch.from_numpy(mine.y)
        return mine.graph, FeatureStore(mine.x)

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
