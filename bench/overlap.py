"""Overlapped pipelines: what they save, whether the threads that a trial chooses are the right ones, and transforms.

Four measurements, each of epochs that take turns:

- `sides`: an epoch side by side, beside sampling and fetching alone and training alone, each with the threads that the
  trial gives it, which together are no more than there are cores.
- `shared`: the same epoch side by side and in turn, where training has as many threads as there are cores.
- `choice`: epochs with every number of threads for sampling and for features, and with those that the trial chooses.
- `transform`: a function in Python that keeps the lock for some milliseconds a batch, in the thread and in processes.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice, product
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

import spsample as sp
from machine_facts import machine_facts
from overlap_transform import Busy
from spsample.loading import Batch
from spsample.training import ModelConfig
from spsample.training.blocks import BlockMaker, aggregation_for
from spsample.training.models import build_model

PARTS = ("sides", "shared", "choice", "transform")
KEPT = 16
"""Batches that training alone goes through, again and again: those of an epoch may be larger than memory."""
WITHIN = 3.0
"""Sides are compared where the longer one takes at most this many times as long as the shorter."""


@dataclass(frozen=True)
class Figure:
    """Seconds of one epoch, done in one of the ways of a part."""

    part: str
    way: str
    hidden: int
    round: int
    seconds: float
    threads: str
    cpu_seconds: float


class Job:
    """A data set, a sampler and a model of a given width; each epoch has the same batches.

    Parameters
    ----------
    dataset, sampler, batch_size, bulk_size
        What is sampled.
    hidden
        Width of the model: sets how long training takes.
    fetch
        As of `BulkLoader`.
    """

    def __init__(self, dataset: str, sampler: Any, batch_size: int, bulk_size: int, hidden: int, fetch: str) -> None:
        self.data = sp.load_dataset(dataset)
        self.sampler = sampler
        self.options = {"batch_size": batch_size, "bulk_size": bulk_size, "fetch": fetch}
        self.hidden = hidden
        self.graph = self.data.graph if aggregation_for(sampler) == "mean" else self.data.graph.normalized("row")
        self.blocks = BlockMaker(self.data.graph, sampler)
        torch.manual_seed(0)
        classes = self.data.num_classes
        self.model = build_model(self.data.x.shape[1], classes, len(sampler.sizes), ModelConfig(hidden=hidden))
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def loader(self, **options: Any) -> sp.BulkLoader:
        """A loader of this job."""
        return sp.BulkLoader(
            self.graph,
            self.data.train_idx,
            self.sampler,
            features=self.data.x,
            labels=self.data.y,
            **self.options,
            **options,
        )

    def step(self, batch: Batch) -> None:
        """Forward, backward, step."""
        x, blocks = self.blocks.inputs(batch, self.model)
        loss = torch.nn.functional.cross_entropy(self.model(x, blocks), torch.from_numpy(batch.y).long())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class Clock:
    """Takes the time of epochs, and keeps it."""

    def __init__(self, part: str, job: Job) -> None:
        self.part = part
        self.job = job
        self.figures: list[Figure] = []

    def epoch(self, way: str, number: int, loader: Any, use: Callable[[Any], Any]) -> None:
        """One epoch; the first ones, numbered below 0, are not kept."""
        if isinstance(loader, sp.BulkLoader):
            loader.set_epoch(0)
        start, cpu = time.perf_counter(), time.process_time()
        for batch in loader:
            use(batch)
        taken, used = time.perf_counter() - start, time.process_time() - cpu
        report = getattr(loader, "stage_report", None)
        threads = "" if report is None else f"{report.sampling},{report.features},{report.training}"
        if number >= 0:
            self.figures.append(Figure(self.part, way, self.job.hidden, number, taken, threads, used))


def _unused(batch: Any) -> None:
    """Nothing is done with it."""


def sides(job: Job, rounds: int, cores: int) -> list[Figure]:
    """Both sides alone, with the threads that the trial gives them, and side by side."""
    clock = Clock("sides", job)
    training = max(cores // 2, 1)
    torch.set_num_threads(training)
    auto = job.loader(stage_threads=f"auto,auto,{training}")
    clock.epoch("trial", -1, auto, job.step)
    chosen = auto.stage_report
    assert chosen is not None
    alone = job.loader(stage_threads=(chosen.sampling, chosen.features))
    kept = list(islice(job.loader(prefetch=0), KEPT))
    for number in range(-1, rounds):
        clock.epoch("preparing alone", number, alone, _unused)
        clock.epoch("training alone", number, islice(cycle(kept), len(alone)), job.step)
        clock.epoch("side by side", number, auto, job.step)
    return clock.figures


def shared(job: Job, rounds: int, cores: int) -> list[Figure]:
    """In turn and side by side, where training alone has a thread for each core."""
    clock = Clock("shared", job)
    torch.set_num_threads(cores)
    loaders = {
        "in turn": job.loader(prefetch=0),
        "side by side, threads as they are": job.loader(),
        "side by side, threads chosen": job.loader(stage_threads="auto"),
    }
    for number in range(-3, rounds):  # by then threads are chosen
        for way, loader in loaders.items():
            clock.epoch(way, number, loader, job.step)
    return clock.figures


def choice(job: Job, rounds: int, cores: int) -> list[Figure]:
    """Numbers of threads set by hand, and chosen."""
    clock = Clock("choice", job)
    torch.set_num_threads(max(cores // 2, 1))
    features = sorted({1, max(cores // 2, 1), cores})
    loaders = {f"{s},{f}": job.loader(stage_threads=(s, f)) for s, f in product(range(1, cores + 1), features)}
    loaders["chosen"] = job.loader(stage_threads="auto")
    for number in range(-1, rounds):
        for way, loader in loaders.items():
            clock.epoch(way, number, loader, job.step)
    return clock.figures


def transform(job: Job, rounds: int, workers: int, milliseconds: float) -> list[Figure]:
    """A transform that keeps Python's lock, in the thread that gathers features and in processes."""
    clock = Clock("transform", job)
    torch.set_num_threads(1)
    busy = Busy.of(milliseconds)
    loaders = {
        "none": job.loader(stage_threads=(1, 1)),
        "in the thread": job.loader(stage_threads=(1, 1), transform=busy),
        f"{workers} processes": job.loader(stage_threads=(1, 1), transform=busy, transform_workers=workers),
    }
    for number in range(-1, rounds):
        for way, loader in loaders.items():
            clock.epoch(way, number, loader, job.step)
    for loader in loaders.values():
        loader.close()
    return clock.figures


