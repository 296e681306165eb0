"""Conversion of a large edge list: speed and peak memory beside sorts in memory; kills at random moments."""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from spsample.common.units import format_bytes
from spsample.data.philox import PhiloxStream
from spsample.data.rmat import rmat_pairs
from spsample.errors import SpSampleError
from spsample.store import GraphStore

app = typer.Typer(add_completion=False, no_args_is_help=True)

_CHUNK = 1 << 22
_SAMPLE_SECONDS = 0.01


@app.command()
def generate(
    path: Path,
    scale: Annotated[int, typer.Option(help="The graph has 2**SCALE vertices.")] = 24,
    entries: Annotated[int, typer.Option(help="Edges.")] = 500_000_000,
) -> None:
    """Write an R-MAT edge list as raw pairs of int64, 16 bytes an entry."""
    stream = PhiloxStream(0)
    with path.open("wb") as file:
        for first in range(0, entries, _CHUNK):
            pairs = rmat_pairs(scale, min(_CHUNK, entries - first), stream)
            file.write(np.stack(pairs, axis=1).tobytes())


@app.command()
def convert(
    edges: Path,
    store: Path,
    memory_budget: str = "2GiB",
    threads: int = 2,
    verify: bool = True,
) -> None:
    """Convert raw pairs in a process of its own and sample its anonymous resident memory."""
    command = _command(edges, store, memory_budget, threads)
    started = time.perf_counter()
    process = subprocess.Popen([*command, "--json", "--overwrite"], stdout=subprocess.PIPE, text=True)
    peak, samples = 0, 0
    while process.poll() is None:
        peak, samples = max(peak, _anonymous(process.pid)), samples + 1
        time.sleep(_SAMPLE_SECONDS)
    seconds = time.perf_counter() - started
    output = process.stdout.read() if process.stdout else ""
    if process.returncode:
        raise typer.Exit(1)
    entries = edges.stat().st_size // 16
    line = {
        "case": "convert",
        "entries": entries,
        "seconds": round(seconds, 2),
        "million_entries_per_second": round(entries / seconds / 1e6, 2),
        "memory_budget": memory_budget,
        "threads": threads,
        "peak_rss_anon": format_bytes(peak),
        "samples_of_rss_anon": samples,
        "conversion": json.loads(output),
    }
    if verify:
        started = time.perf_counter()
        GraphStore.open(store).verify()
        line["verified_seconds"] = round(time.perf_counter() - started, 2)
    print(json.dumps(line))


def _command(edges: Path, store: Path, memory_budget: str, threads: int) -> list[str]:
    program = [sys.executable, "-m", "spsample.cli.main", "convert", str(edges), str(store), "--format", "int64"]
    return [*program, "--memory-budget", memory_budget, "--threads", str(threads)]


def _anonymous(process: int) -> int:
    """RssAnon of /proc/PID/status, in bytes; 0 where the process is gone."""
    try:
        text = Path(f"/proc/{process}/status").read_text("ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("RssAnon:")), 0)


@app.command()
def in_memory(edges: Path, entries: int = 100_000_000) -> None:
    """Time plain single-threaded sorts of the first entries: a stable argsort of composed keys, scipy's conversion."""
    pairs = np.fromfile(edges, np.int64, 2 * entries).reshape(-1, 2)
    sources, targets = pairs[:, 0].copy(), pairs[:, 1].copy()
    del pairs
    n = int(max(sources.max(), targets.max())) + 1
    for name, sort in (("argsort", _argsort), ("scipy", _scipy)):
        started = time.perf_counter()
        sort(sources, targets, n)
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        rate = round(entries / seconds / 1e6, 2)
        line = {"case": name, "entries": entries, "seconds": round(seconds, 2), "million_entries_per_second": rate}
        print(json.dumps(line | {"peak_rss": format_bytes(peak)}))


def _argsort(sources: np.ndarray, targets: np.ndarray, n: int) -> tuple[np.ndarray, ...]:
    """indptr, indices and edge ids by one stable sort."""
    order = np.argsort(targets * n + sources, kind="stable")
    return np.cumsum(np.bincount(targets, minlength=n)), sources[order].astype(np.int32), order


def _scipy(sources: np.ndarray, targets: np.ndarray, n: int) -> tuple[np.ndarray, ...]:
    """The same by the two counting sorts of `Graph.from_edge_index`."""
    from spsample.store import Graph

    graph = Graph.from_edge_index(np.stack([sources, targets]), num_nodes=n)
    return graph.indptr, graph.indices, graph.edge_ids


@app.command()
def kill(
    edges: Path,
    folder: Path,
    times: int = 10,
    memory_budget: str = "2GiB",
    threads: int = 2,
    random_seed: int = 0,
    seconds: Annotated[float, typer.Option(help="About what a conversion takes; 0: one is run to find out.")] = 0.0,
) -> None:
    """End a conversion by SIGKILL at random moments: no store ever opens, and the run after all of them succeeds."""
    work = Path(tempfile.mkdtemp(prefix="kill-", dir=folder))
    store = work / "store"
    command = _command(edges, store, memory_budget, threads)
    rng = random.Random(random_seed)
    if seconds == 0.0:
        started = time.perf_counter()
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - started
        shutil.rmtree(store)
    for number in range(times):
        delay = rng.uniform(0.0, 0.97 * seconds)
        process = subprocess.Popen(command)
        time.sleep(delay)
        ended = process.poll() is not None
        process.send_signal(signal.SIGKILL)
        process.wait()
        names = sorted(entry.name for entry in work.iterdir())
        print(
            json.dumps(
                {
                    "kill": number,
                    "after_seconds": round(delay, 2),
                    "ended": ended,
                    "left": names,
                    "opens": _opens(store),
                }
            )
        )
        if not ended:
            assert not _opens(store)
            for name in names:
                assert not _opens(work / name)
        elif store.exists():
            shutil.rmtree(store)
    subprocess.run(command, check=True)
    GraphStore.open(store).verify()
    left = [entry.name for entry in work.iterdir()]
    print(json.dumps({"rerun": "verified", "left": left}))
    assert left == ["store"]
    shutil.rmtree(work)


def _opens(path: Path) -> bool:
    try:
        GraphStore.open(path)
    except SpSampleError:
        return False
    return True


if __name__ == "__main__":
    app()
