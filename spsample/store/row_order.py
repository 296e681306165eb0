"""`RowOrder`: where the rows of a store lie that are not in the order of the vertices; and arrays seen through it."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Backend, Matrix, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray
from spsample.common.contents import Contents
from spsample.sparse.local import LocalFrontier, LocalOperand
from spsample.sparse.probability import Weighting
from spsample.store.construction import ARRAYS, GraphArrays, StoreOrigin, frozen

_PIECE = 1 << 22


class RowOrder(NamedTuple):
    """Rows of A and of features by vertex, where a store has them in another order.

    Attributes
    ----------
    row_of_vertex, vertex_of_row : int32 or int64 array (n,)
        Each other's inverse; of the type of vertex ids.
    vertex_indptr : int64 array (n + 1,)
        Row pointers of A in the order of vertices: entry e of row v of A is its entry number ``vertex_indptr[v] + e``.
    row_indptr : int64 array (n + 1,)
        Row pointers in the order in which rows lie.

    Examples
    --------
    >>> order = RowOrder(np.array([1, 2, 0]), np.array([2, 0, 1]), np.array([0, 2, 3, 3]), np.array([0, 0, 2, 3]))
    >>> order.file_places(np.array([0, 2])).tolist()
    [0, 2]
    """

    row_of_vertex: NDArray[Any]
    vertex_of_row: NDArray[Any]
    vertex_indptr: NDArray[np.int64]
    row_indptr: NDArray[np.int64]

    def file_places(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of entries that are numbered in the order of vertices; O(log n) for each."""
        vertices = np.searchsorted(self.vertex_indptr, entries, side="right") - 1
        places: NDArray[np.int64] = self.row_indptr[self.row_of_vertex[vertices]]
        return places + (entries - self.vertex_indptr[vertices])


class ReorderedArrays(GraphArrays):
    """The arrays of a graph as they lie in a store whose rows were moved; rows are sampled where they lie.

    ``indices``, ``data`` and ``edge_ids`` are in the order of vertices as of any graph, made in memory on first use.

    Parameters
    ----------
    order : RowOrder
    indices, data, edge_ids : array (num_edges,)
        Entries in the order of rows; `data` and `edge_ids` None where there are none.
    weighting, origin
        As of `GraphArrays`.

    Examples
    --------
    >>> order = RowOrder(np.array([1, 2, 0]), np.array([2, 0, 1]), np.array([0, 2, 3, 3]), np.array([0, 0, 2, 3]))
    >>> ReorderedArrays(order, np.array([1, 2, 0]), None, None, "unweighted").indices.tolist()
    [1, 2, 0]
    """

    def __init__(
        self,
        order: RowOrder,
        indices: NDArray[Any],
        data: NDArray[Any] | None,
        edge_ids: NDArray[np.int64] | None,
        weighting: Weighting,
        origin: StoreOrigin | None = None,
    ) -> None:
        self.order = order
        self.indptr = order.vertex_indptr
        self.weighting, self.origin = weighting, origin
        self._lying: dict[str, Any] = {"indices": indices, "data": data, "edge_ids": edge_ids}

    def __getattr__(self, name: str) -> Any:
        """Make what is not there yet: entries in the order of vertices, and the numbers that identify them."""
        if name == "contents":
            self.contents = Contents({array: getattr(self, array) for array in ARRAYS})
        elif name in ARRAYS:
            array = self._by_vertex(self._lying[name])
            setattr(self, name, None if array is None else frozen(array))
        else:
            raise AttributeError(name)
        return vars(self)[name]

    def lying(self, name: str) -> NDArray[Any] | None:
        """Return indices, data or edge_ids in the order of rows: nothing is read."""
        return cast("NDArray[Any] | None", self._lying[name])

    def _by_vertex(self, lying: NDArray[Any] | None) -> NDArray[Any] | None:
        if lying is None:
            return None
        made = np.empty(len(lying), lying.dtype)
        for first in range(0, len(lying), _PIECE):
            last = min(first + _PIECE, len(lying))
            made[first:last] = lying[self.order.file_places(np.arange(first, last))]
        return made

    def operand(self, backend: Backend) -> ReorderedOperand:
        """Return A as the sampling algebra sees it, over the arrays as they lie."""
        rows, vertices, vertex_indptr, indptr = self.order
        indices, data, edge_ids = self._lying.values()
        matrix = Matrix(indptr, indices, data, self.weighting == "row", vertices, len(indptr) - 1)
        return ReorderedOperand(matrix, edge_ids, backend, rows, vertex_indptr)


