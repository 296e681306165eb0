"""Time per batch against the bulk size k.

Each k samples the same batches: an epoch of `--batches` batches in calls of k batches each (as many calls as fit into
`--budget` seconds, at least one). All k of a sampler take turns, round after round, so that other load on the machine
meets them alike; the first round is a discarded warm-up, and so is one call before each turn, which brings the memory
of results to the state it has in a running loader. What is reported is the median over rounds of time per batch, and of
its ratio to that of k = 1 in the same round.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import spsample as sp
from figures import pyplot
from graphs import draw_seeds, graph_folder
from machine_facts import machine_facts
from spsample import _core

BULK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Workload:
    """What is sampled."""

    name: str
    sampler: sp.Sampler
    batch_size: int


@dataclass(frozen=True)
class Cost:
    """What a turn cost: wall and CPU seconds, and edges, per batch."""

    seconds: float
    cpu_seconds: float
    edges: float


@dataclass(frozen=True)
class Point:
    """One bulk size: seconds per batch, and over those of k = 1; medians and extremes over rounds."""

    graph: str
    workload: str
    batch_size: int
    bulk_size: int
    threads: int
    rounds: int
    seconds_per_batch: float
    fastest: float
    slowest: float
    cpu_seconds_per_batch: float
    over_one: float
    least_over_one: float
    most_over_one: float
    cpu_over_one: float
    edges_per_second: float


WORKLOADS = {
    "sage": Workload("GraphSAGE (15,10,5), b=1024", sp.GraphSAGE([15, 10, 5]), 1024),
    "sage-small": Workload("GraphSAGE (10,5), b=64", sp.GraphSAGE([10, 5]), 64),
    "ladies": Workload("LADIES 512, b=512", sp.LADIES([512]), 512),
    "ladies-small": Workload("LADIES (64,64), b=64", sp.LADIES([64, 64]), 64),
    "fastgcn": Workload("FastGCN (400,400), b=512", sp.FastGCN([400, 400]), 512),
}
"""By the names of --workload: the paper's settings, and small ones where the overhead of a call shows."""


@dataclass(frozen=True)
class Effort:
    """How much is measured: batches of an epoch, rounds after the warm-up, seconds after which a turn stops early."""

    batches: int
    rounds: int
    budget: float


def measure(name: str, graph: sp.Graph, work: Workload, effort: Effort) -> list[Point]:
    """All bulk sizes in turn, round after round."""
    seeds = draw_seeds(graph.indptr, effort.batches, work.batch_size)
    sizes = [k for k in BULK_SIZES if k <= effort.batches]
    rounds = [run_round(graph, work, seeds, sizes, effort.budget) for _ in range(effort.rounds + 1)][1:]
    return [_point(name, work, k, rounds) for k in sizes]


def run_round(
    graph: sp.Graph, work: Workload, seeds: NDArray[np.int64], sizes: list[int], budget: float
) -> dict[int, Cost]:
    """The cost of each k, one after the other."""
    return {k: _epoch(graph, work, seeds, k, budget) for k in sizes}


def _point(graph: str, work: Workload, k: int, rounds: list[dict[int, Cost]]) -> Point:
    seconds = [costs[k].seconds for costs in rounds]
    over = [costs[k].seconds / costs[1].seconds for costs in rounds]
    median = statistics.median(seconds)
    return Point(
        graph=graph,
        workload=work.name,
        batch_size=work.batch_size,
        bulk_size=k,
        threads=_core.get_num_threads(),
        rounds=len(rounds),
        seconds_per_batch=median,
        fastest=min(seconds),
        slowest=max(seconds),
        cpu_seconds_per_batch=statistics.median(costs[k].cpu_seconds for costs in rounds),
        over_one=statistics.median(over),
        least_over_one=min(over),
        most_over_one=max(over),
        cpu_over_one=statistics.median(costs[k].cpu_seconds / costs[1].cpu_seconds for costs in rounds),
        edges_per_second=rounds[-1][k].edges / median,
    )


def _epoch(graph: sp.Graph, work: Workload, seeds: NDArray[np.int64], k: int, budget: float) -> Cost:
    """Calls of k batches each, until all are sampled or the budget is spent."""
    done, edges = 0, 0

    def call(first: int) -> int:
        batches = seeds[first : first + k]
        size = batches.shape[1]
        return sp.bulk_sample(graph, batches.ravel(), work.sampler, batch_size=size, first_batch=first).num_edges

    call(0)
    start, cpu = time.perf_counter(), time.process_time()
    for first in range(0, len(seeds) - k + 1, k):
        done, edges = done + k, edges + call(first)
        if time.perf_counter() - start > budget:
            break
    return Cost((time.perf_counter() - start) / done, (time.process_time() - cpu) / done, edges / done)


