"""The graph's own weights of drawn entries."""

from __future__ import annotations

import numpy as np

from spsample.backends.cuda.calls import Calls, variant_of
from spsample.backends.cuda.chunks import chunk_kernel, chunks_of
from spsample.backends.cuda.device import DeviceArray
from spsample.backends.protocol import Matrix, StackedRows, StackedSelector

OWN_WEIGHTS = chunk_kernel("own_weights", "own_weights")


class OwnWeights(Calls):
    """`own_weights`."""

    def own_weights(self, A: Matrix, Q: StackedSelector, rows: StackedRows) -> DeviceArray:
        """A_iv of drawn entries: weights, or `1/d` in float32."""
        values = self.device.empty(len(rows.columns), np.float32 if A.data is None else A.data.dtype)
        entries = (rows.indptr, self.uploaded(rows.entry_ptr), rows.positions, values)
        arguments = (*self.matrix(A), *self.weights(A), *self.selector(Q), *entries)
        self.run(OWN_WEIGHTS, chunks_of(len(values)), *arguments, variant=variant_of(A))
        return values
