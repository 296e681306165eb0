"""Bytes of features that ranks receive in a step: what a report forecasts of trial epochs, beside what a run receives.

The cache is chosen by the score `posterior`, of trial epochs of its own. The forecast is of other trial epochs, the run
of the epochs of training: ranks are threads whose communicators record.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import spsample as sp
from machine_facts import machine_facts
from spsample.advice.received import Grid, MissesOf, lookahead_misses, received_bytes, static_misses
from spsample.advice.trial import Workload, run_trial
from spsample.comm import Recorder, run_threads
from spsample.features import CachedFeatures, PartitionedFeatures, score
from spsample.features.caching.replacement import replacement_named
from traces import Cell, cell

DIM = 16
PHASES = ("features", "features requests")
BUDGETS = (0.0, 0.1)


@dataclass(frozen=True)
class Received:
    """One setting: mean bytes of a step, and the rank whose forecast is farthest off."""

    graph: str
    ranks: int
    replication: int
    cache: str
    forecast: float
    received: float
    farthest: float


def run(one: Cell, grid: Grid, cache: str, scores: NDArray[np.float64], epochs: int) -> NDArray[np.float64]:
    """(p,) bytes of a step that the ranks receive."""
    n = one.graph.num_nodes
    batches = list(one.batches(epochs))
    x = np.random.default_rng(0).random((n, DIM), np.float32)
    steps = len(batches) // grid.ranks
    bulk = max(16 // grid.ranks, 1)

    def body(comm: object) -> float:
        recorder = Recorder(comm)  # type: ignore[arg-type]
        source = PartitionedFeatures.of(x, sp.ProcessGrid(recorder, grid.replication), partition=grid.parts)
        mine = batches[recorder.rank :: grid.ranks][:steps]
        cached = _cached(source, cache, scores)
        before = _bytes_of(recorder)
        for first in range(0, steps, bulk):
            if cache == "lookahead":
                known = mine[: 2 * bulk] if first == 0 else mine[first + bulk : first + 2 * bulk]
                cached.announce(known)
            for batch in mine[first : first + bulk]:
                cached.gather(batch)
        return (_bytes_of(recorder) - before) / steps

    return np.array(run_threads(grid.ranks, body))


def _cached(source: PartitionedFeatures, cache: str, scores: NDArray[np.float64]) -> CachedFeatures:
    if cache == "none":
        return CachedFeatures(source, 0, scores)
    n = source.num_rows
    wanted = int(BUDGETS[-1] * n)
    of_all, of_each = replacement_named(cache).map_bytes(n)
    return CachedFeatures(source, wanted * (source.row_bytes + of_each) + of_all, scores, replacement=cache)


def _bytes_of(recorder: Recorder) -> int:
    phases = recorder.traffic.phases
    return sum(phases[name].bytes_received for name in PHASES if name in phases)


def forecast(one: Cell, grid: Grid, cache: str, scores: NDArray[np.float64], epochs: int) -> NDArray[np.float64]:
    """(p,) of trial epochs."""
    workload = Workload(one.graph, one.seeds, one.sampler, one.batch_size, grid.row_bytes, bulk_size=16)
    trial = run_trial(workload, epochs)
    batches = [trial.batches[rank :: grid.ranks] for rank in range(grid.ranks)]
    n = one.graph.num_nodes
    wanted = int(BUDGETS[-1] * n)
    held = np.zeros(n, np.bool_)
    if cache == "static":
        held[np.argsort(-scores, kind="stable")[:wanted]] = True
    misses: MissesOf = static_misses(held)
    if cache == "lookahead":
        misses = lookahead_misses(scores, wanted, max(16 // grid.ranks, 1))
    return received_bytes(grid, batches, [misses] * grid.ranks)


def compare(name: str, epochs: int, ranks: list[int]) -> list[Received]:
    """All settings on one graph."""
    one = cell(name, "GraphSAGE")
    scores = score("posterior", one.graph, one.seeds, one.sampler, one.batch_size)
    found = []
    for p, c, cache in product(ranks, (1, 2), ("none", "static", "lookahead")):
        bounds = np.linspace(0, one.graph.num_nodes, p // c + 1).astype(np.int64)
        parts = np.repeat(np.arange(p // c), np.diff(bounds))
        grid = Grid(p, c, parts, 4 * DIM)
        expected, received = forecast(one, grid, cache, scores, epochs), run(one, grid, cache, scores, epochs)
        farthest = float(np.abs(expected / np.maximum(received, 1.0) - 1.0).max())
        found.append(Received(name, p, c, cache, float(expected.mean()), float(received.mean()), farthest))
    return found


def received(
    graph: Annotated[list[str] | None, typer.Option(help="[cnr2000 ego_twitter]")] = None,
    ranks: Annotated[list[int] | None, typer.Option(help="[4 8]")] = None,
    epochs: Annotated[int, typer.Option(help="Epochs of the trial, and of the run.")] = 6,
    out: Annotated[Path, typer.Option(help="Folder of received.jsonl.")] = Path("bench/results"),
) -> None:
    """Bytes of features that ranks receive in a step: forecast and recorded."""
    results = [one for name in graph or ["cnr2000", "ego_twitter"] for one in compare(name, epochs, ranks or [4, 8])]
    shown = Table("graph", "p", "c", "cache of 10 %", "forecast, KiB", "received, KiB", "farthest rank")
    for one in results:
        kib = (f"{one.forecast / 1024:,.1f}", f"{one.received / 1024:,.1f}")
        shown.add_row(one.graph, str(one.ranks), str(one.replication), one.cache, *kib, f"{one.farthest:.2%}")
    (Console(width=140) if not sys.stdout.isatty() else Console()).print(shown)
    out.mkdir(parents=True, exist_ok=True)
    records = [{"kind": "machine", **machine_facts(1)}, *({"kind": "received", **asdict(one)} for one in results)]
    (out / "received.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
