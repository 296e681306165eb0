"""A rank's rows of minibatches as three to five arrays, which one rank writes and another reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.backends.on_host import pointers_of
from spsample.common.threads import compiled_core
from spsample.distributed.cooperative.minibatch import CooperativeLayer, CooperativeMiniBatch, Routes
from spsample.sampling.bulk import Adjacency

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from spsample.backends.protocol import Int64Array, IntArray
    from spsample.sampling.bulk_layer import BulkLayer


class CutLayer(NamedTuple):
    """Rows and columns of each rank, rank by rank.

    Attributes
    ----------
    rows : int32 array (num_dst,)
        Rows of rank 0, then those of rank 1, ..., each in the order of the layer.
    row_ptr, entry_ptr : int64 array (p + 1,)
        The places at which each rank's rows begin among these, and their entries among `numbers`.
    numbers : int32 array (nnz,)
        The column of each entry among its rank's: those that the rank owns first, in the order of the layer, then those
        that others own, by rank and in that order.
    own, own_ptr : int32 array, int64 array (p + 1,)
        `place` of the columns that the rank owns; the targets come first.
    others, others_ptr : int32 array, int64 array (p + 1,)
        Columns of the layer that others own.
    others_counts : int64 array (p, p)
        Number of a rank's columns that each rank owns; 0 for itself.
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


class PieceWriter:
    """Writes the rows that one rank gets of the minibatches that another one sampled.

    Sizes (int64), vertices, places (int32: places in lists of vertices, and counts), values and edge ids, each in one
    array for all minibatches.
    """

    def __init__(self) -> None:
        self._sizes: list[Any] = []
        self._vertices: list[IntArray] = []
        self._places: list[Any] = []
        self._values: list[NDArray[Any]] = []
        self._edge_ids: list[Int64Array] = []

    def begin(self, batch_id: int, num_seeds: int, src_nodes: IntArray, seed_places: IntArray) -> None:
        """Begin a minibatch: the vertices of the rank, and the places of its seeds among all that were given."""
        self._sizes.append([batch_id, num_seeds, len(src_nodes), len(seed_places)])
        self._vertices.append(src_nodes)
        self._places.append(seed_places)

    def layer(
        self,
        cut: CutLayer,
        rank: int,
        row_counts: Int64Array,
        others: IntArray,
        data: NDArray[Any] | None,
        edge_ids: Int64Array | None,
    ) -> None:
        """Write the rows of a rank in a layer, and its columns, its own before those of others; `sends` comes next.

        `row_counts` are those of all rows of the cut, `others` the vertices of `cut.others`; data and edge ids are in
        the order of the cut.
        """
        rows, own, other, entries = (
            slice(ptr[rank], ptr[rank + 1]) for ptr in (cut.row_ptr, cut.own_ptr, cut.others_ptr, cut.entry_ptr)
        )
        places: list[Any] = [row_counts[rows], cut.own[own], cut.numbers[entries]]
        self._sizes += [list(map(len, places)), cut.others_counts[rank]]
        self._vertices.append(others[other])
        self._places += places
        if data is not None:
            self._values.append(data[entries])
        if edge_ids is not None:
            self._edge_ids.append(edge_ids[entries])

    def sends(self, to: Sequence[IntArray]) -> None:
        """Write the places of the rows of the layer before that the rank sends to each other one."""
        self._sizes.append([len(places) for places in to])
        self._places += to

    def arrays(self, like: BulkLayer) -> list[NDArray[Any]]:
        """Return all arrays, of the types of a layer; values and edge ids where it has them."""
        arrays: list[tuple[Sequence[Any], Any]] = [
            (self._sizes, np.int64),
            (self._vertices, like.src.dtype),
            (self._places, np.int32),
        ]
        if like.data is not None:
            arrays.append((self._values, like.data.dtype))
        if like.edge_ids is not None:
            arrays.append((self._edge_ids, np.int64))
        return [np.concatenate([np.zeros(0, kind), *parts], dtype=kind, casting="same_kind") for parts, kind in arrays]


class PieceReader:
    """The minibatches that one rank wrote; views of its arrays.

    Parameters
    ----------
    arrays : list of arrays
        As `PieceWriter.arrays` gave them.
    ranks : int
        p.
    data, edge_ids : bool
        True where there are values, and edge ids.
    """

    def __init__(self, arrays: Sequence[NDArray[Any]], ranks: int, *, data: bool, edge_ids: bool) -> None:
        self._ranks = ranks
        self._sizes, self._vertices, self._places = (_Cursor(array) for array in arrays[:3])
        rest = list(arrays[3:])
        self._values = _Cursor(rest.pop(0)) if data else None
        self._edge_ids = _Cursor(rest.pop(0)) if edge_ids else None

    def minibatches(self, num_layers: int) -> Iterator[CooperativeMiniBatch]:
        """Read all minibatches."""
        while not self._sizes.is_at_end:
            batch_id, num_seeds, num_src, num_own_seeds = self._sizes.take(4).tolist()
            src = self._vertices.take(num_src)
            places = self._places.take(num_own_seeds)
            layers = [self._layer(src)]
            while len(layers) < num_layers:
                layers.append(self._layer(layers[-1].dst_nodes))
            yield CooperativeMiniBatch(batch_id, src[:num_own_seeds], places, num_seeds, src, layers)

    def _layer(self, src: IntArray) -> CooperativeLayer:
        """A layer, of whose sources the rank owns `src`: the targets of the layer before."""
        num_dst, num_own, entries = self._sizes.take(3).tolist()
        recv_counts = self._sizes.take(self._ranks)
        row_counts, own = self._places.take(num_dst), self._places.take(num_own)
        indices = self._places.take(entries)
        send_counts = self._sizes.take(self._ranks)
        send = self._places.take(int(send_counts.sum()))
        others = self._vertices.take(int(recv_counts.sum()))
        columns = np.concatenate([src[own], others])
        data = None if self._values is None else self._values.take(entries)
        edge_ids = None if self._edge_ids is None else self._edge_ids.take(entries)
        adj = Adjacency(pointers_of(row_counts), indices, data, (num_dst, len(columns)))
        routes = Routes(len(src), own, send, send_counts, recv_counts)
        return CooperativeLayer(adj, src[:num_dst], columns, edge_ids, routes)


class _Cursor:
    """An array that is read from its beginning to its end."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array, self._at = array, 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._array)

    def take(self, count: int) -> NDArray[Any]:
        """Return the next elements: a view."""
        self._at += count
        return self._array[self._at - count : self._at]
