"""General sparse algebra: C = A B and A[rows]."""

from __future__ import annotations

import numpy as np

from spsample.backends.cuda.device import DeviceArray
from spsample.backends.cuda.spgemm_hashed import HashedProduct
from spsample.backends.cuda.spgemm_select_rows import SelectRowsKernels, Triple


class SpgemmKernels(SelectRowsKernels):
    """`spgemm` and `select_rows`."""

    def spgemm(self, A: Triple, B: Triple, num_columns: int) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
        """C = A B: columns ascending, zeros kept.

        Waits twice; more often only where rows are hubs or memory is short (`HashedProduct`).
        """
        index = np.result_type(A[1].dtype, B[1].dtype)
        left, right = ((M[0], M[1].astype(index, copy=False), M[2]) for M in (A, B))
        indptr, columns, values = HashedProduct(self.device, left, right, num_columns).result()
        return indptr, columns.astype(B[1].dtype, copy=False), values
