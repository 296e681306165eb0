"""Hits of static caches: each score beside the best set of the very run that is measured, on traced runs.

A cell is a graph and a sampler of `traces`. Its run is counted once, over 20 epochs, and so is a trial of other epochs;
every score is held against these counts. `replay` over the same epochs is the trace's own best set, so it has no line.
"""

from __future__ import annotations

import json
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
from cache_figures import plot_fanouts, plot_hits, plot_trials
from graphs import save
from machine_facts import machine_facts
from spsample.features import score
from spsample.features.score_order import highest
from spsample.features.scores.posterior import shrunk
from spsample.features.scores.visits import EpochVisits
from spsample.sparse import keys
from traces import EPOCHS, GRAPHS, SAMPLERS, Cell, cell

SHARES = (0.01, 0.05, 0.1, 0.2, 0.25, 0.5)
TRIAL_EPOCHS = 3
MOST_TRIAL_EPOCHS = 5
FANOUTS = (2, 4, 8, 16)
FANOUT_EPOCHS = 2
BEST, OURS = "best set", "posterior"
RIVALS = ("out-degree", "presc", "inclusion")
"""Scores that the posterior is never a point below."""

Counts = NDArray[np.int64]
Scores = NDArray[Any]


@dataclass(frozen=True)
class Hits:
    """The share of the rows of a run that a cache of a share of the vertices has."""

    graph: str
    sampler: str
    score: str
    share: float
    hits: float


@dataclass(frozen=True)
class Trial:
    """Hits of `presc` and `posterior` by the number of trial epochs, and how far below those of the best set."""

    graph: str
    sampler: str
    score: str
    epochs: int
    share: float
    hits: float
    below: float


@dataclass(frozen=True)
class Fanout:
    """The share of the rows of a run that the hottest vertices of a score have, by the fanout of three layers."""

    graph: str
    fanout: int
    score: str
    share: float
    hits: float
    touched: float


@dataclass(frozen=True)
class Seconds:
    """Time to compute a score; trial epochs that two scores share are counted for each."""

    graph: str
    sampler: str
    score: str
    seconds: float


@dataclass(frozen=True)
class Run:
    """What a run has: batches, and the mean share of the vertices that one touches."""

    graph: str
    sampler: str
    batches: int
    touched: float


