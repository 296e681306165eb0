"""`DeviceOperand`: A in the memory of a device, or in host memory that its kernels read."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends import Matrix
from spsample.backends.protocol import UNKNOWN_RULE, Int64Array
from spsample.sparse.local import LocalOperand
from spsample.sparse.operand import FrontierTotals, RowTotals
from spsample.sparse.probability import batch_totals, frontier_rule

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
        self._kernels = backend
        self.hot = hot

    @cached_property
    def _row_rules(self) -> Any:
        """For the backend, which fills it as rows are drawn from."""
        return self._shared(self._kernels.device.full(self.num_nodes, UNKNOWN_RULE, np.int16))

    @cached_property
    def row_exponents(self) -> Any:
        """(rows,) the largest binary exponent of each row's weights: 4 bytes a row, made on first use and kept."""
        return self._shared(self.backend.row_exponents(self.matrix))

    @cached_property
    def _cumulative(self) -> Any:
        """(n + 1,) prefix sums of FastGCN's column numerators, from 0: 8 n bytes, made once per graph."""
        device = self._kernels.device
        rule = frontier_rule(self.weighting, self._graph_totals(), power=2, column_power=1)
        cumulative = device.zeros(self.num_nodes + 1, np.uint64)
        device.cumsum(self._kernels.column_totals(self.matrix, rule), cumulative[1:])
        return self._shared(cumulative)

    @cached_property
    def _guide(self) -> Any:
        """Leads from a unit of `_cumulative` to its column: at most 4 (n + 1) bytes, made once per graph."""
        return self._shared(self.backend.shared_guide(self._cumulative[1:]))

    def _shared(self, made: Any) -> Any:
        """What is made once per graph: done before others can see it, who may be on other streams meanwhile."""
        self._kernels.device.settle()
        return made

    def _graph_totals(self) -> FrontierTotals:
        """Of all rows as one frontier."""
        if self.weighting == "unweighted":
            return FrontierTotals(np.array([self.num_edges]), np.zeros(1, np.int64))
        indptr = self.backend.to_device(self.matrix.indptr)
        counts = indptr[1:] - indptr[:-1]
        everything: Int64Array = np.array([0, self.num_nodes], np.int64)
        return batch_totals(self.backend, everything, RowTotals(counts, self.row_exponents))
