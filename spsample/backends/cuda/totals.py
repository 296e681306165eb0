"""Totals of batches, and numerators of rows whose entries weigh the same (law, section 2)."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends.cuda.calls import Calls
from spsample.backends.cuda.chunks import chunk_kernel, chunks_of
from spsample.backends.cuda.device import Kernel
from spsample.backends.protocol import NO_EXPONENT, Int64Array, QuantisationRule, UInt64Array

TOTAL = chunk_kernel("totals", "total_batches")
NUMBER = Kernel("totals", "number_rows")


class Totals(Calls):
    """`batch_totals` and `row_numerators`."""

    def batch_totals(
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