class Measured:
    """A cell with the counts of its run and of its trial epochs, each read from `folder` where it is there."""

    def __init__(self, graph: str, sampler: str, made: Cell, epochs: int, folder: Path) -> None:
        self.graph, self.sampler, self.cell = graph, sampler, made
        self._folder, self._epochs = folder, epochs
        self.times: list[Seconds] = []

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return -(-len(self.cell.seeds) // self.cell.batch_size)

    def counts(self) -> Counts:
        """(n,) batches of the run that need each vertex."""
        return self._kept(f"run-{self._epochs}", partial(self.cell.counts, self._epochs))

    def trial(self, epoch: int) -> Counts:
        """(n,) batches of one trial epoch that need each vertex."""
        one = self.cell
        visits = EpochVisits(one.graph, one.seeds, one.sampler, one.batch_size, keys.trial_seed(0))
        return self._kept(f"trial-{epoch}", lambda: visits.count([epoch]))

    def trials(self, epochs: int) -> Counts:
        """(n,) batches of that many trial epochs: the score `presc`."""
        return np.sum([self.trial(epoch) for epoch in range(epochs)], axis=0)

    def named(self, name: str, **options: Any) -> Scores:
        """The scores of a name."""
        one, start = self.cell, time.perf_counter()
        found = score(name, one.graph, one.seeds, one.sampler, one.batch_size, **options)
        self._took(name, time.perf_counter() - start)
        return found

    def posterior(self, inclusion: Scores, epochs: int = TRIAL_EPOCHS) -> Scores:
        """The score `posterior`, of counts that are there."""
        return shrunk(self.trials(epochs), epochs * self.batches, inclusion)

    def _took(self, name: str, seconds: float) -> None:
        self.times.append(Seconds(self.graph, self.sampler, name, seconds))

    def _kept(self, name: str, count: Callable[[], Counts]) -> Counts:
        graph = self.graph.replace(":", "_").replace(",", "_")
        folder = self._folder / f"{graph}-{self.sampler}-{name}"
        if not folder.is_dir():
            start = time.perf_counter()
            counted = count()
            save(folder, counts=counted, seconds=np.array(time.perf_counter() - start))
        self._took(name, float(np.load(folder / "seconds.npy")))
        counts: Counts = np.load(folder / "counts.npy")
        return counts


def scores_of(one: Measured) -> dict[str, Scores]:
    """All scores of a cell."""
    inclusion = one.named("inclusion")
    weighted = {f"reverse-pagerank{word}": {"weighted": flag} for word, flag in (("", True), (" unweighted", False))}
    return {
        BEST: one.counts(),
        OURS: one.posterior(inclusion),
        "inclusion": inclusion,
        "presc": one.trials(TRIAL_EPOCHS),
        "out-degree": one.named("out-degree"),
        **{name: one.named("reverse-pagerank", **options) for name, options in weighted.items()},
        "aligraph": one.named("aligraph"),
        "random": one.named("random"),
    }


def hit_share(counts: Counts, scores: Scores, share: float) -> float:
    """The share of all rows that the vertices of the largest scores have."""
    kept = highest(scores, int(share * len(counts)))
    return float(counts[kept].sum() / max(counts.sum(), 1))


def measure(one: Measured) -> tuple[list[Hits], list[Trial]]:
    """Hits of all scores, and of trials of other lengths, in a cell."""
    counts, scores = one.counts(), scores_of(one)
    place = one.graph, one.sampler
    hits = [
        Hits(*place, name, share, hit_share(counts, scores[name], share)) for name, share in product(scores, SHARES)
    ]
    trials = []
    for epochs in range(1, MOST_TRIAL_EPOCHS + 1):
        by_name = {"presc": one.trials(epochs), OURS: one.posterior(scores["inclusion"], epochs)}
        for (name, found), share in product(by_name.items(), (0.05, 0.1, 0.2)):
            hit = hit_share(counts, found, share)
            trials.append(Trial(*place, name, epochs, share, hit, hit_share(counts, counts, share) - hit))
    return hits, trials


def by_fanout(name: str, graph: sp.Graph, seeds: Counts, folder: Path) -> Iterator[Fanout]:
    """The share of accesses of the hottest rows for fanouts (f, f, f)."""
    for fanout in FANOUTS:
        made = Cell(graph, seeds, sp.GraphSAGE([fanout] * 3), SAMPLERS["GraphSAGE"][1])
        one = Measured(name, f"fanout-{fanout}", made, FANOUT_EPOCHS, folder)
        counts = one.counts()
        touched = counts.sum() / (FANOUT_EPOCHS * one.batches * len(counts))
        scores = {BEST: counts} | {name: one.named(name) for name in ("inclusion", "reverse-pagerank", "out-degree")}
        for (label, found), share in product(scores.items(), (0.1, 0.25)):
            yield Fanout(name, fanout, label, share, hit_share(counts, found, share), float(touched))


def gaps(results: list[Hits]) -> Iterator[tuple[str, str, float, dict[str, float]]]:
    """For each cell and share: points that the best set has over the posterior, and the posterior over its rivals."""
    cells: dict[tuple[str, str, float], dict[str, float]] = {}
    for one in results:
        cells.setdefault((one.graph, one.sampler, one.share), {})[one.score] = 100 * one.hits
    for place, hits in cells.items():
        yield *place, {BEST: hits[BEST] - hits[OURS]} | {name: hits[OURS] - hits[name] for name in RIVALS}


def hits_table(results: list[Hits]) -> Table:
    """A row for each score and cell: hits in percent by the share of the rows that is cached."""
    shown = Table("graph", "sampler", "score", *(f"{share:.0%}" for share in SHARES))
    for place in dict.fromkeys((one.graph, one.sampler) for one in results):
        lines: dict[str, list[str]] = {}
        for one in results:
            if (one.graph, one.sampler) == place:
                lines.setdefault(one.score, []).append(f"{100 * one.hits:.1f}")
        for name, figures in lines.items():
            shown.add_row(*place, name, *figures)
        shown.add_section()
    return shown


def gaps_table(results: list[Hits]) -> Table:
    """A row for each cell: at most below the best set, and at least above each rival, over all shares, in points."""
    shown = Table("graph", "sampler", "below the best set", *(f"above {name}" for name in RIVALS))
    cells: dict[tuple[str, str], list[dict[str, float]]] = {}
    for graph, sampler, _, points in gaps(results):
        cells.setdefault((graph, sampler), []).append(points)
    for place, every in cells.items():
        least = (f"{min(points[name] for points in every):.2f}" for name in RIVALS)
        shown.add_row(*place, f"{max(points[BEST] for points in every):.2f}", *least)
    return shown


def cache_hits(
    graph: Annotated[list[str] | None, typer.Option(help=f"Or rmat:SCALE,EDGE_FACTOR. [{' '.join(GRAPHS)}]")] = None,
    epochs: Annotated[int, typer.Option(help="Of the run that is counted.")] = EPOCHS,
    trace_cache: Annotated[Path, typer.Option(help="Folder for counts.")] = Path("build/traces"),
    out: Annotated[Path, typer.Option(help="Folder of cache-hits.jsonl and the plots.")] = Path("bench/results"),
) -> None:
    """Hits of static caches for all scores, beside the best set of the run; by fanout, and by trial epochs."""
    console = Console(width=140) if not sys.stdout.isatty() else Console()
    hits: list[Hits] = []
    trials: list[Trial] = []
    records: list[Any] = []
    for name in graph or GRAPHS:
        first = cell(name, next(iter(SAMPLERS)))
        for sampler in SAMPLERS:
            one = Measured(name, sampler, cell(first.graph, sampler), epochs, trace_cache)
            new_hits, new_trials = measure(one)
            touched = one.counts().sum() / (epochs * one.batches * first.graph.num_nodes)
            records += [*new_hits, *new_trials, *one.times, Run(name, sampler, epochs * one.batches, float(touched))]
            hits, trials = hits + new_hits, trials + new_trials
            console.print(hits_table(new_hits))
        records += by_fanout(name, first.graph, first.seeds, trace_cache)
    out.mkdir(parents=True, exist_ok=True)
    lines = [{"kind": "machine", **machine_facts(1)}, *({"kind": type(one).__name__, **asdict(one)} for one in records)]
    (out / "cache-hits.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    console.print(gaps_table(hits))
    plot_hits(hits, out / "cache_hits.png")
    plot_trials(trials, out / "cache_trials.png")
    plot_fanouts([one for one in records if isinstance(one, Fanout)], out / "cache_fanouts.png")
