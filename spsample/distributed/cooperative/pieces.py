"""A rank's rows of minibatches as three to five arrays, which one rank writes and another reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends.on_host import pointers_of
from spsample.distributed.cooperative.minibatch import CooperativeLayer, CooperativeMiniBatch, Routes
from spsample.sampling.bulk import Adjacency

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from spsample.backends.protocol import Int64Array, IntArray
    from spsample.sampling.bulk_layer import BulkLayer

__all__ = ["PieceReader", "PieceWriter"]

_PLACE = np.dtype(np.int32)


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
        *,
        row_counts: Int64Array,
        own: IntArray,
        others: IntArray,
        recv_counts: Int64Array,
        indices: IntArray,
        data: NDArray[Any] | None,
        edge_ids: Int64Array | None,
    ) -> None:
        """Write a layer: its rows, and its columns, those of the rank before those of others; `sends` comes next."""
        self._sizes += [[len(row_counts), len(own), len(indices)], recv_counts]
        self._vertices.append(others)
        self._places += [row_counts, own, indices]
        if data is not None:
            self._values.append(data)
        if edge_ids is not None:
            self._edge_ids.append(edge_ids)

    def sends(self, to: Sequence[IntArray]) -> None:
        """Write the places of the rows of the layer before that the rank sends to each other one."""
        self._sizes.append([len(places) for places in to])
        self._places += to

    def arrays(self, like: BulkLayer) -> list[NDArray[Any]]:
        """Return all arrays, of the types of a layer; values and edge ids where it has them."""
        arrays = [
            _joined(self._sizes, np.dtype(np.int64)),
            _joined(self._vertices, like.src.dtype),
            _joined(self._places, _PLACE),
        ]
        if like.data is not None:
            arrays.append(_joined(self._values, like.data.dtype))
        if like.edge_ids is not None:
            arrays.append(_joined(self._edge_ids, np.dtype(np.int64)))
        return arrays


class PieceReader:
    """The minibatches that one rank wrote; views of its arrays.

    Parameters
    ----------
    arrays : list of arrays
        As `PieceWriter.arrays` gave them.
    ranks : int
        p.
    data, edge_ids : bool
        Whether there are values, and edge ids.
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


def _joined(parts: Sequence[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *parts], dtype=dtype, casting="same_kind")
