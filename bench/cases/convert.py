"""An edge list to a store by ``spsample convert``, within a budget of memory."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from ..case import Case, Figures, Plot, Side, Work
from ..inputs import Inputs

_SAMPLE_SECONDS = 0.01


def convert(inputs: Inputs) -> Work:
    """The graph's edges in random order, as a file of the cell's ``format``, by a process of its own."""
    folder = tempfile.TemporaryDirectory(prefix="spsample-bench-")
    name, budget = f"edges.{inputs['format']}", inputs["memory_budget_mib"]
    count = _write(Path(folder.name) / name, inputs)
    words = ["convert", name, "store", "--overwrite", "--threads", str(inputs["threads"])]
    command = [sys.executable, "-m", "spsample.cli.main", *words, "--memory-budget", f"{budget}MiB"]

    def work() -> Figures:
        start, before = time.perf_counter(), _processor_seconds()
        peak = _watched(command, folder.name)
        seconds, cpu = time.perf_counter() - start, _processor_seconds() - before
        figures = {"seconds": seconds, "cpu_seconds": cpu, "batches": 1, "edges": count, "peak_anon_bytes": peak}
        return {**figures, "peak_over_budget": peak / (budget << 20), "million_edges_per_s": count / seconds / 1e6}

    return work


def _processor_seconds() -> float:
    """Of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _write(path: Path, inputs: Inputs) -> int:
    """Sources and targets, as rows of an array or columns of text; how many."""
    order = np.random.default_rng(0).permutation(len(inputs.indices))
    targets = np.repeat(np.arange(len(inputs.indptr) - 1), np.diff(inputs.indptr))[order]
    sources = inputs.indices[order].astype(np.int64)
    if path.suffix == ".npy":
        np.save(path, np.stack([sources, targets]))
    else:
        pd.DataFrame({"src": sources, "dst": targets}).to_csv(path, index=False)
    return len(order)


def _watched(command: list[str], folder: str) -> int:
    """Run it in a folder; the most anonymous memory that it was seen to hold, as a budget counts."""
    peak, said = 0, Path(folder) / "said.txt"
    with said.open("wb") as output, subprocess.Popen(command, cwd=folder, stdout=output, stderr=output) as process:
        while process.poll() is None:
            peak = max(peak, _anonymous(process.pid))
            time.sleep(_SAMPLE_SECONDS)
    if process.returncode:
        problem = said.read_text(errors="replace").strip()[-500:]
        raise RuntimeError(f"spsample convert ended with {process.returncode}: {problem}")
    return peak


def _anonymous(process: int) -> int:
    """RssAnon of /proc/PID/status, in bytes; 0 where there is none."""
    try:
        text = Path(f"/proc/{process}/status").read_text("ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("RssAnon:")), 0)


CASE = Case(
    about="Conversion of an edge list in random order: edges a second, processor time, and memory beside the budget.",
    claim="Millions of edges a second are sorted to a store, in less anonymous memory than the budget says.",
    parameters={
        "graph": ("rmat:19,16",),
        "threads": (1, 2),
        "format": ("npy", "csv"),
        "memory_budget_mib": (256,),
    },
    quick={"graph": ("rmat:16,16",), "threads": (2,)},
    sides=(Side("spsample convert", convert),),
    plots=(Plot("million_edges_per_s", x="format", facet="threads", title="million edges a second"),),
)
