"""Draws pipelines_NAME.png: the same job on two ranks with each pipeline, a few steps of its timeline.

It runs `spsample launch -n 2 train ... --trace`, so that the pictures are of this machine, as it is then.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from spsample.timeline import plot_timeline

FIGURES = Path(__file__).resolve().parent
PIPELINES = ("sync", "overlap", "factored", "cooperative")
JOB = (
    *("rmat:15,24", "--fanouts", "15,10,5", "--batch-size", "256", "--bulk-size", "8"),
    *("--hidden", "16", "--epochs", "1", "--evaluation", "sampled"),
)
STEPS = 4, 15


def traced(pipeline: str, job: Sequence[str], folder: Path) -> Path:
    """The trace of a run on two ranks, with one thread each for kernels and torch."""
    trace = folder / f"{pipeline}.json"
    command = [sys.executable, "-m", "spsample.cli.main", "launch", "-n", "2", "train", *job]
    subprocess.run(
        [*command, "--pipeline", pipeline, "--trace", str(trace)],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return trace


def main(folder: Path = FIGURES, job: Sequence[str] = JOB, steps: tuple[int, int] = STEPS) -> None:
    """One picture for each pipeline."""
    with tempfile.TemporaryDirectory() as scratch:
        for pipeline in PIPELINES:
            plot_timeline(traced(pipeline, job, Path(scratch)), folder / f"pipelines_{pipeline}.png", steps=steps)


if __name__ == "__main__":
    main()
