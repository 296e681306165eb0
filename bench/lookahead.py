"""Caches that look ahead: their hits beside a static set of the same score, what deciding costs, fetches by the bulk.

A cell is a graph and a sampler of `traces.py`. Its batches are known a bulk ahead: when a batch is decided on, its own
bulk and the next one are known. Bookkeeping takes turns with gathering the same rows from memory.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from figures import pyplot
from lookahead_measures import (
    Bookkeeping,
    Exchange,
    Hits,
    Loaded,
    Trace,
    measure_bookkeeping,
    measure_exchange,
    measure_hits,
    measure_loader,
)
from machine_facts import machine_facts
from traces import EPOCHS, GRAPHS, SAMPLERS, cell

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
BULK_SIZES = {"GraphSAGE": 16, "LADIES": 64, "FastGCN": 64}
CURVE = (1, 4, 16, 64)
"""Batches of a bulk, at a tenth of the rows."""
EXCHANGES = (1, 2, 4, 8, 16)


def hits_table(results: Sequence[Hits]) -> Table:
    """A row for each cell, score and share."""
    shown = Table("graph", "sampler", "score", "rows kept", "k", "static", "lookahead", "misses over static")
    for one in results:
        shown.add_row(
            *(one.graph, one.sampler, one.score, f"{one.share:.0%}", str(one.bulk_size)),
            *(f"{one.static:.1%}", f"{one.lookahead:.1%}", f"{one.misses:.3f}"),
        )
    return shown


def bookkeeping_table(results: Sequence[Bookkeeping]) -> Table:
    """A row for each cell: medians, and the spread of the ratio."""
    shown = Table("graph", "sampler", "k", "batches a turn", "gather, ns a row", "decide, ns a row", "share (spread)")
    for name in dict.fromkeys((one.graph, one.sampler, one.bulk_size, one.turn) for one in results):
        of = [one for one in results if (one.graph, one.sampler, one.bulk_size, one.turn) == name]
        shares = [one.share for one in of]
        gather, decide = (statistics.median(getattr(one, what) for one in of) for what in ("gather", "decide"))
        spread = f"{statistics.median(shares):.3f} ({min(shares):.3f} to {max(shares):.3f})"
        shown.add_row(*map(str, name), f"{gather:.1f}", f"{decide:.1f}", spread)
    return shown


def loaded_table(results: Sequence[Loaded]) -> Table:
    """A row for each cell."""
    shown = Table("graph", "sampler", "rows kept", "k", "batches an epoch", "a loader's misses over static")
    for one in results:
        shown.add_row(
            one.graph, one.sampler, f"{one.share:.0%}", str(one.bulk_size), str(one.batches), f"{one.misses:.3f}"
        )
    return shown


def exchange_table(results: Sequence[Exchange]) -> Table:
    """A row for each bulk size: the rank that receives most, and the forecasts that are farthest off."""
    shown = Table("graph", "ranks", "k of a rank", "MiB received", "messages", "forecast", "bytes over forecast")
    for size in dict.fromkeys(one.batches_per_bulk for one in results):
        of = [one for one in results if one.batches_per_bulk == size]
        most, over = max(of, key=lambda one: one.bytes), [one.over_forecast for one in of]
        shown.add_row(
            *(most.graph, str(most.ranks), str(size), f"{most.bytes / 2**20:.1f}", str(most.messages)),
            *(str(most.forecast_messages), f"{min(over):.3f} to {max(over):.3f}"),
        )
    return shown


def plot(results: Sequence[Hits], path: Path) -> None:
    """Misses over those of the best static set against the batches of a bulk: a panel a graph, a line a sampler."""
    plt = pyplot() if results else None
    if plt is None:
        return
    chosen = [one for one in results if one.score == "trace" and one.share == 0.1]
    graphs = list(dict.fromkeys(one.graph for one in chosen))
    figure, panels = plt.subplots(
        1, len(graphs), figsize=(2.5 * len(graphs) + 1, 3.2), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, graph in zip(panels[0], graphs, strict=True):
        for kind in dict.fromkeys(one.sampler for one in chosen):
            line = sorted((one.bulk_size, one.misses) for one in chosen if (one.graph, one.sampler) == (graph, kind))
            if line:
                axes.plot(*zip(*line, strict=True), marker="o", markersize=3, label=kind)
        axes.set_xscale("log", base=2)
        axes.set_xticks(CURVE, [str(size) for size in CURVE])
        axes.set(title=graph, xlabel="batches of a bulk (k)")
        axes.grid(alpha=0.3)
    panels[0][0].set_ylabel("misses over those\nof the best static set")
    panels[0][0].legend(fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def lookahead(
    graph: Annotated[list[str] | None, typer.Option(help=f"Or rmat:SCALE,EDGE_FACTOR. [{' '.join(GRAPHS)}]")] = None,
    sampler: Annotated[list[str] | None, typer.Option(help=f"[{' '.join(SAMPLERS)}]")] = None,
    epochs: Annotated[int, typer.Option(help="Epochs over which hits are counted.")] = EPOCHS,
    hits: Annotated[bool, typer.Option(help="Count hits.")] = True,
    rounds: Annotated[int, typer.Option(help="Rounds of the bookkeeping after the warm-up; 0: leave it out.")] = 5,
    ranks: Annotated[int, typer.Option(help="Threads that are ranks, for fetches by the bulk; 0: leave them out.")] = 4,
    batch_size: Annotated[int, typer.Option(help="Seeds of a batch on ranks.")] = 256,
    out: Annotated[Path, typer.Option(help="Folder of lookahead.jsonl and lookahead.png.")] = Path("bench/results"),
) -> None:
    """Rows kept by next use: hits beside a static set, the cost of deciding, and fetches by the bulk on ranks."""
    console = Console(width=140) if not sys.stdout.isatty() else Console()
    found: list[Hits] = []
    loaded: list[Loaded] = []
    times: list[Bookkeeping] = []
    exchanges: list[Exchange] = []
    for name, kind in product(graph or GRAPHS, sampler or SAMPLERS):
        one, k = cell(name, kind), BULK_SIZES[kind]
        trace = Trace.of(one, epochs)
        if hits:
            of_cell = list(measure_hits((name, kind), one, trace, SHARES, [k]))
            of_cell += measure_hits((name, kind), one, trace, [0.1], [size for size in CURVE if size != k])
            loaded.append(measure_loader((name, kind), one, trace, k))
            found += of_cell
            console.print(hits_table(of_cell))
        if rounds:
            times += measure_bookkeeping((name, kind), Trace(trace.batches[: 16 * k], trace.counts), k, rounds)
    if ranks:
        first, kind = (graph or GRAPHS)[0], (sampler or list(SAMPLERS))[0]
        small = replace(cell(first, kind), batch_size=batch_size)
        exchanges = measure_exchange(first, small, ranks, EXCHANGES)
    out.mkdir(parents=True, exist_ok=True)
    records = [{"kind": "machine", **machine_facts(1)}]
    for kind_of, results in (("hits", found), ("loader", loaded), ("bookkeeping", times), ("exchange", exchanges)):
        records += [{"kind": kind_of, **asdict(result)} for result in results]
    (out / "lookahead.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    for table in (loaded_table(loaded), bookkeeping_table(times), exchange_table(exchanges)):
        console.print(table)
    plot(found, out / "lookahead.png")
