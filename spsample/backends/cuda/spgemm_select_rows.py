"""A[rows]: rows of a general CSR matrix."""

from __future__ import annotations

import numpy as np

from spsample.backends.cuda.device import DeviceArray, Kernel
from spsample.backends.cuda.launcher import KernelLauncher, index_variant

SELECTED_LENGTHS = Kernel("spgemm_select_rows", "selected_lengths")
SELECT_COLUMNS = Kernel("spgemm_select_rows", "select_columns")
SELECT_DATA = Kernel("spgemm_select_rows", "select_data")

Triple = tuple[DeviceArray, DeviceArray, DeviceArray | None]
"""Row pointers, columns and data of a matrix."""


class SelectRowsKernels(KernelLauncher):
    """`select_rows`."""

    def select_rows(self, A: Triple, rows: DeviceArray) -> Triple:
        """A[rows], entries in A's order; data of any item size. Waits once."""
        indptr, indices, data = A
        rows = rows.astype(np.int64, copy=False)
        lengths = self.device.empty(len(rows), np.int64)
        self.run(SELECTED_LENGTHS, len(rows), indptr, rows, len(rows), lengths)
        ends = self.ends_of(lengths)
        total = int(self.device.to_host(ends[-1:])[0])
        columns = self.device.empty(total, indices.dtype)
        place = (rows, len(rows), ends, total)
        self.run(SELECT_COLUMNS, total, indptr, indices, *place, columns, variant=index_variant(indices))
        if data is None:
            return ends, columns, None
        selected = self.device.empty(total, data.dtype)
        size = int(data.dtype.itemsize)
        unit = size & -size if size < 8 else min(size & -size, 8)
        self.run(SELECT_DATA, total * (size // unit), indptr, data, *place, size // unit, unit, selected)
        return ends, columns, selected
