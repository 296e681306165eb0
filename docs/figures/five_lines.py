"""Draws five_lines.png: one bulk of two small batches through Q, P, SAMPLE and EXTRACT, as spsample computes them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sparse

import spsample as sp
from spsample.sparse import CSRMatrix, normalize_rows, spgemm
from spsample.store import to_scipy

PLACES = [(0.0, 1.0), (1.0, 2.0), (1.0, 0.75), (2.2, 2.25), (0.6, -0.35), (2.2, 0.3), (3.3, 1.3), (2.9, -0.75)]
EDGES = [(0, 1), (0, 2), (0, 4), (1, 2), (1, 3), (2, 5), (3, 6), (4, 5), (4, 7), (5, 6), (5, 7), (6, 7)]
SEEDS = [[0, 3], [2, 7]]
BLUE, ORANGE, INK, GREY, LINES = "#2468b0", "#d97706", "#1f2937", "#6b7280", "#c9ced8"
COLOURS = [BLUE, ORANGE]
RANDOM_SEED = 5
LEFT = {"Q": 3.2, "P": 13.6, "S": 24.0, "A^l": 34.8}
"""Where the columns of panels begin, in cells."""


class Panel(NamedTuple):
    """A matrix to draw: what stands in its cells, how strongly they are filled, and the batch of each row."""

    text: np.ndarray
    fill: np.ndarray
    batches: list[int]


def graph() -> sp.Graph:
    """Eight vertices, each edge in both directions."""
    both = np.array(EDGES + [(b, a) for a, b in EDGES]).T
    return sp.Graph.from_edge_index(both, num_nodes=len(PLACES))


def selectors() -> tuple[np.ndarray, np.ndarray]:
    """Q of GraphSAGE, with a row for each seed, and of LADIES, with one for each batch."""
    node_wise, batch_wise = np.zeros((4, 8)), np.zeros((2, 8))
    for batch, seeds in enumerate(SEEDS):
        node_wise[[2 * batch, 2 * batch + 1], seeds] = 1
        batch_wise[batch, seeds] = 1
    return node_wise, batch_wise


def selected(A: sp.Graph, Q: np.ndarray) -> tuple[Panel, Panel]:
    """Q, and P = NORM(Q A) with its integers."""
    per_batch = len(Q) // len(SEEDS)
    batches = [row // per_batch for row in range(len(Q))]
    matrix = CSRMatrix(A.indptr, A.indices, A.data, (A.num_nodes, A.num_nodes))
    counts = spgemm(CSRMatrix.from_scipy(sparse.csr_matrix(Q)), matrix).to_scipy().toarray()
    P = normalize_rows(CSRMatrix.from_scipy(sparse.csr_matrix(counts))).to_scipy().toarray()
    totals = counts.sum(axis=1).astype(int)
    text = [[f"{int(c)}/{t}" if c else "" for c in row] for row, t in zip(counts, totals, strict=True)]
    ones = np.where(Q > 0, "1", "")
    return Panel(ones, (Q > 0) * 1.0, batches), Panel(np.array(text), 0.75 * P, batches)


def bulk_of(A: sp.Graph, sampler: sp.Sampler) -> sp.BulkSample:
    """Both batches."""
    return sp.bulk_sample(A, np.concatenate(SEEDS), sampler, batch_size=2, random_seed=RANDOM_SEED)


def drawn(A: sp.Graph, sampler: type, rows: int) -> Panel:
    """The columns drawn for each row of P."""
    bulk = sp.bulk_sample(
        A, np.concatenate(SEEDS), sampler([2], include_targets=False), batch_size=2, random_seed=RANDOM_SEED
    )
    S = np.zeros((rows, A.num_nodes))
    for batch, minibatch in enumerate(bulk):
        adj = minibatch.layers[0].adj
        if rows == len(SEEDS):  # layer-wise: the columns of a batch
            S[batch, minibatch.src_nodes] = 1
            continue
        for row in range(2):
            S[2 * batch + row, minibatch.src_nodes[adj.indices[adj.indptr[row] : adj.indptr[row + 1]]]] = 1
    return Panel(np.where(S > 0, "1", ""), S, [row * len(SEEDS) // rows for row in range(rows)])


def layers(A: sp.Graph, sampler: type) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """A^L of each batch with its targets and sources."""
    found = [minibatch.layers[0] for minibatch in bulk_of(A, sampler([2]))]
    return [(layer.adj.to_scipy().toarray(), layer.dst_nodes, layer.src_nodes) for layer in found]


def cell(axes: plt.Axes, x: float, y: float, text: str, fill: float, colour: str) -> None:
    """One entry."""
    axes.add_patch(plt.Rectangle((x, y), 1, 1, facecolor="white", edgecolor=LINES, linewidth=0.8))
    if fill:
        axes.add_patch(plt.Rectangle((x, y), 1, 1, facecolor=colour, alpha=fill, edgecolor="none"))
    if text:
        shade = "white" if fill > 0.6 else INK
        size = 9 if len(text) < 4 else 7.5
        axes.text(x + 0.5, y + 0.53, text, ha="center", va="center", fontsize=size, color=shade)


def matrix(axes: plt.Axes, left: float, top: float, panel: Panel, columns: list[int]) -> None:
    """A panel with its columns' vertices above."""
    for j, vertex in enumerate(columns):
        axes.text(left + j + 0.5, top - 0.35, str(vertex), ha="center", va="center", fontsize=8, color=GREY)
    for i, batch in enumerate(panel.batches):
        for j in range(len(columns)):
            cell(axes, left + j, top + i, panel.text[i, j], panel.fill[i, j], COLOURS[batch])
    for i in range(1, len(panel.batches)):
        if panel.batches[i] != panel.batches[i - 1]:
            axes.plot([left - 0.15, left + len(columns) + 0.15], [top + i] * 2, color=INK, linewidth=1.6)


