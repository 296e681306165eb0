"""Reordering a store: its time beside a copy, and the pages that a smaller memory then reads.

Time: a store is copied (``cp -r``, then flushed, as a store is before it has its name), reordered, numbered anew and
restored, in turns; before each the pages of the source are dropped from the page cache. Each runs in a process of its
own, whose peak of resident memory is read. The order is random, the worst there is.

Pages: the batches of traced runs (`traces.py`) gather their rows, batch by batch in the order of the file, through a
cache of pages of 4 KiB that drops the least recently used one: what the system's page cache does with a memory map
within a budget. Counted are the bytes it reads; and those that are read if the pages of highest score stay for good.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import spsample as sp
from disk_features import lru_misses
from graphs import graph_folder
from machine_facts import machine_facts
from spsample import _core
from spsample.features.score_order import hottest
from spsample.reorder.layouts import inverse
from spsample.reorder.reordering import score_classes
from spsample.store import StoreWriter
from traces import Cell, cell

Side = Callable[[], tuple[float, float, int]]
"""Does it; returns seconds, seconds of processors, and bytes by which its peak of memory grew."""

PAGE = 4096
WORKER = """
import json, re, sys, time
from pathlib import Path
import numpy as np
from spsample.reorder import reorder, restore
kind, source, out, scores, budget = sys.argv[1:]
values = np.load(scores)
def peak():
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
processors = time.process_time()
started = time.perf_counter()
if kind == "restore":
    done = restore(source, out, memory_budget=budget)
else:
    done = reorder(source, out, values, relabel=kind == "relabel", memory_budget=budget)
