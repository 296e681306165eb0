"""Time per batch against the bulk size k.

Each k samples the same batches: an epoch of `--batches` batches in calls of k batches each (as many calls as fit into
`--budget` seconds, at least one). All k of a sampler take turns, round after round, so that other load on the machine
meets them alike; the first round is a discarded warm-up, and so is one call before each turn, which brings the memory
of results to the state it has in a running loader. What is reported is the median over rounds of time per batch.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import spsample as sp
from spsample import _core

BULK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 196)


@dataclass(frozen=True)
class Workload:
    """What is sampled: `scale` as in load_dataset("rmat:SCALE,EDGE_FACTOR")."""

    name: str
    dataset: str
    sampler: sp.Sampler
    batch_size: int


@dataclass(frozen=True)
class Result:
    """One point: seconds per batch, median and extremes over rounds, and sampled edges per second."""

    workload: str
    dataset: str
    batch_size: int
    bulk_size: int
    threads: int
    rounds: int
    seconds_per_batch: float
    fastest: float
    slowest: float
    edges_per_second: float


def workloads(dataset: str) -> list[Workload]:
    """The paper's settings, and a small one where the overhead of a call shows."""
    return [
        Workload("GraphSAGE (15,10,5), b=1024", dataset, sp.GraphSAGE([15, 10, 5]), 1024),
        Workload("GraphSAGE (10,5), b=64", dataset, sp.GraphSAGE([10, 5]), 64),
        Workload("LADIES 512, b=512", dataset, sp.LADIES([512]), 512),
        Workload("LADIES (64,64), b=64", dataset, sp.LADIES([64, 64]), 64),
        Workload("FastGCN (400,400), b=512", dataset, sp.FastGCN([400, 400]), 512),
    ]


def measure(graph: sp.Graph, work: Workload, batches: int, rounds: int, budget: float) -> list[Result]:
    """All bulk sizes in turn, `rounds` times after a warm-up."""
    rng = np.random.default_rng(0)
    seeds = np.concatenate([rng.choice(graph.num_nodes, work.batch_size, replace=False) for _ in range(batches)])
    sizes = [k for k in BULK_SIZES if k <= batches]
    times: dict[int, list[float]] = {k: [] for k in sizes}
    edges: dict[int, float] = {}
    for round_ in range(rounds + 1):
        for k in sizes:
            seconds, edges[k] = _epoch(graph, work, seeds, k, budget)
            if round_:
                times[k].append(seconds)
    return [
        Result(
            work.name,
            work.dataset,
            work.batch_size,
            k,
            _core.get_num_threads(),
            rounds,
            statistics.median(t),
            min(t),
            max(t),
            edges[k] / statistics.median(t),
        )
        for k, t in times.items()
    ]


def _epoch(graph: sp.Graph, work: Workload, seeds: np.ndarray, k: int, budget: float) -> tuple[float, float]:
    """Seconds per batch and edges per batch of calls of k batches, stopped after the budget."""
    per_call, done, edges = k * work.batch_size, 0, 0

    def call(begin: int) -> int:
        chunk = seeds[begin : begin + per_call]
        first = begin // work.batch_size
        return sp.bulk_sample(graph, chunk, work.sampler, batch_size=work.batch_size, first_batch=first).num_edges

    call(0)
    start = time.perf_counter()
    for begin in range(0, len(seeds) - per_call + 1, per_call):
        done, edges = done + k, edges + call(begin)
        if time.perf_counter() - start > budget:
            break
    return (time.perf_counter() - start) / done, edges / done


def plot(results: list[Result], path: Path) -> None:
    """Time per batch over that of k = 1, one line per workload."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name in dict.fromkeys(r.workload for r in results):
        points = [r for r in results if r.workload == name]
        base = points[0].seconds_per_batch
        axes.plot(
            [r.bulk_size for r in points],
            [r.seconds_per_batch / base for r in points],
            marker="o",
            label=f"{name} ({base * 1e3:.2f} ms at k = 1)",
        )
    axes.axhline(0.5, color="grey", linewidth=0.8, linestyle="--")
    axes.set(xscale="log", xlabel="bulk size k (batches sampled at once)", ylabel="time per batch over k = 1", ylim=0)
    axes.set_xticks(BULK_SIZES, [str(k) for k in BULK_SIZES])
    axes.minorticks_off()
    axes.set_title(f"{results[0].dataset}, {results[0].threads} threads, {platform.machine()}")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=150)


def bulk_size(
    dataset: Annotated[str, typer.Option(help="Graph, as `spsample train` takes it.")] = "rmat:18,16",
    batches: Annotated[int, typer.Option(help="Batches of an epoch.")] = 196,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 5,
    budget: Annotated[float, typer.Option(help="Seconds after which a round stops early.")] = 2.0,
    out: Annotated[Path, typer.Option(help="Folder of bulk_size.jsonl and bulk_size.png.")] = Path("bench/results"),
) -> None:
    """Time per batch against the bulk size k, for each sampler."""
    graph = sp.load_dataset(dataset).graph
    console = Console(width=140) if not sys.stdout.isatty() else Console()
    console.print(graph)
    results = [r for work in workloads(dataset) for r in measure(graph, work, batches, rounds, budget)]
    out.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(asdict(r)) for r in results)
    (out / "bulk_size.jsonl").write_text("\n".join(lines) + "\n")
    plot(results, out / "bulk_size.png")
    table = Table("workload", "k", "ms per batch", "fastest", "slowest", "over k = 1", "M edges/s")
    base = {r.workload: r.seconds_per_batch for r in results if r.bulk_size == 1}
    for r in results:
        milliseconds = (f"{t * 1e3:.3f}" for t in (r.seconds_per_batch, r.fastest, r.slowest))
        ratio = f"{r.seconds_per_batch / base[r.workload]:.2f}"
        table.add_row(r.workload, str(r.bulk_size), *milliseconds, ratio, f"{r.edges_per_second / 1e6:.1f}")
    console.print(table)
