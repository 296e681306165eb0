"""Draws bulk_order.png: the order in which the rows of A are visited."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

BATCHES, RANGES = 4, 8
ARROW = {"arrowstyle": "-|>", "color": "#c0392b", "linewidth": 1.4}
BACK = {"arrowstyle": "-", "color": "#c0392b", "linewidth": 0.8, "linestyle": (0, (4, 3))}


def grid(axes: plt.Axes, title: str) -> None:
    """Batches by ranges of A, with a dot for every row that a batch selects."""
    rng = np.random.default_rng(7)
    for batch in range(BATCHES):
        for part in range(RANGES):
            axes.add_patch(plt.Rectangle((part, batch), 1, 1, facecolor="white", edgecolor="#c8c8d8"))
            x, y = rng.uniform(0.12, 0.88, (2, rng.integers(1, 4)))
            axes.plot(part + x, batch + y, ".", color="#3b6ea5", markersize=4)
    axes.set(xlim=(-0.1, RANGES + 0.1), ylim=(BATCHES + 1.15, -0.35), title=title)
    axes.set_yticks(np.arange(BATCHES) + 0.5, [f"batch {i + 1}" for i in range(BATCHES)])
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.text(RANGES / 2, -0.12, "rows of A, in ranges", ha="center", fontsize=9)
    for side in axes.spines.values():
        side.set_visible(False)


def main() -> None:
    """Two panels: batch by batch, and in bulk order."""
    figure, (one, bulk) = plt.subplots(1, 2, figsize=(10, 3.7), layout="constrained")
    grid(one, "One batch at a time: each reads lines from all over A")
    for batch in range(BATCHES):
        one.annotate("", (RANGES - 0.05, batch + 0.5), (0.05, batch + 0.5), arrowprops=ARROW)
        if batch:
            one.annotate("", (0.1, batch + 0.45), (RANGES - 0.1, batch - 0.45), arrowprops=BACK)
    grid(bulk, "Bulk order: each range is read once, for all batches")
    for part in range(RANGES):
        bulk.annotate("", (part + 0.5, BATCHES - 0.03), (part + 0.5, 0.03), arrowprops=ARROW)
    bulk.add_patch(plt.Rectangle((1, 0), 1, BATCHES, facecolor="#f1c40f", alpha=0.35))
    bulk.add_patch(plt.Rectangle((2, 0), 1, BATCHES, facecolor="#f1c40f", alpha=0.12, edgecolor="#b7950b", ls="--"))
    bulk.text(1.5, BATCHES + 0.3, "in cache", ha="center", fontsize=8)
    bulk.text(2.55, BATCHES + 0.3, "fetched", ha="center", fontsize=8)
    for thread in range(2):
        left = thread * RANGES / 2
        bulk.plot([left + 0.06, left + RANGES / 2 - 0.06], [BATCHES + 0.55] * 2, color="#556", linewidth=2)
        bulk.text(left + RANGES / 4, BATCHES + 0.9, f"segment of thread {thread + 1}", ha="center", fontsize=9)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=130)


if __name__ == "__main__":
    main()
