"""The factored pipeline beside the others: who waits, what switching and queues are worth, and what staleness costs.

Ranks are processes, each with one thread; the ways of a part take turns, an epoch each.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from factored_ranks import Cell, Record, run
from machine_facts import machine_facts
from spsample.cli.launch import ranks_environment, with_launcher
from spsample.comm import run_threads

RANKS = Path(__file__).with_name("factored_ranks.py")
PARTS = ("waiting", "queue", "cache", "accuracy")
BOUNDS = (0, 1, 4, 16)
CACHED = 0.1
"""Share of the rows that a cache holds."""


def factored(
    graph: Annotated[str, typer.Option(help="That epochs are timed on.")] = "rmat:18,16",
    batch_size: Annotated[int, typer.Option(help="b, where epochs are timed.")] = 2048,
    batches: Annotated[int, typer.Option(help="Batches of a timed epoch.")] = 24,
    dataset: Annotated[list[str], typer.Option(help="Where accuracy is measured.")] = ["tolokers", "planted:20000"],  # noqa: B006
    ranks: Annotated[int, typer.Option(help="p")] = 4,
    backend: Annotated[str, typer.Option(help="gloo, mpi, or threads of one process.")] = "gloo",
    part: Annotated[list[str], typer.Option(help=f"Of {', '.join(PARTS)}.")] = list(PARTS),  # noqa: B006
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 5,
    seeds: Annotated[int, typer.Option(help="Random seeds of an accuracy.")] = 3,
    epochs: Annotated[int, typer.Option(help="Epochs of a run whose accuracy counts; 0: by data set.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of factored.jsonl, whose lines stay.")] = Path("bench/results"),
) -> None:
    """Idle trainers, gain of switching, bytes in queues, caches; accuracy at bounds on the staleness."""
    jobs: list[Record] = []
    shape = {"graph": graph, "batch_size": batch_size, "batches": batches, "ranks": ranks, "rounds": rounds}
    if "waiting" in part:
        jobs += [_waiting(shape, name) for name in ("sampling", "training")]
    if "queue" in part:
        jobs += [_queue(shape)]
    if "cache" in part:
        jobs += [_cache(shape)]
    if "accuracy" in part:
        jobs += [_accuracy(one, seeds, epochs) for one in dataset]
    out.mkdir(parents=True, exist_ok=True)
    with (out / "factored.jsonl").open("a", encoding="utf-8") as lines:
        print(json.dumps({"record": "machine", "backend": backend, "ranks": ranks, **machine_facts(1)}), file=lines)
        for job in jobs:
            records = _on_ranks(job, ranks, backend)
            lines.writelines(json.dumps(record) + "\n" for record in records)
            lines.flush()
            Console(width=130).print(_epochs_table(records) if job["rounds"] else _runs_table(records))


# ---------------------------------------------------------------------------------------------------------- the jobs


def _cell(shape: Record, name: str) -> Cell:
    """Where sampling takes longer than training, or the other way round."""
    seeds = shape["batches"] * shape["batch_size"]
    if name == "sampling":
        return Cell(shape["graph"], "FastGCN", [8192, 8192], 16, seeds, {"hidden": 16, "dropout": 0.0})
    return Cell(shape["graph"], "GraphSAGE", [10, 10], 128, seeds, {"hidden": 256, "dropout": 0.0})


def _job(name: str, cell: Cell, ways: Record, rounds: int) -> Record:
    return {"name": name, "cell": asdict(cell), "ways": ways, "rounds": rounds}


def _common(shape: Record, bulk_size: int = 4) -> Record:
    return {"batch_size": shape["batch_size"], "bulk_size": bulk_size}


def _waiting(shape: Record, name: str) -> Record:
    """All pipelines; factored with each number of samplers, with and without switching, and as a trial chooses."""
    common, p = _common(shape), shape["ranks"]
    apart = {"pipeline": "factored", **common}
    ways: Record = {"sync": {"pipeline": "sync", **common}, "overlap": {"pipeline": "overlap", **common}}
    for samplers in range(1, p):
        ways[f"{samplers} sampling"] = {**apart, "sampler_ranks": samplers}
        ways[f"{samplers} sampling, no switching"] = {**apart, "sampler_ranks": samplers, "switches": False}
        ways[f"{samplers} sampling, B = {3 * p}"] = {**apart, "sampler_ranks": samplers, "step_batches": 3 * p}
    ways["trial"] = apart
    return _job(name, _cell(shape, name), ways, shape["rounds"])


def _queue(shape: Record) -> Record:
    """One sampler, with less and less memory for its queue."""
    apart = {"pipeline": "factored", "sampler_ranks": 1, **_common(shape, 1)}
    memories = ("32MiB", "64MiB", "128MiB", "256MiB", "1GiB")
    ways = {f"queue of {memory}": {**apart, "queue_memory": memory} for memory in memories}
    return _job("queue", _cell(shape, "sampling"), ways, shape["rounds"])


def _cache(shape: Record) -> Record:
    """Side by side with a cache by degree, and factored with caches that follow the sampler."""
    common, cell = _common(shape), _cell(shape, "training")
    budget = int(CACHED * 4 * cell.dim * cell.data().graph.num_nodes)
    kept = {**common, "cache_budget": budget}
    apart = {"pipeline": "factored", "sampler_ranks": 1, **kept}
    ways = {
        "overlap, no cache": {"pipeline": "overlap", **common},
        "overlap, out-degree": {"pipeline": "overlap", **kept, "cache_score": "out-degree"},
        "overlap, posterior": {"pipeline": "overlap", **kept, "cache_score": "posterior"},
        "1 sampling, out-degree": {**apart, "cache_score": "out-degree"},
        "1 sampling, presc": {**apart, "cache_score": "presc"},
        "1 sampling, posterior": {**apart, "cache_score": "posterior"},
    }
    return _job("cache", cell, ways, shape["rounds"])


def _accuracy(dataset: str, seeds: int, epochs: int) -> Record:
    """Each step by all ranks together, and asynchronously within each bound."""
    if dataset == "tolokers":
        cell = Cell(dataset, "GraphSAGE", [10, 10], 0, 0, {"architecture": "residual", "hidden": 128, "dropout": 0.2})
        common: Record = {"epochs": epochs or 30, "batch_size": 128, "learning_rate": 0.002, "eval_every": 2}
    else:
        cell = Cell(dataset, "GraphSAGE", [15, 5], 0, 0, {"hidden": 64, "dropout": 0.0})
        common = {"epochs": epochs or 8, "batch_size": 128, "learning_rate": 0.01, "eval_every": 1}
    common |= {"pipeline": "factored", "sampler_ranks": 1, "bulk_size": 8}
    ways = {}
    for seed in range(seeds):
        ways[f"synchronous {seed}"] = {**common, "random_seed": seed}
        for bound in BOUNDS:
            ways[f"bound {bound} {seed}"] = {**common, "random_seed": seed, "staleness": bound}
    return _job(dataset, cell, ways, 0)


def _on_ranks(job: Record, ranks: int, backend: str) -> list[Record]:
    """Run a job on ranks of its own."""
    if backend == "threads":
        return run_threads(ranks, partial(run, job=job), timeout=3600.0)[0]
    with tempfile.TemporaryDirectory() as scratch:
        given, result = Path(scratch, "job.json"), Path(scratch, "result.jsonl")
        given.write_text(json.dumps(job), "utf-8")
        line = with_launcher([sys.executable, str(RANKS), str(given), str(result)], ranks, backend)
        subprocess.run(line, env=ranks_environment(ranks) | {"OMP_NUM_THREADS": "1"}, check=True)
        return [json.loads(one) for one in result.read_text("utf-8").splitlines()]


# -------------------------------------------------------------------------------------------------------- the tables


def _epochs_table(records: list[Record]) -> Table:
    """A row for each way: medians over the rounds, and of the ratio to the first way's epoch in the same round."""
    shown = Table(
        "cell", "way", "samplers", "epoch, s", "over the first", "trainers idle", "switched", "queue, MiB", "hits", "k"
    )
    first = {one["round"]: one["seconds"] for one in records if one["way"] == records[0]["way"]}
    for way in dict.fromkeys(one["way"] for one in records):
        own = [one for one in records if one["way"] == way]
        over = statistics.median(one["seconds"] / first[one["round"]] for one in own)
        median = {key: statistics.median(one[key] for one in own) for key in ("seconds", "idle")}
        samplers = own[0]["samplers"]
        switched = statistics.median(sum(one["trained"][len(one["trained"]) - samplers :]) for one in own)
        hits, misses = (sum(sum(one[key]) for one in own) for key in ("hits", "misses"))
        shown.add_row(
            own[0]["cell"],
            way,
            str(samplers or ""),
            f"{median['seconds']:.2f}",
            f"{over:.2f}",
            f"{median['idle']:.2f}",
            f"{switched:.0f} of {own[0]['batches']}" if samplers else "",
            f"{max(max(one['queue_peak']) for one in own) / 2**20:.0f}" if samplers else "",
            f"{hits / (hits + misses):.3f}" if hits else "",
            str(own[0]["bulk_size"]),
        )
    return shown


