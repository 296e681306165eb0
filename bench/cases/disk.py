"""Rows of features on a disk: `DiskFeatures` within a budget, told of the batches and not, and a memory map."""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from spsample.features import DiskFeatures

from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs
from ..traced import Run

BULK, PAGE = 16, 4096
"""Batches of a bulk: this one and the next are known; bytes of a page of the system."""


def budgeted(inputs: Inputs) -> Work:
    """Each turn opens the features anew; with ``announced`` they are told of each bulk one bulk ahead."""
    trace = _Trace(inputs)

    def gather() -> Figures:
        with DiskFeatures(trace.path, int(inputs["share"] * trace.path.stat().st_size)) as features:
            for i, ids in enumerate(trace.batches):
                if inputs["announced"] and i % BULK == 0:
                    features.prefetch_hint(trace.batches[i + BULK if i else 0 : i + 2 * BULK])
                features.gather(ids, out=trace.out[: len(ids)])
            counts = features.counts
        return {"hits": counts.hit_share, "read_bytes": counts.read_bytes, "reads": counts.reads / len(trace.batches)}

    return trace.timed(gather)


def mapped(inputs: Inputs) -> Work:
    """A map that the system does not read ahead of: the pages that were read stay in memory, outside of any budget."""
    import mmap

    trace = _Trace(inputs)

    def gather() -> Figures:
        rows: Any = np.load(trace.path, mmap_mode="r")
        rows._mmap.madvise(mmap.MADV_RANDOM)
        for ids in trace.batches:
            np.take(rows, ids, axis=0, out=trace.out[: len(ids)], mode="clip")
        return {}

    return trace.timed(gather)


def simulated(inputs: Inputs) -> Work:
    """What a map reads in as much memory, where the system drops the pages that were used least recently."""
    trace = _Trace(inputs)
    frames, misses = int(inputs["share"] * trace.path.stat().st_size) // PAGE, 0
    kept: OrderedDict[int, None] = OrderedDict()
    for page in _pages(trace):
        if page in kept:
            kept.move_to_end(page)
            continue
        misses += 1
        kept[page] = None
        if len(kept) > frames:
            kept.popitem(last=False)
    return lambda: {"seconds": 0.0, "batches": len(trace.batches), "read_bytes": misses * PAGE}


def _pages(trace: _Trace) -> Iterator[int]:
    """Those of the rows in the order of the ids, where they begin and where they end."""
    for ids in trace.batches:
        first = 128 + ids.astype(np.int64) * trace.row_bytes  # after the header
        yield from np.stack([first // PAGE, (first + trace.row_bytes - 1) // PAGE], axis=1).ravel().tolist()


class _Trace:
    """A file of rows in a folder of its own, and the batches of a run."""

    def __init__(self, inputs: Inputs) -> None:
        run, self.row_bytes = Run.of(inputs), inputs["row_bytes"]
        self.batches = list(islice(run.batches(1), inputs["batches"]))
        self._folder = tempfile.TemporaryDirectory(prefix="spsample-bench-", dir=inputs["scratch"] or None)
        self.path = Path(self._folder.name) / "x.npy"
        np.save(self.path, np.random.default_rng(0).random((run.graph.num_nodes, self.row_bytes // 4), np.float32))
        self.out = np.empty((max(map(len, self.batches)), self.row_bytes // 4), np.float32)

    def timed(self, gather: Callable[[], Figures]) -> Work:
        """Gathering from a file of which nothing is in memory; `disk_mib` is what Linux counts for the process."""

        def work() -> Figures:
            self._drop()
            before = _bytes_read()
            figures = gather()
            return {**figures, "batches": len(self.batches), "disk_mib": (_bytes_read() - before) / 2**20}

        return work

    def _drop(self) -> None:
        """Whatever of the file is in the system's cache of pages."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _bytes_read() -> int:
    words = Path("/proc/self/io").read_text("ascii").split()
    return int(words[words.index("read_bytes:") + 1])


CASE = Case(
    about="Batches of a traced run, gathered from a file on a disk of which a share fits into the budget.",
    claim="Told of its batches, DiskFeatures reads a fraction of what a memory map reads in as much memory.",
    parameters={
        "graph": ("rmat:18,16",),
        "scratch": ("",),
        "fanouts": ("15,10,5",),
        "batch_size": (1024,),
        "row_bytes": (512,),
        "share": (0.25,),
        "batches": (32,),
        "threads": (2,),
    },
    quick={"graph": ("rmat:15,16",), "fanouts": ("10,5",), "batch_size": (512,)},
    sides=(
        Side("DiskFeatures, announced", budgeted, {"announced": 1}),
        Side("DiskFeatures", budgeted, {"announced": 0}),
        Side("memory map, without a budget", mapped),
        Side("memory map, simulated in as much memory", simulated),
    ),
    baselines=("memory map, without",),
    plots=(Plot("read_bytes", x="share", title="bytes read by the share of the file in memory"), Plot("ms", x="share")),
)
