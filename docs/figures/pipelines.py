"""Draws pipelines_NAME.png: the same job on two ranks with each pipeline, a few steps of its timeline.

It runs `spsample launch -n 2 train ... --trace`, so that the pictures are of this machine, as it is then.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FIGURES = Path(__file__).resolve().parent
PIPELINES = ("sync", "overlap", "factored", "cooperative")
JOB = (
    *("rmat:15,24", "--fanouts", "15,10,5", "--batch-size", "256", "--bulk-size", "8"),
    *("--hidden", "16", "--epochs", "1", "--evaluation", "sampled"),
)
STEPS = 4, 15
COLORS = {
    "sampling": "#2b6cb0",
    "features": "#dd8b3a",
    "training": "#38a169",
    "waiting": "#d5dae2",
    "waiting for ranks": "#e9b8b0",
    "sharing out": "#63b3ed",
    "collate": "#f6c68f",
    "forward": "#68d391",
    "backward": "#276749",
    "exchanging gradients": "#c53030",
    "optimisation": "#b7e4c7",
}
"""Of what is drawn; the rest of a trace is left out."""


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


def label(name: str) -> str:
    """Kinds of waiting that the row tells apart have one name."""
    if name.endswith(" waiting for ranks"):
        return "waiting for ranks"
    return "waiting" if " waiting for " in name else name


def draw(trace: Path, picture: Path, steps: tuple[int, int]) -> None:
    """One row for each thread of each rank, from the begin of the first of these steps to the end of the last."""
    from matplotlib.figure import Figure

    events = json.loads(trace.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    names = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    lowest = min(one["pid"] for one in spans)
    training = [one for one in spans if one["pid"] == lowest and one["name"] == "training" and "batch" in one["args"]]
    begins = sorted(one["ts"] for one in training)
    begin, end = begins[steps[0]], [*begins, max(one["ts"] + one["dur"] for one in training)][steps[1] + 1]
    threads = sorted({(one["pid"], one["tid"]) for one in spans})
    figure = Figure(figsize=(9.0, 1.0 + 0.32 * len(threads)), layout="constrained")
    axes = figure.subplots()
    for one in sorted(spans, key=lambda span: span["cat"] == "part"):
        row, color = threads.index((one["pid"], one["tid"])), COLORS.get(label(one["name"]))
        left, right = max(one["ts"], begin), min(one["ts"] + one["dur"], end)
        if color is not None and left < right:
            bar = [((left - begin) / 1e3, (right - left) / 1e3)]
            axes.broken_barh(bar, (row - 0.4, 0.4 if one["cat"] == "part" else 0.8), color=color, linewidth=0)
    axes.set_yticks(range(len(threads)), [f"rank {rank}: {names[rank, row]}" for rank, row in threads])
    axes.set(xlim=(0, (end - begin) / 1e3), ylim=(len(threads) - 0.4, -0.6), xlabel="ms")
    axes.spines[["top", "right"]].set_visible(False)
    handles = [axes.broken_barh([], (0, 0), color=color, label=name) for name, color in COLORS.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=6, frameon=False, fontsize=9)
    figure.savefig(picture, dpi=150)


def main(folder: Path = FIGURES, job: Sequence[str] = JOB, steps: tuple[int, int] = STEPS) -> None:
    """One picture for each pipeline."""
    with tempfile.TemporaryDirectory() as scratch:
        for pipeline in PIPELINES:
            draw(traced(pipeline, job, Path(scratch)), folder / f"pipelines_{pipeline}.png", steps)


if __name__ == "__main__":
    main()
