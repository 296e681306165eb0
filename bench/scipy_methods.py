"""Layer-wise sampling with SciPy, as the authors of LADIES and FastGCN wrote it; targets are not kept."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Layer = tuple[Any, NDArray[np.int64]]
"""The sampled matrix A / (s p), rows normalised, and its columns' vertices."""


def ladies_reference(
    lap: Any,
    seeds: NDArray[np.int64],
    sizes: list[int],
    law: Literal["norm", "squared_count"],
    rng: np.random.Generator,
) -> list[Layer]:
    """One batch of LADIES: each layer draws `s` columns of the frontier's rows (Zou et al. 2019, algorithm 1)."""
    layers, frontier = [], seeds
    for size in sizes:
        rows = lap[frontier, :]
        weight = np.asarray(rows.multiply(rows).sum(axis=0)).ravel()
        if law == "squared_count":
            weight = np.asarray(rows.sum(axis=0)).ravel() ** 2
        layers.append(_draw(rows, weight / weight.sum(dtype=np.float64), size, rng))
        frontier = layers[-1][1]
    return layers


def fastgcn_reference(
    lap: Any, p: NDArray[np.float64], seeds: NDArray[np.int64], sizes: list[int], rng: np.random.Generator
) -> list[Layer]:
    """One batch of FastGCN: each layer draws `s` vertices from the same distribution `p` (Chen et al. 2018)."""
    layers, frontier = [], seeds
    for size in sizes:
        layers.append(_draw(lap[frontier, :], p, size, rng))
        frontier = layers[-1][1]
    return layers


def _draw(rows: Any, p: NDArray[np.float64], size: int, rng: np.random.Generator) -> Layer:
    """Distinct columns by `p`, and the rows' entries in them."""
    p = p.astype(np.float64)
    columns = np.sort(rng.choice(len(p), min(size, np.count_nonzero(p)), replace=False, p=p / p.sum()))
    matrix = rows[:, columns].multiply(1 / (len(columns) * p[columns])).tocsr()
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    matrix.data /= np.repeat(np.where(sums > 0, sums, 1), np.diff(matrix.indptr))
    return matrix, columns
