"""The general product C = A B by hash tables: a row's columns are counted, then summed, in the memory of its team."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from spsample.backends.cuda.device import BLOCK, Device, DeviceArray, Kernel, chunks_of
from spsample.backends.cuda.launcher import KernelLauncher
from spsample.backends.cuda.sources import Variant
from spsample.backends.cuda.spgemm_expanded import LENGTHS, ExpandedProduct, value_type
from spsample.backends.cuda.spgemm_select_rows import SelectRowsKernels, Triple

CLASSIFY = Kernel("spgemm_classes", "classify_rows")
LISTED_LENGTHS = Kernel("spgemm_classes", "listed_lengths")
SET_LENGTHS = Kernel("spgemm_classes", "set_lengths")
COUNT_SHORT = Kernel("spgemm_count", "count_short", 32)
COUNT_MEDIUM = Kernel("spgemm_count", "count_medium", BLOCK)
COUNT_LONG = Kernel("spgemm_count", "count_long", BLOCK)
FILL_SHORT = Kernel("spgemm_fill", "fill_short", 32)
FILL_MEDIUM = Kernel("spgemm_fill", "fill_medium", BLOCK)
FILL_LONG = Kernel("spgemm_fill", "fill_long", BLOCK)
PLACE_SORTED = Kernel("spgemm_fill", "place_sorted", 32)
COPY_ROWS = Kernel("spgemm_fill", "copy_rows", 32)

HUB_LEAST = 1 << 17
"""Rows of more products than this, and than a 128th of all, are made by sorting, where all threads share the work."""

LONG_SIZE = 1 << 14
"""Rows of more columns than this have tables of their own size, not all of one."""


BYTES_PER_ELEMENT = 64
"""Key, value and place of an element of a long row, and what sorting takes beside them."""


class Sizes(NamedTuple):
    """Numbers that `classify_rows` finds: rows by class, columns of the long ones, and all elements of C."""

    none: int
    short: int
    medium: int
    long: int
    longest: int
    hub: int
    long_columns: int
    longest_columns: int
    largest_long: int
    largest_longest: int
    total: int


class LongRows(NamedTuple):
    """Long rows of one class: their numbers, the columns of all and of the largest."""

    rows: DeviceArray
    columns: int
    largest: int


class Classes(NamedTuple):
    """Rows by class; the lists are in any order, on which no result depends."""

    sizes: Sizes
    medium: DeviceArray
    hubs: DeviceArray
    long: tuple[LongRows, LongRows]


class HashedProduct(KernelLauncher):
    """One product A B, each row in one pass that counts its columns and one that sums them.

    Waits twice. Hubs cost three waits more, and one for each further slice of their products; long rows that are too
    many to be sorted together cost one or two. The number of launches does not grow with the rows either.
    """

    def __init__(self, device: Device, A: Triple, B: Triple, num_columns: int) -> None:
        super().__init__(device)
        self._A, self._B, self._num_columns = A, B, num_columns
        self._index, self._dtype = A[1].dtype, value_type(A, B)
        self._rows = len(A[0]) - 1
        self._rows_per_warp = min(max(self._rows // device.resident_warps(), 1), 32)
        self._room = device.scratch_bytes()
        self._entry_ends = device.zeros(len(A[1]) + 1, np.int64)
        self._classes = device.empty(self._rows, np.uint8)

    def result(self) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
        """CSR triple of the product."""
        entries = len(self._A[1])
        products = self.device.empty(entries, np.int64)
        self._run(LENGTHS, entries, self._A[1], entries, self._B[0], products)
        self.device.cumsum(products, self._entry_ends[1:])
        bounded = self._classified(None)
        lengths, hubs = self._lengths(bounded), None
        if bounded.sizes.hub:
            hubs = self._made_by_sorting(bounded.hubs)
            self._run(SET_LENGTHS, bounded.sizes.hub, hubs[0], bounded.hubs, bounded.sizes.hub, lengths)
        indptr = self.ends_of(lengths)
        counted = self._classified(indptr)
        C = indptr, *self._empty(counted.sizes.total)
        self._fill(counted, C)
        if hubs is not None:
            self._run(COPY_ROWS, chunks_of(len(hubs[1])), *hubs, bounded.hubs, bounded.sizes.hub, *C)
        return C

    # --- classes -----------------------------------------------------------------------------------------------
    def _classified(self, ends: DeviceArray | None) -> Classes:
        """By the most columns that rows can have, or, where C's row pointers are known, by those that they have."""
        lists = self.device.empty(2 * self._rows, np.int64)
        counted = self.device.zeros(len(Sizes._fields), np.uint64)
        rule = (HUB_LEAST, self._most_columns(), LONG_SIZE)
        place = (self._A[0], self._entry_ends, self._rows, self._num_columns, ends)
        self._run(CLASSIFY, self._rows, *place, *rule, self._classes, lists, counted)
        sizes = Sizes(*map(int, self.device.to_host(counted)))
        first, second = lists[: self._rows], lists[self._rows :]
        long = LongRows(second[: sizes.long], sizes.long_columns, sizes.largest_long)
        longest = LongRows(second[self._rows - sizes.longest :], sizes.longest_columns, sizes.largest_longest)
        return Classes(sizes, first[: sizes.medium], first[self._rows - sizes.hub :], (long, longest))

    def _most_columns(self) -> int:
        """Most columns with which a row's table fits in memory, with its sums."""
        slots = int(self._room // (self._index.itemsize + self._dtype.itemsize))
        return 1 << slots.bit_length() >> 2

    # --- the two passes --------------------------------------------------------------------------------------------
    def _lengths(self, classes: Classes) -> DeviceArray:
        """Columns of each row, but for hubs."""
        lengths = self.device.zeros(self._rows, np.int64)
        short = (self._classes, self._rows, self._rows_per_warp)
        if classes.sizes.short:
            self._run(COUNT_SHORT, self._warps, *self._products, *short, self._num_columns, lengths)
        medium = (classes.medium, classes.sizes.medium, self._num_columns, lengths)
        self._run(COUNT_MEDIUM, classes.sizes.medium, *self._products, *medium)
        for long in classes.long:
            if len(long.rows):
                blocks, slots = self._tables(len(long.rows), long.largest, self._index.itemsize)
                table = (self.device.empty(blocks * slots, self._index), slots)
                place = (long.rows, len(long.rows), self._num_columns)
                self._run(COUNT_LONG, blocks, *self._products, *place, *table, lengths)
        return lengths

    def _fill(self, classes: Classes, C: tuple[DeviceArray, ...]) -> None:
        """The columns and sums of all rows, but for hubs."""
        values = (self._A[2], self._B[2])
        if classes.sizes.short:
            short = (self._classes, self._rows, self._rows_per_warp)
            self._run(FILL_SHORT, self._warps, *self._products, *values, *short, *C)
        medium = (classes.medium, classes.sizes.medium)
        self._run(FILL_MEDIUM, classes.sizes.medium, *self._products, *values, *medium, *C)
        for long in classes.long:
            if len(long.rows):
                self._fill_long(long, C)

    def _fill_long(self, long: LongRows, C: tuple[DeviceArray, ...]) -> None:
        """Long rows: sums in any order, with their keys, which are then sorted."""
        lengths = self.device.empty(len(long.rows), np.int64)
        self._run(LISTED_LENGTHS, len(long.rows), C[0], long.rows, len(long.rows), lengths)
        starts = self.ends_of(lengths)
        for first, last, columns in self._groups(starts, long):
            group = LongRows(long.rows[first:last], columns, long.largest)
            self._fill_group(group, starts[first : last + 1], C)

    def _fill_group(self, group: LongRows, starts: DeviceArray, C: tuple[DeviceArray, ...]) -> None:
        rows, columns = len(group.rows), group.columns
        wide = rows * self._num_columns > 1 << 32
        keys = (self.device.empty(columns, np.uint64 if wide else np.uint32), wide)
        sums = self.device.empty(columns, self._dtype)
        blocks, slots = self._tables(rows, group.largest, self._index.itemsize + self._dtype.itemsize)
        table = (*self._empty(blocks * slots), slots)
        place = (group.rows, rows, starts, self._num_columns)
        self._run(FILL_LONG, blocks, *self._products, self._A[2], self._B[2], *place, *table, *keys, sums)
        del table
        order = self.device.argsort(keys[0])
        items = (group.rows, starts, rows, self._num_columns)
        self._run(PLACE_SORTED, chunks_of(columns), *keys, order, sums, *items, *C)

    def _groups(self, starts: DeviceArray, long: LongRows) -> Iterator[tuple[int, int, int]]:
        """Long rows that are sorted together, and their columns: all, where memory and 64-bit keys allow."""
        most = max(self._room // BYTES_PER_ELEMENT, 1)
        most_rows = max((1 << 63) // self._num_columns, 1)
        rows = len(long.rows)
        if long.columns <= most and rows <= most_rows:
            yield 0, rows, long.columns
            return
        ends, first = self.device.to_host(starts), 0
        while first < rows:
            fitting = int(np.searchsorted(ends, ends[first] + most, side="right")) - 1
            last = min(max(fitting, first + 1), first + most_rows, rows)
            yield first, last, int(ends[last] - ends[first])
            first = last

    def _made_by_sorting(self, rows: DeviceArray) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
        """The listed rows of C. Waits three times, and once more for each slice of products."""
        left = SelectRowsKernels(self.device).select_rows(self._A, rows)
        return ExpandedProduct(self.device, left, self._B, self._num_columns).result()

    # --- small things ----------------------------------------------------------------------------------------------
    @property
    def _products(self) -> tuple[Any, ...]:
        return (*self._A[:2], *self._B[:2], self._entry_ends)

    @property
    def _warps(self) -> int:
        return -(-self._rows // self._rows_per_warp)

    def _run(self, kernel: Kernel, work: int, *arguments: Any) -> None:
        """Compiled for the type of values only where the source has it."""
        has_values = kernel.source in (LENGTHS.source, FILL_SHORT.source)
        values = {"values": self._dtype.name} if has_values else {}
        self.run(kernel, work, *arguments, variant=Variant(self._index.name, **values))

    def _empty(self, count: int) -> tuple[DeviceArray, DeviceArray]:
        return self.device.empty(count, self._index), self.device.empty(count, self._dtype)

    def _tables(self, rows: int, largest: int, slot_bytes: int) -> tuple[int, int]:
        """Blocks that work on `rows` rows, and slots of each block's table."""
        slots = table_slots(largest)
        resident = self.device.resident_warps() * 32 // BLOCK
        return max(min(rows, resident, self._room // (slots * slot_bytes)), 1), slots


def table_slots(columns: int) -> int:
    """Slots of a block's table: a power of two, at least twice as many as columns.

    Examples
    --------
    >>> [table_slots(columns) for columns in (1, 1024, 1025)]
    [256, 2048, 4096]
    """
    return max(1 << (2 * columns - 1).bit_length(), BLOCK)
