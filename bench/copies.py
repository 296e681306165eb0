"""Plans of copies over devices: what each method's plan costs, and how long planning takes.

Scores are those of `posterior` for the GraphSAGE cell of `traces.py`: the probability that a batch needs a vertex. All
plans are paid by these scores, and made from them; what each plan costs in the run of the cell stands beside it. Beside
the methods of spsample:

- Partitions: each device keeps rows of its own part only, of random vertices, ranges, METIS or PaGraph, the hottest
  first. A part of PaGraph's has all vertices that its train vertices reach.
- Degree: rows of the largest out-degree, on every device, or in turn on one each. These plans do not know the scores.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from copies_bound import DEVICES as DEVICES_OF_BOUND
from copies_bound import Near, near
from copies_report import alpha_table, beside_table, bound_table, gap_table, plot, summary_table, timing_table
from copies_search import gaps
from copies_times import SHARES, BesidePartitions, seconds, time_beside_partitions, time_greedy, time_planning
from graphs import graph_folder
from machine_facts import machine_facts
from spsample.data import partition_vertices
from spsample.data.partition.reach import Reach
from spsample.errors import MissingDependencyError
from spsample.features import CopyPlan, plan_copies, score
from spsample.features.copies import METHODS, cost
from spsample.features.score_order import hottest
from traces import Cell, cell
from traffic_cells import load

ALPHAS = (0.1, 0.3, 0.5, 0.8, 1.0, 2.0)
DEVICES = (2, 4, 8)
GRAPHS = ("cnr2000", "ego_twitter", "tolokers", "musae_facebook", "rmat:20,16")
PARTS = {"random parts": "random", "ranges": "ranges", "METIS": "metis"}
PAGRAPH = "PaGraph"
BEST = "best-copies"
_LARGE = 10_000_000
_HOPS_HELP = "Of PaGraph's partition; 0 leaves it out. [3, and 2 from 10^7 edges on]"
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
    largest_over_best: float
    mean_in_run: float


class Needs:
    """How often rows are needed: by the scores that plans are made from, and in the run.

    Attributes
    ----------
    scores : float64 array (n,)
    in_run : int64 array (n,)
        Batches of the run that need each vertex.
    degrees : float64 array (n,)
        Edges that each vertex is the source of.
    seconds : float
        User time that the scores took.
    """

    def __init__(self, one: Cell, epochs: int) -> None:
        scored = partial(score, graph=one.graph, seeds=one.seeds, sampler=one.sampler, batch_size=one.batch_size)
        found: list[Scores] = []
        _, self.seconds = seconds(lambda: found.append(scored("posterior")))
        self.scores = found[0]
        self.in_run = one.counts(epochs)
        self.degrees: Scores = scored("out-degree")


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
            found[PAGRAPH] = self._pagraph(devices)
        return found

    def _pagraph(self, devices: int) -> list[NDArray[Any]]:
        """Each part with all that sampling from its train vertices reaches."""
        graph, seeds, hops = self._cell.graph, self._cell.seeds, self._hops
        parts = self._timed(PAGRAPH, lambda: partition_vertices(graph, devices, "pagraph", seeds=seeds, hops=hops))
        return [Reach.of(graph, seeds[parts[seeds] == device], hops).vertices for device in range(devices)]

    def _timed(self, kind: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        made: list[NDArray[Any]] = []
        _, self.seconds[kind] = seconds(lambda: made.append(make()))
        return made[0]


def parts_plan(scores: Scores, parts: list[NDArray[Any]], budget: int) -> CopyPlan:
    """Each device keeps the hottest vertices of its part."""
    return CopyPlan.of([one[hottest(scores[one], budget)] for one in parts], len(scores))


def plans(needs: Needs, devices: int, budget: int, alpha: float) -> dict[str, CopyPlan]:
    """The plan of each method of spsample; the interleaved one without a head and with one of half the budget."""

    def made(scores: Scores, method: str, head: int = 0) -> CopyPlan:
        return plan_copies(scores, devices, budget, alpha, method=method, head=head)

    own = {method: made(needs.scores, method) for method in METHODS}
    half = made(needs.scores, "interleaved", budget // 2)
    by_degree = {f"degree, {method}": made(needs.degrees, method) for method in ("replicated", "interleaved")}
    return own | {"interleaved, half as head": half} | by_degree


def compare(name: str, needs: Needs, partitions: Partitions) -> list[Result]:
    """Every method on a graph, for all numbers of devices, budgets and alpha."""
    results: list[Result] = []
    for devices in DEVICES:
        parts = partitions.of(devices)
        for share in SHARES:
            budget = max(1, int(share * len(needs.scores)))
            fixed = {kind: parts_plan(needs.scores, one, budget) for kind, one in parts.items()}
            for alpha in ALPHAS:
                made = plans(needs, devices, budget, alpha) | fixed
                results += _results((name, devices, share, alpha), made, needs)
    return results


def _results(where: tuple[str, int, float, float], made: dict[str, CopyPlan], needs: Needs) -> list[Result]:
    """The costs of plans for the same devices, budget and alpha."""
    alpha, total, in_run = where[-1], float(needs.scores.sum()), float(needs.in_run.sum())
    costs = {method: cost(plan, needs.scores, alpha) for method, plan in made.items()}
    best = costs[BEST]
    return [
        Result(
            *(*where, method),
            mean=found.mean / total,
            largest=found.largest / total,
            mean_over_best=found.mean / best.mean if best.mean else 1.0,
            largest_over_best=found.largest / best.largest if best.largest else 1.0,
            mean_in_run=cost(made[method], needs.in_run, alpha).mean / in_run,
        )
        for method, found in costs.items()
    ]


def copies(
    graph: Annotated[list[str] | None, typer.Option(help=f"Or rmat:SCALE,EDGE_FACTOR. [{' '.join(GRAPHS)}]")] = None,
    vertices: Annotated[list[int] | None, typer.Option(help="Of the timed plans. [5000000 10000000]")] = None,
    greedy_vertices: Annotated[int, typer.Option(help="Of the timed greedy plans.")] = 1_000_000,
    small_cases: Annotated[int, typer.Option(help="Greedy plans beside exhaustive search, of each kind.")] = 100,
    rounds: Annotated[int, typer.Option(help="Rounds of the timed plans after the warm-up.")] = 5,
    epochs: Annotated[int, typer.Option(help="Epochs of the run that plans are held against.")] = 20,
    pagraph_hops: Annotated[int | None, typer.Option(help=_HOPS_HELP)] = None,
    graph_cache: Annotated[Path, typer.Option(help="Folder for the graphs.")] = Path("build/graphs"),
    out: Annotated[Path, typer.Option(help="Folder of copies.jsonl and copies.png.")] = Path("bench/results"),
) -> None:
    """Copies of feature rows over devices: what the plan of each method costs, and how long planning takes."""
    console = Console(width=160) if not sys.stdout.isatty() else Console()
    timings = time_planning(vertices or (5_000_000, 10_000_000), rounds)
    timings += time_greedy(greedy_vertices, rounds)
    small, found = gaps(small_cases), Found()
    for name in graph or GRAPHS:
        found.add(name, cell(load(graph_folder(name, graph_cache)), "GraphSAGE"), epochs, pagraph_hops)
    records: dict[str, Sequence[Any]] = {
        "cost": found.costs,
        "greedy beside exhaustive search": small,
        "greedy beside a bound": found.bounds,
        "time": timings,
        "time beside partitions": found.beside,
    }
    lines = [{"record": "machine", **machine_facts(1)}]
    lines += [{"record": record, **asdict(one)} for record, measured in records.items() for one in measured]
    out.mkdir(parents=True, exist_ok=True)
    (out / "copies.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    console.print(summary_table(found.costs), alpha_table(found.costs, "song-jiang"))
    console.print(gap_table(small), bound_table(found.bounds))
    console.print(timing_table(timings), beside_table(found.beside))
    plot(found.costs, out / "copies.png")


@dataclass
class Found:
    """What was measured on graphs."""

    costs: list[Result] = field(default_factory=list)
    bounds: list[Near] = field(default_factory=list)
    beside: list[BesidePartitions] = field(default_factory=list)

    def add(self, name: str, one: Cell, epochs: int, pagraph_hops: int | None) -> None:
        """Measure on one more graph."""
        hops = (3 if one.graph.num_edges < _LARGE else 2) if pagraph_hops is None else pagraph_hops
        needs, partitions = Needs(one, epochs), Partitions(one, hops)
        self.costs += compare(name, needs, partitions)
        others = {"scores of posterior": needs.seconds, **partitions.seconds}  # those of the most devices
        self.beside += time_beside_partitions(name, needs.scores, others)
        if one.graph.num_edges < _LARGE:
            by_device = scores_of_parts(one, DEVICES_OF_BOUND)
            for share in SHARES:
                self.bounds += near(name, needs.scores, by_device, share)


def scores_of_parts(one: Cell, devices: int) -> Scores:
    """(devices, n) scores of batches whose seeds are of one part only: METIS's, or ranges where that is missing."""
    try:
        parts = partition_vertices(one.graph, devices, "metis")
    except MissingDependencyError:
        parts = partition_vertices(one.graph, devices, "ranges")
    seeds = [one.seeds[parts[one.seeds] == device] for device in range(devices)]
    return np.array([score("posterior", one.graph, mine, one.sampler, batch_size=one.batch_size) for mine in seeds])
