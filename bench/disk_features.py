"""Features on a disk, four times the budget: spsample, `np.memmap` and caches of least recently used pages.

The GraphSAGE cells of `traces.py`. Each side is a process of its own (`disk_worker.py`) that begins with nothing of the
file in memory, in a memory cgroup where one can be made. The sides take turns, round after round; medians are
reported. The bytes read are those that Linux counts for the process (/proc/self/io). The caches of least recently used
pages of 4 KiB are simulated, each with all of the budget: one sees rows in the order of a batch's ids, as a memory map
does, one in the order of the file.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from machine_facts import machine_facts
from spsample import _core
from traces import cell

WORKER = Path(__file__).with_name("disk_worker.py")
SIDES = ("lookahead", "often", "memmap:random")
"""`DiskFeatures` with and without announcements; a map that the system does not read ahead of."""
MORE_SIDES = ("lookahead:N", "lookahead:cache", "memmap")
"""Pages of N rows; by way of the system's cache; a map that the system reads ahead of, as its disk is set up."""
PAGE = 4096
HEADER = 128
"""Bytes before the rows in a file of NumPy."""


@dataclass(frozen=True)
class Point:
    """One side, graph and size of row; medians over rounds.

    `over_lru`: bytes read over those of the first cache that is simulated.
    """

    graph: str
    row_bytes: int
    side: str
    rounds: int
    file_bytes: int
    budget: int
    batches: int
    bytes_read: float
    over_lru: float
    milliseconds_per_batch: float | None = None
    fastest: float | None = None
    slowest: float | None = None
    reads_per_batch: float | None = None
    hit_share: float | None = None
    major_faults: float | None = None
    resident_bytes: float | None = None
    resident_over_budget: float | None = None
    in_a_group: bool | None = None


