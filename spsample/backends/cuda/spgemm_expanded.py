"""The general product C = A B by expansion: all products sorted by row and column, and summed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from spsample.backends.cuda.device import Device, DeviceArray, Kernel
from spsample.backends.cuda.launcher import KernelLauncher
from spsample.backends.cuda.sources import Variant
from spsample.backends.cuda.spgemm_select_rows import Triple
from spsample.backends.protocol import Int64Array

LENGTHS = Kernel("spgemm", "product_lengths")
ROW_ENDS = Kernel("spgemm", "product_row_ends")
EXPAND = Kernel("spgemm", "expand_products")
HEADS = Kernel("spgemm", "mark_heads")
STARTS = Kernel("spgemm", "segment_starts")
POINTERS = Kernel("spgemm", "product_pointers")
SUMS = Kernel("spgemm", "sum_segments")

BYTES_PER_PRODUCT = 96
"""Key, value and place of a product, what sorting takes beside them, and what comes of it."""


class Slice(NamedTuple):
    """Products `begin` .. `end` - 1, which belong to the rows `first` .. `last` - 1 of A.

    They are all products of these rows, or part of those of a single row.
    """

    first: int
    last: int
    begin: int
    end: int
    is_last: bool


class ExpandedProduct(KernelLauncher):
    """One product A B, slice by slice: cut by products, so that the lengths of rows do not matter.

    Waits twice, where the products fit in a quarter of the memory that is free, else once more for each slice.
    """

    def __init__(self, device: Device, A: Triple, B: Triple, num_columns: int) -> None:
        super().__init__(device)
        self._dtype = value_type(A, B)
        self._variant = Variant(A[1].dtype.name, values=self._dtype.name)
        self._A, self._B, self._num_columns = A, B, num_columns
        self._rows = len(A[0]) - 1
        self._entry_ends = self.device.zeros(len(A[1]) + 1, np.int64)
        self._row_ends = self.device.empty(self._rows + 1, np.int64)

    def result(self) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
        """CSR triple of the product."""
        self._count()
        indptr = self.device.zeros(self._rows + 1, np.int64)
        parts = [self._empty()]
        carried, count = self._empty(), 0
        for part in self._slices():
            numbers, columns, values = self._merge(part, carried)
            if not part.is_last:
                carried = columns, values
                continue
            place = (self._row_ends, part.first, part.last, part.begin, len(carried[0]))
            self.run(POINTERS, part.last - part.first, *place, numbers, count, indptr, variant=self._variant)
            parts.append((columns, values))
            carried, count = self._empty(), count + len(columns)
        if len(parts) == 2:
            return indptr, *parts[1]
        columns, values = (self.device.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return indptr, columns, values

    def _count(self) -> None:
        """Count the products that come before each entry, and before each row of A."""
        entries = len(self._A[1])
        lengths = self.device.empty(entries, np.int64)
        self.run(LENGTHS, entries, self._A[1], entries, self._B[0], lengths, variant=self._variant)
        self.device.cumsum(lengths, self._entry_ends[1:])
        arguments = (self._A[0], self._rows, self._entry_ends, self._row_ends)
        self.run(ROW_ENDS, self._rows + 1, *arguments, variant=self._variant)

    def _slices(self) -> Iterator[Slice]:
        """One slice where memory and 64-bit keys allow."""
        most = max(self.device.scratch_bytes() // BYTES_PER_PRODUCT, 1)
        most_rows = max((1 << 63) // max(self._num_columns, 1), 1)
        total = int(self.device.to_host(self._row_ends[-1:])[0])
        if total <= most and self._rows <= most_rows:
            return iter([Slice(0, self._rows, 0, total, True)])
        return slices(self.device.to_host(self._row_ends), most, most_rows)

    def _merge(
        self, part: Slice, carried: tuple[DeviceArray, DeviceArray]
    ) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
        """Columns and sums of a slice, whose row has the sums `carried` already; how many up to each product.

        The products are numbered as they are sorted.
        """
        count = len(carried[0]) + part.end - part.begin
        if count == 0:
            return self.device.empty(0, np.int64), *self._empty()
        wide = (part.last - part.first) * self._num_columns > 1 << 32
        keys, products = self._expanded(part, carried, np.dtype(np.uint64 if wide else np.uint32))
        order = self.device.argsort(keys)
        heads, numbers = self.device.empty(count, np.int64), self.device.empty(count, np.int64)
        self.run(HEADS, count, keys, wide, order, count, heads, variant=self._variant)
        self.device.cumsum(heads, numbers)
        segments = int(self.device.to_host(numbers[-1:])[0])
        starts = self.device.empty(segments + 1, np.int64)
        self.run(STARTS, count, numbers, count, starts, variant=self._variant)
        columns = self.device.empty(segments, self._A[1].dtype)
        values = self.device.empty(segments, self._dtype)
        arguments = (keys, wide, order, products, starts, segments, self._num_columns, columns, values)
        self.run(SUMS, segments, *arguments, variant=self._variant)
        return numbers, columns, values

    def _expanded(
        self, part: Slice, carried: tuple[DeviceArray, DeviceArray], key_type: np.dtype[Any]
    ) -> tuple[DeviceArray, DeviceArray]:
        """Keys and products of a slice; in front those that are carried, which are of its only row."""
        before, count = len(carried[0]), part.end - part.begin
        keys = self.device.empty(before + count, key_type)
        products = self.device.empty(before + count, self._dtype)
        if before:
            keys[:before] = carried[0].astype(key_type)
            products[:before] = carried[1]
        entries = (len(self._A[1]), self._entry_ends)
        place = (part.first, part.last, part.begin, count, self._num_columns, before)
        wide = key_type.itemsize == 8
        self.run(EXPAND, count, *self._A, *self._B, *entries, *place, keys, wide, products, variant=self._variant)
        return keys, products

    def _empty(self) -> tuple[DeviceArray, DeviceArray]:
        return self.device.empty(0, self._A[1].dtype), self.device.empty(0, self._dtype)


def slices(row_ends: Int64Array, most_products: int, most_rows: int) -> Iterator[Slice]:
    """Whole rows as long as they fit; a row that alone does not is cut.

    Examples
    --------
    >>> [tuple(part) for part in slices(np.array([0, 2, 3, 8, 8]), 3, 9)]
    [(0, 2, 0, 3, True), (2, 3, 3, 6, False), (2, 3, 6, 8, True), (3, 4, 8, 8, True)]
    """
    first, rows = 0, len(row_ends) - 1
    while first < rows:
        begin = int(row_ends[first])
        fitting = int(np.searchsorted(row_ends, begin + most_products, side="right")) - 1
        last = min(fitting, first + most_rows, rows)
        if last > first:
            yield Slice(first, last, begin, int(row_ends[last]), True)
            first = last
            continue
        stop = int(row_ends[first + 1])
        for cut in range(begin, stop, most_products):
            end = min(cut + most_products, stop)
            yield Slice(first, first + 1, cut, end, end == stop)
        first += 1


def value_type(A: Triple, B: Triple) -> np.dtype[Any]:
    """Type of the product's values: data that are left out are ones of the other's type."""
    given = [M[2].dtype for M in (A, B) if M[2] is not None]
    return given[0] if given else np.dtype(np.float32)
