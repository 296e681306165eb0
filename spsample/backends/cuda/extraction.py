"""EXTRACT of layer-wise samples: the entries of selected rows whose columns are in their batch's src."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from spsample.backends.arithmetic import extract_unbiased_by_parts
from spsample.backends.cuda.device import BLOCK, WARP, DeviceArray, Kernel
from spsample.backends.cuda.launcher import KernelLauncher, StackedPointers, index_variant
from spsample.backends.protocol import Int64Array, IntArray, Matrix, StackedRows, StackedSelector

INSERT = Kernel("extraction", "insert_sources")
MARK = Kernel("extraction", "mark_members", lanes=BLOCK)
COUNT = Kernel("extraction", "count_kept")
WRITE = Kernel("extraction", "write_members", lanes=WARP)

UNIT = 1024
"""Entries of a batch's frontier that are counted together (`kernels/cuda/extraction_frontier.h`)."""

TILE_UNITS = 32
"""Units that a block marks."""

UNIT_BYTES = UNIT // 8 + 2 * 8
"""A bit for each entry, and two counts."""

SLOTS_PER_COLUMN = 4
PLACE_BYTES = 4

FILTER_BITS_PER_COLUMN = 32
LEAST_FILTER_BITS, MOST_FILTER_BITS = 1 << 10, 1 << 16
"""Of a batch's filter; a block keeps it in shared memory (`kernels/cuda/extraction_sources.h`)."""


class Membership(NamedTuple):
    """A request: rows Q of A, restricted to the src columns of their batches."""

    A: Matrix
    Q: StackedSelector
    src_ptr: Int64Array
    src: IntArray

    def of_batches(self, first: int, last: int) -> Membership:
        """The request for batches first .. last - 1 alone."""
        batch_ptr, src_ptr = self.Q.batch_ptr[first : last + 1], self.src_ptr[first : last + 1]
        vertices = self.Q.vertices[int(batch_ptr[0]) : int(batch_ptr[-1])]
        Q = StackedSelector(batch_ptr - batch_ptr[0], vertices, self.Q.batch_ids[first:last])
        return Membership(self.A, Q, src_ptr - src_ptr[0], self.src[int(src_ptr[0]) : int(src_ptr[-1])])


class Units(NamedTuple):
    """The frontier in units, and those in tiles, batch by batch.

    `ends` (m + 1), `unit_ptr` and `tile_ptr` (k + 1) are on the device, as kernels take them.
    """

    ends: DeviceArray
    unit_ptr: DeviceArray
    tile_ptr: DeviceArray
    units: int
    tiles: int

    @property
    def parameters(self) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
        """As kernels take them."""
        return self.ends, self.unit_ptr, self.tile_ptr


