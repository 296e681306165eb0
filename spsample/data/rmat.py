"""R-MAT graphs: power-law degrees at any size, for measurements of time and not of accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spsample.data.dataset import Dataset, random_split
from spsample.data.edges import symmetric_graph
from spsample.data.philox import PhiloxStream
from spsample.store.validation import require_int

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["rmat", "rmat_pairs"]

_A, _B, _C = 0.57, 0.19, 0.19
_CHUNK = 1 << 22
_MAX_SCALE = 31


def rmat(
    scale: int, edge_factor: int, *, num_features: int = 32, num_classes: int = 16, random_seed: int = 0
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
    require_int("scale", scale, minimum=1, maximum=_MAX_SCALE)
    require_int("edge_factor", edge_factor, minimum=1)
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


def rmat_pairs(scale: int, count: int, stream: PhiloxStream) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ``count`` directed R-MAT pairs (sources, targets), with duplicates and self-loops.

    One uniform number per pair and level picks a quadrant; its two bits are appended to the two ids.
    """
    sources, targets = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for start in range(0, count, _CHUNK):
        chunk = slice(start, min(start + _CHUNK, count))
        for _ in range(scale):
            u = stream.uniform(chunk.stop - chunk.start)
            lower = u >= _A + _B
            right = ((u >= _A) & ~lower) | (u >= _A + _B + _C)
            sources[chunk] = 2 * sources[chunk] + lower
            targets[chunk] = 2 * targets[chunk] + right
    return sources, targets
