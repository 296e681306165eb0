"""Locality-aware sampling and features aggregated once: rows that are fetched, the shift of the draw.

The cache holds a tenth of the rows, those of the largest score `posterior` of the sampler without preference.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import spsample as sp
from machine_facts import machine_facts
from spsample.features import draw_shift, score
from traces import Cell, cell

FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0)
SHARE = 0.1


@dataclass(frozen=True)
class Fetched:
    """One factor: rows that miss over those of factor 1, the shift of the draw, time of sampling over factor 1's."""

    graph: str
    factor: float
    rows: float
    all_rows: float
    total_variation: float
    largest_total_variation: float
    inclusion: float
    time: float


@dataclass(frozen=True)
class Precomputed:
    """What a batch needs with A x, over without: vertices, edges, bytes of their rows, time of sampling."""

    graph: str
    sampler: str
    rows: float
    edges: float
    bytes: float
    time: float


def hottest(one: Cell) -> NDArray[np.int64]:
    """The vertices that a cache of a tenth of the rows holds."""
    scores = score("posterior", one.graph, one.seeds, one.sampler, one.batch_size)
    return np.argsort(-scores, kind="stable")[: int(SHARE * one.graph.num_nodes)]


def sampled(one: Cell, epochs: int) -> tuple[int, int, float]:
    """Src vertices and edges of all batches of the epochs, and seconds of sampling."""
    loader = one.loader(prefetch=0)
    rows = edges = 0
    begin = time.perf_counter()
    for epoch in range(epochs):
        for bulk in loader.bulks(epoch):
            edges += bulk.num_edges
            rows += sum(len(batch.src_nodes) for batch in bulk)
    return rows, edges, time.perf_counter() - begin


def fetched(name: str, epochs: int, rounds: int) -> Iterator[Fetched]:
    """Each factor in turn, in each round."""
    plain = cell(name, "GraphSAGE")
    cached = hottest(plain)
    samplers = {f: sp.Biased(plain.sampler, cached, f) for f in FACTORS}
    cells = {f: replace(plain, sampler=sampler) for f, sampler in samplers.items()}
    runs = [{f: sampled(one, epochs) for f, one in cells.items()} for _ in range(rounds + 1)][1:]
    first: Any = None
    for factor, one in cells.items():
        shift = draw_shift(one.graph, one.seeds, samplers[factor], one.batch_size, epochs=epochs)
        first = shift.biased_rows if first is None else first
        yield Fetched(
            *(name, factor, shift.biased_rows / first, runs[0][factor][0] / runs[0][1.0][0]),
            *shift[:3],
            time=statistics.median(run[factor][2] / run[1.0][2] for run in runs),
        )


def precomputed(name: str, sampler: str, epochs: int) -> Precomputed:
    """The layer farthest from the seeds left out; rows twice as wide, as GraphSAGE's (x, A x) is."""
    plain = cell(name, sampler)
    shorter = replace(plain, sampler=plain.sampler.with_sizes(plain.sampler.sizes[:-1]))
    before, after = sampled(plain, epochs), sampled(shorter, epochs)
    rows, edges, seconds = (b / a for a, b in zip(before, after, strict=True))
    return Precomputed(name, sampler, rows, edges, 2 * rows, seconds)


def table(title: str, records: list[Any]) -> Table:
    """A row for each record, a column for each field."""
    names = list(asdict(records[0]))
    shown = Table(*names, title=title)
    for one in records:
        shown.add_row(
            *(f"{value:.3f}" if isinstance(value, float) else str(value) for value in (getattr(one, n) for n in names))
        )
    return shown


def locality(
    graph: Annotated[list[str] | None, typer.Option(help="[cnr2000 tolokers]")] = None,
    epochs: Annotated[int, typer.Option(help="Epochs that are sampled.")] = 3,
    rounds: Annotated[int, typer.Option(help="Rounds of timed sampling after the warm-up.")] = 5,
    out: Annotated[Path, typer.Option(help="Folder of locality.jsonl.")] = Path("bench/results"),
) -> None:
    """Locality-aware sampling and features aggregated once: rows, shift of the draw."""
    console = Console(width=140) if not sys.stdout.isatty() else Console()
    names = graph or ["cnr2000", "tolokers"]
    rows = [one for name in names for one in fetched(name, epochs, rounds)]
    once = [precomputed(name, sampler, epochs) for name in names for sampler in ("GraphSAGE", "LADIES")]
    console.print(table("Locality-aware sampling, over factor 1", rows))
    console.print(table("Features aggregated once, over sampling them", once))
    out.mkdir(parents=True, exist_ok=True)
    kinds = (("fetched", rows), ("precomputed", once))
    records = [{"kind": "machine", **machine_facts(sp.sparse.get_num_threads())}]
    records += [{"kind": kind, **asdict(one)} for kind, ones in kinds for one in ones]
    (out / "locality.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
