"""`ReorderedOperand`: A whose rows lie in another order than that of the vertices."""

from __future__ import annotations

from spsample.backends import Backend, Matrix, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray
from spsample.sparse.local import LocalFrontier, LocalOperand

__all__ = ["ReorderedOperand"]


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
    >>> import numpy as np
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
