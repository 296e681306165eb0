"""The rows of A that a rank holds: its block row, read from a store or cut from a graph, and hub rows.

Hub rows are those that samplers need most often: every rank has them, within a budget of bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Backend, Matrix, QuantisationRule
from spsample.backends.protocol import Int64Array, IntArray
from spsample.comm import Channel
from spsample.distributed.column_ranges import column_sums
from spsample.distributed.placement import Placement, equal_bounds
from spsample.sparse import LocalOperand
from spsample.sparse.probability import Weighting
from spsample.store import Graph, GraphStore


class StoredRows:
    """Rows of a store, of which only those asked for are mapped.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> Graph([0, 2, 3, 3], [1, 2, 0]).save(f"{folder.name}/g")
    >>> GraphStore.read(f"{folder.name}/g", StoredRows).array("indices", 1, 3).tolist()
    [2, 0]
    >>> folder.cleanup()
    """

    def __init__(self, store: GraphStore) -> None:
        meta = store.meta
        self.num_nodes: int = meta["num_nodes"]
        self.num_edges: int = meta["num_edges"]
        self.weighting: Weighting = meta["weighting"]
        self.digest: str | None = store.digest
        self.index_dtype = store.specs["indices"].dtype
        self.data_dtype = store.specs["data"].dtype if "data" in store else None
        self._store = store
        self._order = store.row_order()

    def fingerprint(self) -> dict[str, int]:
        """Digests of the maps, which are read as a whole."""
        return self._store.graph().fingerprint()

    def array(self, name: str, first: int, end: int) -> NDArray[Any] | None:
        """A map of a part of an array; of entries of rows that were moved, a copy."""
        if name not in self._store:
            return None
        if self._order is not None:
            if name != "indptr":
                return self.entries(name, np.arange(first, end))
            name = "vertex_indptr"
        return self._store.array(name, rows=(first, end))

    def entries(self, name: str, places: NDArray[np.int64]) -> NDArray[Any] | None:
        """Entries at these places of A in the order of vertices."""
        if name not in self._store:
            return None
        in_file = places if self._order is None else self._order.file_places(places)
        entries: NDArray[Any] = self._store.array(name)[in_file]
        return entries


class GraphRows:
    """Rows of a graph in memory, or of the maps of a store."""

    def __init__(self, graph: Graph) -> None:
        self.num_nodes = graph.num_nodes
        self.num_edges = graph.num_edges
        self.weighting: Weighting = graph.weighting
        self.digest = graph.digest
        self.index_dtype = graph.index_dtype
        self.data_dtype = graph.dtype if graph.weighting == "weighted" else None
        self._graph = graph

    def fingerprint(self) -> dict[str, int]:
        """The graph's own, which are kept with it."""
        return self._graph.fingerprint()

    def array(self, name: str, first: int, end: int) -> NDArray[Any] | None:
        """A view of a part of an array."""
        array = getattr(self._graph, name)
        return None if array is None else array[first:end]

    def entries(self, name: str, places: NDArray[np.int64]) -> NDArray[Any] | None:
        """Elements of an array at these places."""
        array = getattr(self._graph, name)
        return None if array is None else array[places]


BlockReader: TypeAlias = "StoredRows | GraphRows"
"""A source of rows of A."""


class HeldRows(NamedTuple):
    """The rows of a partitioned A that a rank holds.

    Attributes
    ----------
    rows : BlockReader
        Their source, which knows the sizes of the whole A.
    placement : Placement
        The part of each row: one part per block row, and one more for the hub rows, where there are any.
    block : LocalOperand
        This rank's block row.
    hubs : LocalOperand or None
        The hub rows, which every rank has.
    """

    rows: BlockReader
    placement: Placement
    block: LocalOperand
    hubs: LocalOperand | None = None


def block_row(rows: BlockReader, placement: Placement, block: int, backend: Backend) -> LocalOperand:
    """Return block row `block` as a matrix of its own: local rows by place, all n columns, original ids.

    Entries of a range of vertices stay where they are; those of other vertices are copied.
    """
    if placement.position is not None:
        return PickedRows(rows, placement.vertices_of(block, rows.index_dtype), backend)
    first, end = int(placement.bounds[block]), int(placement.bounds[block + 1])
    starts = np.array(rows.array("indptr", first, end + 1), np.int64)
    begin, stop = int(starts[0]), int(starts[-1])
    starts -= begin
    indices, data, ids = (rows.array(name, begin, stop) for name in ("indices", "data", "edge_ids"))
    vertices = np.arange(first, end, dtype=rows.index_dtype)
    return LocalOperand(_matrix(rows, starts, indices, data, vertices), ids, backend, begin)


