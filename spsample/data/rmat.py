"""R-MAT graphs: power-law degrees at any size, for measurements of time and not of accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spsample.common.checks import require_int
from spsample.data.dataset import Dataset
from spsample.data.edges import symmetric_graph
from spsample.data.philox import PhiloxStream
from spsample.data.splits import random_split

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NUM_CLASSES", "NUM_FEATURES", "check_rmat", "rmat", "rmat_pairs", "rmat_piece"]

_A, _B, _C = 0.57, 0.19, 0.19
_CHUNK = 1 << 22
_MAX_SCALE = 31
NUM_FEATURES = 32
NUM_CLASSES = 16


def rmat(
    scale: int,
    edge_factor: int,
    *,
    num_features: int = NUM_FEATURES,
    num_classes: int = NUM_CLASSES,
    random_seed: int = 0,
) -> Dataset:
    """Return an R-MAT graph of ``2**scale`` vertices with random features and labels.

    ``edge_factor * 2**scale`` pairs are drawn with the quadrant probabilities .57, .19, .19, .05, taken in
    both directions; self-loops and duplicates are removed, so that there are fewer than twice as many edges.
    Vertices are not renumbered: low ids have the high degrees. Labels are independent of everything, so no
    model can learn them.

    Raises
    ------
    InputError
        If ``scale`` is not in [1, 31] or ``edge_factor`` is below 1.

    References
    ----------
    D. Chakrabarti, Y. Zhan and C. Faloutsos, "R-MAT: a recursive model for graph mining", SDM 2004.

    Examples
    --------
    >>> rmat(8, 4).graph.num_nodes
    256
    """
    scale, edge_factor = check_rmat(scale, edge_factor)
    stream = PhiloxStream(random_seed)
    n = 1 << scale
    sources, targets = rmat_pairs(scale, edge_factor * n, stream)
    graph = symmetric_graph(sources, targets, n)
    del sources, targets
    x = (2 * stream.uniform(n * num_features) - 1).astype(np.float32).reshape(n, num_features)
    return Dataset(
        name="rmat",
        graph=graph,
        x=x,
        y=stream.below(num_classes, n),
        num_classes=num_classes,
        meta={"scale": scale, "edge_factor": edge_factor, "random_seed": random_seed},
        **random_split(stream.permutation(n)),
    )


def check_rmat(scale: int, edge_factor: int) -> tuple[int, int]:
    """Return the parameters of `rmat`, which has the errors."""
    scale = require_int("scale", scale, minimum=1, maximum=_MAX_SCALE)
    return scale, require_int("edge_factor", edge_factor, minimum=1)


def rmat_pairs(scale: int, count: int, stream: PhiloxStream) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ``count`` directed R-MAT pairs (sources, targets), with duplicates and self-loops.

    One uniform number per pair and level picks a quadrant; its two bits are appended to the two ids.
    """
    sources, targets = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for start in range(0, count, _CHUNK):
        chunk = slice(start, min(start + _CHUNK, count))
        for _ in range(scale):
            u = stream.uniform(chunk.stop - chunk.start)
            sources[chunk], targets[chunk] = _descend(sources[chunk], targets[chunk], u)
    return sources, targets


def rmat_piece(
    scale: int, count: int, piece: slice, stream: PhiloxStream
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the pairs `piece` of the first `count` pairs of a stream, without making the others.

    Examples
    --------
    >>> whole = rmat_pairs(6, 100, PhiloxStream(0))
    >>> piece = rmat_piece(6, 100, slice(30, 50), PhiloxStream(0))
    >>> bool((piece[0] == whole[0][30:50]).all() and (piece[1] == whole[1][30:50]).all())
    True
    """
    size = piece.stop - piece.start
    sources, targets = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for start in range(piece.start - piece.start % _CHUNK, piece.stop, _CHUNK):
        first, last = max(start, piece.start), min(start + _CHUNK, piece.stop)
        length = min(_CHUNK, count - start)
        here = slice(first - piece.start, last - piece.start)
        for level in range(scale):
            u = stream.at(start * scale + level * length + first - start).uniform(last - first)
            sources[here], targets[here] = _descend(sources[here], targets[here], u)
    return sources, targets


def _descend(
    sources: NDArray[np.int64], targets: NDArray[np.int64], u: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Append the two bits of the quadrants that uniform numbers pick."""
    lower = u >= _A + _B
    right = ((u >= _A) & ~lower) | (u >= _A + _B + _C)
    return 2 * sources + lower, 2 * targets + right
