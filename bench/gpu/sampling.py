"""spsample on a GPU against WholeGraph, sparse products of cuSPARSE, the host, and the memory's limit."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from cases import Case
from gpu import summary
from gpu.cases import OURS, Settings, layerwise_cases, sampling_cases
from gpu.machine import folder_of, gpu_facts
from graphs import draw_seeds, save
from measuring import Peers, measured, results_of
from report import Result, plot

Graph = Annotated[str, typer.Option(help="Graph, as `spsample train` takes it.")]
Batches = Annotated[int, typer.Option(help="k, batches of a bulk.")]
BatchSize = Annotated[int, typer.Option(help="b, seeds of a batch.")]
FewBatches = Annotated[int, typer.Option(help="Batches of the composition; its time per batch is compared.")]
ChosenCases = Annotated[list[str] | None, typer.Option("--case", help="A case; may be repeated. All, by default.")]
Threads = Annotated[int, typer.Option(help="Threads of the backend cpu; 0: one for each processor.")]
Rounds = Annotated[int, typer.Option(help="Rounds after the warm-up.")]
GraphCache = Annotated[Path | None, typer.Option(help="Folder that keeps generated graphs.")]
Out = Annotated[Path, typer.Option(help="Folder of the results.")]


def sampling(
    graph: Graph = "rmat:21,32",
    case: ChosenCases = None,
    batches: Batches = 196,
    batch_size: BatchSize = 1024,
    few_batches: FewBatches = 16,
    threads: Threads = 0,
    rounds: Rounds = 5,
    graph_cache: GraphCache = None,
    out: Out = Path("bench/results"),
) -> None:
    """GraphSAGE (15,10,5), uniform and weighted rows: all batches in one bulk."""
    settings = Settings(batches=batches, batch_size=batch_size, few_batches=few_batches)
    _run("gpu-sampling", sampling_cases, settings, _Run(graph, case, threads, rounds, graph_cache, out))


def layerwise(
    graph: Graph = "rmat:21,32",
    batches: Batches = 196,
    batch_size: BatchSize = 512,
    few_batches: FewBatches = 16,
    threads: Threads = 0,
    rounds: Rounds = 5,
    graph_cache: GraphCache = None,
    out: Out = Path("bench/results"),
) -> None:
    """LADIES (512,512,512): all batches in one bulk."""
    settings = Settings(batches=batches, layer_batch_size=batch_size, few_batches=few_batches)
    _run("gpu-layerwise", layerwise_cases, settings, _Run(graph, None, threads, rounds, graph_cache, out))


class _Run:
    """The options of a run that are no sizes of its cases."""

    def __init__(
        self, graph: str, case: list[str] | None, threads: int, rounds: int, cache: Path | None, out: Path
    ) -> None:
        self.graph, self.case, self.rounds, self.cache, self.out = graph, case, rounds, cache, out
        self.threads = threads or os.cpu_count() or 1


def _run(name: str, make: Callable[[Settings], dict[str, Case]], settings: Settings, run: _Run) -> None:
    """Measure the cases, write what they show into `NAME.jsonl` and `NAME.png`, and print it."""
    console = Console(width=160) if not sys.stdout.isatty() else Console()
    known = make(settings)
    for unknown in set(run.case or ()) - set(known):
        raise typer.BadParameter(f"{unknown!r} is none of {', '.join(known)}", param_hint="--case")
    results: list[Result] = []
    compared: list[summary.Ratio] = []
    with tempfile.TemporaryDirectory(prefix="spsample-bench-") as scratch:
        folder = folder_of(run.graph, run.cache or Path(scratch))
        inputs = {"graph": str(folder), "seeds": _seeds(folder, Path(scratch), settings), "threads": run.threads}
        with Peers({}, inputs) as peers:
            for one in [known[name] for name in run.case or known]:
                console.print(f"{one.name}: {one.about}", markup=False)
                turns = measured(peers, one, run.rounds, {})
                results += results_of(peers, one, run.graph, turns)
                compared += summary.ratios_of(run.graph, one.name, OURS, turns)
    run.out.mkdir(parents=True, exist_ok=True)
    path = run.out / f"{name}.jsonl"
    summary.write(path, gpu_facts(run.threads), results, compared, peers.missing)
    plot(results, f"{run.graph}, {settings.batches} batches in one bulk", path.with_suffix(".png"))
    show(summary.read(path), console)


def show(records: list[summary.Record], console: Console) -> None:
    """The table and the verdicts of recorded results."""
    console.print(summary.summary_table(records))
    for text in summary.verdicts(records):
        console.print(text, markup=False)


def _seeds(folder: Path, scratch: Path, settings: Settings) -> str:
    """The file of all seeds; cases take the first ones of each batch."""
    size = max(settings.batch_size, settings.layer_batch_size)
    seeds = draw_seeds(np.load(folder / "indptr.npy"), settings.batches, size)
    save(scratch / "seeds", seeds=seeds)
    return str(scratch / "seeds" / "seeds.npy")
