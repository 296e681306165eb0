"""The weights c_v of src columns (law, section 6)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends.cuda.calls import Calls, index_variant
from spsample.backends.cuda.device import Kernel
from spsample.backends.protocol import ColumnSample, Compaction, Int64Array, UInt64Array

NUMERATORS = Kernel("source_weights", "numerators_of_drawn")
DES_RAJ = Kernel("source_weights", "weigh_des_raj")
REPLACEMENT = Kernel("source_weights", "weigh_replacement")
REFERENCE = Kernel("source_weights", "weigh_reference")


class SourceWeights(Calls):
    """`des_raj_weights`, `replacement_weights` and `reference_weights`: none waits."""

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
        """The same for `size` draws with replacement."""
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
