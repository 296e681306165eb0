"""spsample against its peers and against the limits of memory, each in its own process, taking turns."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from cases import Case, Settings, cases
from graphs import draw_seeds, graph_folder, save
from machine_facts import beyond_caches, machine_facts
from measuring import Peers, measured, results_of
from report import Result, plot, table, write_lines


def sampling(
    graph: Annotated[str, typer.Option(help="Graph, as `spsample train` takes it.")] = "rmat:21,32",
    case: Annotated[list[str] | None, typer.Option(help="A case to measure; may be repeated. All, by default.")] = None,
    batches: Annotated[int, typer.Option(help="k, batches of a bulk.")] = 196,
    batch_size: Annotated[int, typer.Option(help="b, seeds of a batch.")] = 1024,
    few_batches: Annotated[int, typer.Option(help="Batches of the sides that are too slow for all of them.")] = 12,
    threads: Annotated[int, typer.Option(help="Threads of every peer.")] = 2,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 5,
    dgl_python: Annotated[str | None, typer.Option(help="Interpreter that has DGL.")] = None,
    pyg_python: Annotated[str | None, typer.Option(help="Interpreter that has PyG and pyg-lib.")] = None,
    graph_cache: Annotated[Path | None, typer.Option(help="Folder that keeps generated graphs.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of sampling.jsonl and sampling.png.")] = Path("bench/results"),
) -> None:
    """spsample against DGL, PyG and SciPy, and against the limits of this machine's memory."""
    settings = _settings(batches, batch_size, few_batches)
    chosen = _chosen(cases(settings), case)
    console = Console(width=160) if not sys.stdout.isatty() else Console()
    with tempfile.TemporaryDirectory(prefix="spsample-bench-") as scratch:
        folder = graph_folder(graph, graph_cache or Path(scratch))
        inputs = {**_inputs(folder, Path(scratch), settings), "threads": threads}
        options = {"buffer_bytes": beyond_caches(_graph_bytes(folder))}
        pythons = {"dgl_loader": dgl_python, "pyg_loader": pyg_python}
        results: list[Result] = []
        with Peers(pythons, inputs) as peers:
            for one in chosen:
                console.print(f"{one.name}: {one.about}", markup=False)
                results += results_of(peers, one, graph, measured(peers, one, rounds, options))
    out.mkdir(parents=True, exist_ok=True)
    write_lines(out / "sampling.jsonl", machine_facts(threads), results, peers.missing)
    console.print(table(results))
    for text in peers.missing:
        console.print(text, markup=False)
    plot(results, f"{graph}, {batches} batches of {batch_size}, {threads} threads", out / "sampling.png")


def _settings(batches: int, batch_size: int, few_batches: int) -> Settings:
    """The settings of the measurements, smaller where smaller batches are asked for."""
    settings = Settings(batches=batches, batch_size=batch_size, few_batches=few_batches)
    return replace(settings, layer_batch_size=min(settings.layer_batch_size, batch_size))


def _chosen(known: dict[str, Case], names: list[str] | None) -> list[Case]:
    unknown = [name for name in names or [] if name not in known]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(known)}", param_hint="--case")
    return [known[name] for name in names or known]


def _inputs(folder: Path, scratch: Path, settings: Settings) -> dict[str, Any]:
    """Where all peers find the graph and the seeds."""
    seeds = draw_seeds(np.load(folder / "indptr.npy"), settings.batches, settings.batch_size)
    save(scratch / "seeds", seeds=seeds)
    return {"graph": str(folder), "seeds": str(scratch / "seeds" / "seeds.npy")}


def _graph_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.npy"))
