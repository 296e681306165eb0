"""`BulkLayer`: how a bulk stores one layer of all its batches, so that a batch's matrices are slices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array, IntArray
from spsample.sparse import StackedLayer


class Ranges(ABC):
    """A slice `begin[i] : end[i]` of a stacked array for each batch i; both int64 arrays (k,)."""

    __slots__ = ()

    @property
    @abstractmethod
    def begin(self) -> Int64Array:
        """Where each slice begins."""

    @property
    @abstractmethod
    def end(self) -> Int64Array:
        """Where each slice ends."""

    @property
    def size(self) -> Int64Array:
        """Length of each slice (k,)."""
        return self.end - self.begin

    @abstractmethod
    def __getitem__(self, i: int) -> slice:
        """The slice of batch i."""


class Slices(Ranges):
    """Slices that may lie anywhere."""

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: Int64Array, end: Int64Array) -> None:
        self._begin = begin
        self._end = end

    @property
    def begin(self) -> Int64Array:
        """Where each slice begins."""
        return self._begin

    @property
    def end(self) -> Int64Array:
        """Where each slice ends."""
        return self._end

    def __getitem__(self, i: int) -> slice:
        return slice(self._begin.item(i), self._end.item(i))


class Between(Ranges):
    """The slices between consecutive pointers (k + 1,), each longer than they say by `more` elements.

    Examples
    --------
    >>> rows = np.array([0, 2, 5])
    >>> Between(rows)[1], Between(rows, more=1)[1]     # a batch has one row pointer more than rows
    (slice(2, 5, None), slice(3, 7, None))
    """

    __slots__ = ("_more", "_ptr")

    def __init__(self, ptr: Int64Array, more: int = 0) -> None:
        self._ptr = ptr
        self._more = more

    @property
    def begin(self) -> Int64Array:
        """Where each slice begins."""
        return self._shifted()[:-1]

    @property
    def end(self) -> Int64Array:
        """Where each slice ends."""
        return self._shifted()[1:]

    def _shifted(self) -> Int64Array:
        return self._ptr + self._more * np.arange(len(self._ptr)) if self._more else self._ptr

    def __getitem__(self, i: int) -> slice:
        return slice(self._ptr.item(i) + self._more * i, self._ptr.item(i + 1) + self._more * (i + 1))


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
        """Of what EXTRACT returned."""
        rows = layer.rows
        return cls(
            layer.dst.vertices,
            Between(rows.batch_ptr),
            layer.src,
            Between(layer.src_ptr),
            rows.indptr,
            Between(rows.batch_ptr, more=1),
            rows.columns,
            layer.data,
            layer.edge_ids,
            Between(rows.entry_ptr),
        )

    def alone(self, i: int) -> BulkLayer:
        """The same of batch i only, copied."""
        ranges = (self.dst_ranges, self.src_ranges, self.indptr_ranges, self.entry_ranges)
        dst, src, indptr, entries = (one[i] for one in ranges)
        starts = [Slices(np.zeros(1, np.int64), one.end[i : i + 1] - one.begin[i : i + 1]) for one in ranges]
        return BulkLayer(
            dst=self.dst[dst].copy(),
            dst_ranges=starts[0],
            src=self.src[src].copy(),
            src_ranges=starts[1],
            indptr=self.indptr[indptr].copy(),
            indptr_ranges=starts[2],
            indices=self.indices[entries].copy(),
            data=None if self.data is None else self.data[entries].copy(),
            edge_ids=None if self.edge_ids is None else self.edge_ids[entries].copy(),
            entry_ranges=starts[3],
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the layer's arrays, `dst` (which is another layer's `src`) left out."""
        arrays = (self.src, self.indptr, self.indices, self.data, self.edge_ids)
        return sum(a.nbytes for a in arrays if a is not None)
