"""Loops that do nothing with a batch: a pass of a loader that may prefetch, over one that may not."""

from __future__ import annotations

import itertools
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import spsample as sp
from graphs import draw_seeds, graph_folder
from json_lines import append, read
from machine_facts import machine_facts

GRAPHS = ["rmat:12,16", "rmat:16,16", "grid:100"]
FEATURES = 64
"""Float32 numbers of a vertex, where there are features."""


class Cell(NamedTuple):
    """What a loader is asked for."""

    graph: str
    batch_size: int
    bulk_size: int
    features: bool


class Found(NamedTuple):
    """Milliseconds of a batch without prefetch; ratios over it with prefetch, and of the same loader once more.

    The second ratio has nothing to show but the noise of the first. Medians over rounds, and quartiles of the first;
    and whether the loader that may prefetch had threads.
    """

    plain_ms: float
    prefetch: float
    quartiles: tuple[float, float]
    again: float
    threads: bool


def light_loops(
    graph: Annotated[list[str] | None, typer.Option(help="Graph; may be repeated.")] = None,
    batch_size: Annotated[list[int] | None, typer.Option(help="b; may be repeated.")] = None,
    bulk_size: Annotated[list[int] | None, typer.Option(help="k; may be repeated.")] = None,
    batches: Annotated[int, typer.Option(help="Batches of a pass.")] = 64,
    threads: Annotated[int, typer.Option(help="Threads of the kernels.")] = 2,
    pass_ms: Annotated[float, typer.Option(help="A turn is so many passes that it takes as long.")] = 30,
    rounds: Annotated[int, typer.Option(help="Rounds, after passes in which the loader chooses.")] = 11,
    graph_cache: Annotated[Path, typer.Option(help="Where graphs are kept.")] = Path("build/graphs"),
    out: Annotated[Path, typer.Option(help="Folder of light_loops.jsonl; cells that are there are left out.")] = Path(
        "bench/results"
    ),
) -> None:
    """`for batch in loader: pass` with `prefetch=1`, over `prefetch=0`, and that over itself."""
    sp.set_num_threads(threads)
    path, machine = out / "light_loops.jsonl", machine_facts(threads)
    its_set = {"instruction_set": machine["instruction_set"]}
    known = [one for one in read(path) if one["kind"] == "result" and its_set.items() <= one.items()]
    done = {Cell(*(one[name] for name in Cell._fields)): one for one in known}
    append(path, [{"kind": "machine", **machine}])
    sizes = batch_size or [64, 256, 1024], bulk_size or [1, 8, 64]
    cells = [Cell(*cell) for cell in itertools.product(graph or GRAPHS, *sizes, (False, True))]
    for cell in cells:
        if cell not in done:
            found = Loops(cell, batches, graph_cache).found(rounds, pass_ms / 1000)
            done[cell] = {"kind": "result", **its_set, **cell._asdict(), "rounds": rounds, **found._asdict()}
            append(path, [done[cell]])
    console = Console(width=120) if not sys.stdout.isatty() else Console()
    console.print(_table(machine["instruction_set"], [done[cell] for cell in cells]))


class Loops:
    """The loaders of a cell: without prefetch, once more without, and with."""

    def __init__(self, cell: Cell, batches: int, cache: Path) -> None:
        folder = graph_folder(cell.graph, cache)
        graph = sp.Graph(np.load(folder / "indptr.npy"), np.load(folder / "indices.npy"))
        rng = np.random.default_rng(0)
        rows = rng.random((graph.num_nodes, FEATURES), np.float32) if cell.features else None
        seeds = draw_seeds(graph.indptr, batches, cell.batch_size).ravel()
        sizes = {"batch_size": cell.batch_size, "bulk_size": cell.bulk_size, "features": rows, "shuffle": False}
        self.loaders = [
            sp.BulkLoader(graph, seeds, sp.GraphSAGE([15, 10, 5]), prefetch=ahead, **sizes) for ahead in (0, 0, 1)
        ]

    def found(self, rounds: int, turn_seconds: float) -> Found:
        """Rounds of turns, each with another order."""
        plain, _, ahead = self.loaders
        deadline = time.perf_counter() + 2.0  # for the loader to choose; it looks again only at another loop
        while time.perf_counter() < deadline:
            _seconds(ahead, 1)
        passes = max(1, round(turn_seconds / _seconds(plain, 1)))
        orders, turns = list(itertools.permutations(range(3))), []
        for round_ in range(rounds):
            taken = [0.0, 0.0, 0.0]
            for one in orders[round_ % len(orders)]:
                taken[one] = _seconds(self.loaders[one], passes)
            turns.append(taken)
        over = [taken[2] / taken[0] for taken in turns]
        low, _, high = statistics.quantiles(over, n=4) if rounds > 1 else (over[0],) * 3
        batches = passes * len(plain)
        return Found(
            plain_ms=1000 * statistics.median(taken[0] for taken in turns) / batches,
            prefetch=statistics.median(over),
            quartiles=(low, high),
            again=statistics.median(taken[1] / taken[0] for taken in turns),
            threads=_has_threads(ahead),
        )


def _seconds(loader: sp.BulkLoader, passes: int) -> float:
    start = time.perf_counter()
    for _ in range(passes):
        for _batch in loader:
            pass
    return time.perf_counter() - start


def _has_threads(loader: sp.BulkLoader) -> bool:
    before = threading.active_count()
    return any(threading.active_count() > before for _batch in loader)


def _table(instruction_set: str, records: list[dict[str, Any]]) -> Table:
    table = Table(title=f"Light loops, {instruction_set}: over the time without prefetch")
    for name in ("graph", "b", "k", "features", "ms a batch", "with prefetch", "quartiles", "itself again", "threads"):
        table.add_column(name, justify="left" if name == "graph" else "right")
    for one in records:
        low, high = one["quartiles"]
        cell = [one["graph"], *(str(one[name]) for name in ("batch_size", "bulk_size", "features"))]
        ratios = [f"{one['prefetch']:.2f}", f"{low:.2f} to {high:.2f}", f"{one['again']:.2f}"]
        table.add_row(*cell, f"{one['plain_ms']:.3f}", *ratios, str(one["threads"]))
    return table
