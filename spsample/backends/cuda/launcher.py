"""Base of all parts of the backend: how A, Q and a draw become parameters of kernels, and how rows are stacked."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.backends.cuda.device import Device, DeviceArray, Kernel
from spsample.backends.cuda.sources import Variant
from spsample.backends.protocol import Draw, Int64Array, Matrix, StackedSelector

STACK_POINTERS = Kernel("stacking", "stack_pointers")
ROW_LENGTHS = Kernel("row_law", "row_lengths")

LEAST_ORDERED = 1 << 18
"""Rows of a call for which it pays to draw in the order of their addresses, where they are read over the bus."""

ORDER_BYTES = 32
"""Of a row, its place in that order, and what sorting takes beside them."""


class StackedPointers(NamedTuple):
    """Pointers of m rows of k batches: `ends` (m + 1) over all rows, `indptr` (m + k) from 0 in every batch.

    Both are on the device; `entry_ptr` (k + 1) is on the host.
    """

    ends: DeviceArray
    indptr: DeviceArray
    entry_ptr: Int64Array

    @property
    def total(self) -> int:
        """Entries of all rows."""
        return int(self.entry_ptr[-1])


class _Upload(NamedTuple):
    """An array of the host, its copy on the device, and when that is there."""

    array: Any
    copied: DeviceArray
    ready: Any


class KernelLauncher:
    """Base of the backend's parts.

    Arrays with an element per batch (pointers, batch ids, totals, exponents) are NumPy arrays on the host, in what a
    kernel takes and in what it returns; arrays with an element per row, column or entry are on the device.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._uploads: dict[int, _Upload] = {}

    def run(self, kernel: Kernel, work: int, *arguments: Any, variant: Variant | None = None) -> None:
        """Launch a kernel on `work` pieces of work."""
        self.device.launch(kernel, Variant() if variant is None else variant, work, arguments)

    def uploaded(self, array: NDArray[Any]) -> DeviceArray:
        """The array on the device: copied once for as long as it lives. Arrays of the library are never written to."""
        key = id(array)
        known = self._uploads.get(key)
        if known is not None and known.array() is array:
            self.device.wait_for(known.ready)
            return known.copied
        copied = self.device.to_device(array)
        alive = weakref.ref(array, lambda _: self._uploads.pop(key, None))
        self._uploads[key] = _Upload(alive, copied, self.device.ready())
        return copied

    def matrix(self, A: Matrix) -> tuple[Any, ...]:
        """Parameters of the rows of A."""
        return (A.indptr, A.indices, A.ids, A.row_places)

    def weights(self, A: Matrix) -> tuple[Any, ...]:
        """Parameters of the weights of A."""
        return (A.data, A.weight_places)

    def selector(self, Q: StackedSelector) -> tuple[Any, ...]:
        """Parameters of Q."""
        pointers, ids = self.uploaded(Q.batch_ptr), self.uploaded(Q.batch_ids)
        return (pointers, Q.vertices, ids, len(Q.batch_ids), len(Q.vertices))

    def draw(self, draw: Draw) -> tuple[int, int, int, bool]:
        """Parameters of a draw."""
        return (draw.key[0] | draw.key[1] << 32, draw.hop, draw.size, draw.replace)

    def reading_order(self, A: Matrix, Q: StackedSelector) -> DeviceArray | None:
        """(m,) the selected rows in the order of where they lie, across batches; None: as they are stacked.

        For many rows that are read over the bus: most of a read's time there goes into finding its address, and
        neighbours share that. Which entries are drawn does not depend on it.
        """
        rows = len(Q.vertices)
        if rows < LEAST_ORDERED or not self.device.is_on_host(A.indices):
            return None
        return self.device.argsort(Q.vertices) if rows * ORDER_BYTES <= self.device.scratch_bytes() else None

    def row_ends(self, A: Matrix, Q: StackedSelector, size: int, replace: bool) -> DeviceArray:
        """(m + 1,) where the entries that a draw of `size` gives of each selected row begin; -1: of whole rows."""
        lengths = self.device.empty(len(Q.vertices), np.int64)
        arguments = (*self.matrix(A), *self.selector(Q), size, replace, lengths)
        self.run(ROW_LENGTHS, len(Q.vertices), *arguments, variant=index_variant(A.indices))
        return self.ends_of(lengths)

    def ends_of(self, lengths: DeviceArray) -> DeviceArray:
        """(m + 1,) where rows of these lengths (m,) begin, from 0."""
        ends = self.device.zeros(len(lengths) + 1, np.int64)
        self.device.cumsum(lengths, ends[1:])
        return ends

    def stacked(self, batch_ptr: Int64Array, lengths: DeviceArray) -> StackedPointers:
        """Pointers of stacked rows from their lengths (m,). Waits once, for `entry_ptr`."""
        return self.stacked_at(batch_ptr, self.ends_of(lengths))

    def stacked_at(self, batch_ptr: Int64Array, ends: DeviceArray) -> StackedPointers:
        """Pointers of stacked rows from where the rows begin (m + 1,). Waits once, for `entry_ptr`."""
        m, k = len(ends) - 1, len(batch_ptr) - 1
        indptr, entry_ptr = self.device.empty(m + k, np.int64), self.device.empty(k + 1, np.int64)
        self.run(STACK_POINTERS, max(m + k, 1), self.uploaded(batch_ptr), k, m, ends, indptr, entry_ptr)
        return StackedPointers(ends, indptr, self.device.to_host(entry_ptr))


def variant_of(A: Matrix) -> Variant:
    """The variant of kernels that read A with its weights."""
    if A.data is not None:
        return Variant(A.indices.dtype.name, A.data.dtype.name)
    return Variant(A.indices.dtype.name, "row" if A.row_normalized else "unit")


def index_variant(array: Any) -> Variant:
    """The variant of kernels that see no weights, for ids of the array's type."""
    return Variant(array.dtype.name)


def num_columns(A: Matrix) -> int:
    """Columns of A."""
    return len(A.indptr) - 1 if A.num_columns is None else A.num_columns