def arrow(axes: plt.Axes, x: float, y: float, word: str) -> None:
    """From one panel to the next."""
    axes.annotate("", (x + 2.05, y), (x + 0.3, y), arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.3})
    axes.text(x + 1.17, y - 0.4, word, ha="center", va="bottom", fontsize=8.5, weight="bold", color=INK, rotation=90)


def picture(axes: plt.Axes) -> None:
    """The graph, with the seeds of the two batches."""
    left, top, scale = 1.2, 5.2, 2.0
    at = [(left + scale * x, top + scale * (1.0 - y)) for x, y in PLACES]
    for a, b in EDGES:
        axes.plot(*zip(at[a], at[b], strict=True), color="#9aa3b2", linewidth=1.4, zorder=1)
    for vertex, (x, y) in enumerate(at):
        batch = next((i for i, seeds in enumerate(SEEDS) if vertex in seeds), None)
        colour = "white" if batch is None else COLOURS[batch]
        axes.add_patch(plt.Circle((x, y), 0.62, facecolor=colour, edgecolor=INK, linewidth=1.2, zorder=2))
        shade = INK if batch is None else "white"
        axes.text(x, y + 0.03, str(vertex), ha="center", va="center", color=shade, fontsize=10, zorder=3)


def head(axes: plt.Axes, A: sp.Graph) -> None:
    """The graph, its matrix and what is to be read."""
    title = {"fontsize": 11, "weight": "bold", "color": INK}
    axes.text(0.2, 0.1, "A graph, two batches of seeds", **title)
    picture(axes)
    axes.text(13.6, 0.1, "Its matrix A", **title)
    dense = to_scipy(A).toarray()
    for j in range(A.num_nodes):
        axes.text(13.6 + j + 0.5, 1.15, str(j), ha="center", va="center", fontsize=8, color=GREY)
        axes.text(13.1, 1.5 + j + 0.53, str(j), ha="center", va="center", fontsize=8, color=GREY)
        for i in range(A.num_nodes):
            cell(axes, 13.6 + j, 1.5 + i, "1" if dense[i, j] else "", 0.18 * dense[i, j], "#64748b")
    axes.text(24.0, 0.1, "The steps, for all batches at once", **title)
    steps = [
        ("Q", "selects the seeds of both batches"),
        ("P", "NORM(Q A): how probable each\nneighbour is"),
        ("SAMPLE", "draws 2 columns in each row of P"),
        ("EXTRACT", "takes from A the rows of the seeds\nand the drawn columns"),
    ]
    y = 1.75
    for word, told in steps:
        axes.text(24.0, y + 0.08, word, fontsize=9, weight="bold", color=INK, va="top")
        axes.text(28.6, y, told, fontsize=9.5, color=INK, va="top", linespacing=1.35)
        y += 1.45 + 1.1 * told.count("\n")
    axes.text(24.0, y + 0.2, "The seeds and the drawn columns make the next Q.", fontsize=9.5, color=INK, va="top")


