"""From weights to integers, and what batches add up to (law, section 2)."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends.cuda.device import DeviceArray, Kernel, chunk_kernel, chunks_of
from spsample.backends.cuda.launcher import KernelLauncher, variant_of
from spsample.backends.protocol import NO_EXPONENT, Int64Array, Matrix, QuantisationRule, UInt64Array

EVEN_EXPONENTS = Kernel("quantisation", "even_row_exponents")

EXPONENTS = Kernel("quantisation", "row_exponents", lanes=32)

TOTAL = chunk_kernel("quantisation", "total_batches")

NUMBER = Kernel("quantisation", "number_rows")


SIGN = np.uint32(1 << 31)


class QuantisationKernels(KernelLauncher):
    """`row_exponents`, `batch_statistics` and `row_numerators`."""

    def row_exponents(self, A: Matrix) -> DeviceArray:
        """Largest binary exponent of each row's positive entries (int32); `NO_EXPONENT` without any."""
        rows = len(A.indptr) - 1
        arguments = (*self.matrix(A), *self.weights(A), rows)
        if A.data is None:
            exponents = self.device.empty(rows, np.int32)
            self.run(EVEN_EXPONENTS, rows, *arguments, exponents, variant=variant_of(A))
            return exponents
        raised = self.device.zeros(rows, np.uint32)
        self.run(EXPONENTS, self.device.resident_warps(), *arguments, raised, variant=variant_of(A))
        return (raised ^ SIGN).view(np.int32)

    def batch_statistics(
        self, batch_ptr: Int64Array, counts: Int64Array, exponents: NDArray[np.int32]
    ) -> tuple[Int64Array, Int64Array]:
        """Sum of each batch's counts and largest of its exponents, on the host. Waits once."""
        k, m = len(batch_ptr) - 1, len(counts)
        totals = self.device.zeros(2 * k, np.uint64)
        arguments = (self.uploaded(batch_ptr), k, m, counts, exponents, totals[:k], totals[k:])
        self.run(TOTAL, chunks_of(m), *arguments)
        sums, largest = self.device.to_host(totals).astype(np.int64).reshape(2, k)
        return sums, largest + NO_EXPONENT

    def row_numerators(self, batch_ptr: Int64Array, counts: Int64Array, rule: QuantisationRule) -> UInt64Array:
        """(m,) numerator of `(1/d)^a` of each row of d entries under its batch's K; 0 for an empty row."""
        numerators: UInt64Array = self.device.empty(len(counts), np.uint64)
        pointers, shifts = self.uploaded(batch_ptr), self.uploaded(cast("Int64Array", rule.shifts))
        arguments = (pointers, len(batch_ptr) - 1, len(counts), counts, shifts, rule.power, numerators)
        self.run(NUMBER, len(counts), *arguments)
        return numerators
