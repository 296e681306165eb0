"""Sums of rows' weights, kept with a graph, by which few entries of a row are drawn without reading all of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spsample.backends.cuda.device import SHARE_OF_FREE, WARP, Device, DeviceArray, Kernel
from spsample.backends.cuda.launcher import KernelLauncher, variant_of
from spsample.backends.protocol import UNKNOWN_RULE, Matrix

LONG_BLOCK = 512
LONG_ROW = 8192
"""Rows of more entries are a block's, as in `row_law_sections.h`."""

SUM = Kernel("row_law_weighted_sums", "sum_rows", lanes=WARP)
SUM_LONG = Kernel("row_law_weighted_sums", "sum_long_rows", LONG_BLOCK, LONG_BLOCK)

SUMS_EVERY = 8
"""Entries of A of which a sum is kept, as in `row_law_weighted_summed.h`."""


class RowSums(NamedTuple):
    """Each row's rule (rows,) int16 and total (rows,) uint64, and sums within rows, one for `SUMS_EVERY` entries."""

    rules: DeviceArray
    totals: DeviceArray
    sums: DeviceArray

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(int(array.nbytes) for array in self)


def row_sums_bytes(rows: int, entries: int) -> int:
    """Bytes of `RowSums`.

    Examples
    --------
    >>> row_sums_bytes(10, 800)
    908
    """
    return (2 + 8) * rows + 8 * (entries // SUMS_EVERY + 1)


def keeps_row_sums(rows: int, entries: int, free_bytes: int) -> bool:
    """Return whether sums are kept: where they take at most a quarter of the memory that is free."""
    return row_sums_bytes(rows, entries) <= free_bytes // SHARE_OF_FREE


class RowSumsKernels(KernelLauncher):
    """`kept_for_rows`, which a graph on the device keeps."""

    def kept_for_rows(self, A: Matrix) -> RowSums | DeviceArray:
        """The rules that `sample_rows_weighted` takes: with sums, where there is room for them and A has weights."""
        rows, entries = len(A.indptr) - 1, len(A.indices)
        if A.data is None or not keeps_row_sums(rows, entries, self.device.free_bytes()):
            return self.device.full(rows, UNKNOWN_RULE, np.int16)
        return self.row_sums(A, entries)

    def row_sums(self, A: Matrix, entries: int) -> RowSums:
        """The sums of all rows of A, which has that number of `entries`. Reads all weights, two or three times."""
        self.device.prepare([SUM, SUM_LONG], variant_of(A))
        rows, sections = len(A.indptr) - 1, entries // SUMS_EVERY + 1
        made = RowSums(
            self.device.empty(rows, np.int16),
            self.device.empty(rows, np.uint64),
            self.device.empty(sections, np.uint64),
        )
        most_long = min(rows, entries // LONG_ROW)
        arguments = (*self.matrix(A), *self.weights(A), rows, *made, *long_list(self.device, most_long))
        self.run(SUM, rows, *arguments, variant=variant_of(A))
        self.run(SUM_LONG, long_blocks(self.device, most_long), *arguments, variant=variant_of(A))
        return made


def long_list(device: Device, rows: int) -> tuple[DeviceArray, DeviceArray]:
    """An empty list of rows that are for blocks: their number, and room for all of them."""
    return device.zeros(1, np.uint64), device.empty(rows, np.int64)


def long_blocks(device: Device, rows: int) -> int:
    """Blocks for the long ones among `rows` rows."""
    return min(rows, max(device.resident_warps() * WARP // LONG_BLOCK, 1))
