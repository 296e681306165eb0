"""Plans of copies over devices: what each method's plan costs, and how long planning takes.

Scores are out-degrees, as PaGraph takes them. All methods plan by the same scores and pay by them. Beside the methods
of spsample: each device keeps rows of its own part only, of random vertices, ranges or METIS, the hottest first.
Planning takes turns with `np.argsort` of as many random scores; the first round is a discarded warm-up.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import spsample as sp
from figures import pyplot
from graphs import graph_folder
from machine_facts import machine_facts
from spsample.data import metis_partition
from spsample.errors import MissingDependencyError
from spsample.features import CopyPlan, plan_copies
from spsample.features.copies import METHODS, cost
from spsample.features.copies.order import hottest
from traffic_cells import load

ALPHAS = (0.1, 0.3, 0.5, 0.8, 1.0, 2.0)
DEVICES = (2, 4, 8)
SHARES = (0.05, 0.2)
GRAPHS = ("cnr2000", "ego_twitter", "tolokers", "musae_facebook")
BEST = "best-copies"
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """Cost of one plan, in rows from the host over the rows that are needed, and over that of `best-copies`."""

    graph: str
    devices: int
    share: float
    alpha: float
    method: str
    mean: float
    largest: float
    mean_over_best: float


@dataclass(frozen=True)
class Timing:
    """Seconds of planning, median of the rounds, and over `np.argsort` of the scores in the same round."""

    vertices: int
    devices: int
    share: float
    alpha: float
    method: str
    seconds: float
    over_argsort: float
    least_over_argsort: float
    most_over_argsort: float


@dataclass(frozen=True)
class BesideMetis:
    """Seconds of one plan, or of one partition, for 8 devices on a graph."""

    graph: str
    method: str
    seconds: float


def out_degrees(graph: sp.Graph) -> Scores:
    """(n,) how many rows have each vertex as an in-neighbour."""
    return np.bincount(np.asarray(graph.indices), minlength=graph.num_nodes).astype(np.float64)


class Partitions:
    """Parts of a graph's vertices by kind and number; METIS is left out where it is missing."""

    def __init__(self, graph: sp.Graph) -> None:
        self._graph = graph

    def of(self, devices: int) -> dict[str, NDArray[Any]]:
        """The part of each vertex, one part for each device."""
        n = self._graph.num_nodes
        parts = {
            "random parts": np.random.default_rng(0).permutation(n) % devices,
            "ranges": np.arange(n) * devices // n,
        }
        try:
            parts["METIS"] = metis_partition(self._graph, devices)
        except MissingDependencyError as error:
            print(f"METIS: missing ({error})", file=sys.stderr)
        return parts


def parts_plan(scores: Scores, parts: NDArray[Any], devices: int, budget: int) -> CopyPlan:
    """Each device keeps the hottest vertices of its part."""
    members = (np.flatnonzero(parts == device) for device in range(devices))
    return CopyPlan.of([one[hottest(scores[one], budget)] for one in members], len(scores))


