"""The weighted row law on scaled columns, made of other operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from spsample.backends.arithmetic import scale_error
from spsample.backends.cuda.launcher import num_columns
from spsample.backends.cuda.row_law import RowLawKernels
from spsample.backends.cuda.row_law_weighted import WeightedRowLawKernels
from spsample.backends.cuda.values import ValuesKernels
from spsample.backends.protocol import ColumnScale, Draw, Matrix, StackedRows, StackedSelector
from spsample.errors import CapacityError


class ScaledRowLawKernels(RowLawKernels, WeightedRowLawKernels, ValuesKernels):
    """`sample_rows_scaled`."""

    def sample_rows_scaled(
        self, A: Matrix, Q: StackedSelector, draw: Draw, scale: ColumnScale, positions: bool, ranks: Any = None
    ) -> StackedRows:
        """Row law by the weights of A D.

        The selected rows are copied with their scaled weights: 8 to 24 bytes for each of their entries while it runs.
        """
        plain = A._replace(row_normalized=False)
        taken = self.take_rows(plain, Q, positions or A.data is not None)
        factors = self.device.to_device(scale.factors(num_columns(A)))
        every_column = np.zeros_like(Q.batch_ptr)
        try:
            weights = self.entry_values(plain, Q, taken, every_column, factors, False)
        except CapacityError as error:
            raise scale_error(scale.factor) from error
        ends = self.row_ends(plain, Q, -1, False)
        vertices = Q.vertices if A.ids is None else A.ids[Q.vertices]
        block = Matrix(ends, taken.columns, weights, ids=vertices, num_columns=num_columns(A))
        stacked = Q._replace(vertices=self.device.to_device(np.arange(len(Q.vertices), dtype=A.indices.dtype)))
        rows = self.sample_rows_weighted(block, stacked, draw, positions)
        if taken.positions is None or not positions:
            return rows
        return rows._replace(positions=taken.positions[rows.positions])

    def expansion_values(self, Q: Any, rows: Any, sources: Any, own: Any, how: Any) -> Any:
        """Not on a device, where the sums of rows are not made either."""
        raise NotImplementedError

    def entry_ranks(self, A: Matrix, scale: ColumnScale) -> None:
        """None: the kernels look at all entries."""
