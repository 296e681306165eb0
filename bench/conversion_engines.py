"""Conversion of an edge list with the sort, and the reader of text, of DuckDB or Polars, beside `spsample convert`.

All make the same store: entries in the order (target, source, position in the input), edge ids. The engines give the
sorted entries; the store is written, checked and flushed by `StoreWriter` for each. Edges are raw pairs of int64,
`.npy` of shape (2, E), or `.csv` of two columns without a header. docs/adr/0009-own-external-sort.md has the figures.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from spsample.common.units import require_bytes
from spsample.errors import SpSampleError
from spsample.store import GraphStore, StoreWriter

app = typer.Typer(add_completion=False, no_args_is_help=True)

Array = NDArray[Any]
Sorted = Iterator[tuple[Array, Array]]
"""Keys, which are (target << 32 | source), and positions in the input, batch by batch."""

_SAMPLE_SECONDS = 0.02
_SAMPLES_PER_LOOK_AT_DISK = 10
_CHUNK = 1 << 20
_SOURCE_BITS = 32


class Engine(str, Enum):
    """Who sorts."""

    SPSAMPLE = "spsample"
    DUCKDB = "duckdb"
    POLARS = "polars"


class Job(NamedTuple):
    """One conversion by an engine: its input, how much memory the engine is told to take, and where it may spill."""

    edges: Path
    spill: Path
    memory: int
    threads: int

    @property
    def is_text(self) -> bool:
        """Whether the engine reads the file itself."""
        return self.edges.suffix == ".csv"

    def ends(self) -> tuple[Array, Array]:
        """Sources and targets, as maps of a binary file."""
        if self.edges.suffix == ".npy":
            array = np.load(self.edges, mmap_mode="r")
            return array[0], array[1]
        pairs = np.memmap(self.edges, np.int64, "r").reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def count(self) -> int:
        """How many edges there are."""
        if not self.is_text:
            return len(self.ends()[0])
        with self.edges.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(_CHUNK), b""))


def _duckdb(job: Job) -> Sorted:
    """Sort by DuckDB's ORDER BY, which reads the arrays, or the text, and spills into a folder."""
    import duckdb

    settings = {"memory_limit": f"{job.memory // 1000}KB", "threads": job.threads, "temp_directory": str(job.spill)}
    connection = duckdb.connect(":memory:", config=settings)
    if job.is_text:
        types = "{'source': 'BIGINT', 'target': 'BIGINT'}"
        edges = f"read_csv('{job.edges}', header = false, columns = {types})"
    else:
        edges = "edges"
        connection.register(edges, dict(zip(("source", "target"), job.ends(), strict=True)))
    key = f"(target << {_SOURCE_BITS}) | source AS key"
    position = f"(row_number() OVER () - 1)::{'UINTEGER' if job.count() < 2**32 else 'BIGINT'} AS position"
    query = f"SELECT key, position FROM (SELECT {key}, {position} FROM {edges}) ORDER BY key, position"
    for batch in connection.sql(query).to_arrow_reader(_CHUNK):
        yield batch["key"].to_numpy(), batch["position"].to_numpy()


def _polars(job: Job) -> Sorted:
    """Sort by Polars' streaming engine, which spills where it is told of a budget; what it makes itself counts."""
    budget = {"POLARS_OOC_MEMORY_BUDGET_MB": str(job.memory >> 20), "POLARS_OOC_SPILL_DIR": str(job.spill)}
    os.environ.update({**budget, "POLARS_TEMP_DIR": str(job.spill), "POLARS_MAX_THREADS": str(job.threads)})
    import polars as pl
    from polars.io.plugins import register_io_source

    schema = pl.Schema({"source": pl.Int64, "target": pl.Int64})

    def chunks(*_: Any) -> Iterator[Any]:
        sources, targets = job.ends()
        for first in range(0, len(sources), _CHUNK):
            part = slice(first, first + _CHUNK)
            yield pl.DataFrame({"source": sources[part].copy(), "target": targets[part].copy()})

    if job.is_text:
        edges = pl.scan_csv(job.edges, has_header=False, schema=schema)
    else:
        edges = register_io_source(chunks, schema=schema)
    key = pl.col("target") * 2**_SOURCE_BITS + pl.col("source")
    ordered = edges.with_row_index("position").select(key.alias("key"), "position").sort("key", maintain_order=True)
    for batch in ordered.collect_batches(engine="streaming", maintain_order=True):
        yield batch["key"].to_numpy(), batch["position"].to_numpy()


