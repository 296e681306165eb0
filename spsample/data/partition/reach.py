"""`Reach`: what sampling from some vertices can need, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spsample.store import Graph

__all__ = ["Reach", "entries_of"]


@dataclass(frozen=True, eq=False)
class Reach:
    """Vertices that lead to some vertices by a number of edges, and those of them whose rows can be sampled.

    Attributes
    ----------
    vertices : int64 array
        All of them, ascending: the closure. The vertices that it was made from are among them.
    is_inner : bool array, one for each of `vertices`
        Whether fewer edges lead on to the start than hops: its row of A is sampled. Of the others only features are
        needed.

    Examples
    --------
    >>> found = Reach.of(Graph([0, 1, 2, 3, 3], [1, 2, 3]), np.array([0]), hops=2)
    >>> found.vertices, found.is_inner
    (array([0, 1, 2]), array([ True,  True, False]))
    """

    vertices: NDArray[np.int64]
    is_inner: NDArray[np.bool_]

    @classmethod
    def of(cls, graph: Graph, start: NDArray[np.int64], hops: int) -> Reach:
        """Go `hops` edges back from `start`; O(entries of the inner rows, and vertices of the graph)."""
        is_found = np.zeros(graph.num_nodes, np.bool_)
        is_found[start] = True
        is_inner = np.zeros(graph.num_nodes, np.bool_)
        last = np.flatnonzero(is_found)
        for _ in range(hops):
            is_inner[last] = True
            sources = np.zeros(graph.num_nodes, np.bool_)
            sources[graph.indices[entries_of(graph, last)]] = True
            last = np.flatnonzero(sources & ~is_found)
            is_found[last] = True
            if len(last) == 0:
                break
        vertices = np.flatnonzero(is_found)
        return cls(vertices, is_inner[vertices])

    @property
    def inner(self) -> NDArray[np.int64]:
        """The vertices whose rows are sampled, ascending."""
        return self.vertices[self.is_inner]


def entries_of(graph: Graph, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of the entries of some rows, row after row.

    Examples
    --------
    >>> entries_of(Graph([0, 2, 3, 5], [0, 1, 0, 1, 2]), np.array([2, 0]))
    array([3, 4, 0, 1])
    """
    first, sizes = graph.indptr[rows], graph.indptr[rows + 1] - graph.indptr[rows]
    begins = np.cumsum(sizes) - sizes
    return np.repeat(first - begins, sizes) + np.arange(int(sizes.sum()))
