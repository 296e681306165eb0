"""Plans of copies over devices: what each method's plan costs, and how long planning takes.

Scores are those of `posterior` for the GraphSAGE cell of `traces.py`: the probability that a batch needs a vertex. All
methods plan by the same scores and pay by them; what each plan costs in the run of the cell stands beside it. Beside
the methods of spsample, partitions: each device keeps rows of its own part only, of random vertices, ranges, METIS or
PaGraph, the hottest first. A part of PaGraph's has all vertices that its train vertices reach.

Planning takes turns with `np.argsort` of as many random scores; the first round is a discarded warm-up. User time
leaves out what the system takes to hand out memory.
"""

from __future__ import annotations

import json
import resource
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

from figures import pyplot
from graphs import graph_folder
from machine_facts import machine_facts
from spsample.data import partition_vertices
from spsample.data.partition.reach import Reach
from spsample.errors import MissingDependencyError
from spsample.features import CopyPlan, plan_copies, score
from spsample.features.copies import METHODS, cost
from spsample.features.copies.order import hottest
from traces import Cell, cell
from traffic_cells import load

ALPHAS = (0.1, 0.3, 0.5, 0.8, 1.0, 2.0)
DEVICES = (2, 4, 8)
SHARES = (0.05, 0.2)
GRAPHS = ("cnr2000", "ego_twitter", "tolokers", "musae_facebook", "rmat:20,16")
PARTS = {"random parts": "random", "ranges": "ranges", "METIS": "metis"}
BEST = "best-copies"
Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """Cost of one plan, in rows from the host over the rows that are needed, and over that of `best-copies`.

    `mean_in_run` counts what the batches of the run needed, which the plan did not know.
    """

    graph: str
    devices: int
    share: float
    alpha: float
    method: str
    mean: float
    largest: float
    mean_over_best: float
    mean_in_run: float


@dataclass(frozen=True)
class Timing:
    """Median seconds of planning; user time over that of `np.argsort` of the scores in the same round."""

    vertices: int
    devices: int
    share: float
    alpha: float
    method: str
    seconds: float
    user_seconds: float
    over_argsort: float
    least_over_argsort: float
    most_over_argsort: float


@dataclass(frozen=True)
class BesidePartitions:
    """Seconds of scores, of one plan, or of one partition, for 8 devices on a graph."""

    graph: str
    what: str
    seconds: float


class Needs:
    """How often rows are needed: by the scores that plans are made from, and in the run.

    Attributes
    ----------
    scores : float64 array (n,)
    in_run : int64 array (n,)
        Batches of the run that need each vertex.
    seconds : float
        Time that the scores took.
    """

    def __init__(self, one: Cell, epochs: int) -> None:
        start = time.perf_counter()
        self.scores: Scores = score("posterior", one.graph, one.seeds, one.sampler, batch_size=one.batch_size)
        self.seconds = time.perf_counter() - start
        self.in_run = one.counts(epochs)


