"""Does prefetch hide the shorter side? Sampling on one core, training on another; alone and together, taking turns."""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from machine_facts import machine_facts


@dataclass(frozen=True)
class Turn:
    """Seconds of one epoch: sampling and features alone, training alone, one after the other, and with prefetch."""

    sampling: float
    training: float
    synchronous: float
    prefetched: float
    waiting: float

    @property
    def over_longer(self) -> float:
        """Of the epoch with prefetch, over the longer side alone."""
        return self.prefetched / max(self.sampling, self.training)


def prefetch(
    dataset: Annotated[str, typer.Option(help="Data set with features and labels.")] = "planted:400000,100,16",
    layer_sizes: Annotated[str, typer.Option(help="Of LADIES, whose two sides take about as long.")] = "512,512",
    batch_size: Annotated[int, typer.Option(help="b")] = 1024,
    bulk_size: Annotated[str, typer.Option(help="k, or auto: as the loader chooses it.")] = "auto",
    hidden: Annotated[int, typer.Option(help="Width of the model: sets how long training takes.")] = 64,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder of prefetch.jsonl.")] = Path("bench/results"),
) -> None:
    """Epoch with prefetch over the longer of sampling alone and training alone, one core for each side."""
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch and the core are loaded
    console = Console(width=140) if not sys.stdout.isatty() else Console()
    sides = Sides(dataset, [int(s) for s in layer_sizes.split(",")], (batch_size, k_of(bulk_size)), hidden)
    turns = [sides.turn() for _ in range(rounds + 1)][1:]
    out.mkdir(parents=True, exist_ok=True)
    facts = {
        "dataset": dataset,
        "layer_sizes": layer_sizes,
        "batch_size": batch_size,
        "bulk_size": sides.options["bulk_size"],
        "hidden": hidden,
    }
    records = [{"kind": "machine", **machine_facts(1)}]
    records += [{"kind": "turn", **facts, **asdict(turn), "over_longer": turn.over_longer} for turn in turns]
    (out / "prefetch.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    console.print(table(turns))


def k_of(bulk_size: str) -> int | str:
    """A number, or a word for the loader to judge."""
    return int(bulk_size) if bulk_size.isdigit() else bulk_size


class Sides:
    """The loader and the model, each on its core."""

    def __init__(self, dataset: str, layer_sizes: list[int], sizes: tuple[int, int | str], hidden: int) -> None:
        import torch

        import spsample as sp
        from spsample.training import ModelConfig
        from spsample.training.models import build_model

        torch.set_num_threads(1)
        sp.set_num_threads(1)
        cores = sorted(os.sched_getaffinity(0))
        self.cores = cores[0], cores[-1]  # the same where there is one
        self.torch, self.data = torch, sp.load_dataset(dataset)
        self.graph = self.data.graph.normalized("row")
        self.options = {"batch_size": sizes[0], "bulk_size": sizes[1], "features": self.data.x, "labels": self.data.y}
        self.sampler = sp.LADIES(layer_sizes)
        self.options["bulk_size"] = self.loader(1).bulk_size  # what the loader chose with prefetch, for all ways
        torch.manual_seed(0)
        config = ModelConfig(hidden=hidden)
        self.model = build_model(self.data.x.shape[1], self.data.num_classes, len(layer_sizes), config)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def loader(self, ahead: int) -> Any:
        """A loader that does the same epoch."""
        import spsample as sp

        return sp.BulkLoader(self.graph, self.data.train_idx, self.sampler, prefetch=ahead, **self.options)

    def turn(self) -> Turn:
        """Each way once."""
        train, sample = self.cores
        kept: list[Any] = []
        sampling, _ = self.timed(sample, self.loader(0), kept.append)
        training, _ = self.timed(train, (batch for batch in kept), self.step)
        kept.clear()
        synchronous, _ = self.timed(train, self.loader(0), self.step)
        loader = self.loader(1)
        with self.threads_on(sample):
            prefetched, _ = self.timed(train, loader, self.step)
        return Turn(sampling, training, synchronous, prefetched, loader.seconds["waiting"])

    def timed(self, core: int, batches: Any, use: Any) -> tuple[float, int]:
        """Seconds that this thread takes, on that core, to use all batches."""
        os.sched_setaffinity(0, {core})
        start = time.perf_counter()
        count = sum(1 for batch in batches if use(batch) or True)
        return time.perf_counter() - start, count

    def threads_on(self, core: int) -> Any:
        """Threads that begin within the block run on that core."""
        return _Pinned(core)

    def step(self, batch: Any) -> None:
        """Forward, backward, step."""
        from spsample.training.blocks import value_block

        torch = self.torch
        logits = self.model(torch.from_numpy(batch.x), [value_block(layer.adj) for layer in batch.layers])
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(batch.y))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class _Pinned:
    """Pins every thread that starts while it is open."""

    def __init__(self, core: int) -> None:
        self.core = core

    def __enter__(self) -> None:
        core, run = self.core, threading.Thread.run
        self.run = run

        def pinned(thread: threading.Thread) -> None:
            os.sched_setaffinity(0, {core})
            run(thread)

        threading.Thread.run = pinned  # type: ignore[method-assign]

    def __exit__(self, *exception: object) -> None:
        threading.Thread.run = self.run  # type: ignore[method-assign]


def table(turns: list[Turn]) -> Table:
    """A row for each turn, and their median."""
    made = Table("", "sampling alone", "training alone", "no prefetch", "prefetch", "waiting", "over the longer")
    for name, figures in _rows(turns):
        made.add_row(name, *(f"{seconds:.3f}" for seconds in figures[:-1]), f"{figures[-1]:.3f}")
    return made


def _rows(turns: list[Turn]) -> Iterator[tuple[str, list[float]]]:
    rows = [[*asdict(turn).values(), turn.over_longer] for turn in turns]
    for number, row in enumerate(rows):
        yield str(number), row
    yield "median", [statistics.median(column) for column in zip(*rows, strict=True)]
