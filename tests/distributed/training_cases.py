"""What is trained on several ranks, as threads and as processes, and a callback that remembers."""

import copy
import dataclasses

import spsample as sp
from spsample.data import load_dataset, planted
from spsample.distributed import PartitionedGraph, ProcessGrid, ReplicatedGraph
from spsample.features import PartitionedFeatures
from spsample.training import Callback, ModelConfig, TrainConfig, Trainer

DATA = planted(400, degree=5, random_seed=2)
SKEWED = load_dataset("rmat:8,6")  # of skewed degrees


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


def on_ranks(comm, c=1, kind="partitioned", data=DATA, **layout):
    grid = ProcessGrid(comm, c)
    if kind == "replicated":
        graph = ReplicatedGraph(data.graph, comm)
    else:
        graph = PartitionedGraph.from_graph(data.graph, grid, **layout)
    return dataclasses.replace(data, graph=graph, x=PartitionedFeatures.of(data.x, grid))


MODELS = ["gcn", "sage", "gat", "residual"]
SAMPLERS = [sp.GraphSAGE([5, 3]), sp.LADIES([24, 24]), sp.FastGCN([24, 24])]


def one_epoch(comm, c, algorithm, model, sampler):
    """The losses of its steps and what evaluation gives, on a graph of skewed degrees."""
    data, seen = on_ranks(comm, c, data=SKEWED, algorithm=algorithm), Seen()
    config = TrainConfig(epochs=1, batch_size=16, bulk_size=2 * comm.size, evaluation="both")
    trainer = Trainer(data, sampler, ModelConfig(model, hidden=16), config, [seen])
    history = trainer.fit().history
    trainer.close()
    return seen.losses, history