_ENGINES: dict[Engine, Callable[[Job], Sorted]] = {
    Engine.DUCKDB: _duckdb,
    Engine.POLARS: _polars,
}


@app.command()
def sort(
    engine: Engine,
    edges: Path,
    store: Path,
    engine_memory: str = "1.4GiB",
    threads: int = 2,
) -> None:
    """Convert by DuckDB or Polars in this process, and print the seconds of its steps."""
    with StoreWriter(store, overwrite=True) as writer:
        spill = writer.folder / "spilled"
        spill.mkdir()
        job = Job(edges, spill, require_bytes("engine_memory", engine_memory), threads)
        seconds = write_sorted(writer, _ENGINES[engine](job), job)
        shutil.rmtree(spill)
        started = time.perf_counter()
    print(json.dumps({"seconds": {**seconds, "checksums": round(time.perf_counter() - started, 2)}}))


def write_sorted(writer: StoreWriter, batches: Sorted, job: Job) -> dict[str, float]:
    """Write sorted entries into the arrays of a store; return the seconds to the first of them and to the last."""
    started, first_at, end, most = time.perf_counter(), 0.0, 0, 0
    entries = job.count()
    indices = writer.create("indices", np.int32, entries)
    edge_ids = writer.create("edge_ids", np.int64, entries)
    counts = np.memmap(job.spill / "counts", np.int64, "w+", shape=1 << (_SOURCE_BITS - 1))  # a file with holes
    for keys, positions in batches:
        first_at = first_at or time.perf_counter() - started
        targets, sources = keys >> _SOURCE_BITS, keys & ((1 << _SOURCE_BITS) - 1)
        begin, end = end, end + len(targets)
        indices[begin:end], edge_ids[begin:end] = sources, positions
        first, most = int(targets[0]), max(most, int(targets[-1]), int(sources.max()))
        several = np.bincount(targets - first)
        counts[first : first + len(several)] += several
    indptr = writer.create("indptr", np.int64, most + 2)
    np.cumsum(counts[: most + 1], out=indptr[1:])
    return {"to_first": round(first_at, 2), "to_last": round(time.perf_counter() - started, 2)}


@app.command()
def compare(
    edges: Path,
    folder: Annotated[Path, typer.Argument(help="On a disk with room for a store and 20 bytes an edge.")],
    engine: Annotated[list[Engine], typer.Option()] = list(Engine),  # noqa: B006 (typer reads it)
    rounds: int = 3,
    memory_budget: str = "2GiB",
    engine_memory: Annotated[
        str, typer.Option(help="What an engine is told, so that its process stays below.")
    ] = "1.4GiB",
    threads: int = 2,
) -> None:
    """Take turns, each in a process of its own: seconds, memory, disk, and whether the stores are the same.

    A process that takes more than twice the budget is ended.
    """
    _require(engine)
    budget = require_bytes("memory_budget", memory_budget)
    known = None
    for number in range(rounds):
        for side in engine:
            with tempfile.TemporaryDirectory(prefix="engines-", dir=folder) as work:
                store = Path(work) / "store"
                command = _command(side, edges, store, memory_budget, engine_memory, threads)
                figures = _measured(command, Path(work), 2 * budget)
                content = content_of(store) if figures["exit"] == 0 else None
            known = known or content
            facts = {"content": content, "same": content == known, "inside": figures["peak_rss_anon"] <= budget}
            print(json.dumps({"round": number, "engine": side, **figures, **facts}), flush=True)


