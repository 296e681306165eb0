"""One layer of a minibatch, cut into the rows of the ranks that own its targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.common.threads import compiled_core

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spsample.backends.protocol import Int64Array
    from spsample.sampling.bulk import Adjacency

__all__ = ["CutLayer", "entries_of_rows"]


class CutLayer(NamedTuple):
    """Rows and columns of each rank, rank by rank.

    Attributes
    ----------
    rows : int32 array (num_dst,)
        Rows of rank 0, then those of rank 1, ..., each in the order of the layer.
    row_ptr, entry_ptr : int64 array (p + 1,)
        Where each rank's rows begin among these, and their entries among `numbers`.
    numbers : int32 array (nnz,)
        The column of each entry among its rank's: those that the rank owns first, in the order of the layer, then those
        that others own, by rank and in that order.
    own, own_ptr : int32 array, int64 array (p + 1,)
        `place` of the columns that the rank owns; the targets come first.
    others, others_ptr : int32 array, int64 array (p + 1,)
        Columns of the layer that others own.
    others_counts : int64 array (p, p)
        How many of a rank's columns each rank owns; none itself.
    """

    rows: NDArray[np.int32]
    row_ptr: Int64Array
    entry_ptr: Int64Array
    numbers: NDArray[np.int32]
    own: NDArray[np.int32]
    own_ptr: Int64Array
    others: NDArray[np.int32]
    others_ptr: Int64Array
    others_counts: Int64Array

    @classmethod
    def of(cls, adj: Adjacency, owner: NDArray[np.uint16], place: NDArray[np.int32], ranks: int) -> CutLayer:
        """Cut a matrix whose targets come first among its sources. O(p sources + entries).

        Parameters
        ----------
        adj : Adjacency
            On the host.
        owner : uint16 array (num_src,)
            Of each source.
        place : int32 array (num_src,)
            Of each source among those of its owner.
        ranks : int
            p.

        Examples
        --------
        >>> import numpy as np
        >>> from spsample.sampling import Adjacency
        >>> adj = Adjacency(np.array([0, 2, 3]), np.array([1, 2, 2], np.int32), None, (2, 3))
        >>> cut = CutLayer.of(adj, np.array([1, 0, 1], np.uint16), np.array([0, 0, 1], np.int32), 2)
        >>> cut.rows.tolist(), cut.numbers.tolist(), cut.own.tolist(), cut.others.tolist()
        ([1, 0], [1, 2, 1], [0, 0, 1], [2, 1])
        """
        rows, row_ptr, entry_ptr, numbers, own, others, counts = compiled_core().cut_layer(
            adj.indptr, adj.indices, owner, place, ranks
        )
        return cls(rows, row_ptr, entry_ptr, numbers, own[0], own[1], others[0], others[1], counts)


def entries_of_rows(adj: Adjacency, rows: NDArray[np.int32], array: NDArray[Any]) -> NDArray[Any]:
    """The entries of some rows, in the order of these, from an array over all entries.

    Examples
    --------
    >>> import numpy as np
    >>> from spsample.sampling import Adjacency
    >>> adj = Adjacency(np.array([0, 2, 3]), np.array([1, 2, 2], np.int32), None, (2, 3))
    >>> entries_of_rows(adj, np.array([1, 0], np.int32), np.array([7.0, 8.0, 9.0]))
    array([9., 7., 8.])
    """
    moved: NDArray[Any] = compiled_core().entries_of_rows(adj.indptr, rows, array)
    return moved
