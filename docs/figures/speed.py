"""Draws speed.png from docs/records/sampling.jsonl: milliseconds per batch, spsample and others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RECORDS = Path(__file__).resolve().parents[1] / "records" / "sampling.jsonl"
OURS, OTHERS, INK, GREY = "#2468b0", "#b6bcc8", "#1f2937", "#6b7280"


class Group(NamedTuple):
    """A task, spsample's record of it, and another's."""

    task: str
    case: str
    ours: str
    other: str
    name: str


GROUPS = [
    Group("GraphSAGE", "blocks", "spsample, CSR", "DGL DataLoader", "DGL DataLoader"),
    Group(
        "PyG's form,\nwith features", "loader-subgraph", "spsample, pyg()", "NeighborLoader, 2 workers", "PyG (pyg-lib)"
    ),
    Group("LADIES", "ladies-norm", "spsample", "SciPy", "its authors' method (SciPy)"),
    Group("FastGCN", "fastgcn", "spsample", "SciPy", "its authors' method (SciPy)"),
]


def seconds() -> dict[tuple[str, str], float]:
    """Median time per batch of each case and side."""
    lines = map(json.loads, RECORDS.read_text("utf-8").splitlines())
    return {(r["case"], r["side"]): r["seconds_per_batch"] for r in lines if r["kind"] == "result"}


def bars(axes: plt.Axes, group: Group, ours: float, other: float) -> None:
    """Two bars, the other's as long as the panel."""
    axes.barh([1, 0], [ours / other, 1.0], height=0.62, color=[OURS, OTHERS])
    axes.set(xlim=(0, 1.0), ylim=(-0.5, 1.5))
    axes.axis("off")
    axes.text(-0.02, 1, "spsample", ha="right", va="center", fontsize=10, color=OURS, weight="bold")
    axes.text(-0.02, 0, group.name, ha="right", va="center", fontsize=10, color=INK)
    axes.text(ours / other + 0.015, 1, f"{1e3 * ours:.1f} ms", va="center", fontsize=10, color=OURS, weight="bold")
    axes.text(1.015, 0, f"{1e3 * other:.0f} ms", va="center", fontsize=10, color=INK)
    axes.text(-0.675, 0.5, group.task, va="center", fontsize=10.5, weight="bold", color=INK)


def main(path: Path) -> None:
    """One panel per task, each with a scale of its own."""
    times = seconds()
    figure, rows = plt.subplots(len(GROUPS), 1, figsize=(9.0, 3.3))
    figure.subplots_adjust(left=0.38, right=0.92, top=0.88, bottom=0.01, hspace=0.45)
    title = "Time of one minibatch (shorter is better; each pair has its own scale)"
    figure.text(0.015, 0.945, title, fontsize=11, weight="bold", color=INK)
    for axes, group in zip(rows, GROUPS, strict=True):
        bars(axes, group, times[group.case, group.ours], times[group.case, group.other])
    figure.savefig(path, dpi=170, facecolor="white")
    plt.close(figure)


if __name__ == "__main__":
    main(Path(__file__).with_suffix(".png"))
