"""Accuracy of one GraphSAGE trained with spsample, PyG and DGL: same model, fanouts and optimiser, over many seeds."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from epoch import WAYS, started, training_folder
from graphs import save
from json_lines import append
from machine_facts import machine_facts

SIDES = ("spsample, in turn", "PyG, 0 workers", "DGL, 0 workers")


def epoch_accuracy(
    dataset: Annotated[list[str] | None, typer.Option(help="Data set with features; may be repeated.")] = None,
    hidden: int = 32,
    dropout: float = 0.5,
    fanouts: str = "10,5",
    batch_size: int = 256,
    epochs: int = 8,
    seeds: Annotated[int, typer.Option(help="Runs of each side.")] = 20,
    threads: int = 2,
    dgl_python: Annotated[str | None, typer.Option(help="Interpreter that has DGL.")] = None,
    pyg_python: Annotated[str | None, typer.Option(help="Interpreter that has PyG and pyg-lib.")] = None,
    graph_cache: Annotated[Path | None, typer.Option(help="Folder that keeps generated graphs.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of epoch_accuracy.jsonl.")] = Path("bench/results"),
) -> None:
    """Test accuracy of spsample, PyG and DGL after the same training, seed by seed."""
    options = {"fanouts": [int(size) for size in fanouts.split(",")], "hidden": hidden, "dropout": dropout}
    options |= {"epochs": epochs, "test": True}
    pythons = {"dgl_training": dgl_python, "pyg_training": pyg_python}
    console, rows = Console(width=140), []
    path = out / "epoch_accuracy.jsonl"
    path.unlink(missing_ok=True)
    append(path, [machine_facts(threads)])
    with tempfile.TemporaryDirectory(prefix="spsample-bench-") as scratch:
        for name in dataset or ["planted:4000"]:
            folder = training_folder(name, graph_cache or Path(scratch))
            inputs = {"graph": str(folder), "seeds": _seeds_of(folder, batch_size, Path(scratch)), "threads": threads}
            for row in _runs(pythons, inputs, options, seeds, console):
                rows.append({"dataset": name, "hidden": hidden, "fanouts": fanouts, "epochs": epochs, **row})
                append(path, rows[-1:])
    console.print(_table(rows))


def _seeds_of(folder: Path, batch_size: int, scratch: Path) -> str:
    """The file of the training vertices, cut into whole batches."""
    train = np.load(folder / "train.npy")
    size = min(batch_size, len(train))
    own = scratch / f"{folder.name}_seeds"  # beside the graph, where that is not kept
    save(own, seeds=train[: len(train) // size * size].reshape(-1, size))
    return str(own / "seeds.npy")


def _runs(
    pythons: dict[str, str | None], inputs: dict[str, Any], options: dict[str, Any], seeds: int, console: Console
) -> Iterator[dict[str, Any]]:
    """Each side once for each seed, in turn."""
    with ExitStack() as stack:
        batches, batch_size = np.load(inputs["seeds"]).shape
        shared = {**options, "bulk": batches, "batches": batches, "batch_size": batch_size, "seed": 0}
        ways = [way for way in WAYS if way.name in SIDES]
        sides = [(way, started(way, pythons, inputs, shared, stack, console)) for way in ways]
        for seed in range(seeds):
            for way, process in sides:
                if process is not None:
                    wanted = {**shared, **way.options, "seed": seed}
                    process.ask("prepare", name=way.name, task="sage", options=wanted)
                    figures = process.ask("run", name=way.name)["figures"]
                    yield {"side": way.name, "seed": seed, "accuracy": figures["accuracy"], "loss": figures["loss"]}


def _table(rows: list[dict[str, Any]]) -> Table:
    """Means, and their standard errors."""
    made = Table("data set", "side", "runs", "accuracy", "standard error")
    for name, side in dict.fromkeys((row["dataset"], row["side"]) for row in rows):
        own = [100 * row["accuracy"] for row in rows if (row["dataset"], row["side"]) == (name, side)]
        error = statistics.stdev(own) / math.sqrt(len(own)) if len(own) > 1 else math.nan
        made.add_row(name, side, str(len(own)), f"{statistics.mean(own):.2f} %", f"{error:.2f}")
    return made
