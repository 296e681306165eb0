"""A training from its beginning to its end by `Trainer`: time of an epoch, stages and accuracy. Imports torch."""

from __future__ import annotations

import time
from typing import Any

import torch

import spsample as sp
from spsample.data import Dataset
from spsample.training import Callback, ModelConfig, TrainConfig, Trainer

from .case import Figures
from .inputs import Inputs


class _Begin(Callback):
    """When the first step begins, after all preparations."""

    def on_start(self, trainer: Trainer) -> None:
        """Take the time."""
        self.time = time.perf_counter()


def trained(inputs: Inputs, data: Dataset, sampler: sp.Sampler, **config: Any) -> Figures:
    """Train with the cell's ``epochs``, ``batch_size``, ``hidden`` and ``random_seed``; collective.

    Times are those of an epoch, without evaluation: ``batches`` are epochs.
    """
    torch.set_num_threads(int(inputs.get("threads", 1)))
    epochs, begin = inputs["epochs"], _Begin()
    settings = {"batch_size": inputs["batch_size"], "bulk_size": inputs["bulk_size"], "epochs": epochs, **config}
    settings |= {"eval_every": epochs + 1, "learning_rate": 0.01, "random_seed": inputs["random_seed"]}
    model = ModelConfig(hidden=inputs["hidden"], dropout=0.0)
    trainer = Trainer(data, sampler, model, TrainConfig(**settings), [begin])
    result = trainer.fit()
    spent = trainer.seconds
    figures = {"seconds": time.perf_counter() - begin.time - spent["evaluation"], "batches": epochs}
    stages = ("sampling", "features", "training", "waiting")
    figures |= {f"{stage}_ms": 1e3 * spent.get(stage, 0.0) / epochs for stage in stages}
    staleness = getattr(trainer.pipeline, "largest_staleness", None)
    trainer.close()
    return {**figures, "loss": result.history[-1].loss, "accuracy": result.test, "stalest": staleness or 0}
