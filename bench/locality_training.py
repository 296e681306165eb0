"""Locality-aware sampling in training: the metric that is reached at each factor, and loss against epoch.

Every setting is trained with the same random seeds, and compared with the sampler without preference seed by seed. The
cache holds a tenth of the rows. Metrics are computed with all neighbours, so they do not see the preference.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import spsample as sp
from figures import pyplot
from locality import FACTORS, SHARE
from machine_facts import machine_facts
from spsample.data import load_dataset
from spsample.features import score
from spsample.settings import preset_for
from spsample.training import Trainer


@dataclass(frozen=True)
class Trained:
    """One training run: its setting, the metric of the weights best on the validation vertices, curves by epoch."""

    dataset: str
    factor: float
    importance_weights: bool
    random_seed: int
    metric: str
    test: float
    losses: list[float]
    evaluated: list[int]
    val: list[float]

    @property
    def setting(self) -> tuple[float, bool]:
        """What the runs of all random seeds share."""
        return self.factor, self.importance_weights


def trained(dataset: str, factor: float, importance_weights: bool, random_seed: int, epochs: int) -> Trained:
    """A run of the data set's preset, to the end."""
    data = load_dataset(dataset)
    preset = preset_for(data.name)
    plain = sp.GraphSAGE(preset.fanouts)
    config = replace(
        preset.train, epochs=epochs, random_seed=random_seed, eval_every=max(epochs // 20, 1), patience=None
    )
    scores = score("posterior", data.graph, data.train_idx, plain, config.batch_size)
    cached = np.argsort(-scores, kind="stable")[: int(SHARE * data.graph.num_nodes)]
    sampler = sp.Biased(plain, cached, factor, importance_weights=importance_weights)
    trainer = Trainer(data, sampler, preset.model, config)
    result = trainer.fit()
    trainer.close()
    curve = [(record.epoch, round(record.val, 5)) for record in result.history if record.val is not None]
    return Trained(
        *(data.name, factor, importance_weights, random_seed, result.metric, result.test),
        losses=[round(record.loss, 5) for record in result.history],
        evaluated=[epoch for epoch, _ in curve],
        val=[val for _, val in curve],
    )


def settings() -> list[tuple[float, bool]]:
    """Factors with and without importance weights; those of factor 1 are edge weights."""
    return [(factor, weights) for weights in (False, True) for factor in FACTORS if not (weights and factor == 1.0)]


def train_all(
    path: str, epochs: int, missing: list[tuple[float, bool, int]], processes: int, keep: Callable[[Trained], None]
) -> list[Trained]:
    """The runs of these settings and random seeds, each kept when it ends."""
    runs = []
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(trained, path, *one, epochs) for one in missing]
        for job in as_completed(jobs):
            runs.append(job.result())
            keep(runs[-1])
    return runs


def runs_in(path: Path, name: str, epochs: int) -> list[Trained]:
    """The runs of a data set and number of epochs in the lines of an earlier command."""
    if not path.is_file():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    runs = [Trained(**line) for line in lines if "factor" in line]
    return [one for one in runs if one.dataset == name and len(one.losses) == epochs]


def table(runs: list[Trained]) -> Table:
    """A row for each setting: mean and deviation over the random seeds, and of the difference to factor 1."""
    shown = Table(
        "factor", "importance weights", "runs", "test", "deviation", "less factor 1", "standard error of that"
    )
    base = {one.random_seed: one.test for one in runs if one.setting == (1.0, False)}
    for setting in settings():
        found = [one for one in runs if one.setting == setting and one.random_seed in base]
        if not found:
            continue
        tests = [100 * one.test for one in found]
        less = [100 * (one.test - base[one.random_seed]) for one in found]
        spread = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in (tests, less)]
        figures = (statistics.mean(tests), spread[0], statistics.mean(less), spread[1] / np.sqrt(len(less)))
        factor, weights = setting
        shown.add_row(f"{factor:g}", "yes" if weights else "no", str(len(found)), *(f"{one:.2f}" for one in figures))
    return shown


def plot(runs: list[Trained], path: Path) -> None:
    """Loss, and the metric of the validation vertices, against epoch: means over the random seeds."""
    plt: Any = pyplot() if runs else None
    if plt is None:
        return
    figure, panels = plt.subplots(2, 2, figsize=(9, 6.4), sharex=True, sharey="row", layout="constrained")
    first = next(one for one in runs if one.setting == (1.0, False))
    for column, weights in enumerate((False, True)):
        for factor in FACTORS:
            found = [one for one in runs if one.setting == (factor, weights and factor != 1.0)]
            if not found:
                continue
            color = "black" if factor == 1.0 else plt.cm.plasma(FACTORS.index(factor) / (len(FACTORS) + 0.5))
            style = {"color": color, "label": f"factor {factor:g}", "linewidth": 1.2}
            panels[0, column].plot(np.mean([one.losses for one in found], axis=0), **style)
            panels[1, column].plot(first.evaluated, 100 * np.mean([one.val for one in found], axis=0), **style)
        panels[0, column].set_title("with importance weights" if weights else "without importance weights")
        panels[1, column].set_xlabel("epoch")
    panels[0, 0].set_ylabel("training loss")
    panels[0, 0].set_ylim(top=1.02 * max(one.losses[len(one.losses) // 15] for one in runs))
    panels[1, 0].set_ylabel(f"validation {first.metric.removeprefix('roc_').upper()}, %")
    panels[0, 0].legend(fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def locality_training(
    dataset: Annotated[str, typer.Option(help="A name of SPSAMPLE_DATA, or what `spsample train` takes.")] = "tolokers",
    epochs: Annotated[int, typer.Option(help="Epochs of a run.")] = 60,
    seeds: Annotated[int, typer.Option(help="Runs of each setting.")] = 10,
    processes: Annotated[int, typer.Option(help="Runs side by side.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Keep what is in --out, run what is missing.")] = False,
    out: Annotated[Path, typer.Option(help="Folder of locality_training.jsonl and .png.")] = Path("bench/results"),
) -> None:
    """Metric and loss of training with locality-aware sampling, with and without importance weights."""
    out.mkdir(parents=True, exist_ok=True)
    stored = Path(os.environ.get("SPSAMPLE_DATA", "../shared/data")) / f"{dataset}.npz"
    path = str(stored) if stored.is_file() else dataset
    runs = runs_in(out / "locality_training.jsonl", load_dataset(path).name, epochs) if resume else []
    done = {(*one.setting, one.random_seed) for one in runs}
    # All settings of one random seed after those of another: a command that is stopped has whole seeds.
    missing = [(*one, seed) for seed in range(seeds) for one in settings() if (*one, seed) not in done]
    with (out / "locality_training.jsonl").open("a" if resume else "w", encoding="utf-8") as lines:

        def keep(one: Any) -> None:
            lines.write(json.dumps(one if isinstance(one, dict) else asdict(one)) + "\n")
            lines.flush()

        keep({"kind": "machine", **machine_facts(sp.sparse.get_num_threads())})
        runs += train_all(path, epochs, missing, processes, keep)
    Console(width=120).print(table(runs))
    plot(runs, out / "locality_training.png")