def _runs_table(records: list[Record]) -> Table:
    """A row for each bound: mean and deviation over the random seeds, and what it takes to the target.

    The target is what the worst run reaches at its best, on the validation vertices.
    """
    shown = Table("data set", "way", "test, %", "deviation", "largest staleness", "target", "updates to it", "s to it")
    target = min(max(val for _, _, val in one["curve"]) for one in records)
    for way in dict.fromkeys(_without_seed(one) for one in records):
        own = [one for one in records if _without_seed(one) == way]
        tests = [100 * one["test"] for one in own]
        reached = [next(point for point in one["curve"] if point[2] >= target) for one in own]
        late = [one["largest_staleness"] for one in own if one["largest_staleness"] is not None]
        shown.add_row(
            own[0]["cell"],
            way,
            f"{np.mean(tests):.2f}",
            f"{np.std(tests, ddof=1) if len(tests) > 1 else 0.0:.2f}",
            ", ".join(map(str, late)),
            f"{100 * target:.2f}",
            f"{statistics.median(point[1] for point in reached):.0f}",
            f"{statistics.median(point[0] for point in reached):.1f}",
        )
    return shown


def _without_seed(one: Record) -> str:
    return str(one["way"]).rpartition(" ")[0]


def read(path: Path) -> Iterator[Any]:
    """The records of a file of results."""
    return (json.loads(line) for line in path.read_text("utf-8").splitlines())


def main(path: Path) -> None:
    """Print the tables of a file."""
    records = [one for one in read(path) if one["record"] != "machine"]
    for cell in dict.fromkeys(one["cell"] for one in records):
        own = [one for one in records if one["cell"] == cell]
        Console(width=130).print(_epochs_table(own) if own[0]["record"] == "epoch" else _runs_table(own))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