def _require(engines: list[Engine]) -> None:
    needed = {Engine.DUCKDB: ("duckdb", "pyarrow"), Engine.POLARS: ("polars",), Engine.SPSAMPLE: ()}
    missing = sorted({name for engine in engines for name in needed[engine] if find_spec(name) is None})
    if missing:
        typer.echo(f"missing: pip install {' '.join(missing)}, or choose others with --engine", err=True)
        raise typer.Exit(2)


def _command(
    engine: Engine, edges: Path, store: Path, memory_budget: str, engine_memory: str, threads: int
) -> list[str]:
    if engine is Engine.SPSAMPLE:
        program = [sys.executable, "-m", "spsample.cli.main", "convert", str(edges), str(store), "--overwrite"]
        return [*program, "--memory-budget", memory_budget, "--threads", str(threads), "--json"]
    program = [sys.executable, __file__, "sort", engine, str(edges), str(store)]
    return [*program, "--engine-memory", engine_memory, "--threads", str(threads)]


def _measured(command: list[str], work: Path, most: int) -> dict[str, Any]:
    """Run a command to its end, or until it takes more than `most` bytes; memory and disk are looked at meanwhile."""
    before, started = os.times(), time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    anonymous = resident = disk = samples = 0
    while process.poll() is None:
        now = _memory(process.pid)
        anonymous, resident = max(anonymous, now.get("RssAnon", 0)), max(resident, now.get("VmHWM", 0))
        if samples % _SAMPLES_PER_LOOK_AT_DISK == 0:
            disk = max(disk, _bytes_below(work))
        if anonymous > most:
            process.kill()
        samples += 1
        time.sleep(_SAMPLE_SECONDS)
    seconds, after = time.perf_counter() - started, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    output = process.stdout.read() if process.stdout else ""
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "peak_rss_anon": anonymous,
        "peak_rss": resident,
        "peak_disk": disk,
        "exit": process.returncode,
        "steps": json.loads(output)["seconds"] if process.returncode == 0 else {},
    }


def _memory(process: int) -> dict[str, int]:
    """Bytes of /proc/PID/status by name; none where the process is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text("ascii").splitlines()
    except OSError:
        return {}
    words = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(size) * 1024 for name, size, _ in words}


def _bytes_below(folder: Path) -> int:
    """Bytes on the disk of all files of a folder."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(parent) / name).stat().st_blocks * 512
            except OSError:
                continue  # gone meanwhile
    return total


def content_of(store: Path) -> str:
    """A checksum of a store's arrays."""
    arrays = json.loads((store / "meta.json").read_text("utf-8"))["arrays"]
    told = [(name, arrays[name]["dtype"], arrays[name]["shape"], arrays[name]["sha256"]) for name in sorted(arrays)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


@app.command()
def kill(
    engine: Engine,
    edges: Path,
    folder: Path,
    seconds: Annotated[float, typer.Argument(help="About what a conversion takes.")],
    times: int = 5,
    memory_budget: str = "2GiB",
    engine_memory: str = "1.4GiB",
    threads: int = 2,
    random_seed: int = 0,
) -> None:
    """End a conversion by SIGKILL at random moments: what is left, and whether the run after all of them succeeds."""
    _require([engine])
    rng = random.Random(random_seed)
    with tempfile.TemporaryDirectory(prefix="kill-", dir=folder) as name:
        work, store = Path(name), Path(name) / "store"
        command = _command(engine, edges, store, memory_budget, engine_memory, threads)
        for number in range(times):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            time.sleep(rng.uniform(0.1, 0.95) * seconds)
            process.send_signal(signal.SIGKILL)
            process.wait()
            left = {str(path.relative_to(work)) for path in work.rglob("*") if path.is_file()}
            line = {"kill": number, "files": len(left), "bytes": _bytes_below(work), "opens": _opens(store)}
            print(json.dumps(line | {"left": sorted(left)[:6]}), flush=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        GraphStore.open(store).verify()
        print(json.dumps({"rerun": "verified", "left": sorted(path.name for path in work.iterdir())}))


def _opens(store: Path) -> bool:
    try:
        GraphStore.open(store)
    except SpSampleError:
        return False
    return True


if __name__ == "__main__":
    app()