class ExtractionKernels(KernelLauncher):
    """`extract`, and `extract_unbiased` by parts."""

    def extract(
        self, A: Matrix, Q: StackedSelector, src_ptr: Int64Array, src: IntArray, positions: bool = True
    ) -> StackedRows:
        """Rows Q of A restricted to each batch's src columns: local ids, A's order, positions where asked for.

        Waits twice, for the size of the frontier and for that of the result; for each group of batches, where the
        frontier is too large to be looked at at once.
        """
        return self._extracted(Membership(A, Q, src_ptr, src), positions)

    extract_unbiased = extract_unbiased_by_parts

    def _extracted(self, asked: Membership, positions: bool) -> StackedRows:
        A, Q = asked.A, asked.Q
        frontier = self.stacked_at(Q.batch_ptr, self.row_ends(A, Q, -1, False))
        needed = scratch_bytes(frontier.entry_ptr, asked.src_ptr, A.indices.dtype.itemsize)
        groups = fitting_groups(needed, self.device.scratch_bytes())
        if len(groups) <= 1:
            return self._restricted(asked, frontier, positions)
        return self._joined(Q, [self._extracted(asked.of_batches(*group), positions) for group in groups])

    def _restricted(self, asked: Membership, frontier: StackedPointers, positions: bool) -> StackedRows:
        """The entries of one group of batches: marked, counted and written."""
        A, Q, variant = asked.A, asked.Q, index_variant(asked.A.indices)
        units = self._units(frontier)
        arguments = (*self.matrix(A), *self.selector(Q), *self._sources(asked), *units.parameters)
        bits = self.device.empty(units.units * WARP, np.uint32)
        counts, unit_ends = (self.device.empty(units.units, np.int64) for _ in range(2))
        self.run(MARK, units.tiles, *arguments, bits, counts, variant=variant)
        self.device.cumsum(counts, unit_ends)
        m, k = len(Q.vertices), len(Q.batch_ids)
        ends = self.device.empty(m + 1, np.int64)
        counted = (self.uploaded(Q.batch_ptr), k, *units.parameters, bits, unit_ends)
        self.run(COUNT, m + 1, *counted, ends, variant=variant)
        kept = self.stacked_at(Q.batch_ptr, ends)
        local = self.device.empty(kept.total, A.indices.dtype)
        where = self.device.empty(kept.total, np.int64) if positions else None
        work = units.units if kept.total else 0
        self.run(WRITE, work, *arguments, bits, unit_ends, local, where, variant=variant)
        return StackedRows(Q.batch_ptr, kept.entry_ptr, kept.indptr, local, where)

    def _units(self, frontier: StackedPointers) -> Units:
        """The entries of the frontier in units and tiles."""
        unit_ptr = pointers_to(frontier.entry_ptr, UNIT)
        tile_ptr = pointers_to(unit_ptr, TILE_UNITS)
        both, k = self.device.to_device(np.concatenate([unit_ptr, tile_ptr])), len(unit_ptr)
        return Units(frontier.ends, both[:k], both[k:], int(unit_ptr[-1]), int(tile_ptr[-1]))

    def _sources(self, asked: Membership) -> tuple[Any, ...]:
        """Parameters of the batches' src columns as hash tables and filters, filled."""
        dtype, k = asked.A.indices.dtype, len(asked.src_ptr) - 1
        src_ptr, slots = self.uploaded(asked.src_ptr), SLOTS_PER_COLUMN * len(asked.src)
        tables = (self.device.full(slots, -1, dtype), self.device.full(slots, 2**32 - 1, np.uint32))
        bits = filter_bits(asked.src_ptr)
        filters = self.device.zeros(k * bits // 32, np.uint32)
        sources = (src_ptr, *tables, filters, 33 - bits.bit_length())
        src = asked.src if asked.src.dtype == dtype else asked.src.astype(dtype)
        self.run(INSERT, len(src), *sources, k, src, variant=index_variant(src))
        return sources

    def _joined(self, Q: StackedSelector, groups: list[StackedRows]) -> StackedRows:
        """The stacked rows of consecutive groups of the batches of Q."""
        ends = np.cumsum([0, *(int(group.entry_ptr[-1]) for group in groups)])
        entry_ptr = [group.entry_ptr[1:] + end for group, end in zip(groups, ends[:-1], strict=True)]
        where = [group.positions for group in groups if group.positions is not None]
        return StackedRows(
            Q.batch_ptr,
            np.concatenate([np.zeros(1, np.int64), *entry_ptr]),
            self.device.concatenate([group.indptr for group in groups]),
            self.device.concatenate([group.columns for group in groups]),
            self.device.concatenate(where) if where else None,
        )


def pointers_to(pointers: Int64Array, size: int) -> Int64Array:
    """Pointers to the pieces of `size` items, of which the last may be short, that each part is cut into.

    Examples
    --------
    >>> pointers_to(np.array([0, 5, 5, 13]), 4)
    array([0, 2, 2, 4])
    """
    pieces = -(-np.diff(pointers) // size)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(pieces)])


def filter_bits(src_ptr: Int64Array) -> int:
    """Bits of each batch's filter, a power of two: enough that few absent columns of the largest batch pass.

    Examples
    --------
    >>> [filter_bits(np.array([0, size])) for size in (0, 100, 10_000)]
    [1024, 4096, 65536]
    """
    wanted = FILTER_BITS_PER_COLUMN * int(np.diff(src_ptr).max(initial=0))
    return min(max(1 << max(wanted - 1, 0).bit_length(), LEAST_FILTER_BITS), MOST_FILTER_BITS)


def scratch_bytes(entry_ptr: Int64Array, src_ptr: Int64Array, id_bytes: int) -> Int64Array:
    """(k + 1,) memory that the batches before each need: units of the frontier, src columns and filters."""
    per_source = SLOTS_PER_COLUMN * (id_bytes + PLACE_BYTES)
    filters = filter_bits(src_ptr) // 8 * np.arange(len(src_ptr))
    return UNIT_BYTES * pointers_to(entry_ptr, UNIT) + per_source * src_ptr + filters


def fitting_groups(needed: Int64Array, most: int) -> list[tuple[int, int]]:
    """Consecutive batches that need at most `most` together, or one that needs more; `needed` (k + 1,) are sums.

    Examples
    --------
    >>> fitting_groups(np.array([0, 3, 5, 12, 13]), 6)
    [(0, 2), (2, 3), (3, 4)]
    """
    groups, first, k = [], 0, len(needed) - 1
    while first < k:
        last = int(np.searchsorted(needed, needed[first] + most, side="right")) - 1
        last = max(min(last, k), first + 1)
        groups.append((first, last))
        first = last
    return groups