class Partitions:
    """The vertices of each part of a graph, by kind and number of parts; METIS is left out where it is missing."""

    def __init__(self, one: Cell, pagraph_hops: int) -> None:
        self._cell = one
        self._hops = pagraph_hops
        self.seconds: dict[str, float] = {}

    def of(self, devices: int) -> dict[str, list[NDArray[Any]]]:
        """By kind the vertices of each part, one part for each device."""
        found = {}
        for kind, method in PARTS.items():
            try:
                parts = self._timed(kind, lambda method=method: partition_vertices(self._cell.graph, devices, method))
            except MissingDependencyError as error:
                print(f"{kind}: missing ({error})", file=sys.stderr)
                continue
            found[kind] = [np.flatnonzero(parts == device) for device in range(devices)]
        if self._hops:
            found[f"PaGraph, {self._hops} hops"] = self._pagraph(devices)
        return found

    def _pagraph(self, devices: int) -> list[NDArray[Any]]:
        """Each part with all that sampling from its train vertices reaches."""
        graph, seeds, hops = self._cell.graph, self._cell.seeds, self._hops
        kind = f"PaGraph, {hops} hops"
        parts = self._timed(kind, lambda: partition_vertices(graph, devices, "pagraph", seeds=seeds, hops=hops))
        return [Reach.of(graph, seeds[parts[seeds] == device], hops).vertices for device in range(devices)]

    def _timed(self, kind: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        start = time.perf_counter()
        made = make()
        self.seconds[kind] = time.perf_counter() - start
        return made


def parts_plan(scores: Scores, parts: list[NDArray[Any]], budget: int) -> CopyPlan:
    """Each device keeps the hottest vertices of its part."""
    return CopyPlan.of([one[hottest(scores[one], budget)] for one in parts], len(scores))


def plans(scores: Scores, devices: int, budget: int, alpha: float) -> Iterator[tuple[str, CopyPlan]]:
    """The plan of each method of spsample; the interleaved one without a head and with one of half the budget."""
    for method in METHODS:
        yield method, plan_copies(scores, devices, budget, alpha, method=method)
    half = plan_copies(scores, devices, budget, alpha, method="interleaved", head=budget // 2)
    yield "interleaved, half as head", half


def compare(name: str, needs: Needs, partitions: Partitions) -> list[Result]:
    """Every method on a graph, for all numbers of devices, budgets and alpha."""
    results: list[Result] = []
    for devices in DEVICES:
        parts = partitions.of(devices)
        for share in SHARES:
            budget = max(1, int(share * len(needs.scores)))
            fixed = {kind: parts_plan(needs.scores, one, budget) for kind, one in parts.items()}
            for alpha in ALPHAS:
                made = dict(plans(needs.scores, devices, budget, alpha)) | fixed
                results += _results((name, devices, share, alpha), made, needs)
    return results


def _results(where: tuple[str, int, float, float], made: dict[str, CopyPlan], needs: Needs) -> list[Result]:
    """The costs of plans for the same devices, budget and alpha."""
    alpha, total, in_run = where[-1], float(needs.scores.sum()), float(needs.in_run.sum())
    costs = {method: cost(plan, needs.scores, alpha) for method, plan in made.items()}
    best = costs[BEST].mean
    return [
        Result(
            *(*where, method),
            mean=found.mean / total,
            largest=found.largest / total,
            mean_over_best=found.mean / best if best else 1.0,
            mean_in_run=cost(made[method], needs.in_run, alpha).mean / in_run,
        )
        for method, found in costs.items()
    ]


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
            over = [one[name][1] / one["np.argsort"][1] for one in taken]
            timings.append(
                Timing(
                    *(vertices, devices, share, alpha, name),
                    seconds=statistics.median(one[name][0] for one in taken),
                    user_seconds=statistics.median(one[name][1] for one in taken),
                    over_argsort=statistics.median(over),
                    least_over_argsort=min(over),
                    most_over_argsort=max(over),
                )
            )
    return timings


def time_beside_partitions(name: str, needs: Needs, partitions: Partitions) -> list[BesidePartitions]:
    """Scores, a plan of 5 % on 8 devices by each method, and partitions into as many parts."""
    budget = max(1, len(needs.scores) // 20)
    times = [BesidePartitions(name, "the scores of posterior", needs.seconds)]
    for method in METHODS:
        seconds, _ = _seconds(partial(plan_copies, needs.scores, 8, budget, 0.3, method=method))
        times.append(BesidePartitions(name, method, seconds))
    partitions.of(8)
    return [*times, *(BesidePartitions(name, kind, seconds) for kind, seconds in partitions.seconds.items())]


def _seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Time on the clock, and time of this process as a user."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    start = time.perf_counter()
    call()
    return time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_utime - used


def summary_table(results: list[Result]) -> Table:
    """A row for each method on each graph: its mean over best-copies', and its largest device over its mean."""
    shown = Table(
        "graph", "method", "mean over best-copies: least", "median", "most", "in the run: median", "largest/mean"
    )
    for graph in dict.fromkeys(one.graph for one in results):
        best = {_place(one): one for one in results if (one.graph, one.method) == (graph, BEST)}
        for method in dict.fromkeys(one.method for one in results):
            cells = [one for one in results if (one.graph, one.method) == (graph, method)]
            over = [one.mean_over_best for one in cells]
            in_run = [one.mean_in_run / (best[_place(one)].mean_in_run or 1.0) for one in cells]
            uneven = max((one.largest / one.mean if one.mean else 1.0 for one in cells), default=1.0)
            if cells:
                figures = (*map(statistics.median, (over, in_run)), max(over), uneven)
                median, run_median, most, largest = (f"{one:.4f}" for one in figures)
                shown.add_row(graph, method, f"{min(over):.9f}", median, most, run_median, largest)
        shown.add_section()
    return shown


def _place(one: Result) -> tuple[int, float, float]:
    return one.devices, one.share, one.alpha


def alpha_table(results: list[Result], method: str) -> Table:
    """Mean of one method over best-copies', least to most of all graphs and budgets, by devices and alpha."""
    shown = Table(f"{method}: devices", *(f"alpha {alpha}" for alpha in ALPHAS))
    for devices in DEVICES:
        row = []
        for alpha in ALPHAS:
            where = (method, devices, alpha)
            over = [one.mean_over_best for one in results if (one.method, one.devices, one.alpha) == where]
            row.append(f"{min(over):.3f} to {max(over):.3f}" if over else "")
        shown.add_row(str(devices), *row)
    return shown


def timing_table(timings: list[Timing]) -> Table:
    """A row for each method and budget."""
    shown = Table("vertices", "budget", "method", "seconds", "user", "user over np.argsort", "over half the vertices")
    halves = {(one.vertices, one.share, one.method): one.user_seconds for one in timings}
    for one in timings:
        over = f"{one.over_argsort:.2f} ({one.least_over_argsort:.2f} to {one.most_over_argsort:.2f})"
        half = halves.get((one.vertices // 2, one.share, one.method))
        growth = f"{one.user_seconds / half:.2f}" if half else ""
        seconds = f"{one.seconds:.3f}", f"{one.user_seconds:.3f}"
        shown.add_row(f"{one.vertices:,}", f"{one.share:.0%}", one.method, *seconds, over, growth)
    return shown


def beside_table(times: list[BesidePartitions]) -> Table:
    """A row for each method and graph."""
    shown = Table("graph", "what", "seconds")
    for one in times:
        shown.add_row(one.graph, one.what, f"{one.seconds:.4f}")
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


def time_greedy(vertices: int, devices: int = 8) -> list[Timing]:
    """Greedy plans: of links that differ, of scores that differ by device, and of both."""
    rng = np.random.default_rng(0)
    scores = rng.permutation(np.arange(1, vertices + 1) ** -0.8)
    by_device, groups = scores * rng.random((devices, vertices)), np.eye(2)
    links = np.kron(groups, np.full((devices // 2,) * 2, 0.2)) + np.kron(1 - groups, np.full((devices // 2,) * 2, 0.6))
    cases = {"greedy, links": (scores, links), "greedy, scores": (by_device, 0.3), "greedy, both": (by_device, links)}
    argsort = _seconds(partial(np.argsort, scores))[1]
    timings = []
    for share, (name, (needed, alpha)) in product(SHARES, cases.items()):
        seconds, user = _seconds(partial(plan_copies, needed, devices, int(share * vertices), alpha))
        over = user / argsort if argsort else float("nan")
        timings.append(Timing(vertices, devices, share, 0.0, name, seconds, user, over, over, over))
    return timings


def copies(
    graph: Annotated[list[str] | None, typer.Option(help=f"Or rmat:SCALE,EDGE_FACTOR. [{' '.join(GRAPHS)}]")] = None,
    vertices: Annotated[list[int] | None, typer.Option(help="Of the timed plans. [5000000 10000000]")] = None,
    greedy_vertices: Annotated[int, typer.Option(help="Of the timed greedy plans.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Rounds of the timed plans after the warm-up.")] = 5,
    epochs: Annotated[int, typer.Option(help="Epochs of the run that plans are held against.")] = 20,
    pagraph_hops: Annotated[int, typer.Option(help="Of PaGraph's partition; 0 leaves it out.")] = 3,
    graph_cache: Annotated[Path, typer.Option(help="Folder for the graphs.")] = Path("build/graphs"),
    out: Annotated[Path, typer.Option(help="Folder of copies.jsonl and copies.png.")] = Path("bench/results"),
) -> None:
    """Copies of feature rows over devices: what the plan of each method costs, and how long planning takes."""
    console = Console(width=140) if not sys.stdout.isatty() else Console()
    results, beside = [], []
    for name in graph or GRAPHS:
        one = cell(load(graph_folder(name, graph_cache)), "GraphSAGE")
        needs, partitions = Needs(one, epochs), Partitions(one, pagraph_hops)
        results += compare(name, needs, partitions)
        beside += time_beside_partitions(name, needs, partitions)
    timings = [one for count in vertices or (5_000_000, 10_000_000) for one in time_planning(count, rounds)]
    timings += time_greedy(greedy_vertices)
    out.mkdir(parents=True, exist_ok=True)
    records = [
        {"kind": "machine", **machine_facts(1)},
        *({"kind": "cost", **asdict(one)} for one in results),
        *({"kind": "time", **asdict(one)} for one in timings),
        *({"kind": "time beside partitions", **asdict(one)} for one in beside),
    ]
    (out / "copies.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    for shown in (
        summary_table(results),
        alpha_table(results, "song-jiang"),
        timing_table(timings),
        beside_table(beside),
    ):
        console.print(shown)
    plot(results, out / "copies.png")
