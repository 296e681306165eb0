"""One job of `factored`, on each rank: `LAUNCHER python factored_ranks.py JOB RESULT`, or `run` on threads.

A job is JSON: the `cell` (what is trained), `ways` (settings by name) and `rounds`. With rounds, all ways take turns,
an epoch each; the first round is a warm-up. Without, each way is trained to its end.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import spsample as sp
from graphs import named_dataset
from spsample.comm import Communicator
from spsample.data import Dataset, scale_features
from spsample.settings.presets import preset_for
from spsample.training import ModelConfig, TrainConfig, Trainer
from spsample.training.callbacks import Callback

Record = dict[str, Any]


class PausedError(Exception):
    """An epoch is over: the run goes on when it is called again."""


class Pause(Callback):
    """Leaves `fit` after each epoch; says how long it took."""

    def __init__(self) -> None:
        self.begin = self.seconds = 0.0

    def on_start(self, trainer: Trainer) -> None:
        """Take the time, after all set-up; all ranks are here."""
        self.begin = time.perf_counter()

    def on_epoch(self, trainer: Trainer, record: Any) -> None:
        """Leave."""
        self.seconds = time.perf_counter() - self.begin
        raise PausedError


class Curve(Callback):
    """Validation metric of each epoch, with the seconds of training and the updates until then."""

    def __init__(self) -> None:
        self.points: list[tuple[float, int, float]] = []
        self._begin, self._evaluating, self._before = 0.0, 0.0, 0.0

    def on_start(self, trainer: Trainer) -> None:
        """Take the time."""
        self._begin = time.perf_counter()

    def on_epoch(self, trainer: Trainer, record: Any) -> None:
        """Add a point; seconds of evaluation are left out."""
        if record.val is not None:
            seconds = time.perf_counter() - self._begin - trainer.seconds["evaluation"]
            self.points.append((seconds, trainer.updates, record.val))


class TimedTrainer(Trainer):
    """Counts what a trainer is there for: going forward and back, and taking steps."""

    busy = 0.0
    updates = 0

    def _backward(self, batch: Any) -> Any:
        start = time.perf_counter()
        computed = super()._backward(batch)
        self.busy += time.perf_counter() - start
        return computed

    def _optimize(self) -> None:
        start = time.perf_counter()
        super()._optimize()
        self.updates += 1
        self.busy += time.perf_counter() - start


@dataclass(frozen=True)
class Cell:
    """What is trained; the sampler by name and sizes.

    Attributes
    ----------
    dataset : str
    sampler : str
    sizes : list of int
    dim : int
        Width of random features in place of the data set's own; 0: these.
    seeds : int
        Train vertices, the first ones; 0: all.
    model : dict
        Settings of the model.
    """

    dataset: str
    sampler: str
    sizes: list[int]
    dim: int
    seeds: int
    model: dict[str, Any]

    def data(self) -> Dataset:
        """The data set, with features and train vertices as the cell wants them."""
        data = named_dataset(self.dataset)
        scaling = preset_for(data.name).scaling
        if self.dim:
            x = np.random.default_rng(0).standard_normal((data.graph.num_nodes, self.dim)).astype(np.float32)
            return dataclasses.replace(data, x=x, train_idx=data.train_idx[: self.seeds or None])
        return data if scaling == "none" else scale_features(data, scaling)


def run(comm: Communicator, job: Record) -> list[Record]:
    """All records of a job; the same on all ranks."""
    torch.set_num_threads(1)
    cell = Cell(**job["cell"])
    data = cell.data()
    data = dataclasses.replace(data, graph=sp.ReplicatedGraph(data.graph, comm))
    measure = _epochs if job["rounds"] else _trained
    return list(measure(job, cell, data))


def _trainer(cell: Cell, data: Dataset, config: Record) -> TimedTrainer:
    sampler = getattr(sp, cell.sampler)(cell.sizes)
    return TimedTrainer(data, sampler, ModelConfig(**cell.model), TrainConfig(**config))


def _epochs(job: Record, cell: Cell, data: Dataset) -> Iterator[Record]:
    """Epochs of all ways in turn."""
    rounds = job["rounds"]
    forever = {"epochs": rounds + 2, "eval_every": rounds + 9}
    trainers = {name: _trainer(cell, data, {**config, **forever}) for name, config in job["ways"].items()}
    for trainer in trainers.values():
        trainer.callbacks.append(Pause())
    for round_ in range(rounds + 1):
        for name, trainer in trainers.items():
            record = _one_epoch(trainer)
            if round_:
                yield {"record": "epoch", "cell": job["name"], "way": name, "round": round_, **record}
    for trainer in trainers.values():
        trainer.close()


def _one_epoch(trainer: TimedTrainer) -> Record:
    """Train the next epoch: its seconds, and what each rank did in them."""
    loader: Any = trainer.loader
    trainer.busy, trained = 0.0, getattr(loader, "trained", 0)
    before, cached = dict(loader.seconds), loader.cache_counts
    pause: Any = trainer.callbacks[-1]
    pause.seconds = 0.0
    try:
        trainer.fit()
    except Exception:
        if not pause.seconds:
            raise
    now = dict(loader.seconds)
    spent = {phase: now[phase] - before.get(phase, 0.0) for phase in now}
    counts = loader.cache_counts
    mine = {
        "busy": trainer.busy,
        "sampling": spent["sampling"],
        "features": spent["features"],
        "waiting": spent.get("waiting", 0.0),
        "queue full": spent.get("sampling waiting for room", 0.0),
        "trained": getattr(loader, "trained", 0) - trained,
        "queue_peak": getattr(loader, "queue_peak", 0),
        "hits": counts.hits - cached.hits if counts else 0,
        "misses": counts.misses - cached.misses if counts else 0,
    }
    rows = trainer.comm.all_gather(np.array([*mine.values(), pause.seconds])).reshape(trainer.comm.size, -1)
    columns = dict(zip(mine, rows.T.tolist(), strict=False))
    samplers = loader.roles.samplers if hasattr(loader, "roles") else 0
    trainers = trainer.comm.size - samplers
    seconds = float(rows[:, -1].max())
    idle = 1.0 - sum(columns["busy"][:trainers]) / (trainers * seconds)
    return {
        "seconds": seconds,
        "samplers": samplers,
        "idle": idle,
        "batches": loader.num_batches,
        "bulk_size": loader.bulk_size,
        **columns,
    }


def _trained(job: Record, cell: Cell, data: Dataset) -> Iterator[Record]:
    """Runs of all ways, one after the other."""
    for name, config in job["ways"].items():
        trainer, curve = _trainer(cell, data, config), Curve()
        trainer.callbacks.append(curve)
        result = trainer.fit()
        largest = getattr(trainer.steps, "largest_staleness", None)
        yield {
            "record": "run",
            "cell": job["name"],
            "way": name,
            "random_seed": config["random_seed"],
            "metric": result.metric,
            "val": result.val,
            "test": result.test,
            "largest_staleness": largest,
            "updates": trainer.updates,
            "curve": curve.points,
        }
        trainer.close()


def main(job: Path, result: Path) -> None:
    """Run the job on the ranks there are; rank 0 writes a line for each record."""
    sp.set_num_threads(1)
    comm = sp.init()
    records = run(comm, json.loads(job.read_text("utf-8")))
    if comm.rank == 0:
        result.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    comm.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
