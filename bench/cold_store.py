"""Sampling from a store on disk that is not in memory, against the same in memory.

Every measurement is one call of `bulk_sample` for k batches in a fresh process (`cold_worker.py`), because maps of
other processes would keep pages. Before a cold one the pages of the store's files are dropped (posix_fadvise,
DONTNEED), and mincore tells how many are left; the bytes read are those that Linux counts for the process. The states
take turns, round after round; medians are reported. A call that starts cold is what a graph far larger than memory
costs: whatever it read before is gone again.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import spsample as sp
from graphs import draw_seeds, graph_folder
from machine_facts import machine_facts
from spsample import _core

WORKER = Path(__file__).with_name("cold_worker.py")
STATES = ("memory", "mapped", "cold:normal", "cold:sequential", "cold:willneed", "cold:random")
"""In arrays; mapped and in the page cache; mapped and not in memory, by the advice given about access."""


@dataclass(frozen=True)
class Point:
    """One state and bulk size; medians over rounds."""

    graph: str
    state: str
    bulk_size: int
    batch_size: int
    rounds: int
    seconds_per_batch: float
    fastest: float
    slowest: float
    over_memory: float
    bytes_read_per_batch: float
    major_faults: float
    resident_before: float
    store_bytes: int


def cold_store(
    graph: Annotated[str, typer.Option(help="A graph, as `spsample train` takes it, or the folder of a store.")] = (
        "rmat:18,16"
    ),
    bulk_size: Annotated[list[int] | None, typer.Option(help="Batches sampled at once [1, 16, 196].")] = None,
    batch_size: Annotated[int, typer.Option(help="Seeds of a batch.")] = 1024,
    fanouts: Annotated[str, typer.Option(help="In-neighbours per layer.")] = "15,10,5",
    state: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(STATES)}; all, by default.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds.")] = 3,
    graph_cache: Annotated[Path | None, typer.Option(help="Folder that keeps generated graphs.")] = None,
    scratch: Annotated[Path | None, typer.Option(help="Folder on the disk to measure.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of cold_store.jsonl.")] = Path("bench/results"),
) -> None:
    """Sampling from a memory-mapped store that is not in memory, against the same in memory."""
    states = state or list(STATES)
    if "memory" not in states:
        raise typer.BadParameter("the others are compared with 'memory'", param_hint="--state")
    sizes = bulk_size or [1, 16, 196]
    with tempfile.TemporaryDirectory(prefix="spsample-cold-", dir=scratch) as folder:
        store = _store(graph, Path(folder), graph_cache)
        seeds = Path(folder) / "seeds.npy"
        np.save(seeds, draw_seeds(np.asarray(sp.Graph.open(store).indptr), max(sizes), batch_size))
        task = {"store": str(store), "seeds": str(seeds), "fanouts": [int(word) for word in fanouts.split(",")]}
        points = [point for k in sizes for point in _measure(graph, states, {**task, "bulk_size": k}, rounds)]
    out.mkdir(parents=True, exist_ok=True)
    records = [{"kind": "machine", **machine_facts(_core.get_num_threads())}]
    records += [{"kind": "point", **asdict(point)} for point in points]
    (out / "cold_store.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    (Console(width=140) if not sys.stdout.isatty() else Console()).print(table(points))


def _store(graph: str, folder: Path, cache: Path | None) -> Path:
    """The store of the graph: the one given, or one that is made in the folder."""
    if (Path(graph) / "meta.json").is_file():
        return Path(graph)
    arrays = graph_folder(graph, cache or folder / "graphs")
    sp.Graph(np.load(arrays / "indptr.npy"), np.load(arrays / "indices.npy"), validate=False).save(folder / "store")
    return folder / "store"


def _measure(graph: str, states: list[str], task: dict[str, Any], rounds: int) -> list[Point]:
    """All states in turn, round after round."""
    turns = [{state: _run(state, task) for state in states} for _ in range(rounds)]
    return [_point(graph, state, task["bulk_size"], turns) for state in states]


def _run(state: str, task: dict[str, Any]) -> dict[str, Any]:
    """One measurement in a process of its own."""
    kind, _, access = state.partition(":")
    command = [sys.executable, str(WORKER), json.dumps({**task, "state": kind, "access": access or "normal"})]
    environment = {"OMP_WAIT_POLICY": "passive", **os.environ}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{state}: {done.stderr.strip()}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _point(graph: str, state: str, k: int, turns: list[dict[str, dict[str, Any]]]) -> Point:
    own = [turn[state] for turn in turns]
    seconds = [result["seconds"] / k for result in own]
    return Point(
        graph=graph,
        state=state,
        bulk_size=k,
        batch_size=own[0]["batch_size"],
        rounds=len(turns),
        seconds_per_batch=statistics.median(seconds),
        fastest=min(seconds),
        slowest=max(seconds),
        over_memory=statistics.median(turn[state]["seconds"] / turn["memory"]["seconds"] for turn in turns),
        bytes_read_per_batch=statistics.median(result["bytes_read"] / k for result in own),
        major_faults=statistics.median(result["major_faults"] for result in own),
        resident_before=statistics.median(result["resident_before"] for result in own),
        store_bytes=own[0]["file_bytes"],
    )


def table(points: list[Point]) -> Table:
    """A row for each point."""
    columns = (
        "ms per batch",
        "fastest",
        "slowest",
        "over memory",
        "MB read per batch",
        "major faults",
        "resident before",
    )
    made = Table("k", "state", *columns)
    for p in points:
        times = [f"{t * 1e3:.2f}" for t in (p.seconds_per_batch, p.fastest, p.slowest)]
        rest = (f"{p.over_memory:.2f}", f"{p.bytes_read_per_batch / 1e6:.2f}", f"{p.major_faults:.0f}")
        made.add_row(str(p.bulk_size), p.state, *times, *rest, f"{p.resident_before:.4f}")
    return made
