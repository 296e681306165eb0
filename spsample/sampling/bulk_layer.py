"""`BulkLayer`: how a bulk stores one layer of all its batches, so that a batch's matrices are slices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array, IntArray
from spsample.sparse import StackedLayer


class Ranges:
    """A slice `begin[i] : end[i]` of a stacked array for each batch i; both int64 arrays (k,)."""

    __slots__ = ("begin", "end")

    def __init__(self, begin: Int64Array, end: Int64Array) -> None:
        self.begin = begin
        self.end = end

    @classmethod
    def between(cls, ptr: Int64Array) -> Ranges:
        """The slices between consecutive pointers (k + 1,)."""
        return cls(ptr[:-1], ptr[1:])

    @property
    def size(self) -> Int64Array:
        """Length of each slice (k,)."""
        return self.end - self.begin

    def __getitem__(self, i: int) -> slice:
        return slice(self.begin.item(i), self.end.item(i))


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
        between = Ranges.between
        first_pointers = rows.batch_ptr + np.arange(len(rows.batch_ptr))  # a batch has one pointer more than rows
        return cls(
            layer.dst.vertices,
            between(rows.batch_ptr),
            layer.src,
            between(layer.src_ptr),
            rows.indptr,
            between(first_pointers),
            rows.columns,
            layer.data,
            layer.edge_ids,
            between(rows.entry_ptr),
        )

    def alone(self, i: int) -> BulkLayer:
        """The same of batch i only, copied."""
        ranges = (self.dst_ranges, self.src_ranges, self.indptr_ranges, self.entry_ranges)
        dst, src, indptr, entries = (one[i] for one in ranges)
        starts = [Ranges(np.zeros(1, np.int64), one.end[i : i + 1] - one.begin[i : i + 1]) for one in ranges]
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
