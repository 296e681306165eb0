"""`DeviceOperand`: A in the memory of a device, or in host memory that its kernels read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends import ColumnScale, Matrix
from spsample.backends.protocol import NO_EXPONENT, Int64Array
from spsample.common.lazily import lazily
from spsample.errors import InputError
from spsample.sparse.local import KeptArrays, LocalOperand
from spsample.sparse.probability import graph_rule
from spsample.sparse.row_totals import RowTotals

if TYPE_CHECKING:
    from spsample.backends.cuda.backend import CudaKernels


class DeviceOperand(LocalOperand):
    """The whole A on a device, worked on by the backend `cuda`.

    Parameters
    ----------
    matrix : Matrix
        A, its arrays on the device (or pinned), entries in the law's order.
    edge_ids : int64 device array (nnz,) or None
        Entry -> position in the user's input; None is the identity.
    backend : CudaKernels
        The kernels.
    hot : tuple
        Copies of rows that the places in `matrix` lead to: kept as long as it.
    """

    def __init__(self, matrix: Matrix, edge_ids: Any, backend: CudaKernels, hot: tuple[Any, ...] = ()) -> None:
        super().__init__(matrix, edge_ids, backend)
        self.kept = DeviceArrays(matrix, backend, self.weighting)
        self.hot = hot


class DeviceArrays(KeptArrays):
    """`KeptArrays` on a device: finished before others can see them, who may be on other streams meanwhile."""

    def row_totals(self, scale: ColumnScale) -> RowTotals:
        raise InputError(
            argument="importance_weights",
            given="True on a graph that is on a device",
            expected="a graph in the memory of the host",
        )

    @lazily
    def row_exponents(self) -> Any:
        return self._finished(self.backend.row_exponents(self.matrix))

    @lazily
    def row_rules(self) -> Any:
        return self._finished(self.backend.kept_for_rows(self.matrix))

    @lazily
    def cumulative(self) -> Any:
        device = self.backend.device
        rule = graph_rule(self.weighting, len(self.matrix.indices), self.largest_exponent())
        cumulative = device.zeros(self._num_rows + 1, np.uint64)
        device.cumsum(self.backend.column_totals(self.matrix, rule), cumulative[1:])
        return self._finished(cumulative)

    @lazily
    def guide(self) -> Any:
        return self._finished(self.backend.shared_guide(self.cumulative[1:]))

    def largest_exponent(self) -> int:
        if self.weighting == "unweighted":
            return NO_EXPONENT
        indptr = self.backend.to_device(self.matrix.indptr)
        everything: Int64Array = np.array([0, self._num_rows], np.int64)
        _, (largest,) = self.backend.batch_statistics(everything, indptr[1:] - indptr[:-1], self.row_exponents)
        return int(largest)

    @property
    def _num_rows(self) -> int:
        return len(self.matrix.indptr) - 1

    def _finished(self, made: Any) -> Any:
        self.backend.device.settle()
        return made
