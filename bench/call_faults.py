"""Calls of `bulk_sample` that repeat: milliseconds a batch, and page faults a call."""

from __future__ import annotations

import itertools
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import spsample as sp
from graphs import draw_seeds, graph_folder
from json_lines import append, read
from machine_facts import machine_facts

SAMPLERS = {
    "blocks": sp.GraphSAGE([15, 10, 5]),
    "subgraph": sp.GraphSAGE([15, 10, 5], layout="subgraph"),
    "LADIES": sp.LADIES([512, 512]),
}
"""By the names of --sampler."""


def call_faults(
    graph: Annotated[str, typer.Option(help="Graph.")] = "rmat:18,26",
    sampler: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(SAMPLERS)}; may be repeated.")] = None,
    bulk_size: Annotated[list[int] | None, typer.Option(help="k; may be repeated.")] = None,
    batch_size: Annotated[int, typer.Option(help="b.")] = 1024,
    calls: Annotated[int, typer.Option(help="Calls that count, after as many that do not.")] = 20,
    threads: Annotated[int, typer.Option(help="Threads of the kernels.")] = 2,
    graph_cache: Annotated[Path, typer.Option(help="Where graphs are kept.")] = Path("build/graphs"),
    out: Annotated[Path, typer.Option(help="Folder of call_faults.jsonl.")] = Path("bench/results"),
) -> None:
    """Page faults and times of calls that repeat, with edge ids, each batch converted by `to_pyg()`."""
    path, folder = out / "call_faults.jsonl", graph_folder(graph, graph_cache)
    append(path, [{"kind": "machine", **machine_facts(threads)}])
    before = len(read(path))
    for name, k in itertools.product(sampler or SAMPLERS, bulk_size or [1, 8, 16, 64]):
        given = map(str, (folder, graph, name, k, batch_size, calls, threads, path))
        subprocess.run([sys.executable, __file__, *given], check=True)  # with a pool of its own
    console = Console(width=120) if not sys.stdout.isatty() else Console()
    console.print(_table(graph, read(path)[before:]))


def measured(folder: Path, sampler: sp.Sampler, k: int, batch_size: int, calls: int) -> dict[str, Any]:
    """Medians over the calls: milliseconds a batch of sampling and of `to_pyg()`, and page faults of both together."""
    A = sp.Graph(np.load(folder / "indptr.npy"), np.load(folder / "indices.npy"))
    seeds = draw_seeds(A.indptr, k, batch_size).ravel()
    sampled, converted, faults = [], [], []
    for epoch in range(2 * calls):
        start, before = time.perf_counter(), _faults()
        bulk = sp.bulk_sample(A, seeds, sampler, batch_size=batch_size, edge_ids=True, epoch=epoch)
        made = time.perf_counter()
        for minibatch in bulk:
            minibatch.to_pyg()
        done = time.perf_counter()
        sampled.append(1000 * (made - start) / k)
        converted.append(1000 * (done - made) / k)
        faults.append(_faults() - before)
        del bulk, minibatch
    names = {"sample_ms": sampled, "to_pyg_ms": converted, "faults": faults}
    return {name: statistics.median(values[calls:]) for name, values in names.items()}


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _table(graph: str, results: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{graph}: calls that repeat, medians")
    for name in ("sampler", "k", "sampling, ms a batch", "to_pyg(), ms a batch", "page faults a call"):
        table.add_column(name, justify="left" if name == "sampler" else "right")
    for one in results:
        shown = f"{one['sample_ms']:.3f}", f"{one['to_pyg_ms']:.3f}", f"{one['faults']:.0f}"
        table.add_row(one["sampler"], str(one["k"]), *shown)
    return table


def _one(folder: str, graph: str, sampler: str, k: str, batch_size: str, calls: str, threads: str, path: str) -> None:
    sp.set_num_threads(int(threads))
    found = measured(Path(folder), SAMPLERS[sampler], int(k), int(batch_size), int(calls))
    facts = {"graph": graph, "sampler": sampler, "k": int(k), "batch_size": int(batch_size)}
    its_set = machine_facts(int(threads))["instruction_set"]
    append(Path(path), [{"kind": "result", "instruction_set": its_set, **facts, **found}])


if __name__ == "__main__":
    _one(*sys.argv[1:])