def disk_features(
    graph: Annotated[list[str] | None, typer.Option(help="[cnr2000 rmat:20,16]")] = None,
    row_bytes: Annotated[list[int] | None, typer.Option(help="[512 1024]")] = None,
    side: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(SIDES + MORE_SIDES)}; the first three.")
    ] = None,
    share: Annotated[float, typer.Option(help="Of the file that the budget holds.")] = 0.25,
    epochs: Annotated[int, typer.Option(help="Of the trace.")] = 2,
    bulk_size: Annotated[int, typer.Option(help="Batches of a bulk; one or two are known ahead.")] = 16,
    rounds: Annotated[int, typer.Option(help="Rounds.")] = 3,
    group: Annotated[bool, typer.Option(help="In a memory cgroup, where one can be made.")] = True,
    scratch: Annotated[Path | None, typer.Option(help="Folder on the disk to measure.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of disk_features.jsonl.")] = Path("bench/results"),
) -> None:
    """Features on a disk, within a budget, against memory maps and caches of least recently used pages."""
    points = []
    for name in graph or ("cnr2000", "rmat:20,16"):
        batches = list(cell(name, "GraphSAGE").batches(epochs))
        for size in row_bytes or (512, 1024):
            with tempfile.TemporaryDirectory(prefix="spsample-disk-", dir=scratch) as folder:
                task = _task(Path(folder), name, batches, size) | {"bulk_size": bulk_size, "group": group}
                task["budget"] = int(share * task["file_bytes"])
                points += _measured(task, batches, list(side or SIDES), rounds)
    out.mkdir(parents=True, exist_ok=True)
    records = [{"kind": "machine", **machine_facts(_core.get_num_threads())}]
    records += [{"kind": "point", **asdict(point)} for point in points]
    (out / "disk_features.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    (Console(width=170) if not sys.stdout.isatty() else Console()).print(table(points))


def _task(folder: Path, graph: str, batches: list[NDArray[np.int64]], row_bytes: int) -> dict[str, Any]:
    """A file of random rows, and the trace in another folder."""
    n = 1 + max(int(batch.max()) for batch in batches)
    (folder / "rows").mkdir()
    rows = np.lib.format.open_memmap(folder / "rows" / "x.npy", mode="w+", dtype=np.float32, shape=(n, row_bytes // 4))
    rng = np.random.default_rng(0)
    for first in range(0, n, 1 << 16):
        part = rows[first : first + (1 << 16)]
        part[:] = rng.random(part.shape, np.float32)
    rows.flush()
    ids = np.concatenate(batches).astype(np.int32)
    np.savez(folder / "trace.npz", ids=ids, ends=np.cumsum([len(batch) for batch in batches]))
    return {
        "graph": graph,
        "row_bytes": row_bytes,
        "path": str(folder / "rows" / "x.npy"),
        "trace": str(folder / "trace.npz"),
        "file_bytes": n * row_bytes,
        "checked": 4,
    }


def _measured(task: dict[str, Any], batches: list[NDArray[np.int64]], sides: list[str], rounds: int) -> list[Point]:
    """The simulated caches, then all sides in turn, round after round."""
    frames = task["budget"] // PAGE
    simulated = {
        "LRU pages, order of ids": PAGE * lru_misses(page_trace(batches, task["row_bytes"]), frames),
        "LRU pages, order of the file": PAGE * lru_misses(page_trace(map(np.sort, batches), task["row_bytes"]), frames),
    }
    facts = {key: task[key] for key in ("graph", "row_bytes", "file_bytes", "budget")}
    baseline = next(iter(simulated.values()))
    points = [
        Point(**facts, side=name, rounds=1, batches=len(batches), bytes_read=read, over_lru=read / baseline)
        for name, read in simulated.items()
    ]
    turns = [{side: _run({**task, "side": side}) for side in sides} for _ in range(rounds)]
    return points + [_point(facts, side, [turn[side] for turn in turns], baseline) for side in sides]


def page_trace(batches: Iterable[NDArray[np.int64]], row_bytes: int) -> Iterable[NDArray[np.int64]]:
    """Pages of the file that rows lie on, batch by batch; repeats that follow each other once.

    Examples
    --------
    >>> [pages.tolist() for pages in page_trace([np.array([0, 1, 7, 0])], 512)]
    [[0, 1, 0]]
    """
    for ids in batches:
        first = HEADER + ids.astype(np.int64) * row_bytes
        per_row = [(first + at) // PAGE for at in (*range(0, row_bytes - 1, PAGE), row_bytes - 1)]
        pages = np.stack(per_row, axis=1).ravel()
        yield pages[np.concatenate([[True], pages[1:] != pages[:-1]])]


def lru_misses(batches: Iterable[NDArray[np.int64]], frames: int) -> int:
    """Misses of a cache that drops what was used least recently.

    Examples
    --------
    >>> lru_misses([np.array([0, 1, 0, 2]), np.array([0, 1])], 2)
    4
    """
    kept: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for pages in batches:
        for page in pages.tolist():
            if page in kept:
                kept.move_to_end(page)
                continue
            misses += 1
            kept[page] = None
            if len(kept) > frames:
                kept.popitem(last=False)
    return misses


def _run(task: dict[str, Any]) -> dict[str, Any]:
    """One side in a process of its own, whose allocator gives back what is freed: its memory is measured."""
    environment = {"OMP_WAIT_POLICY": "passive", "MALLOC_MMAP_THRESHOLD_": str(1 << 17), **os.environ}
    done = subprocess.run(
        [sys.executable, str(WORKER), json.dumps(task)], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise RuntimeError(f"{task['side']}: {done.stderr.strip() or f'status {done.returncode}'}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _point(facts: dict[str, Any], side: str, own: list[dict[str, Any]], baseline: int) -> Point:
    milliseconds = [1e3 * one["seconds"] / one["batches"] for one in own]
    read = statistics.median(one["bytes_read"] for one in own)
    resident_bytes = max(one["resident_bytes"] for one in own)
    counted = "reads" in own[0]
    return Point(
        **facts,
        side=side,
        rounds=len(own),
        batches=own[0]["batches"],
        bytes_read=read,
        over_lru=read / baseline,
        milliseconds_per_batch=statistics.median(milliseconds),
        fastest=min(milliseconds),
        slowest=max(milliseconds),
        reads_per_batch=own[0]["reads"] / own[0]["batches"] if counted else None,
        hit_share=own[0]["hit_share"] if counted else None,
        major_faults=statistics.median(one["major_faults"] for one in own),
        resident_bytes=resident_bytes,
        resident_over_budget=resident_bytes / facts["budget"] if counted else None,
        in_a_group=own[0]["in_a_group"],
    )


def table(points: list[Point]) -> Table:
    """A row for each point."""
    columns = (
        "MB read a batch",
        "over LRU",
        "ms a batch",
        "reads a batch",
        "hits",
        "major faults",
        "memory over budget",
    )
    made = Table("graph", "row", "budget MB", "side", *columns)
    for p in points:
        span = _text(p.milliseconds_per_batch, "{:.1f}")
        span += f" ({p.fastest:.1f} to {p.slowest:.1f})" if p.fastest is not None else ""
        made.add_row(
            p.graph,
            str(p.row_bytes),
            f"{p.budget / 1e6:.0f}",
            p.side,
            f"{p.bytes_read / p.batches / 1e6:.2f}",
            f"{p.over_lru:.3f}",
            span,
            _text(p.reads_per_batch, "{:.0f}"),
            _text(p.hit_share, "{:.1%}"),
            _text(p.major_faults, "{:.0f}"),
            _text(p.resident_over_budget, "{:.3f}"),
        )
    return made


def _text(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