class PickedRows(LocalOperand):
    """Rows of any vertices, in their order, copied into memory.

    Parameters
    ----------
    rows : BlockReader
        Of which only these rows are read.
    vertices : int array
    """

    def __init__(self, rows: BlockReader, vertices: IntArray, backend: Backend) -> None:
        starts = cast("NDArray[np.int64]", rows.array("indptr", 0, rows.num_nodes + 1))
        begin, end = starts[vertices], starts[vertices.astype(np.int64) + 1]
        indptr = np.concatenate([[0], np.cumsum(end - begin)]).astype(np.int64)
        places = np.repeat(begin - indptr[:-1], end - begin) + np.arange(indptr[-1])
        indices, data, ids = (rows.entries(name, places) for name in ("indices", "data", "edge_ids"))
        super().__init__(_matrix(rows, indptr, indices, data, vertices), ids, backend)
        self._begin = begin

    def edge_ids_at(self, positions: Int64Array) -> Int64Array:
        """Return the edge ids of the source, or else places in it."""
        if self.edge_ids is not None:
            return self.edge_ids[positions]
        row = np.searchsorted(self.matrix.indptr, positions, side="right") - 1
        ids: Int64Array = self._begin[row] + positions - self.matrix.indptr[row]
        return ids


def _matrix(rows: BlockReader, indptr: Any, indices: Any, data: Any, vertices: IntArray) -> Matrix:
    return Matrix(indptr, indices, data, rows.weighting == "row", vertices, rows.num_nodes)


HUB_PHASE = "hubs"

HUB_ROW_OVERHEAD = 8 + 8 + 8
"""Bytes of a hub row besides its entries: its pointer, its id and the place of its entries."""


def hub_vertices(channel: Channel, block: LocalOperand, rows: BlockReader, budget: int) -> IntArray:
    """Ascending ids of the vertices that are sources of the most edges and whose rows fit in `budget` bytes together.

    A sampler needs the row of a vertex about as often as it draws the vertex, which it does along its out-edges.
    Vertices with equally many are all taken or none. No more are taken than leave places that the dtype of ids can
    count (`with_hubs`). Collective; ranks count ranges of columns.
    """
    ranks, n = channel.group.size, block.num_nodes
    budget = min(budget, HUB_ROW_OVERHEAD * (np.iinfo(rows.index_dtype).max - n))
    bounds = equal_bounds(n, ranks)
    pattern = LocalOperand(block.matrix._replace(data=None, row_normalized=False), None, block.backend)
    counts = column_sums(channel, pattern, QuantisationRule(None, 1, 1), bounds, HUB_PHASE)
    first = int(bounds[channel.group.rank])
    starts = np.asarray(rows.array("indptr", first, first + len(counts) + 1), np.int64)
    entry_bytes = rows.index_dtype.itemsize + (0 if rows.data_dtype is None else rows.data_dtype.itemsize)

    def added(cost: int) -> int:
        return int(channel.gather([np.array([cost], np.int64)], phase=HUB_PHASE)[0].rows.sum())

    costs = hub_row_bytes(np.diff(starts), entry_bytes)
    least = hub_threshold(counts, costs, budget, channel.reduce_max, added)
    own = first + np.flatnonzero(counts >= np.uint64(least))
    return channel.gather([own.astype(rows.index_dtype)], phase=HUB_PHASE)[0].rows


def hub_row_bytes(lengths: Int64Array, entry_bytes: int) -> Int64Array:
    """Bytes that a rank needs to hold rows of these lengths beside its block row.

    Examples
    --------
    >>> hub_row_bytes(np.array([0, 10]), 4).tolist()
    [24, 64]
    """
    return lengths * entry_bytes + HUB_ROW_OVERHEAD


def hub_threshold(
    counts: NDArray[np.integer],
    costs: Int64Array,
    budget: int,
    largest: Callable[[int], int] = int,
    added: Callable[[int], int] = int,
) -> int:
    """The smallest count, at least 1, such that all vertices that reach it cost no more than the budget together.

    Parameters
    ----------
    counts : int array
        Number of edges of which each vertex is the source.
    costs : int64 array
        Bytes of each row: see `hub_row_bytes`.
    budget : int
        Bytes.
    largest, added : callable
        Where each rank has some of the vertices: the largest of the ranks' numbers, and their sum.

    Examples
    --------
    >>> hub_threshold(np.array([5, 2, 2, 7]), np.array([30, 30, 30, 30]), 100)    # not one of two equals
    3
    """
    order = np.argsort(counts, kind="stable")
    ascending, total = counts[order], np.concatenate([[0], np.cumsum(costs[order][::-1])]).astype(np.int64)
    low, high = 1, largest(int(counts.max(initial=0))) + 1  # no vertex is as frequent as `high`
    while low < high:
        middle = (low + high) // 2
        taken = len(counts) - int(np.searchsorted(ascending, ascending.dtype.type(middle)))
        if added(int(total[taken])) <= budget:
            high = middle
        else:
            low = middle + 1
    return high


def with_hubs(placement: Placement, hubs: IntArray, n: int) -> Placement:
    """A placement with one part more, which holds the hub rows; their places in the blocks stay empty.

    Examples
    --------
    >>> placement = with_hubs(Placement(np.array([0, 2, 4])), np.array([1, 3]), 4)
    >>> placement.bounds.tolist(), placement.position.tolist()
    ([0, 2, 4, 6], [0, 4, 2, 5, 0, 0])
    """
    position = np.zeros(n + len(hubs), hubs.dtype)  # as many as places; the last ones belong to no vertex
    position[:n] = np.arange(n) if placement.position is None else placement.position
    position[hubs] = n + np.arange(len(hubs))
    return Placement(np.append(placement.bounds, n + len(hubs)), position)
