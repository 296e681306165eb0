"""Q: selectors of k stacked minibatches, and the lazy products Q A, which are never written out."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from spsample.backends import StackedSelector
from spsample.backends.protocol import Int64Array, IntArray
from spsample.common.checks import require_array, require_int, require_type
from spsample.errors import InputError
from spsample.sparse.operand import Frontier, GraphOperand


class RowSelector(StackedSelector):
    """Q with one nonzero per row: row r selects row `vertices[r]` of A; rows are stacked batch by batch.

    Parameters
    ----------
    batch_ptr : int64 array (k + 1,)
        Batch i owns rows `batch_ptr[i]:batch_ptr[i + 1]`.
    vertices : int32 or int64 array (m,)
        Distinct within a batch. A product has them in the index type of its graph.
    batch_ids : int64 array (k,)
        Global batch ids, which key the draws.

    Notes
    -----
    `Q @ A` is a lazy view of the selected rows (GraphSAGE's Q A, equation 1 of the paper). `Q.per_batch() @ A` adds up
    each batch's rows (LADIES' Q A, one row per batch).
    """

    __slots__ = ()

    def per_batch(self) -> BatchSelector:
        """Select these vertices with one row per batch and one nonzero per vertex."""
        return BatchSelector(self)

    def __matmul__(self, A: GraphOperand | Pattern) -> RowProduct:
        if isinstance(A, Pattern):
            return RowProduct(*_selected(A.operand, self), as_pattern=True)
        return RowProduct(*_selected(A, self))


class BatchSelector(NamedTuple):
    """Q with one row per batch: row i has a 1 in the column of each vertex of batch i."""

    rows: RowSelector

    def __matmul__(self, A: GraphOperand | Squared) -> BatchProduct:
        if isinstance(A, Squared):
            return BatchProduct(*_selected(A.operand, self.rows), power=2)
        return BatchProduct(*_selected(A, self.rows))


def _selected(A: GraphOperand, Q: RowSelector) -> tuple[RowSelector, Frontier]:
    """Q with vertices of A's index type, which kernels take, and the frontier that they are."""
    if not hasattr(A, "frontier"):
        require_type("A", A, GraphOperand, "what `graph.operand()` returns, or its pattern or square")
    if Q.vertices.dtype != A.index_dtype:
        Q = _of_index_type(A, Q)
    return Q, A.frontier(Q)


def _of_index_type(A: GraphOperand, Q: RowSelector) -> RowSelector:
    vertices = Q.vertices
    outside = len(vertices) > 0 and (int(vertices.min()) < 0 or int(vertices.max()) >= A.num_nodes)
    if outside:
        raise InputError(
            argument="Q.vertices",
            given=f"{int(vertices.min())} to {int(vertices.max())}",
            expected=f"vertices of the graph, 0 to {A.num_nodes - 1}",
        )
    return Q._replace(vertices=vertices.astype(A.index_dtype))


class Squared(NamedTuple):
    """A o A, the entrywise square, never formed."""

    operand: GraphOperand


class Pattern(NamedTuple):
    """A with every stored entry counted as 1, never formed."""

    operand: GraphOperand


class RowProduct(NamedTuple):
    """Lazy Q A with one row of A per row of Q, its entries as they are, or counted as 1 (`as_pattern`)."""

    Q: RowSelector
    F: Frontier
    as_pattern: bool = False


class BatchProduct(NamedTuple):
    """Lazy `(Q A^power)^column_power` with one row per batch, powers entrywise."""

    Q: RowSelector
    F: Frontier
    power: int = 1
    column_power: int = 1


class ColumnNorms(NamedTuple):
    """Lazy row of squared column norms of A, the same for every batch."""

    Q: RowSelector
    F: Frontier

    @classmethod
    def of(cls, A: GraphOperand, Q: RowSelector) -> ColumnNorms:
        """Make one for the batches of Q."""
        return cls(*_selected(A, Q))


def stack(batches: list[IntArray], first_batch: int = 0) -> RowSelector:
    """Q of k minibatches stacked (equation 1 of the paper).

    Examples
    --------
    >>> stack([np.array([3, 1]), np.array([2])]).batch_ptr.tolist()
    [0, 2, 3]
    """
    require_type("batches", batches, (list, tuple), "a list of arrays of vertex ids")
    for number, batch in enumerate(batches):
        require_array(f"batches[{number}]", batch, ("i", "u"), "integers")
    first_batch = require_int("first_batch", first_batch, minimum=0, maximum=2**32)
    ptr = np.concatenate([[0], np.cumsum([len(b) for b in batches])]).astype(np.int64)
    vertices = np.concatenate(batches) if batches else np.zeros(0, np.int32)
    return RowSelector(ptr, vertices, first_batch + np.arange(len(batches), dtype=np.int64))


def split(stacked: IntArray, ptr: Int64Array) -> list[IntArray]:
    """The batches' parts of a stacked array, without a copy.

    Examples
    --------
    >>> [part.tolist() for part in split(np.array([3, 1, 2]), np.array([0, 2, 3]))]
    [[3, 1], [2]]
    """
    require_array("stacked", stacked, ("i", "u"), "integers")
    require_array("ptr", ptr, ("i", "u"), "integers")
    return [stacked[lo:hi] for lo, hi in pairwise(ptr)]