def row(axes: plt.Axes, A: sp.Graph, sampler: type, Q: np.ndarray, top: float, told: str) -> None:
    """One sampler's four panels."""
    height, everyone = len(Q), list(range(A.num_nodes))
    axes.text(0.2, top - 2.3, sampler.__name__, fontsize=11, weight="bold", color=INK)
    axes.text(6.4, top - 2.3, told, fontsize=9.5, color=INK)
    q, p = selected(A, Q)
    names = {"Q": "Q", "P": "P = NORM(Q A)", "S": "drawn columns", "A^l": "$A^l$ of each batch"}
    for name, panel in {"Q": q, "P": p, "S": drawn(A, sampler, height)}.items():
        axes.text(LEFT[name], top - 0.95, names[name], fontsize=9.5, color=INK)
        matrix(axes, LEFT[name], top, panel, everyone)
    for i in range(height):
        told_row = f"{SEEDS[i // 2][i % 2]}" if height == 4 else "0, 3" if i == 0 else "2, 7"
        colour = COLOURS[q.batches[i]]
        axes.text(LEFT["Q"] - 0.35, top + i + 0.53, told_row, ha="right", va="center", fontsize=9, color=colour)
    for name, word in (("Q", "NORM"), ("P", "SAMPLE"), ("S", "EXTRACT")):
        arrow(axes, LEFT[name] + A.num_nodes, top + height / 2 + (0.6 if height == 2 else 0.9), word)
    axes.text(LEFT["A^l"], top - 0.95, names["A^l"], fontsize=9.5, color=INK)
    y = top
    for batch, (values, dst, src) in enumerate(layers(A, sampler)):
        text = np.array([[f"{v:g}" if v else "" for v in line] for line in values])
        panel = Panel(text, 0.35 * (values > 0), [batch] * len(dst))
        matrix(axes, LEFT["A^l"], y, panel, src.tolist())
        for i, vertex in enumerate(dst):
            axes.text(LEFT["A^l"] - 0.3, y + i + 0.53, str(vertex), ha="right", va="center", fontsize=8, color=GREY)
        y += 3.1


def main(path: Path) -> None:
    """The graph above, GraphSAGE and LADIES below."""
    A = graph()
    node_wise, batch_wise = selectors()
    figure = plt.figure(figsize=(9.6, 7.0))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.4, 41.4), ylim=(29.5, -1.0))
    axes.axis("off")
    head(axes, A)
    row(axes, A, sp.GraphSAGE, node_wise, 14.6, "a row of Q for each vertex: it draws 2 of its own neighbours")
    row(axes, A, sp.LADIES, batch_wise, 23.9, "a row of Q for each batch: it draws 2 neighbours for all its seeds")
    figure.savefig(path, dpi=170, facecolor="white")
    plt.close(figure)


if __name__ == "__main__":
    main(Path(__file__).with_suffix(".png"))
