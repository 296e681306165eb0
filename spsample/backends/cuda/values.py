"""The values of entries, and the weights c_v of src columns (law, sections 2 and 6)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends.arithmetic import unbiased_values_by_parts, value_error
from spsample.backends.cuda.device import DeviceArray, Kernel, chunk_kernel, chunks_of
from spsample.backends.cuda.launcher import KernelLauncher, index_variant, variant_of
from spsample.backends.protocol import (
    ColumnSample,
    Compaction,
    FloatArray,
    Int64Array,
    Matrix,
    QuantisationRule,
    StackedRows,
    StackedSelector,
    UInt64Array,
)
from spsample.errors import CapacityError

ADD = Kernel("values", "add_numerators")

MULTIPLY = Kernel("values", "multiply_entries")

SUM = Kernel("values", "sum_rows")

DIVIDE = Kernel("values", "divide_entries")

OWN_WEIGHTS = chunk_kernel("values", "own_weights")

NUMERATORS = Kernel("values_sources", "numerators_of_drawn")

DES_RAJ = Kernel("values_sources", "weigh_des_raj")

REPLACEMENT = Kernel("values_sources", "weigh_replacement")

REFERENCE = Kernel("values_sources", "weigh_reference")


NONE_BAD = 2**63 - 1


class ValuesKernels(KernelLauncher):
    """`extracted_numerators`, `own_weights`, `entry_values`, and the weights of src columns, which do not wait."""

    def extracted_numerators(
        self, A: Matrix, Q: StackedSelector, rows: StackedRows, src_ptr: Int64Array, rule: QuantisationRule
    ) -> UInt64Array:
        """N_v of every src column: column sums of the extracted entries' numerators, to `column_power`."""
        _require_positions(A, rows)
        sums = self.device.zeros(int(src_ptr[-1]), np.uint64)
        shifts = None if rule.shifts is None else self.uploaded(rule.shifts)
        arguments = (*self._entries(A, Q, rows, src_ptr), shifts, rule.power, sums)
        self.run(ADD, len(rows.columns), *arguments, variant=variant_of(A))
        numerators: UInt64Array = sums if rule.column_power == 1 else sums * sums
        return numerators

    def own_weights(self, A: Matrix, Q: StackedSelector, rows: StackedRows) -> DeviceArray:
        """A_iv of drawn entries: weights, or `1/d` in float32."""
        values = self.device.empty(len(rows.columns), np.float32 if A.data is None else A.data.dtype)
        entries = (rows.indptr, self.uploaded(rows.entry_ptr), rows.positions, values)
        arguments = (*self.matrix(A), *self.weights(A), *self.selector(Q), *entries)
        self.run(OWN_WEIGHTS, chunks_of(len(values)), *arguments, variant=variant_of(A))
        return values

    def entry_values(
        self,
        A: Matrix,
        Q: StackedSelector,
        rows: StackedRows,
        src_ptr: Int64Array,
        weights: FloatArray,
        normalize: bool,
    ) -> FloatArray:
        """`A_iv weights[v]` per extracted entry: binary64, optionally row-normalised, then rounded once.

        Waits once, to learn whether all values are finite.
        """
        _require_positions(A, rows)
        total, variant = len(rows.columns), variant_of(A)
        values: FloatArray = self.device.empty(total, np.float32 if A.data is None else A.data.dtype)
        first_bad = self.device.full(1, NONE_BAD, np.uint64)
        products = self.device.empty(total, np.float64) if normalize else None
        arguments = (*self._entries(A, Q, rows, src_ptr), weights, products, values, first_bad)
        self.run(MULTIPLY, total, *arguments, variant=variant)
        if products is not None:
            sums = self.device.empty(len(Q.vertices), np.float64)
            pointers = (*self.selector(Q), self.uploaded(rows.entry_ptr), rows.indptr)
            self.run(SUM, len(Q.vertices), *pointers, products, sums, variant=variant)
            self.run(DIVIDE, total, *pointers, total, products, sums, values, first_bad, variant=variant)
        entry = int(self.device.to_host(first_bad)[0])
        if entry != NONE_BAD:
            raise self._overflow(A, rows, values, entry)
        return values

    unbiased_values = unbiased_values_by_parts

    def des_raj_weights(
        self, sample: ColumnSample, sources: Compaction, num_targets: Int64Array, numerators: UInt64Array
    ) -> NDArray[np.float64]:
        """(len(src),) c of every src column for a draw without replacement."""
        drawn, variant = len(sources.local), index_variant(sources.local)
        columns = self._drawn(sample, sources)
        of_drawn, ends = (self.device.empty(drawn, np.uint64) for _ in range(2))
        self.run(NUMERATORS, drawn, *columns, numerators, of_drawn, variant=variant)
        self.device.cumsum(of_drawn, ends)
        per_batch = (self.uploaded(sample.totals), self.uploaded(sample.whole), self.uploaded(num_targets))
        weights: NDArray[np.float64] = self.device.full(len(sources.src), 1.0, np.float64)
        self.run(DES_RAJ, drawn, *columns, *per_batch, of_drawn, ends, weights, variant=variant)
        return weights

    def replacement_weights(
        self, sample: ColumnSample, sources: Compaction, num_targets: Int64Array, numerators: UInt64Array, size: int
    ) -> NDArray[np.float64]:
        """(len(src),) c of every src column for `size` draws with replacement."""
        per_batch = (self.uploaded(sample.totals), self.uploaded(num_targets))
        weights: NDArray[np.float64] = self.device.full(len(sources.src), 1.0, np.float64)
        arguments = (*self._drawn(sample, sources), *per_batch, sample.counts, size, numerators, weights)
        self.run(REPLACEMENT, len(sources.local), *arguments, variant=index_variant(sources.local))
        return weights

    def reference_weights(
        self, sample: ColumnSample, sources: Compaction, numerators: UInt64Array
    ) -> NDArray[np.float64]:
        """(len(src),) `T / (s' N)` of every src column, 0 where N is 0 or nothing was drawn."""
        weights: NDArray[np.float64] = self.device.empty(len(sources.src), np.float64)
        pointers = (self.uploaded(sample.indptr), self.uploaded(sources.src_ptr), len(sample.totals))
        self.run(REFERENCE, len(weights), *pointers, self.uploaded(sample.totals), numerators, weights)
        return weights

    def _drawn(self, sample: ColumnSample, sources: Compaction) -> tuple[Any, ...]:
        """Parameters of the drawn columns and of where they stand in src."""
        indptr, src_ptr = self.uploaded(sample.indptr), self.uploaded(sources.src_ptr)
        return (indptr, sources.local, src_ptr, len(sample.totals))

    def _entries(self, A: Matrix, Q: StackedSelector, rows: StackedRows, src_ptr: Int64Array) -> tuple[Any, ...]:
        """Parameters of the entries of an extraction and of what they are read from."""
        extracted = (self.uploaded(rows.entry_ptr), rows.indptr, rows.columns, rows.positions, len(rows.columns))
        return (*self.matrix(A), *self.weights(A), *self.selector(Q), *extracted, self.uploaded(src_ptr))

    def _overflow(self, A: Matrix, rows: StackedRows, values: DeviceArray, entry: int) -> CapacityError:
        """The error of the first entry whose value is not finite."""
        value = self._element(values, entry)
        if A.data is None or rows.positions is None:
            return value_error(value, entry)
        position = int(self._element(rows.positions, entry))
        return value_error(value, entry, (self._element(A.data, position), position))

    def _element(self, array: DeviceArray, place: int) -> Any:
        return self.device.to_host(array[place : place + 1])[0]


def _require_positions(A: Matrix, rows: StackedRows) -> None:
    """Weights are found by them."""
    if A.data is not None and rows.positions is None and len(rows.columns):
        raise ValueError("positions: needed where the matrix has weights")
