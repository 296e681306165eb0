"""Load batches for a long time: a cache that looks ahead over a disk, prefetch, a transform, passes left early.

    OMP_NUM_THREADS=1 python tests/by_hand/soak_loader.py --minutes 60

Every batch's rows must be those of its vertices. Every ten seconds a JSON line says what memory there is, and who holds
it: the process (`RssAnon`), the core's pool, malloc (mapped from the system, and in use), Python (blocks). What is held
is what the pool and malloc have in use: glibc keeps what is freed, up to 64 MiB in each arena, and `RssAnon` moves by
it: in 42 minutes and 10,500 batches between 235 and 346 MiB, while 147 MiB were held, within 1 MiB but for a batch
under way. The exit status is 1 where a row is wrong, or what is held has grown by more than ``--most-growth`` MiB in
the last half.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from held_memory import MIB, anonymous_memory, growth

import spsample as sp
from spsample import _core
from spsample.features import DiskFeatures

BATCH_SIZE, DIM = 512, 128


class Malloc(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33 and later: sums over all arenas."""

    _NAMES = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _NAMES.split()]


def memory_by_holder():
    """MiB, and the number of Python's blocks."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Malloc
    malloc, (pool, _) = libc.mallinfo2(), _core.pool_use()
    sizes = {
        "RssAnon": anonymous_memory(),
        "pool": pool,
        "malloc mapped": malloc.arena + malloc.hblkhd,
        "malloc in use": malloc.uordblks + malloc.hblkhd,
    }
    return {name: round(size / MIB, 2) for name, size in sizes.items()} | {"blocks": sys.getallocatedblocks()}


def transform(batch):
    """The vertices of a batch, and twice their rows: a new array beside those that were gathered."""
    return batch.src_nodes, batch.x * 2.0


def passes(loader):
    """Batches of passes, two of three of which are left early."""
    draws = np.random.default_rng(0)
    for number in itertools.count():
        most = loader.num_batches if number % 3 == 0 else int(draws.integers(1, loader.num_batches))
        yield from itertools.islice(loader, most)


def rows_file(folder, n):
    """Rows on a disk, of which row v holds v."""
    path = Path(folder) / "rows.npy"
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, DIM))
    for begin in range(0, n, 1 << 14):
        rows[begin : begin + (1 << 14)] = np.arange(begin, min(n, begin + (1 << 14)), dtype=np.float32)[:, None]
    rows.flush()
    return path


def main(
    minutes: Annotated[float, typer.Option(help="How long.")] = 60.0,
    scale: Annotated[int, typer.Option(help="2 to this power: vertices.")] = 17,
    seconds: Annotated[float, typer.Option(help="Between two lines.")] = 10.0,
    most_growth: Annotated[float, typer.Option(help="MiB, in the last half.")] = 4.0,
) -> None:
    """Load until the time is over; a JSON line every ten seconds and one at the end."""
    n = 1 << scale
    # From few sources to many: a cache has something to gain.
    edges = (n * np.random.default_rng(1).random((2, 16 * n)) ** [[3], [1]]).astype(np.int64)
    graph, degrees = sp.Graph.from_edge_index(edges, num_nodes=n), np.bincount(edges[0], minlength=n)
    options = {"batch_size": BATCH_SIZE, "bulk_size": 8, "transform": transform, "prefetch": 2}
    with tempfile.TemporaryDirectory(dir=".") as folder, DiskFeatures(rows_file(folder, n), "4MiB") as rows:
        cache = sp.CachedFeatures(rows, "12MiB", degrees, replacement="lookahead")
        loader = sp.BulkLoader(graph, np.arange(0, n, 4), sp.GraphSAGE([10, 5]), features=cache, **options)
        begin, told, wrong, samples = time.monotonic(), 0.0, 0, []
        for batches, (vertices, x) in enumerate(passes(loader)):
            wrong += not (np.array_equal(x[:, 0], 2.0 * vertices) and np.array_equal(x[:, -1], 2.0 * vertices))
            now = time.monotonic()
            if now > told + seconds:
                told, facts = now, memory_by_holder()
                samples.append((now - begin, (facts["pool"] + facts["malloc in use"]) * MIB))
                print(json.dumps({"seconds": round(now - begin), "batches": batches, **facts}), flush=True)
            if now > begin + 60 * minutes:
                break
    held = growth(samples[len(samples) // 2 :])
    found = {"batches": batches, "wrong": wrong, "hits": round(cache.counts.hit_share, 3)}
    print(json.dumps(found | {"held, last half": held}))
    raise typer.Exit(1 if wrong or held.get("growth", 0.0) > most_growth else 0)


if __name__ == "__main__":
    typer.run(main)
