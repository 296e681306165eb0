"""A machine's cores as threads of one process, or as processes of fewer threads, which sample the same batches."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import spsample as sp
from graphs import draw_seeds, graph_folder
from json_lines import append
from machine_facts import machine_facts

MEMORY = ("own", "shared")
"""A process reads the graph into memory of its own, which its main thread is the first to touch, or maps the files."""


class Split(NamedTuple):
    """Processes, threads of each, and where the graph is."""

    processes: int
    threads: int
    memory: str

    def __str__(self) -> str:
        return f"{self.processes} x {self.threads}, {self.memory}"


def machine_split(
    graph: Annotated[str, typer.Option(help="Graph.")] = "rmat:18,16",
    batches: Annotated[int, typer.Option(help="Batches that all processes sample together.")] = 64,
    batch_size: Annotated[int, typer.Option(help="b.")] = 1024,
    cores: Annotated[int | None, typer.Option(help="Cores to share out; all by default.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds after the warm-up.")] = 7,
    graph_cache: Annotated[Path, typer.Option(help="Where graphs are kept.")] = Path("build/graphs"),
    out: Annotated[Path, typer.Option(help="Folder of machine_split.jsonl.")] = Path("bench/results"),
) -> None:
    """One process of all threads, one thread, and processes of fewer threads, on the same batches, in turns."""
    folder = graph_folder(graph, graph_cache)
    most = cores or os.cpu_count() or 1
    splits = splits_of(most)
    seeds = draw_seeds(np.load(folder / "indptr.npy", mmap_mode="r"), batches, batch_size)
    teams = {split: Team(split, folder, seeds) for split in splits}
    try:
        turns: dict[Split, list[float]] = {split: [] for split in splits}
        for round_ in range(rounds + 1):
            for split in splits[round_ % len(splits) :] + splits[: round_ % len(splits)]:
                seconds = teams[split].sampled()
                if round_:
                    turns[split].append(seconds)
    finally:
        for team in teams.values():
            team.end()
    found = [{"split": str(split), **_figures(turns[split], turns[splits[0]])} for split in splits]
    path = out / "machine_split.jsonl"
    append(path, [{"kind": "machine", **machine_facts(most)}])
    append(path, ({"kind": "result", "graph": graph, "batches": batches, **one} for one in found))
    Console(width=120).print(_table(graph, found))


def splits_of(cores: int) -> list[Split]:
    """All threads in one process first; then one thread, then P processes of `cores / P` threads.

    >>> [str(split) for split in splits_of(4)]
    ['1 x 4, own', '1 x 1, own', '2 x 2, own', '2 x 2, shared', '4 x 1, own', '4 x 1, shared']
    """
    several = [p for p in range(2, cores + 1) if cores % p == 0]
    alone = [Split(1, cores, "own")] + ([Split(1, 1, "own")] if cores > 1 else [])
    return alone + [Split(p, cores // p, memory) for p in several for memory in MEMORY]


class Team:
    """The processes of a split, which wait for their turns."""

    def __init__(self, split: Split, folder: Path, seeds: np.ndarray[Any, Any]) -> None:
        spawn = multiprocessing.get_context("spawn")
        pairs = [spawn.Pipe() for _ in range(split.processes)]
        self.pipes = [own for own, _ in pairs]
        parts = np.array_split(seeds, split.processes)
        self.processes = [
            spawn.Process(target=_sample, args=(theirs, split, folder, part))
            for (_, theirs), part in zip(pairs, parts, strict=True)
        ]
        for process in self.processes:
            process.start()
        for pipe in self.pipes:
            pipe.recv()

    def sampled(self) -> float:
        """Seconds until the last process has sampled its batches."""
        begin = time.perf_counter()
        for pipe in self.pipes:
            pipe.send("sample")
        for pipe in self.pipes:
            pipe.recv()
        return time.perf_counter() - begin

    def end(self) -> None:
        """Let the processes go."""
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join()


def _sample(pipe: Connection, split: Split, folder: Path, seeds: np.ndarray[Any, Any]) -> None:
    """A process of a team: its batches once for every message, until the pipe is closed."""
    sp.set_num_threads(split.threads)
    mode: Any = "r" if split.memory == "shared" else None
    arrays = [np.load(folder / f"{name}.npy", mmap_mode=mode) for name in ("indptr", "indices")]
    graph = sp.Graph(*arrays, validate=False)
    pipe.send("ready")
    while True:
        try:
            pipe.recv()
        except EOFError:
            return
        sp.bulk_sample(graph, seeds.ravel(), sp.GraphSAGE([15, 10, 5]), batch_size=seeds.shape[1])
        pipe.send("done")


def _figures(seconds: list[float], first: list[float]) -> dict[str, float]:
    over = [one / other for one, other in zip(seconds, first, strict=True)]
    return {
        "ms": 1000 * statistics.median(seconds),
        "over": statistics.median(over),
        "least": min(over),
        "most": max(over),
    }


def _table(graph: str, found: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{graph}: processes x threads")
    for name in ("processes x threads, graph", "ms", "over the first"):
        table.add_column(name, justify="left" if "x" in name else "right")
    for one in found:
        table.add_row(one["split"], f"{one['ms']:.1f}", f"{one['over']:.2f} ({one['least']:.2f} to {one['most']:.2f})")
    return table
