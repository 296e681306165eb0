"""`Placement`: the block row that holds each row of A."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.backends.protocol import Int64Array, IntArray
from spsample.common.arrays import as_array
from spsample.errors import InputError

if TYPE_CHECKING:
    from spsample.store.base_graph import BaseGraph


class Placement(NamedTuple):
    """Rows of A in the order of their blocks: block i owns the places `bounds[i]` to `bounds[i + 1] - 1`.

    Attributes
    ----------
    bounds : int64 array (blocks + 1,)
        Ascending, from 0 to n.
    position : int array (n,) or None
        Vertex -> place. None: every vertex is in its own place, blocks are ranges of vertices.
    """

    bounds: Int64Array
    position: IntArray | None = None

    @property
    def num_blocks(self) -> int:
        """Number of block rows."""
        return len(self.bounds) - 1

    def vertices_of(self, block: int, dtype: np.dtype[np.signedinteger]) -> IntArray:
        """The vertices of a block in the order of their places.

        Examples
        --------
        >>> Placement(np.array([0, 2, 3]), np.array([1, 2, 0])).vertices_of(0, np.dtype(np.int32)).tolist()
        [2, 0]
        """
        first, end = int(self.bounds[block]), int(self.bounds[block + 1])
        if self.position is None:
            return np.arange(first, end, dtype=dtype)
        here = np.flatnonzero((self.position >= first) & (self.position < end))
        vertices = np.empty(end - first, dtype)
        vertices[self.position[here] - first] = here
        return vertices

    def places_of(self, vertices: IntArray) -> IntArray:
        """Return the places of rows."""
        return vertices if self.position is None else self.position[vertices]

    def blocks_of(self, vertices: IntArray) -> Int64Array:
        """The block row of each vertex.

        Examples
        --------
        >>> Placement(np.array([0, 0, 2, 3])).blocks_of(np.array([2, 1])).tolist()
        [2, 1]
        """
        blocks: Int64Array = np.searchsorted(self.bounds, self.places_of(vertices), side="right") - 1
        return blocks


def balanced(indptr: Any, num_blocks: int) -> Placement:
    """Ranges of vertices with about the same number of entries; a row counts as one entry more than it has.

    Reads O(blocks log n) elements of `indptr`. A row of many entries is never cut, so that blocks may be empty.

    Examples
    --------
    >>> balanced(np.array([0, 6, 7, 8, 9]), 2).bounds.tolist()
    [0, 1, 4]
    """
    n, entries = len(indptr) - 1, int(indptr[-1])
    bounds = [0]
    for block in range(1, num_blocks):
        wanted = (n + entries) * block // num_blocks
        low, high = bounds[-1], n
        while low < high:  # the first vertex with at least `wanted` before it
            middle = (low + high) // 2
            if int(indptr[middle]) + middle < wanted:
                low = middle + 1
            else:
                high = middle
        bounds.append(max(bounds[-1], _nearer(indptr, low, wanted)))
    return Placement(np.array([*bounds, n], np.int64))


def equal_bounds(num_rows: int, num_blocks: int) -> Int64Array:
    """Bounds of ranges with about the same number of vertices.

    Examples
    --------
    >>> equal_bounds(10, 4).tolist()
    [0, 2, 5, 7, 10]
    """
    return np.arange(num_blocks + 1, dtype=np.int64) * num_rows // num_blocks


def _nearer(indptr: Int64Array, vertex: int, wanted: int) -> int:
    """Return `vertex` or the one before it, whichever is nearer to `wanted` rows and entries before it."""
    if vertex == 0:
        return 0
    above, below = (abs(int(indptr[v]) + v - wanted) for v in (vertex, vertex - 1))
    return vertex if above <= below else vertex - 1


def require_parts(parts: Any, num_rows: int, num_blocks: int, argument: str = "partition") -> IntArray:
    """Refuse parts that do not give the block of each row; `argument` is the caller's name of them.

    Examples
    --------
    >>> require_parts([1, 0], 2, 2).tolist()
    [1, 0]
    >>> require_parts([1, 0], 2, 1)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: partition: got parts from 0 to 1; expected one of 1 parts: 0 to 0 (on ...
    """
    array = _one_per_vertex(argument, parts, num_rows)
    if num_rows and not 0 <= int(array.min()) <= int(array.max()) < num_blocks:
        raise InputError(
            argument=argument,
            given=f"parts from {array.min()} to {array.max()}",
            expected=f"one of {num_blocks} parts: 0 to {num_blocks - 1} (on ranks: p/c block rows)",
        )
    return array


def _one_per_vertex(argument: str, parts: Any, num_rows: int) -> IntArray:
    array = as_array(argument, parts)
    if array.shape != (num_rows,) or array.dtype.kind not in "iu":
        given, expected = f"dtype {array.dtype} and shape {array.shape}", "one integer per vertex of the graph"
        hint = "Parts of another graph do not fit this one."
        raise InputError(argument=argument, given=given, expected=f"{expected}: ({num_rows},)", hint=hint)
    return array


def parts_on_ranks(graph: BaseGraph, parts: Any, ranks: int | None = None) -> tuple[IntArray, int]:
    """The part of each vertex of a graph that every rank has whole, and their number g: part i is that of p/g ranks.

    The ranks are those of the graph, or as many as given.

    Raises
    ------
    InputError
        If the graph is in block rows, or the parts do not fit it or its ranks.

    Examples
    --------
    >>> import spsample
    >>> parts_on_ranks(spsample.Graph([0, 1, 2], [1, 0]), [0, 0])
    (array([0, 0]), 1)
    """
    if graph.num_block_rows > 1:
        raise InputError(
            argument="parts",
            given=f"parts for a graph in {graph.num_block_rows} block rows",
            expected="none: the block rows are the parts",
        )
    array = _one_per_vertex("parts", parts, graph.num_nodes)
    least, most = (int(array.min()), int(array.max())) if len(array) else (0, 0)
    ranks = graph.comm.size if ranks is None else ranks
    if least < 0 or most >= ranks or ranks % (most + 1):
        raise InputError(
            argument="parts",
            given=f"parts from {least} to {most} on {ranks} ranks",
            expected=f"numbers from 0 on, and as many parts as divide the {ranks} ranks evenly",
        )
    return array, most + 1


def from_parts(parts: IntArray, num_blocks: int, dtype: np.dtype[np.signedinteger]) -> Placement:
    """The placement in which block i holds, ascending, the vertices whose entry of `parts` is i.

    `dtype` is that of vertex ids. `require_parts` checks the parts.

    Examples
    --------
    >>> from_parts(np.array([1, 0, 1, 0]), 2, np.dtype(np.int32))
    Placement(bounds=array([0, 2, 4]), position=array([2, 0, 3, 1], dtype=int32))
    """
    bounds = np.concatenate([[0], np.cumsum(np.bincount(parts, minlength=num_blocks))]).astype(np.int64)
    position = np.empty(len(parts), dtype)
    position[np.argsort(parts, kind="stable")] = np.arange(len(parts))
    return Placement(bounds, position)