class ReorderedOperand(LocalOperand):
    """The whole A, its rows in any order: to kernels a block of rows (`Matrix.ids`) that has all of them.

    Q names vertices; a frontier of A names rows. This is the only place that leads from one to the other, so that no
    kernel and no sampler knows of the order, and every sample is that of A in the order of vertices, bit for bit.

    Parameters
    ----------
    matrix : Matrix
        Rows in their order; ``ids`` is the vertex of each, entries hold vertices.
    edge_ids : int64 array (nnz,) or None
        Entry -> position in the user's input. None: the place that the entry has where rows are in the order of
        vertices.
    backend : Backend
        The kernels.
    row_of_vertex : int array (n,)
        Of the type of ``matrix.indices``.
    vertex_indptr : int64 array (n + 1,)
        Row pointers of A in the order of vertices.

    Examples
    --------
    >>> from spsample.backends import get_backend
    >>> vertices = np.array([2, 0, 1], np.int32)    # of each row
    >>> matrix = Matrix(np.array([0, 0, 2, 3]), np.array([1, 2, 0], np.int32), ids=vertices, num_columns=3)
    >>> rows, indptr = np.array([1, 2, 0], np.int32), np.array([0, 2, 3, 3])
    >>> A = ReorderedOperand(matrix, None, get_backend("reference"), rows, indptr)
    >>> Q = StackedSelector(np.array([0, 2]), np.array([2, 0], np.int32), np.array([0]))
    >>> A.frontier(Q).row_statistics.counts.tolist(), A.edge_ids_at(np.array([2])).tolist()
    ([0, 2], [2])
    """

    def __init__(
        self,
        matrix: Matrix,
        edge_ids: Int64Array | None,
        backend: Backend,
        row_of_vertex: IntArray,
        vertex_indptr: Int64Array,
    ) -> None:
        super().__init__(matrix, edge_ids, backend)
        self.row_of_vertex = row_of_vertex
        self.vertex_indptr = vertex_indptr

    def frontier(self, Q: StackedSelector) -> LocalFrontier:
        """Return the rows that Q selects, which names them by vertex."""
        return LocalFrontier(self, Q._replace(vertices=self.row_of_vertex.take(Q.vertices)))

    def edge_ids_at(self, positions: Int64Array) -> Int64Array:
        """Positions in the user's input of entries at these positions of the matrix; O(log n) for each."""
        if self.edge_ids is not None:
            return super().edge_ids_at(positions)
        indptr, vertices = self.matrix.indptr, self.matrix.ids
        rows = indptr.searchsorted(positions, side="right") - 1
        ids: Int64Array = self.vertex_indptr[vertices[rows]] + positions - indptr[rows]  # type: ignore[index]
        return ids


class ReorderedRows:
    """Rows by vertex of an array whose rows lie in another order: read as an array, without a copy of it.

    It has what users of features ask of an array of two dimensions: ``shape``, ``dtype``, rows by number, and
    ``numpy.asarray``, which reads all of it.

    Parameters
    ----------
    stored : array (rows, numbers)
        As it lies.
    rows : int array (vertices,)
        Where the row of each vertex lies.

    Attributes
    ----------
    stored, rows
        As given.

    Examples
    --------
    >>> x = ReorderedRows(np.array([[1], [2], [3]]), np.array([2, 0, 1]))
    >>> x.shape, x[1].tolist(), x[[0, 2]].tolist(), np.asarray(x[1:]).tolist()
    ((3, 1), [1], [[3], [2]], [[1], [2]])
    """

    ndim = 2

    def __init__(self, stored: NDArray[Any], rows: NDArray[Any]) -> None:
        self.stored = stored
        self.rows = rows

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and of numbers in a row."""
        return len(self.rows), int(self.stored.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the numbers."""
        return self.stored.dtype

    @property
    def base(self) -> NDArray[Any]:
        """The array that the rows are a view of."""
        return self.stored

    @property
    def size(self) -> int:
        """Number of values of all rows."""
        return self.shape[0] * self.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> Any:
        """Rows, as a view where `key` is a slice; with a second key, columns of them."""
        if isinstance(key, tuple):
            first, *others = key
            return np.asarray(self[first])[(..., *others)] if others else self[first]
        if isinstance(key, slice):
            return ReorderedRows(self.stored, self.rows[key])
        return self.stored[self.rows[key]]

    def take(self, indices: Any, axis: int = 0, mode: str = "raise") -> NDArray[Any]:
        """Return rows by number, as `numpy.take` along axis 0."""
        if axis != 0:
            raise NotImplementedError("rows are taken along axis 0")
        wanted: NDArray[Any] = self.stored.take(self.rows.take(indices, mode=mode), axis=0)  # type: ignore[call-overload]
        return wanted

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        made: NDArray[Any] = self.stored[self.rows]
        return made if dtype is None else made.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"ReorderedRows(shape={self.shape}, dtype={self.dtype})"