def overlap(
    dataset: Annotated[str, typer.Option(help="Data set with features and labels.")] = "planted:300000,100,16",
    fanouts: Annotated[str, typer.Option(help="Of GraphSAGE.")] = "15,10",
    layer_sizes: Annotated[str, typer.Option(help="Of LADIES, which then samples in place of GraphSAGE.")] = "",
    batch_size: Annotated[int, typer.Option(help="b")] = 1024,
    bulk_size: Annotated[int, typer.Option(help="k")] = 16,
    hidden: Annotated[list[int], typer.Option(help="Width of the model; may be repeated.")] = [16, 64],  # noqa: B006
    fetch: Annotated[str, typer.Option(help="batch or bulk")] = "batch",
    part: Annotated[list[str], typer.Option(help=f"Of {', '.join(PARTS)}; may be repeated.")] = list(PARTS),  # noqa: B006
    cores: Annotated[int, typer.Option(help="Cores to share; 0: all that there are.")] = 0,
    workers: Annotated[int, typer.Option(help="Processes of the transform.")] = 2,
    milliseconds: Annotated[float, typer.Option(help="That the transform takes for a batch.")] = 5.0,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder of overlap.jsonl.")] = Path("bench/results"),
) -> None:
    """Epochs side by side: over the longer side and over the epoch in turn, with threads chosen and set, transforms."""
    usable = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, usable[: cores or len(usable)])
    count, mine = len(os.sched_getaffinity(0)), (sp.sparse.get_num_threads(), torch.get_num_threads())
    sp.set_num_threads(count)
    measured = {
        "sides": lambda job: sides(job, rounds, count),
        "shared": lambda job: shared(job, rounds, count),
        "choice": lambda job: choice(job, rounds, count),
        "transform": lambda job: transform(job, rounds, workers, milliseconds),
    }
    figures: list[Figure] = []
    sizes = [int(one) for one in (layer_sizes or fanouts).split(",")]
    sampler = sp.LADIES(sizes) if layer_sizes else sp.GraphSAGE(sizes)
    for width in hidden:
        job = Job(dataset, sampler, batch_size, bulk_size, width, fetch)
        for name in part:
            figures += measured[name](job)
    facts = {
        "dataset": dataset,
        "sampler": repr(sampler),
        "batch_size": batch_size,
        "bulk_size": bulk_size,
        "fetch": fetch,
    }
    rows = list(summaries(figures))
    lines = [{"kind": "machine", **machine_facts(count)}]
    lines += [{"kind": "epoch", **facts, **asdict(one)} for one in figures]
    lines += [{"kind": "summary", **facts, **row} for row in rows]
    out.mkdir(parents=True, exist_ok=True)
    (out / "overlap.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    Console(width=150).print(table(rows))
    os.sched_setaffinity(0, usable)
    sp.set_num_threads(mine[0])
    torch.set_num_threads(mine[1])


def summaries(figures: Sequence[Figure]) -> Iterator[dict[str, Any]]:
    """For each part, width and way: median, spread, and the median of its ratios in a round to what it is held to."""
    for part, hidden in dict.fromkeys((one.part, one.hidden) for one in figures):
        some = [one for one in figures if (one.part, one.hidden) == (part, hidden)]
        ways = list(dict.fromkeys(one.way for one in some))
        seconds = {way: [one.seconds for one in some if one.way == way] for way in ways}
        beside, name = _beside(part, seconds)
        for way in ways:
            ratios = [a / b for a, b in zip(seconds[way], beside, strict=True)]
            yield {
                "part": part,
                "hidden": hidden,
                "way": way,
                "threads": statistics.mode(one.threads for one in some if one.way == way),
                "median": statistics.median(seconds[way]),
                "least": min(seconds[way]),
                "most": max(seconds[way]),
                "beside": name,
                "ratio": statistics.median(ratios),
            }


def _beside(part: str, seconds: dict[str, list[float]]) -> tuple[list[float], str]:
    """What the ways of a part are compared with, round by round, and its name."""
    medians = {way: statistics.median(of_way) for way, of_way in seconds.items()}
    if part == "sides":
        alone = {way: medians[way] for way in ("preparing alone", "training alone")}
        longer = max(alone, key=lambda way: alone[way])
        times = max(alone.values()) / min(alone.values())
        return seconds[longer], f"{longer}, {times:.2f} times the other{'' if times <= WITHIN else ': too far apart'}"
    if part == "choice":
        best = min((way for way in medians if way != "chosen"), key=lambda way: medians[way])
        return seconds[best], f"{best}, the best by hand"
    way = "in turn" if part == "shared" else "in the thread"
    return seconds[way], way


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """A line for each way."""
    made = Table("part", "hidden", "way", "threads", "median, s", "least", "most", "ratio to", "ratio")
    for row in rows:
        numbers = (f"{row[name]:.3f}" for name in ("median", "least", "most"))
        first = row["part"], str(row["hidden"]), row["way"], row["threads"]
        made.add_row(*first, *numbers, row["beside"], f"{row['ratio']:.3f}")
    return made
