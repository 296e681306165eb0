"""How long scores of vertices take, beside the trial epochs that `presc` and `posterior` sample and count.

The cells are those of traces.py: a graph and a sampler, a tenth of the vertices as seeds. All sides take turns, round
after round; the first round is a discarded warm-up. Beside the time on the clock there is that of the processors, of
all threads together, which other work on the machine changes less.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from machine_facts import machine_facts
from spsample import _core
from spsample.features import score
from traces import SAMPLERS, Cell, cell

TRIAL = "presc"
"""It is the trial epochs alone."""
SCORES = (TRIAL, "posterior", "inclusion", "reverse-pagerank", "out-degree")


@dataclass(frozen=True)
class Result:
    """One score of a cell: medians over rounds, of seconds and of the ratio to the trial's in the same round."""

    graph: str
    sampler: str
    edges: int
    score: str
    threads: int
    instruction_set: str
    seconds: float
    over_trial: float
    least_over_trial: float
    most_over_trial: float
    processor_seconds: float
    processor_over_trial: float
    processor_least_over_trial: float
    processor_most_over_trial: float


class _Taken(NamedTuple):
    """Seconds of one call."""

    wall: float
    processor: float


def _taken(call: Callable[[], object]) -> _Taken:
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return _Taken(time.perf_counter() - wall, time.process_time() - processor)


def measure(graph: str, sampler: str, made: Cell, rounds: int) -> list[Result]:
    """All scores of a cell in turn, round after round."""
    calls = {name: partial(score, name, made.graph, made.seeds, made.sampler, made.batch_size) for name in SCORES}
    times = [{name: _taken(call) for name, call in calls.items()} for _ in range(rounds + 1)][1:]
    results = []
    for name in SCORES:
        over = [one[name].wall / one[TRIAL].wall for one in times]
        processor_over = [one[name].processor / one[TRIAL].processor for one in times]
        seconds, processor = (statistics.median(taken) for taken in zip(*(one[name] for one in times), strict=True))
        results.append(
            Result(
                graph=graph,
                sampler=sampler,
                edges=made.graph.num_edges,
                score=name,
                threads=_core.get_num_threads(),
                instruction_set=_core.instruction_set(),
                seconds=seconds,
                over_trial=statistics.median(over),
                least_over_trial=min(over),
                most_over_trial=max(over),
                processor_seconds=processor,
                processor_over_trial=statistics.median(processor_over),
                processor_least_over_trial=min(processor_over),
                processor_most_over_trial=max(processor_over),
            )
        )
    return results


def table(results: list[Result]) -> Table:
    """A row for each score of each cell."""
    columns = ("s", "time over trial epochs", "processor s", "processor time over it")
    made = Table("graph", "sampler", "edges", "score", *columns)
    for one in results:
        over = f"{one.over_trial:.2f} ({one.least_over_trial:.2f} to {one.most_over_trial:.2f})"
        spread = f"{one.processor_least_over_trial:.2f} to {one.processor_most_over_trial:.2f}"
        processor = f"{one.processor_seconds:.3f}", f"{one.processor_over_trial:.2f} ({spread})"
        made.add_row(one.graph, one.sampler, f"{one.edges:,}", one.score, f"{one.seconds:.3f}", over, *processor)
    return made


def scores(
    graph: Annotated[list[str] | None, typer.Option(help="[rmat:20,16]")] = None,
    sampler: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(SAMPLERS)}; all, by default.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 7,
    threads: Annotated[int, typer.Option(help="Of every side.")] = 2,
    out: Annotated[Path, typer.Option(help="Folder of scores.jsonl.")] = Path("bench/results"),
) -> None:
    """Scores of vertices: `inclusion` and `posterior` beside the trial epochs."""
    console = Console(width=140) if not sys.stdout.isatty() else Console()
    _core.set_num_threads(threads)
    results = []
    for one in graph or ("rmat:20,16",):
        for name in sampler or SAMPLERS:
            results += measure(one, name, cell(one, name), rounds)
    out.mkdir(parents=True, exist_ok=True)
    records = [{"kind": "machine", **machine_facts(threads)}, *({"kind": "result", **asdict(one)} for one in results)]
    (out / "scores.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    console.print(table(results))
