"""Block rows of A: read from a store or cut from a graph, each rank its own."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Backend, Matrix
from spsample.backends.protocol import Int64Array, IntArray
from spsample.distributed.placement import Placement
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
