"""What is trained on several ranks, as threads and as processes, and a callback that remembers."""

import copy
import dataclasses

from spsample.data import planted
from spsample.distributed import PartitionedGraph, ProcessGrid, ReplicatedGraph
from spsample.features import PartitionedFeatures
from spsample.training import Callback

DATA = planted(400, degree=5, random_seed=2)


class Seen(Callback):
    """Weights before, losses, the first gradient; optionally a state, or an error, at a step, or all states."""

    def __init__(self, save_at=None, fail_at=None):
        self.losses, self.batches, self.gradient, self.states = [], [], None, []
        self._save_at, self._fail_at = save_at, fail_at

    def on_start(self, trainer):
        self.weights = copy.deepcopy(trainer.model.state_dict())

    def on_step(self, trainer, loss):
        self.losses.append(loss)
        if self.gradient is None:
            self.gradient = [copy.deepcopy(parameter.grad) for parameter in trainer.model.parameters()]
        if trainer.progress.step == self._save_at:
            self.state = copy.deepcopy(trainer.state_dict())
        if self._save_at == "every step":
            self.states.append(copy.deepcopy(trainer.state_dict()))
        if trainer.progress.step == self._fail_at:
            raise ZeroDivisionError("no more")


def on_ranks(comm, c=1, kind="partitioned", data=DATA):
    grid = ProcessGrid(comm, c)
    graph = ReplicatedGraph(data.graph, comm) if kind == "replicated" else PartitionedGraph.from_graph(data.graph, grid)
    return dataclasses.replace(data, graph=graph, x=PartitionedFeatures.of(data.x, grid))
