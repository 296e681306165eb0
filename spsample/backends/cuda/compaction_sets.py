"""Sets of columns, one for each batch of a group, as bits over all n columns on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from spsample.backends.cuda.device import Device, DeviceArray, Kernel, chunk_kernel, chunks_of
from spsample.backends.cuda.launcher import KernelLauncher
from spsample.backends.cuda.sources import Variant
from spsample.backends.protocol import Int64Array

MARK_KNOWN = chunk_kernel("compaction", "mark_known")
MARK_FOUND = chunk_kernel("compaction", "mark_found")
COUNT_CHUNKS = Kernel("compaction", "count_chunks", lanes=32)
RANK_SLOTS = Kernel("compaction", "rank_slots", lanes=32)
PLACE_KNOWN = chunk_kernel("compaction", "place_known")
PLACE_NEW = Kernel("compaction", "place_new", lanes=32)
NUMBER = chunk_kernel("compaction", "number_columns")

CHUNK_COLUMNS = 1024
SLOT_BYTES = 16


def slots_for(num_columns: int) -> int:
    """Slots of one batch: whole chunks."""
    return max(-(-num_columns // CHUNK_COLUMNS), 1) * 32


def set_bytes(num_columns: int) -> int:
    """Bytes of the set of one batch.

    Examples
    --------
    >>> set_bytes(1 << 20) == (1 << 20) // 2
    True
    """
    return SLOT_BYTES * slots_for(num_columns)


def groups(device: Device, num_batches: int, num_columns: int) -> Iterator[tuple[int, int]]:
    """Consecutive batches whose sets fit in memory together: all of them where there is room."""
    fitting = max(device.scratch_bytes() // set_bytes(num_columns), 1)
    return ((first, min(first + fitting, num_batches)) for first in range(0, num_batches, fitting))


class ColumnSets(KernelLauncher):
    """The sets of batches first .. last - 1 of stacked arrays.

    Mark known vertices and found columns in any order, then `rank`; then places can be asked for. Kernels of other
    sources take the sets as `parameters`.

    Parameters
    ----------
    known_ptr : int64 array (k + 1,)
        Where the known vertices of all k batches begin among each other (zeros where none are known).
    """

    def __init__(
        self, device: Device, known_ptr: Int64Array, group: tuple[int, int], num_columns: int, variant: Variant
    ) -> None:
        super().__init__(device)
        first, last = group
        self.num_batches = last - first
        self.slots = slots_for(num_columns)
        self._variant = variant
        self._known = self.device.to_device(known_ptr[first : last + 1])
        self._num_known = int(known_ptr[last] - known_ptr[first])
        self._known_ptr = self.device.to_device(known_ptr[first : last + 1] - known_ptr[first])
        self._table = self.device.zeros(self.num_batches * self.slots * 4, np.uint32)
        self._places = self.device.empty(self._num_known, np.uint32)

    @property
    def parameters(self) -> tuple[Any, ...]:
        """As kernels take them."""
        return (self._table, self.slots, self._known_ptr, self._places)

    @property
    def _chunks(self) -> int:
        return self.num_batches * self.slots // 32

    def mark_known(self, vertices: DeviceArray) -> None:
        """Those of the group, of the stacked vertices of all batches."""
        arguments = (*self.parameters, self._known, self.num_batches, vertices)
        self.run(MARK_KNOWN, chunks_of(self._num_known), *arguments, variant=self._variant)

    def mark_found(self, pointers: DeviceArray, columns: DeviceArray, count: int) -> None:
        """`pointers` (batches + 1): where the columns of each batch of the group begin; `count` of them in all."""
        arguments = (*self.parameters, pointers, self.num_batches, columns)
        self.run(MARK_FOUND, chunks_of(count), *arguments, variant=self._variant)

    def rank(self) -> DeviceArray:
        """Number the columns. Returns pointers (batches + 1) to the vertices of each batch, from 0."""
        counts, ends = (self.device.empty(2 * self._chunks, np.int64) for _ in range(2))
        self.run(COUNT_CHUNKS, self._chunks, *self.parameters, self._chunks, counts, variant=self._variant)
        self.device.cumsum(counts, ends)
        src_ptr = self.device.empty(self.num_batches + 1, np.int64)
        self.run(RANK_SLOTS, self._chunks, *self.parameters, self._chunks, ends, src_ptr, variant=self._variant)
        return src_ptr

    def place_known(self, vertices: DeviceArray, src_ptr: DeviceArray | None, src: DeviceArray | None) -> None:
        """Let known vertices be found; write them to the front of their batch's part of `src` too, if it is given."""
        arguments = (*self.parameters, self._known, self.num_batches, vertices, self._places, src_ptr, src)
        self.run(PLACE_KNOWN, chunks_of(self._num_known), *arguments, variant=self._variant)

    def place_new(self, src_ptr: DeviceArray, src: DeviceArray) -> None:
        """Write the new columns behind the known ones, ascending."""
        self.run(PLACE_NEW, self._chunks, *self.parameters, self._chunks, src_ptr, src, variant=self._variant)

    def number(self, pointers: DeviceArray, columns: DeviceArray, count: int) -> None:
        """Write over every column its place among its batch's vertices."""
        arguments = (*self.parameters, pointers, self.num_batches, columns)
        self.run(NUMBER, chunks_of(count), *arguments, variant=self._variant)
