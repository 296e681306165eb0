"""Rows of a partitioned A: sorted by the part that owns them, and stacked again when they come back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spsample.backends.cuda.device import DeviceArray, Kernel
from spsample.backends.cuda.launcher import index_variant
from spsample.backends.cuda.stacking import StackingKernels
from spsample.backends.protocol import Array, GatheredRows, Int64Array, IntArray, RoutedRows, StackedSelector

FIND_PARTS = Kernel("routing", "find_parts")
PLACE = Kernel("routing", "place_rows")
WIDEN = Kernel("routing", "widen_lengths")
FIND_ROWS = Kernel("routing", "find_rows")
MOST_PARTS = 2**16
LENGTH_TYPES = ("uint8", "uint16", "int32", "int64")


class RoutingKernels(StackingKernels):
    """`route_rows` and `gather_rows`."""

    def route_rows(self, Q: StackedSelector, bounds: Int64Array, position: IntArray | None = None) -> RoutedRows:
        """The rows of Q sorted by the part that owns them, each part's batch by batch and in Q's order. Waits once."""
        _require_bounds(bounds, position)
        m, k, parts = len(Q.vertices), len(Q.batch_ptr) - 1, len(bounds) - 1
        _require(m <= np.iinfo(Q.vertices.dtype).max, "vertices: more rows than the index type can number")
        keys = self.device.empty(m, np.uint8 if parts <= 2**8 else np.uint16)
        found = self.device.zeros(parts * k + 2, np.int64)
        counts, bad = found[: parts * k], found[parts * k :]
        selected = (self.uploaded(Q.batch_ptr), Q.vertices, k, m, self.uploaded(bounds), parts, position)
        variant = index_variant(Q.vertices)
        self.run(FIND_PARTS, m, *selected, keys, keys.dtype.itemsize, counts, bad, variant=variant)
        order = self.device.argsort(keys)
        routed, places = (self.device.empty(m, Q.vertices.dtype) for _ in range(2))
        self.run(PLACE, m, Q.vertices, order, m, routed, places, variant=variant)
        host = self.device.to_host(found)
        _require(not host[-2], "vertices: not below n")
        _require(not host[-1], "position: not below n")
        return RoutedRows(host[:-2].reshape(parts, k), routed, places)

    def gather_rows(
        self, batch_ptr: Int64Array, places: IntArray, lengths: Array, entries: Sequence[Array]
    ) -> GatheredRows:
        """The way back: rows that lie in the order of `RoutedRows`, stacked in the order of Q. Waits twice."""
        m = len(places)
        _require(len(batch_ptr) > 0 and batch_ptr[-1] == m, "places: one element per row of the batches")
        _require(len(lengths) == m, "lengths: one element per row")
        _require(lengths.dtype.name in LENGTH_TYPES, "lengths: uint8, uint16, int32 or int64")
        _require(len({len(array) for array in entries}) == 1, "entries: one array at least, and all of one length")
        bad = self.device.zeros(3, np.int64)
        starts = self._starts(lengths, len(entries[0]), bad)
        of_rows, begins = (self.device.empty(m, np.int64) for _ in range(2))
        self.run(FIND_ROWS, m, places, m, starts, of_rows, begins, bad, variant=index_variant(places))
        rows = self.stacked(batch_ptr, of_rows)
        bad_length, bad_place, total = self.device.to_host(bad).tolist()
        _require(not bad_length and total == len(entries[0]), "lengths: as many entries as there are")
        _require(not bad_place, "places: not below the number of rows")
        gathered = tuple(self.copied_runs(rows.ends, begins, rows.total, array) for array in entries)
        return GatheredRows(rows.entry_ptr, rows.indptr, gathered)

    def _starts(self, lengths: DeviceArray, most: int, bad: DeviceArray) -> DeviceArray:
        """(m + 1,) where rows of these lengths begin, one after the other; notes those that no row can have."""
        m = len(lengths)
        wide, starts = self.device.empty(m, np.int64), self.device.zeros(m + 1, np.int64)
        self.run(WIDEN, m, lengths, lengths.dtype.itemsize, m, most, wide, bad)
        self.device.cumsum(wide, starts[1:])
        return starts


def _require_bounds(bounds: Int64Array, position: IntArray | None) -> None:
    ascending = 2 <= len(bounds) <= MOST_PARTS + 1 and bounds[0] == 0 and bool((np.diff(bounds) >= 0).all())
    _require(ascending, "bounds: ascending from 0, for 1 to 65536 parts")
    _require(position is None or len(position) == bounds[-1], "position: one element per vertex")


def _require(condition: bool | np.bool_, message: str) -> None:
    if not condition:
        raise ValueError(message)