def plot(points: list[Point], path: Path) -> None:
    """Time per batch over that of k = 1: a panel for each graph, a line for each workload."""
    plt = pyplot()
    if plt is None:
        return

    graphs = list(dict.fromkeys(p.graph for p in points))
    figure, panels = plt.subplots(
        1, len(graphs), figsize=(2 + 4.5 * len(graphs), 4.5), layout="constrained", squeeze=False, sharey=True
    )
    for axes, graph in zip(panels.flat, graphs, strict=True):
        _panel(axes, [p for p in points if p.graph == graph])
        axes.set_title(f"{graph}, {points[0].threads} threads")
    panels[0, 0].set_ylabel("time per batch over k = 1")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _panel(axes: Any, points: list[Point]) -> None:
    sizes = sorted({p.bulk_size for p in points})
    for name in dict.fromkeys(p.workload for p in points):
        line = [p for p in points if p.workload == name]
        over = [p.over_one for p in line]
        spread = [[p.over_one - p.least_over_one for p in line], [p.most_over_one - p.over_one for p in line]]
        label = f"{name} ({line[0].seconds_per_batch * 1e3:.2f} ms at k = 1)"
        axes.errorbar([p.bulk_size for p in line], over, yerr=spread, marker="o", markersize=4, label=label)
    axes.axhline(1, color="grey", linewidth=0.8, linestyle="--")
    axes.set(xscale="log", xlabel="bulk size k (batches sampled at once)", ylim=0)
    axes.set_xticks(sizes, [str(k) for k in sizes])
    axes.minorticks_off()
    axes.legend(fontsize="small")


def table(points: list[Point]) -> Table:
    """A row for each point."""
    columns = ("ms per batch", "fastest", "slowest", "CPU ms", "over k = 1", "CPU over k = 1", "M edges/s")
    made = Table("graph", "workload", "k", *columns)
    for p in points:
        times = (p.seconds_per_batch, p.fastest, p.slowest, p.cpu_seconds_per_batch)
        over = f"{p.over_one:.2f} ({p.least_over_one:.2f} to {p.most_over_one:.2f})"
        last = (f"{p.cpu_over_one:.2f}", f"{p.edges_per_second / 1e6:.1f}")
        made.add_row(p.graph, p.workload, str(p.bulk_size), *(f"{t * 1e3:.3f}" for t in times), over, *last)
    return made


def bulk_size(
    graph: Annotated[
        list[str] | None, typer.Option(help="Graphs, as `spsample train` takes them [rmat:18,16].")
    ] = None,
    workload: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(WORKLOADS)}; all, by default.")] = None,
    batches: Annotated[int, typer.Option(help="Batches of an epoch.")] = 512,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 5,
    budget: Annotated[float, typer.Option(help="Seconds after which a turn stops early.")] = 1.0,
    graph_cache: Annotated[Path | None, typer.Option(help="Folder that keeps generated graphs.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of bulk_size.jsonl and bulk_size.png.")] = Path("bench/results"),
) -> None:
    """Time per batch against the bulk size k, for each sampler."""
    works = _chosen(workload)
    console = Console(width=140) if not sys.stdout.isatty() else Console()
    points: list[Point] = []
    with tempfile.TemporaryDirectory(prefix="spsample-bench-") as scratch:
        for name in graph or ["rmat:18,16"]:
            loaded = _load(graph_folder(name, graph_cache or Path(scratch)))
            console.print(f"{name}: {loaded}", markup=False)
            points += [p for work in works for p in measure(name, loaded, work, Effort(batches, rounds, budget))]
    out.mkdir(parents=True, exist_ok=True)
    records = [{"kind": "machine", **machine_facts(_core.get_num_threads())}]
    records += [{"kind": "point", **asdict(p)} for p in points]
    (out / "bulk_size.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    console.print(table(points))
    plot(points, out / "bulk_size.png")


def _load(folder: Path) -> sp.Graph:
    return sp.Graph(np.load(folder / "indptr.npy"), np.load(folder / "indices.npy"), validate=False)


def _chosen(names: list[str] | None) -> list[Workload]:
    unknown = [name for name in names or [] if name not in WORKLOADS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(WORKLOADS)}", param_hint="--workload")
    return [WORKLOADS[name] for name in names or WORKLOADS]
