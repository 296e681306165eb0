"""LADIES and FastGCN as their authors publish them: one batch at a time, a SciPy product per layer.

Written from the published algorithms (Zou et al., NeurIPS 2019; Chen et al., ICLR 2018), with SciPy's and NumPy's own
operations throughout. `lap` is A (rows are targets) as a CSR array of float32: ones, or `1/d` per row. float32 indices
and data, and `numpy.random.Generator`, are what makes each method fastest here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.signedinteger[Any]]
FloatArray = NDArray[np.floating[Any]]


class ReferenceLayer(NamedTuple):
    """One layer of a batch: dst x src adjacency with values (CSR), and the vertices of its rows and columns."""

    adj: Any
    dst: IntArray
    src: IntArray


def ladies_reference(
    lap: Any, seeds: IntArray, sizes: Sequence[int], law: str, rng: np.random.Generator
) -> list[ReferenceLayer]:
    """The layers of one batch, nearest to the seeds first; `law` is "norm" or "squared_count"."""
    layers, frontier = [], seeds
    for size in sizes:
        rows = lap[frontier, :]
        layers.append(_draw_layer(rows, frontier, _FRONTIER_LAWS[law](rows), size, rng))
        frontier = layers[-1].src
    return layers


def fastgcn_reference(
    lap: Any, p: FloatArray, seeds: IntArray, sizes: Sequence[int], rng: np.random.Generator
) -> list[ReferenceLayer]:
    """The layers of one batch, nearest to the seeds first; `p` (n,) is `column_distribution(lap)`, computed once."""
    layers, frontier = [], seeds
    for size in sizes:
        layers.append(_draw_layer(lap[frontier, :], frontier, p, size, rng))
        frontier = layers[-1].src
    return layers


def column_distribution(lap: Any) -> FloatArray:
    """FastGCN's p (n,) float64: squared norms of all columns over their sum."""
    return _normalized(np.asarray(lap.multiply(lap).sum(axis=0)).ravel())


def _norm(rows: Any) -> FloatArray:
    return _normalized(np.asarray(rows.multiply(rows).sum(axis=0)).ravel())


def _squared_count(rows: Any) -> FloatArray:
    return _normalized(np.asarray(rows.sum(axis=0)).ravel().astype(np.float64) ** 2)


_FRONTIER_LAWS = {"norm": _norm, "squared_count": _squared_count}


def _normalized(weights: FloatArray) -> FloatArray:
    """Weights over their sum, in float64: what `choice` takes without a copy."""
    weights = weights.astype(np.float64, copy=False)
    return weights / weights.sum()


def _draw_layer(rows: Any, frontier: IntArray, p: FloatArray, size: int, rng: np.random.Generator) -> ReferenceLayer:
    """Draw columns without replacement, keep the rows' entries in them, divide by p and normalise the rows."""
    size = min(int(np.count_nonzero(p)), size)
    after = rng.choice(len(p), size, p=p, replace=False)
    adj = rows[:, after].multiply(1 / p[after]).tocsr()
    sums = np.asarray(adj.sum(axis=1)).ravel()
    scale = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)
    adj.data *= np.repeat(scale, np.diff(adj.indptr))
    return ReferenceLayer(adj, frontier, after)
