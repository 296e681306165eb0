"""`BulkLayer`: how a bulk stores one layer of all its batches, so that a batch's matrices are slices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends import backend_for
from spsample.backends.protocol import Int64Array, IntArray
from spsample.sparse import StackedLayer


class Ranges:
    """A slice of a stacked array for each of k batches.

    Batch i's begins at `ptr[i]` and has `sizes[i + 1] - sizes[i]` elements; by default `sizes` is `ptr`. Each is longer
    by `more` elements, and begins `more` later for each batch before it.

    Examples
    --------
    >>> rows = np.array([0, 2, 5])
    >>> Ranges(rows)[1], Ranges(rows, more=1)[1]     # a batch has one row pointer more than rows
    (slice(2, 5, None), slice(3, 7, None))
    """

    __slots__ = ("_more", "_ptr", "_sizes")

    def __init__(self, ptr: Int64Array, sizes: Int64Array | None = None, more: int = 0) -> None:
        self._ptr = ptr
        self._sizes = ptr if sizes is None else sizes
        self._more = more

    @property
    def begin(self) -> Int64Array:
        """Position where each slice begins (k,)."""
        return self._ptr[:-1] + self._more * np.arange(len(self._ptr) - 1)

    @property
    def size(self) -> Int64Array:
        """Length of each slice (k,)."""
        return self._sizes[1:] - self._sizes[:-1] + self._more

    def size_of(self, i: int) -> int:
        """Length of the slice of batch i."""
        return self._sizes.item(i + 1) - self._sizes.item(i) + self._more

    @property
    def total(self) -> int:
        """Length of all slices together."""
        return self._sizes.item(-1) - self._sizes.item(0) + self._more * (len(self._sizes) - 1)

    @property
    def end(self) -> Int64Array:
        """Position where each slice ends (k,)."""
        return self.begin + self.size

    def take(self, positions: Int64Array) -> Ranges:
        """Return the slices of some of the batches: of the same array."""
        return _Taken(self.begin[positions], self.size[positions])

    def __getitem__(self, i: int) -> slice:
        begin = self._ptr.item(i) + self._more * i
        return slice(begin, begin + self.size_of(i))


class _Taken(Ranges):
    """Slices that begin anywhere."""

    __slots__ = ("_begin", "_size")

    def __init__(self, begin: Int64Array, size: Int64Array) -> None:
        self._begin = begin
        self._size = size

    @property
    def begin(self) -> Int64Array:
        return self._begin

    @property
    def size(self) -> Int64Array:
        return self._size

    def size_of(self, i: int) -> int:
        return self._size.item(i)

    @property
    def total(self) -> int:
        return int(self._size.sum())

    def take(self, positions: Int64Array) -> Ranges:
        return _Taken(self._begin[positions], self._size[positions])

    def __getitem__(self, i: int) -> slice:
        begin = self._begin.item(i)
        return slice(begin, begin + self._size.item(i))


@dataclass(eq=False, slots=True)
class BulkLayer:
    """One layer of k batches, stacked.

    Batch i has dst vertices `dst[dst_ranges[i]]`, src vertices `src[src_ranges[i]]`, row pointers
    `indptr[indptr_ranges[i]]` (from 0) and entries `[entry_ranges[i]]` of `indices` (local), `data` and `edge_ids`.
    """

    dst: IntArray
    dst_ranges: Ranges
    src: IntArray
    src_ranges: Ranges
    indptr: Int64Array
    indptr_ranges: Ranges
    indices: IntArray
    data: NDArray[Any] | None
    edge_ids: Int64Array | None
    entry_ranges: Ranges

    @classmethod
    def from_stacked(cls, layer: StackedLayer) -> BulkLayer:
        """Make one of what EXTRACT returned."""
        rows = layer.rows
        return cls(
            layer.dst.vertices,
            Ranges(rows.batch_ptr),
            layer.src,
            Ranges(layer.src_ptr),
            rows.indptr,
            Ranges(rows.batch_ptr, more=1),
            rows.columns,
            layer.data,
            layer.edge_ids,
            Ranges(rows.entry_ptr),
        )

    def copy_batch(self, i: int) -> BulkLayer:
        """Return the layer of batch i only, in arrays of its own."""
        ranges = (self.dst_ranges, self.src_ranges, self.indptr_ranges, self.entry_ranges)
        dst, src, indptr, entries = (one[i] for one in ranges)
        copied = backend_for(self.src).copied
        return BulkLayer.of_one(
            copied(self.dst[dst]),
            copied(self.src[src]),
            copied(self.indptr[indptr]),
            copied(self.indices[entries]),
            None if self.data is None else copied(self.data[entries]),
            None if self.edge_ids is None else copied(self.edge_ids[entries]),
        )

    @classmethod
    def of_one(cls, dst: Any, src: Any, indptr: Any, indices: Any, data: Any, edge_ids: Any) -> BulkLayer:
        """Make one of the arrays of a single batch."""
        whole = [Ranges(np.array([0, len(part)])) for part in (dst, src, indptr, indices)]
        return cls(dst, whole[0], src, whole[1], indptr, whole[2], indices, data, edge_ids, whole[3])

    def empty_batch(self) -> BulkLayer:
        """Return a layer of one batch without rows, of the types of this one."""
        none = Ranges(np.zeros(2, np.int64))
        return BulkLayer(
            dst=self.dst[:0],
            dst_ranges=none,
            src=self.src[:0],
            src_ranges=none,
            indptr=backend_for(self.src).to_device(np.zeros(1, np.int64)),
            indptr_ranges=Ranges(np.zeros(2, np.int64), more=1),
            indices=self.indices[:0],
            data=None if self.data is None else self.data[:0],
            edge_ids=None if self.edge_ids is None else self.edge_ids[:0],
            entry_ranges=none,
        )

    def take(self, positions: Int64Array) -> BulkLayer:
        """Return the layer of some of the batches, in the same arrays."""
        return replace(
            self,
            dst_ranges=self.dst_ranges.take(positions),
            src_ranges=self.src_ranges.take(positions),
            indptr_ranges=self.indptr_ranges.take(positions),
            entry_ranges=self.entry_ranges.take(positions),
        )

    def on_host(self) -> BulkLayer:
        """Return this layer with NumPy arrays: itself, or a copy of one on a device."""
        names = ("dst", "src", "indptr", "indices", "data", "edge_ids")
        arrays: dict[str, Any] = {name: getattr(self, name) for name in names}
        if all(one is None or isinstance(one, np.ndarray) for one in arrays.values()):
            return self
        copy_of = backend_for(self.src).on_host
        copied: dict[str, Any] = {name: None if one is None else copy_of(one) for name, one in arrays.items()}
        return replace(self, **copied)

    @property
    def nbytes(self) -> int:
        """Bytes of the layer's arrays, `dst` (which is another layer's `src`) left out."""
        arrays = (self.src, self.indptr, self.indices, self.data, self.edge_ids)
        return sum(a.nbytes for a in arrays if a is not None)
