"""A training from its beginning to its end by `Trainer`: time of an epoch, stages and accuracy. Imports torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

import spsample as sp
from spsample.comm import Communicator, Recorder, run_threads
from spsample.data import Dataset, DatasetPart
from spsample.training import Callback, ModelConfig, TrainConfig, Trainer

from .case import Figures, Work
from .inputs import Inputs
from .ranks import together


def on_ranks(inputs: Inputs, body: Callable[[Communicator], Figures]) -> Work:
    """A training on the ranks of the launcher, or on ``thread_ranks`` threads of one process as ranks."""

    def on_threads() -> Figures:
        ranks = run_threads(inputs["thread_ranks"], body, timeout=3600.0)
        done = together([{"seconds": one["seconds"], "cpu_seconds": 0.0, "figures": one} for one in ranks])
        return {**done["figures"], "seconds": done["seconds"]}

    return on_threads if inputs.comm is None else lambda: body(inputs.comm)


def cache_bytes(inputs: Inputs, data: Dataset) -> int:
    """The budget of a cache for a ``share`` of the rows, and for the map to them: 2 bits a vertex."""
    x: Any = data.x
    row_bytes, vertices = x.itemsize * x.shape[1], data.graph.num_nodes
    return int(inputs["share"] * vertices) * row_bytes + -(-vertices // 4)


class _Watch(Callback):
    """When the first step begins, after all preparations, and what a recorder has counted by then and in all steps."""

    def on_start(self, trainer: Trainer) -> None:
        """Begin."""
        self.time, self._before = time.perf_counter(), _sent(trainer.comm)
        self.sent = Figures()

    def on_step(self, trainer: Trainer, loss: float) -> None:
        """Count what is sent in steps: evaluation comes after them."""
        self.sent = {name: sent - self._before[name] for name, sent in _sent(trainer.comm).items()}


def _sent(comm: Communicator) -> Figures:
    """Bytes that this rank has sent, by what they are of; none where they are not recorded."""
    if not isinstance(comm, Recorder):
        return {}
    sent = dict.fromkeys(("features", "copies", "gradients", "other"), 0.0)
    for phase, counts in comm.traffic.phases.items():
        name = phase.removesuffix(" requests")
        sent[name if name in sent else "other"] += counts.bytes_sent
    return sent


def trained(
    inputs: Inputs,
    data: Dataset,
    sampler: sp.Sampler,
    *,
    part: DatasetPart | None = None,
    look: Callable[[Trainer], Figures] | None = None,
    **config: Any,
) -> Figures:
    """Train with the cell's ``epochs``, ``batch_size``, ``hidden`` and ``random_seed``; collective.

    Times and bytes are those of an epoch, without evaluation: ``batches`` are epochs. Rows are shares of all that
    batches need, ``cost`` is in rows from the source. `look` at the trainer gives further figures.
    """
    torch.set_num_threads(int(inputs.get("threads", 1)))
    epochs, watch = inputs["epochs"], _Watch()
    settings = {"batch_size": inputs["batch_size"], "bulk_size": inputs["bulk_size"], "epochs": epochs, **config}
    settings |= {"eval_every": epochs + 1, "learning_rate": 0.01, "random_seed": inputs["random_seed"]}
    model = ModelConfig(hidden=inputs["hidden"], dropout=0.0)
    trainer = Trainer(data, sampler, model, TrainConfig(**settings), [watch], part=part)
    result = trainer.fit()
    spent = trainer.seconds
    figures = {"seconds": time.perf_counter() - watch.time - spent["evaluation"], "batches": epochs}
    stages = ("sampling", "features", "training", "waiting")
    figures |= {f"{stage}_ms": 1e3 * spent.get(stage, 0.0) / epochs for stage in stages}
    figures |= {f"{name}_bytes": sent / epochs for name, sent in watch.sent.items()}
    counts = trainer.cache_counts
    if counts is not None:
        shares = {"hits": counts.hits, "peer_hits": counts.peer_hits, "misses": counts.misses, "cost": counts.cost}
        figures |= {name: rows / max(counts.rows, 1) for name, rows in shares.items()}
    if look is not None:
        figures |= look(trainer)
    trainer.close()
    return {**figures, "loss": result.history[-1].loss, "accuracy": result.test}
