"""Training steps of one model, whoever samples and whoever aggregates. Imports torch and NumPy only."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from peers.memory_use import peak_so_far
from peers.task import Inputs, Options, Work

Batches = Iterable[tuple[tuple[Any, ...], torch.Tensor]]
"""For each batch the arguments of the model, and the labels of its seeds."""

RATE = 0.005


class Data(NamedTuple):
    """What lies beside the graph: features, labels, and vertices to test."""

    x: torch.Tensor
    y: torch.Tensor
    test: np.ndarray
    classes: int


def read_data(inputs: Inputs) -> Data:
    """The arrays, in memory."""
    x, y, test = (np.load(inputs.graph / f"{name}.npy") for name in ("x", "y", "test"))
    return Data(torch.from_numpy(x), torch.from_numpy(y), test, int(y.max()) + 1)


class Side(NamedTuple):
    """What a peer brings: its model, and what makes the batches of seeds, shuffled or not."""

    model: torch.nn.Module
    batches: Callable[[np.ndarray, bool], Batches]


def sage_forward(convs: Iterable[Any], x: torch.Tensor, layers: list[Any], dropout: float, training: bool) -> Any:
    """Dropout, convolution, ReLU; each conv is called with the layer that it belongs to."""
    last = len(layers) - 1
    for number, (conv, layer) in enumerate(zip(convs, layers, strict=True)):
        x = conv(functional.dropout(x, dropout, training), layer)
        x = x if number == last else x.relu()
    return x


def epochs(side: Side, inputs: Inputs, options: Options) -> Work:
    """Steps over the seeds of the task, `epochs` times; then, if `test`, the accuracy on the test vertices."""
    seeds, data = inputs.seeds(options), read_data(inputs)
    optimizer = torch.optim.Adam(side.model.parameters(), RATE)

    def train() -> float:
        side.model.train()
        losses = [0.0]
        for _ in range(options["epochs"]):
            for arguments, y in side.batches(seeds.ravel(), True):
                optimizer.zero_grad()
                loss = functional.cross_entropy(side.model(*arguments), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses[-1]

    def work() -> dict[str, float]:
        faults, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
        loss = train()
        seconds = time.perf_counter() - start
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        batches = options["epochs"] * len(seeds)
        done = {
            "seconds": seconds,
            "batches": batches,
            "loss": loss,
            "faults": faults / batches,
            "peak_bytes": peak_so_far(),
        }
        return {**done, "accuracy": accuracy(side, data)} if options.get("test") else done

    return work


def accuracy(side: Side, data: Data) -> float:
    """The share of the test vertices whose class a sampled pass finds."""
    side.model.eval()
    with torch.no_grad():
        hits = [int((side.model(*arguments).argmax(1) == y).sum()) for arguments, y in side.batches(data.test, False)]
    return sum(hits) / len(data.test)
