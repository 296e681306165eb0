"""Rows of column sums added up: a product of sparse matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spsample.backends.cuda.column_law_merged import MergedColumnKernels, joined
from spsample.backends.cuda.spgemm import SpgemmKernels
from spsample.backends.on_host import pointers_of
from spsample.backends.protocol import ColumnMatrix, PartialSums


class AddedColumnKernels(MergedColumnKernels, SpgemmKernels):
    """`add_columns`."""

    def add_columns(self, pieces: Sequence[PartialSums], num_columns: int, column_power: int) -> ColumnMatrix:
        """The result of `merge_columns` for all rows of A, from the sums of its parts.

        It is the product of a matrix of k rows, which selects those of each batch, with the pieces one under the other.
        """
        k, device = len(pieces[0].indptr) - 1, self.device
        below = pointers_of(np.concatenate([np.diff(piece.indptr) for piece in pieces]))
        columns = joined(device, [piece.columns for piece in pieces], pieces[0].columns[:0])
        wide = [piece.numerators.astype(np.uint64, copy=False) for piece in pieces]
        selected = np.arange(k * len(pieces)).reshape(len(pieces), k).T.ravel().astype(columns.dtype)
        each = np.arange(k + 1, dtype=np.int64) * len(pieces)
        left = (device.to_device(each), device.to_device(selected), device.to_device(np.ones(len(selected), np.uint64)))
        right = (device.to_device(below), columns, joined(device, wide, device.empty(0, np.uint64)))
        indptr, merged, sums = self.spgemm(left, right, num_columns)
        return self.summed(device.to_host(indptr), merged, sums, column_power)
