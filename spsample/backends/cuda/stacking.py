"""Arrays of several rows, batches or hops as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from spsample.backends.arithmetic import coordinates_by_parts
from spsample.backends.cuda.device import DeviceArray, Kernel, chunk_kernel, chunks_of
from spsample.backends.cuda.launcher import KernelLauncher, index_variant
from spsample.backends.on_host import pointers_of
from spsample.backends.protocol import Array, Int64Array, IntArray

INTERLEAVE = Kernel("stacking", "interleave")

INTERLEAVE_POINTERS = Kernel("stacking", "interleave_pointers")

COPY_RUNS = chunk_kernel("stacking", "copy_runs")

EDGES = chunk_kernel("stacking", "edge_index")

ITEM_BYTES = (1, 2, 4, 8)


class StackingKernels(KernelLauncher):
    """`interleave`, `appended`, `interleave_pointers`, and the forms of minibatches in int64: none waits.

    Minibatches call `edge_index` and `widened` outside of a session, so each has its own.
    """

    def interleave(self, parts: Sequence[Array], pointers: Sequence[Int64Array]) -> Array:
        """One array of several hops' stacked arrays, each batch's parts side by side."""
        ends = pointers_of(_sizes(pointers))
        out: Array = self.device.empty(int(ends[-1]), parts[0].dtype)
        self.run(INTERLEAVE, len(out), *self._hops(parts, pointers, ends), item_bytes(parts[0]), out)
        return out

    def appended(self, found_ptr: Int64Array, known_ptr: Int64Array, known: IntArray) -> tuple[Int64Array, IntArray]:
        """Pointers and ids of what stands behind the first `found` ones in each batch's `known` ids."""
        skipped = np.diff(found_ptr)
        ptr = pointers_of(np.diff(known_ptr) - skipped)
        begins = self.device.to_device(known_ptr[:-1] + skipped)
        return ptr, self.copied_runs(self.device.to_device(ptr), begins, int(ptr[-1]), known)

    def interleave_pointers(self, parts: Sequence[Int64Array], pointers: Sequence[Int64Array]) -> Int64Array:
        """Row pointers over the rows of all hops that start at 0 in every batch."""
        ends = pointers_of(_sizes(pointers) + 1)
        out: Int64Array = self.device.empty(int(ends[-1]), np.int64)
        self.run(INTERLEAVE_POINTERS, len(out), *self._hops(parts, pointers, ends), out)
        return out

    def copied_runs(self, ends: DeviceArray, begins: DeviceArray, total: int, items: DeviceArray) -> DeviceArray:
        """Runs of items one after the other: `begins` (runs,) of each in `items`, `ends` (runs + 1) in the result."""
        out = self.device.empty(total, items.dtype)
        self.run(COPY_RUNS, chunks_of(total), ends, begins, len(begins), total, items, item_bytes(items), out)
        return out

    def _hops(self, parts: Sequence[Array], pointers: Sequence[Int64Array], ends: Int64Array) -> tuple[Any, ...]:
        """Parameters of the hops' arrays: where they lie, and where each batch's part is and goes."""
        addresses = np.array([self.device.address(part) for part in parts], np.uint64)
        stacked = np.concatenate([*pointers, ends])
        uploaded, k = self.device.to_device(stacked), len(ends) - 1
        begin = len(stacked) - len(ends)
        return (self.device.to_device(addresses), uploaded[:begin], uploaded[begin:], k)

    def edge_index(self, indptr: Int64Array, indices: IntArray) -> Int64Array:
        """(2, entries) column and row of each entry of a CSR matrix."""
        count = len(indices)
        with self.device.on_stream():
            edges: Int64Array = self.device.empty((2, count), np.int64)
            arguments = (indptr, len(indptr) - 1, indices, count, edges)
            self.run(EDGES, chunks_of(count), *arguments, variant=index_variant(indices))
            return edges

    def widened(self, ids: IntArray) -> Int64Array:
        """The ids as int64, in memory of their own."""
        with self.device.on_stream():
            return ids.astype(np.int64)

    coordinates = coordinates_by_parts


def _sizes(pointers: Sequence[Int64Array]) -> Int64Array:
    """Items of each batch in all hops."""
    sizes: Int64Array = np.diff(np.stack(pointers), axis=1).sum(axis=0)
    return sizes


def item_bytes(items: DeviceArray) -> int:
    """Size of an item that kernels can copy."""
    size = int(items.dtype.itemsize)
    if size not in ITEM_BYTES:
        raise ValueError(f"items of {size} bytes ({items.dtype}): expected 1, 2, 4 or 8")
    return size
