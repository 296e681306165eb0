"""Cooperative batches in training: the metric they reach beside batches of each rank's own, at equal seeds for a step.

Both are trained with the same random seeds and the settings of the data set's preset. Ranks are threads.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

import spsample as sp
from graphs import named_dataset
from machine_facts import machine_facts
from spsample.comm import Communicator, run_threads
from spsample.data import Dataset
from spsample.settings.presets import preset_for
from spsample.training import Trainer, TrainResult

PIPELINES = ("sync", "cooperative")


@dataclass(frozen=True)
class Run:
    """Metric of one run, of the epoch that was best on the validation vertices."""

    dataset: str
    ranks: int
    step_seeds: int
    epochs: int
    pipeline: str
    random_seed: int
    val: float
    test: float
    best_epoch: int
    last_loss: float


def cooperative_training(
    dataset: Annotated[list[str], typer.Option(help="A name of SPSAMPLE_DATA, or what `spsample train` takes.")],
    ranks: Annotated[int, typer.Option(help="p")] = 4,
    epochs: Annotated[int | None, typer.Option(help="Epochs of a run, in place of the preset's.")] = None,
    seeds: Annotated[int, typer.Option(help="Random seeds, from 0 on.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder of cooperative_training.jsonl.")] = Path("bench/results"),
) -> None:
    """Train with cooperative batches and with batches of each rank's own: metrics beside each other."""
    torch.set_num_threads(1)
    runs = []
    out.mkdir(parents=True, exist_ok=True)
    with (out / "cooperative_training.jsonl").open("w", encoding="utf-8") as lines:
        print(json.dumps({"record": "machine", **machine_facts(1)}), file=lines)
        for run in _runs(dataset, ranks, seeds, epochs):
            runs.append(run)
            print(json.dumps({"record": "run", **asdict(run)}), file=lines, flush=True)
    Console(width=120).print(table(runs))


def _runs(names: list[str], ranks: int, seeds: int, epochs: int | None) -> Iterator[Run]:
    """Both pipelines in turn, for one random seed after the other."""
    for name in names:
        data = _scaled(named_dataset(name))
        for seed in range(seeds):
            for pipeline in PIPELINES:
                body = partial(_fit, data=data, pipeline=pipeline, seed=seed, epochs=epochs)
                result = run_threads(ranks, body, timeout=3600.0)[0]
                step = preset_for(data.name).train.batch_size // ranks * ranks
                best = (result.val, result.test, result.best_epoch, result.history[-1].loss)
                yield Run(data.name, ranks, step, len(result.history), pipeline, seed, *best)


def _fit(comm: Communicator, data: Dataset, pipeline: str, seed: int, epochs: int | None) -> TrainResult:
    preset = preset_for(data.name)
    mine = replace(data, graph=sp.ReplicatedGraph(data.graph, comm))
    config = replace(
        preset.train,
        batch_size=preset.train.batch_size // comm.size,
        epochs=preset.train.epochs if epochs is None else epochs,
        random_seed=seed,
        pipeline=pipeline,
    )
    trainer = Trainer(mine, sp.GraphSAGE(list(preset.fanouts)), preset.model, config)
    result = trainer.fit()
    trainer.close()
    return result


def _scaled(data: Dataset) -> Dataset:
    """Features as the data set's preset wants them."""
    scaling = preset_for(data.name).scaling
    return data if scaling == "none" else sp.data.scale_features(data, scaling)


def table(runs: list[Run]) -> Table:
    """A row for each data set and pipeline: mean and deviation over the seeds, and of the difference to sync."""
    shown = Table("data set", "pipeline", "test", "deviation", "less sync", "standard error of that")
    for name in dict.fromkeys(run.dataset for run in runs):
        base = {run.random_seed: run.test for run in runs if (run.dataset, run.pipeline) == (name, "sync")}
        for pipeline in PIPELINES:
            found = [run for run in runs if (run.dataset, run.pipeline) == (name, pipeline)]
            tests = [100 * run.test for run in found]
            less = [100 * (run.test - base[run.random_seed]) for run in found]
            spread = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in (tests, less)]
            figures = (statistics.mean(tests), spread[0], statistics.mean(less), spread[1] / len(less) ** 0.5)
            shown.add_row(name, pipeline, *(f"{value:.2f}" for value in figures))
    return shown