seconds, processors = time.perf_counter() - started, time.process_time() - processors
print(json.dumps({"seconds": seconds, "processors": processors, "grown": peak() - before}))
"""


@dataclass(frozen=True)
class Timed:
    """One side: medians over rounds, of seconds and of the ratio to the copy in the same round."""

    graph: str
    store_bytes: int
    side: str
    budget: str
    threads: int
    seconds: float
    fastest: float
    slowest: float
    over_copy: float
    least_over_copy: float
    most_over_copy: float
    processor_seconds: float
    resident_growth: int


@dataclass(frozen=True)
class Pages:
    """What one order of rows reads at one budget."""

    graph: str
    sampler: str
    row_bytes: int
    epochs: int
    order: str
    budget_share: float
    bytes_read: int
    over_original: float
    pinned_bytes_read: int
    pinned_over_original: float
    pages_per_batch: float


def reorder(
    graph: Annotated[str, typer.Option(help="Graph of the store that is timed.")] = "rmat:20,16",
    row_bytes: Annotated[int, typer.Option(help="Bytes of a row of its features.")] = 1024,
    budget: Annotated[str, typer.Option(help="Memory for windows of rows.")] = "512MiB",
    cells: Annotated[list[str] | None, typer.Option(help="GRAPH@SAMPLER whose pages are counted.")] = None,
    page_row_bytes: Annotated[int, typer.Option(help="Bytes of a row there.")] = 512,
    epochs: Annotated[int, typer.Option(help="Epochs there.")] = 3,
    rounds: Annotated[int, typer.Option(help="Rounds of the timed part.")] = 5,
    graph_cache: Annotated[Path | None, typer.Option(help="Folder that keeps generated graphs.")] = None,
    scratch: Annotated[Path | None, typer.Option(help="Folder on the disk to measure.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of reorder.jsonl.")] = Path("bench/results"),
) -> None:
    """Reordering a store against a copy of it, and the pages that are read of the result."""
    pages = [count for name in cells or ["cnr2000@GraphSAGE"] for count in _pages(name, page_row_bytes, epochs)]
    with tempfile.TemporaryDirectory(prefix="spsample-reorder-", dir=scratch) as folder:
        timed = _timed(Path(folder), graph, row_bytes, budget, rounds, graph_cache) if rounds else []
    out.mkdir(parents=True, exist_ok=True)
    records: list[dict[str, Any]] = [{"kind": "machine", **machine_facts(_core.get_num_threads())}]
    records += [{"kind": "timed", **asdict(one)} for one in timed] + [{"kind": "pages", **asdict(one)} for one in pages]
    (out / "reorder.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    console = Console(width=140) if not sys.stdout.isatty() else Console()
    for table in (_timed_table(timed), _pages_table(pages)):
        console.print(table)


# ---------------------------------------------------------------------------------------------------------------- time


def _timed(folder: Path, graph: str, row_bytes: int, budget: str, rounds: int, cache: Path | None) -> list[Timed]:
    """All sides in turn, round after round."""
    source = _store(folder, graph, row_bytes, cache)
    n = sp.Graph.open(source).num_nodes
    scores = folder / "scores.npy"
    np.save(scores, np.random.default_rng(0).random(n))

    def worker(kind: str, origin: Path) -> Side:
        return lambda: _reordered([kind, str(origin), str(folder / "made"), str(scores), budget])

    worker("relabel", source)()
    (folder / "made").rename(folder / "relabelled")
    sides: dict[str, tuple[Path, Side]] = {
        "cp -r, and flush": (source, lambda: _copy(source, folder / "made", flush=True)),
        "cp -r": (source, lambda: _copy(source, folder / "made", flush=False)),
        "reorder": (source, worker("reorder", source)),
        "reorder --relabel": (source, worker("relabel", source)),
        "reorder --undo, of new numbers": (folder / "relabelled", worker("restore", folder / "relabelled")),
    }
    turns = []
    for _ in range(rounds):
        turn = {}
        for name, (origin, call) in sides.items():
            os.sync()
            drop_pages(origin)
            turn[name] = call()
            shutil.rmtree(folder / "made")
        turns.append(turn)
    size = sum(path.stat().st_size for path in source.iterdir())
    return [_summary(name, graph, size, budget, turns) for name in sides]


def _reordered(arguments: list[str]) -> tuple[float, float, int]:
    """Seconds of the call, without those in which Python starts, and by how much its peak of memory grew."""
    done = subprocess.run([sys.executable, "-c", WORKER, *arguments], capture_output=True, check=True, text=True)
    result = json.loads(done.stdout)
    return float(result["seconds"]), float(result["processors"]), int(result["grown"])


def _summary(side: str, graph: str, size: int, budget: str, turns: list[dict[str, tuple[float, float, int]]]) -> Timed:
    seconds = [turn[side][0] for turn in turns]
    over = [turn[side][0] / turn["cp -r, and flush"][0] for turn in turns]
    return Timed(
        graph=graph,
        store_bytes=size,
        side=side,
        budget=budget,
        threads=_core.get_num_threads(),
        seconds=statistics.median(seconds),
        fastest=min(seconds),
        slowest=max(seconds),
        over_copy=statistics.median(over),
        least_over_copy=min(over),
        most_over_copy=max(over),
        processor_seconds=statistics.median(turn[side][1] for turn in turns),
        resident_growth=max(turn[side][2] for turn in turns),
    )


def _copy(source: Path, out: Path, *, flush: bool) -> tuple[float, float, int]:
    """Copy a folder; the memory of ``cp`` is not looked at."""
    started, before = time.perf_counter(), os.times()
    subprocess.run(["cp", "-r", source, out], check=True)
    for path in out.iterdir() if flush else ():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    after = os.times()
    return time.perf_counter() - started, sum(after[:4]) - sum(before[:4]), 0


def drop_pages(folder: Path) -> None:
    """Drop the pages of all files of a folder from the page cache."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _store(folder: Path, graph: str, row_bytes: int, cache: Path | None) -> Path:
    """A store with features that are different in every row."""
    arrays = graph_folder(graph, cache or folder / "graphs")
    made = sp.Graph(np.load(arrays / "indptr.npy"), np.load(arrays / "indices.npy"), validate=False)
    with StoreWriter(folder / "store") as writer:
        made.write_to(writer)
        x = writer.create("x", np.float32, (made.num_nodes, row_bytes // 4))
        for first in range(0, len(x), 1 << 16):
            x[first : first + (1 << 16)] = np.arange(first, min(first + (1 << 16), len(x)))[:, None]
        writer.write("y", np.arange(made.num_nodes) % 10)
    return folder / "store"


# --------------------------------------------------------------------------------------------------------------- pages


def _pages(name: str, row_bytes: int, epochs: int) -> list[Pages]:
    """Bytes that each order reads at each budget, over the same batches."""
    graph, _, sampler = name.partition("@")
    chosen = cell(graph, sampler)
    batches = list(chosen.batches(epochs))
    rows_per_page = PAGE // row_bytes
    counts: list[Pages] = []
    n = chosen.graph.num_nodes
    worth = sp.features.score("posterior", chosen.graph, chosen.seeds, chosen.sampler, chosen.batch_size)
    orders = _orders(chosen)
    for share in (0.05, 0.1, 0.2, 0.3, 0.5):
        budget = int(share * n * row_bytes) // PAGE
        read: dict[str, int] = {}
        pinned: dict[str, int] = {}
        for order, rows in orders.items():
            scores = np.bincount(rows // rows_per_page, weights=worth)
            is_pinned = np.zeros(len(scores), np.bool_)
            is_pinned[hottest(scores, budget)] = True
            touched = [np.unique(rows[ids] // rows_per_page) for ids in batches]
            read[order] = PAGE * lru_misses(touched, budget)
            pinned[order] = PAGE * sum(int(np.count_nonzero(~is_pinned[pages])) for pages in touched)
            counts.append(
                Pages(
                    graph=graph,
                    sampler=sampler,
                    row_bytes=row_bytes,
                    epochs=epochs,
                    order=order,
                    budget_share=share,
                    bytes_read=read[order],
                    over_original=read[order] / max(read["original"], 1),
                    pinned_bytes_read=pinned[order],
                    pinned_over_original=pinned[order] / max(pinned["original"], 1),
                    pages_per_batch=float(np.mean([len(pages) for pages in touched])),
                )
            )
    return counts


def _orders(chosen: Cell) -> dict[str, NDArray[np.int64]]:
    """Where the row of each vertex lies."""
    n = chosen.graph.num_nodes
    rows: dict[str, NDArray[np.int64]] = {"original": np.arange(n)}
    for name in ("posterior", "reverse-pagerank", "out-degree", "random"):
        scores = sp.features.score(name, chosen.graph, chosen.seeds, chosen.sampler, chosen.batch_size)
        rows[name] = inverse(hottest(scores if name == "random" else score_classes(scores), n))
        if name == "posterior":
            rows["posterior, exact"] = inverse(hottest(scores, n))
    return rows


def _timed_table(timed: list[Timed]) -> Table:
    table = Table("store, GiB", "side", "s", "fastest", "slowest", "over copy", "from", "to", "CPU s", "resident +MiB")
    for one in timed:
        numbers = (one.seconds, one.fastest, one.slowest, one.over_copy, one.least_over_copy, one.most_over_copy)
        numbers = (*numbers, one.processor_seconds)
        words = [f"{number:.2f}" for number in numbers]
        table.add_row(f"{one.store_bytes / 2**30:.2f}", one.side, *words, f"{one.resident_growth / 2**20:.0f}")
    return table


def _pages_table(pages: list[Pages]) -> Table:
    table = Table("cell", "budget", "order", "pages per batch", "MB read", "over original", "pinned", "over original")
    for one in pages:
        cells = (f"{one.graph} {one.sampler}", f"{one.budget_share:.0%}", one.order, f"{one.pages_per_batch:,.0f}")
        read = (f"{one.bytes_read / 1e6:,.0f}", f"{one.over_original:.2f}")
        pinned = (f"{one.pinned_bytes_read / 1e6:,.0f}", f"{one.pinned_over_original:.2f}")
        table.add_row(*cells, *read, *pinned)
    return table
