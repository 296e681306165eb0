"""Local batches in training: the metric they reach beside shuffled batches, and what steps of one part alone lose.

Every kind of batches is trained with the same random seeds, and with as many seeds in a step. Ranks are threads.

Steps of one part are made as no loader of spsample makes them: by one loader for each part, on one rank. Their batches
come in turn, a step of each part, or part by part, all steps of a part before the next one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import spsample as sp
from machine_facts import machine_facts
from spsample.comm import Communicator, run_threads
from spsample.data import Dataset, load_dataset, partition_vertices
from spsample.loading import Batch
from spsample.training import ModelConfig, TrainConfig, Trainer, TrainResult

SHUFFLED = "shuffled"


@dataclass(frozen=True)
class Result:
    """Metric of one run, of the epoch that was best on the validation vertices."""

    dataset: str
    ranks: int
    batches_are: str
    random_seed: int
    val: float
    test: float
    best_epoch: int
    epochs: list[int]
    vals: list[float]


class PartLoaders:
    """What a trainer on one rank asks of its loader, of one loader for each part.

    Parameters
    ----------
    loaders
        Their batches make up an epoch.
    in_turn
        A batch of each of them, then the next of each; otherwise all batches of one before those of the next.
    """

    def __init__(self, loaders: Sequence[sp.BulkLoader], in_turn: bool) -> None:
        self.loaders, self.in_turn = loaders, in_turn
        self.num_batches = sum(loader.num_batches for loader in loaders)
        self.batches_per_step = 1
        self.features = loaders[0].features
        self.cache_counts = self.stage_report = None

    @property
    def seconds(self) -> dict[str, float]:
        return {phase: sum(one.seconds.get(phase, 0.0) for one in self.loaders) for phase in self.loaders[0].seconds}

    def __iter__(self) -> Iterator[Batch]:
        steps: Iterable[Any] = zip_longest(*self.loaders) if self.in_turn else self.loaders
        return (batch for batch in chain.from_iterable(steps) if batch is not None)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for loader in self.loaders:
            loader.set_epoch(state["epoch"])

    def close(self) -> None:
        for loader in self.loaders:
            loader.close()


@dataclass(frozen=True)
class Training:
    """What all runs share."""

    data: Dataset
    ranks: int
    step_seeds: int
    epochs: int
    model: str

    def trainer(self, data: Dataset, random_seed: int, batch_size: int, **more: Any) -> Trainer:
        """One run's, of these batches."""
        config = TrainConfig(
            epochs=self.epochs,
            batch_size=batch_size,
            learning_rate=0.005,
            eval_every=5,
            random_seed=random_seed,
            batches="local" if more else SHUFFLED,
        )
        model = ModelConfig(self.model, hidden=64, dropout=0.2)
        return Trainer(data, sp.GraphSAGE([10, 10]), model, config, **more)

    def on_ranks(self, random_seed: int, parts: NDArray[Any] | None) -> TrainResult:
        """Each step has a batch of each rank: shuffled, or of its part."""
        more = {} if parts is None else {"parts": parts}

        def body(comm: Communicator) -> TrainResult:
            data = dataclasses.replace(self.data, graph=sp.ReplicatedGraph(self.data.graph, comm))
            return self.trainer(data, random_seed, self.step_seeds // comm.size, **more).fit()

        return run_threads(self.ranks, body, timeout=3600.0)[0]

    def one_part_a_step(self, random_seed: int, parts: NDArray[Any], in_turn: bool) -> TrainResult:
        """One rank, each step a batch of one part: what no one should do."""
        trainer = self.trainer(self.data, random_seed, self.step_seeds)
        seeds = trainer.loader.seeds
        trainer.loader.close()
        loaders = [
            sp.BulkLoader(
                trainer.graph,
                seeds[parts[seeds] == part],
                trainer.sampler,
                batch_size=self.step_seeds,
                prefetch=0,
                features=trainer.features,
                random_seed=random_seed + part,
            )
            for part in range(self.ranks)
        ]
        trainer.loader = PartLoaders(loaders, in_turn)
        return trainer.fit()


def train_all(training: Training, seeds: int) -> list[Result]:
    """Every kind of batches in turn, for one random seed after the other."""
    data, results = training.data, []
    methods = ("ranges", "metis-seeds")
    parts = {m: partition_vertices(data.graph, training.ranks, m, seeds=data.train_idx) for m in methods}
    for seed in range(seeds):
        runs = {SHUFFLED: training.on_ranks(seed, None)}
        runs |= {f"local, {method}": training.on_ranks(seed, own) for method, own in parts.items()}
        for order in ("in turn", "part by part"):
            for method, own in parts.items():
                run = training.one_part_a_step(seed, own, order == "in turn")
                runs[f"one part a step, {order}, {method}"] = run
        for kind, run in runs.items():
            curve = [(record.epoch, record.val) for record in run.history if record.val is not None]
            epochs, vals = (list(column) for column in zip(*curve, strict=True))
            best = (run.val, run.test, run.best_epoch)
            results.append(Result(data.name, training.ranks, kind, seed, *best, epochs, vals))
            print(f"{kind}, random seed {seed}: test {run.test:.4f}", flush=True)
    return results


def table(results: list[Result]) -> Table:
    """A row for each kind of batches: mean and deviation over the seeds, and of the difference to shuffled batches."""
    shown = Table("data set", "batches", "test", "deviation", "less shuffled", "standard error of that")
    base = {one.random_seed: one.test for one in results if one.batches_are == SHUFFLED}
    for kind in dict.fromkeys(one.batches_are for one in results):
        found = [one for one in results if one.batches_are == kind]
        tests = [100 * one.test for one in found]
        less = [100 * (one.test - base[one.random_seed]) for one in found]
        spread = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in (tests, less)]
        error = spread[1] / np.sqrt(len(less))
        figures = (statistics.mean(tests), spread[0], statistics.mean(less), error)
        shown.add_row(found[0].dataset, kind, *(f"{value:.2f}" for value in figures))
    return shown


def local_training(
    dataset: Annotated[str, typer.Option(help="A name of SPSAMPLE_DATA, or what `spsample train` takes.")] = "tolokers",
    ranks: Annotated[int, typer.Option(help="p")] = 4,
    step_seeds: Annotated[int, typer.Option(help="Seeds of a step, of all ranks.")] = 512,
    epochs: Annotated[int, typer.Option(help="Epochs of a run.")] = 60,
    seeds: Annotated[int, typer.Option(help="Random seeds.")] = 5,
    model: Annotated[str, typer.Option(help="Architecture.")] = "sage",
    out: Annotated[Path, typer.Option(help="Folder of local_training.jsonl.")] = Path("bench/results"),
) -> None:
    """Batches of local seeds in training: the metric beside that of shuffled batches."""
    torch.set_num_threads(1)
    stored = Path(os.environ.get("SPSAMPLE_DATA", "../shared/data")) / f"{dataset}.npz"
    data = load_dataset(str(stored) if stored.is_file() else dataset)
    results = train_all(Training(data, ranks, step_seeds, epochs, model), seeds)
    out.mkdir(parents=True, exist_ok=True)
    records = [{"kind": "machine", **machine_facts(1)}, *({"kind": "run", **asdict(one)} for one in results)]
    (out / "local_training.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    Console(width=120).print(table(results))