def plans(scores: Scores, devices: int, budget: int, alpha: float) -> Iterator[tuple[str, CopyPlan]]:
    """The plan of each method of spsample; the interleaved one without a head and with one of half the budget."""
    for method in METHODS:
        yield method, plan_copies(scores, devices, budget, alpha, method=method)
    half = plan_copies(scores, devices, budget, alpha, method="interleaved", head=budget // 2)
    yield "interleaved, half as head", half


def compare(name: str, graph: sp.Graph) -> list[Result]:
    """Every method on a graph, for all numbers of devices, budgets and alpha."""
    scores, partitions, results = out_degrees(graph), Partitions(graph), []
    for devices in DEVICES:
        parts = partitions.of(devices)
        for share, alpha in product(SHARES, ALPHAS):
            budget = max(1, int(share * graph.num_nodes))
            made = dict(plans(scores, devices, budget, alpha))
            made |= {kind: parts_plan(scores, one, devices, budget) for kind, one in parts.items()}
            costs = {method: cost(plan, scores, alpha) for method, plan in made.items()}
            for method, found in costs.items():
                over = found.mean / costs[BEST].mean if costs[BEST].mean else 1.0
                total = float(scores.sum())
                results.append(
                    Result(
                        *(name, devices, share, alpha, method),
                        mean=found.mean / total,
                        largest=found.largest / total,
                        mean_over_best=over,
                    )
                )
    return results


def time_planning(vertices: int, rounds: int, alpha: float = 0.3, devices: int = 8) -> list[Timing]:
    """Each method in turn with `np.argsort`, on random scores."""
    scores = np.random.default_rng(0).random(vertices)
    timings = []
    for share in SHARES:
        budget = int(share * vertices)
        calls: dict[str, Callable[[], object]] = {"np.argsort": partial(np.argsort, scores)}
        for method in METHODS:
            calls[method] = partial(plan_copies, scores, devices, budget, alpha, method=method)
        taken = [{name: _seconds(call) for name, call in calls.items()} for _ in range(rounds + 1)][1:]
        for name in calls:
            over = [one[name] / one["np.argsort"] for one in taken]
            timings.append(
                Timing(
                    *(vertices, devices, share, alpha, name),
                    seconds=statistics.median(one[name] for one in taken),
                    over_argsort=statistics.median(over),
                    least_over_argsort=min(over),
                    most_over_argsort=max(over),
                )
            )
    return timings


def time_beside_metis(name: str, graph: sp.Graph) -> list[BesideMetis]:
    """Scores and a plan of 5 % on 8 devices, by both methods that weigh copies, and METIS for as many parts."""

    def planned(method: str) -> CopyPlan:
        return plan_copies(out_degrees(graph), 8, max(1, graph.num_nodes // 20), 0.3, method=method)

    calls = {method: partial(planned, method) for method in (BEST, "song-jiang")}
    times = [BesideMetis(name, method, _seconds(call)) for method, call in calls.items()]
    try:
        return [*times, BesideMetis(name, "METIS", _seconds(partial(metis_partition, graph, 8)))]
    except MissingDependencyError:
        return times


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def summary_table(results: list[Result]) -> Table:
    """A row for each method on each graph: its mean over best-copies', and its largest device over its mean."""
    shown = Table("graph", "method", "mean over best-copies: least", "median", "most", "largest over mean: most")
    for graph in dict.fromkeys(one.graph for one in results):
        for method in dict.fromkeys(one.method for one in results):
            cells = [one for one in results if (one.graph, one.method) == (graph, method)]
            over = [one.mean_over_best for one in cells]
            uneven = max((one.largest / one.mean if one.mean else 1.0 for one in cells), default=1.0)
            if cells:
                figures = (f"{min(over):.6f}", f"{statistics.median(over):.4f}", f"{max(over):.4f}", f"{uneven:.4f}")
                shown.add_row(graph, method, *figures)
        shown.add_section()
    return shown


def timing_table(timings: list[Timing]) -> Table:
    """A row for each method and budget."""
    shown = Table("vertices", "budget", "method", "seconds", "time over np.argsort")
    for one in timings:
        over = f"{one.over_argsort:.2f} ({one.least_over_argsort:.2f} to {one.most_over_argsort:.2f})"
        shown.add_row(f"{one.vertices:,}", f"{one.share:.0%}", one.method, f"{one.seconds:.3f}", over)
    return shown


def beside_table(times: list[BesideMetis]) -> Table:
    """A row for each method and graph."""
    shown = Table("graph", "method", "seconds")
    for one in times:
        shown.add_row(one.graph, one.method, f"{one.seconds:.4f}")
    return shown


def plot(results: list[Result], path: Path) -> None:
    """Cost against alpha: a row of panels for each graph and budget, a line for each method; dashed: largest device."""
    plt = pyplot() if results else None
    if plt is None:
        return
    rows = list(dict.fromkeys((one.graph, one.share) for one in results))
    size = (4.5 * len(DEVICES), 3.2 * len(rows))
    figure, panels = plt.subplots(len(rows), len(DEVICES), figsize=size, layout="constrained", squeeze=False)
    for axes, ((graph, share), devices) in zip(panels.flat, product(rows, DEVICES), strict=True):
        cells = [one for one in results if (one.graph, one.share, one.devices) == (graph, share, devices)]
        for color, method in enumerate(dict.fromkeys(one.method for one in cells)):
            line = [one for one in cells if one.method == method]
            alphas, style = [one.alpha for one in line], {"color": f"C{color}", "markersize": 3}
            axes.plot(alphas, [one.mean for one in line], marker="o", label=method, **style)
            axes.plot(alphas, [one.largest for one in line], linestyle="--", linewidth=0.8, **style)
        axes.set(title=f"{graph}, {share:.0%}, {devices} devices", xscale="log", xlabel="alpha", ylabel="cost", ylim=0)
        axes.title.set_fontsize("small")
    panels.flat[0].legend(fontsize="xx-small")
    figure.suptitle("Cost of the rows needed, 1 = all from the host; dashed: the device that pays most")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def copies(
    graph: Annotated[list[str] | None, typer.Option(help=f"Or rmat:SCALE,EDGE_FACTOR. [{' '.join(GRAPHS)}]")] = None,
    vertices: Annotated[list[int] | None, typer.Option(help="Of the timed plans. [5000000 10000000]")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of the timed plans after the warm-up.")] = 5,
    graph_cache: Annotated[Path, typer.Option(help="Folder for the graphs.")] = Path("build/graphs"),
    out: Annotated[Path, typer.Option(help="Folder of copies.jsonl and copies.png.")] = Path("bench/results"),
) -> None:
    """Copies of feature rows over devices: what the plan of each method costs, and how long planning takes."""
    console = Console(width=140) if not sys.stdout.isatty() else Console()
    results, beside = [], []
    for name in graph or GRAPHS:
        folder = graph_folder(name, graph_cache)
        loaded = load(folder)
        results += compare(name, loaded)
        beside += time_beside_metis(name, loaded)
    timings = [one for count in vertices or (5_000_000, 10_000_000) for one in time_planning(count, rounds)]
    out.mkdir(parents=True, exist_ok=True)
    records = [
        {"kind": "machine", **machine_facts(1)},
        *({"kind": "cost", **asdict(one)} for one in results),
        *({"kind": "time", **asdict(one)} for one in timings),
        *({"kind": "time beside METIS", **asdict(one)} for one in beside),
    ]
    (out / "copies.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    console.print(summary_table(results))
    console.print(timing_table(timings))
    console.print(beside_table(beside))
    plot(results, out / "copies.png")
