"""Draws process_grid.png: a graph in block rows on a p/c x c grid of ranks, and what travels between them."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROWS, COPIES = 4, 2
BANDS = ["#2468b0", "#0f8a6d", "#d97706", "#9d4edd"]
INK, GREY, ASK, ANSWER = "#1f2937", "#6b7280", "#c0392b", "#2468b0"
TOP, HEIGHT, WIDTH, LEFT, APART = 3.4, 3.0, 8.6, 12.2, 14.0
ASKING = 1
"""The row of the grid whose rank is shown asking."""


def text(axes: plt.Axes, x: float, y: float, words: str, size: float = 9.5, **options: object) -> None:
    """Words in ink, unless told otherwise."""
    axes.text(x, y, words, fontsize=size, **{"color": INK, "va": "center", **options})


def matrix(axes: plt.Axes) -> None:
    """A, cut into block rows."""
    text(axes, 0.4, 0.6, "The graph", 10.5, weight="bold")
    text(axes, 0.4, 1.75, f"A in p/c = {ROWS} block rows")
    for block, colour in enumerate(BANDS):
        y = TOP + block * HEIGHT
        axes.add_patch(plt.Rectangle((0.4, y), 8.0, HEIGHT, facecolor=colour, alpha=0.28, edgecolor=colour))
        text(axes, 4.4, y + HEIGHT / 2, f"block row {block}", ha="center")
    text(axes, 0.4, TOP + ROWS * HEIGHT + 0.9, "features lie in the same", 9, color=GREY)
    text(axes, 0.4, TOP + ROWS * HEIGHT + 1.8, "block rows", 9, color=GREY)


def corner(row: int, column: int) -> tuple[float, float]:
    """Of a rank's box."""
    return LEFT + column * APART, TOP + row * HEIGHT


def ranks(axes: plt.Axes) -> None:
    """The grid: boxes of ranks, in the colour of the block row that they hold."""
    text(axes, LEFT, 0.6, f"The ranks: p = {ROWS * COPIES}, replication c = {COPIES}", 10.5, weight="bold")
    for row in range(ROWS):
        for column in range(COPIES):
            x, y = corner(row, column)
            rank = row * COPIES + column
            box = plt.Rectangle((x, y + 0.25), WIDTH, HEIGHT - 0.5, facecolor="white", edgecolor=INK, linewidth=1.2)
            axes.add_patch(box)
            axes.add_patch(plt.Rectangle((x, y + 0.25), 0.55, HEIGHT - 0.5, facecolor=BANDS[row], edgecolor="none"))
            text(axes, x + 1.0, y + 1.05, f"rank {rank}", 10, weight="bold")
            text(axes, x + 1.0, y + 2.0, f"batches {rank}, {rank + ROWS * COPIES}, ...", 8.8, color=GREY)
    for column in range(COPIES):
        x, _ = corner(0, column)
        frame = (x - 0.45, TOP - 0.15), WIDTH + 3.2, ROWS * HEIGHT + 0.3
        axes.add_patch(plt.Rectangle(*frame, fill=False, edgecolor=GREY, linestyle=(0, (4, 3)), linewidth=1.1))
        text(axes, x + WIDTH / 2 + 1.1, 1.75, f"column group {column}", ha="center")
        text(axes, x + WIDTH / 2 + 1.1, 2.65, "holds all of A", 8.8, ha="center", color=GREY)
    x, y = corner(ROWS - 1, 0)
    y += HEIGHT + 0.75
    style = {"arrowstyle": "<->", "color": GREY, "linewidth": 1.1}
    axes.annotate("", (x, y), (x + APART + WIDTH + 2.2, y), arrowprops=style)
    words = "a row group holds the same block row; nothing travels along it"
    text(axes, x + (APART + WIDTH + 2.2) / 2, y + 0.8, words, 9, ha="center", color=GREY)


def bus(axes: plt.Axes, column: int, asks: bool) -> None:
    """Lines beside a column group: from the rank that asks to the others, or back from them."""
    shift, colour = (0.0, ASK) if asks else (0.85, ANSWER)
    x = corner(ASKING, column)[0]
    edge, line = x + WIDTH, x + WIDTH + 1.15 + shift
    at = [corner(row, column)[1] + 1.05 + 0.9 * (not asks) for row in range(ROWS)]
    axes.plot([line, line], [min(at), max(at)], color=colour, linewidth=1.5, solid_capstyle="round")
    for row, there in enumerate(at):
        arrives = (row != ASKING) == asks
        style = {"arrowstyle": "-|>" if arrives else "-", "color": colour, "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (edge + 0.08, there), (line, there), arrowprops=style)


def messages(axes: plt.Axes) -> None:
    """One rank of each column group asks the others of its group, and is answered."""
    for column in range(COPIES):
        bus(axes, column, asks=True)
        bus(axes, column, asks=False)
        x, y = corner(ASKING, column)
        text(axes, x + WIDTH - 0.35, y + 1.05, "asks", 8.8, color=ASK, ha="right")


def told(axes: plt.Axes) -> None:
    """What the messages hold."""
    y, left, middle, right = 19.9, 0.4, 7.2, 21.6
    text(axes, left, y - 1.1, "What travels", 10.5, weight="bold")
    text(axes, middle, y + 0.1, "requests", color=ASK, weight="bold")
    text(axes, right, y + 0.1, "answers", color=ANSWER, weight="bold")
    lines = [
        ("GraphSAGE", "vertices of the frontier", "s neighbours of each, drawn by the owner"),
        ("LADIES", "rows, then positions in them", "totals of rows, then columns and edges"),
        ("FastGCN", "numbers that were drawn", "sampled columns, then edges"),
        ("Features", "row numbers, each once", "rows of features"),
    ]
    for name, ask, back in lines:
        y += 1.25
        axes.plot([left, 38.6], [y - 0.52] * 2, color="#d5d9e0", linewidth=0.8)
        text(axes, left, y + 0.1, name, weight="bold")
        text(axes, middle, y + 0.1, ask)
        text(axes, right, y + 0.1, back)
    words = (
        "All ranks ask at once; one is shown in each group. The published algorithm also adds up P along row groups."
    )
    text(axes, left, y + 1.5, words, 8.6, color=GREY)


def main(path: Path) -> None:
    """Graph, ranks and messages."""
    figure = plt.figure(figsize=(8.8, 6.0))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 39.2), ylim=(26.9, -0.3))
    axes.axis("off")
    matrix(axes)
    ranks(axes)
    messages(axes)
    told(axes)
    figure.savefig(path, dpi=170, facecolor="white")
    plt.close(figure)


if __name__ == "__main__":
    main(Path(__file__).with_suffix(".png"))
