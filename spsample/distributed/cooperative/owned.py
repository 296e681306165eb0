"""The owner of each vertex, where all ranks work on one minibatch."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.distributed.placement import parts_on_ranks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.backends.protocol import Int64Array, IntArray
    from spsample.store.base_graph import BaseGraph


class VertexOwners:
    """The rank that owns each vertex: one of those that have its block row, or its part, by a hash of the vertex id.

    Parameters
    ----------
    graph : graph
        With one block row, or one for every c ranks.
    parts : int array (n,) or None
        Part of each vertex, in place of its block row.
    num_parts : int
        Parts or block rows, a divisor of p.

    Examples
    --------
    >>> import spsample
    >>> graph = spsample.Graph([0, 0, 0, 0, 0], [])
    >>> VertexOwners(graph, np.array([1, 0, 1, 0]), 2, ranks=4).of(np.array([0, 1, 2, 3]))
    array([2, 1, 2, 1], dtype=uint16)
    """

    def __init__(self, graph: BaseGraph, parts: IntArray | None, num_parts: int, *, ranks: int) -> None:
        self._graph, self._parts = graph, parts
        self._num_parts, self.ranks = num_parts, ranks

    @property
    def identity(self) -> str:
        """Text of what decides the owners, beside the graph."""
        if self._parts is None:
            return f"{self._num_parts} block rows"
        return f"{self._num_parts} parts {sha256(self._parts.astype('<i8').tobytes()).hexdigest()}"

    def of(self, vertices: IntArray) -> NDArray[np.uint16]:
        """Return the owner of each of these vertices."""
        columns = self.ranks // self._num_parts
        owners = np.zeros(len(vertices), np.int64) if columns == 1 else _hashed(vertices, columns)
        if self._num_parts > 1:
            part = self._graph.block_rows_of(vertices) if self._parts is None else self._parts[vertices]
            owners += np.asarray(part, np.int64) * columns
        return owners.astype(np.uint16)


def owners_of(graph: BaseGraph, parts: Any = None, ranks: int | None = None) -> VertexOwners:
    """Return the owners of the vertices of a graph.

    Of a graph in block rows a vertex belongs to the ranks of its block row, which have its row of A and, where they are
    placed alike, its features. Of any other graph vertices are distributed by a hash, unless there are parts.

    Parameters
    ----------
    graph : graph
    parts : int array (n,), optional
        The part of each vertex; as many parts as divide the ranks evenly. Only for a graph that every rank has whole.
    ranks : int, optional
        p, for a plan; by default the ranks of the graph.

    Raises
    ------
    InputError
        If the parts do not fit the graph or its ranks.

    Examples
    --------
    >>> import spsample
    >>> owners_of(spsample.Graph([0, 1, 2], [1, 0])).of(np.array([1, 0]))
    array([0, 0], dtype=uint16)
    """
    ranks = graph.comm.size if ranks is None else ranks
    if parts is None:
        return VertexOwners(graph, None, graph.num_block_rows, ranks=ranks)
    return VertexOwners(graph, *parts_on_ranks(graph, parts, ranks), ranks=ranks)


def _hashed(vertices: IntArray, size: int) -> Int64Array:
    """Numbers below `size`: neighbouring ids, and ids that are alike in some bits, get different ones.

    Fibonacci hashing (Knuth, volume 3, section 6.4): the high bits of a product with 2^64 over the golden ratio.
    """
    high = (vertices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    numbers: Int64Array = ((high * np.uint64(size)) >> np.uint64(32)).astype(np.int64)
    return numbers
