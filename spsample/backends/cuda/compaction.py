"""EXTRACT of node-wise samples: src vertices of each batch, and columns as places among them."""

from __future__ import annotations

import numpy as np

from spsample.backends.cuda.compaction_sets import ColumnSets, groups
from spsample.backends.cuda.device import DeviceArray, Kernel
from spsample.backends.cuda.launcher import KernelLauncher, index_variant
from spsample.backends.protocol import Compaction, Int64Array, StackedSelector

LARGEST = Kernel("compaction", "largest")


class CompactionKernels(KernelLauncher):
    """`compact`."""

    def compact(
        self,
        Q: StackedSelector,
        entry_ptr: Int64Array,
        columns: DeviceArray,
        include_targets: bool,
        num_vertices: int | None = None,
    ) -> Compaction:
        """src of each batch: its Q vertices first (`include_targets`), then its other columns ascending.

        Numbers the columns in place, group of batches by group; waits once for each group.
        """
        known_ptr = Q.batch_ptr if include_targets else np.zeros_like(Q.batch_ptr)
        n = self._num_vertices(Q.vertices, columns) if num_vertices is None else num_vertices
        src_ptr, parts = [np.zeros(1, np.int64)], [Q.vertices[:0]]
        for first, last in groups(self.device, len(Q.batch_ids), n):
            sets = ColumnSets(self.device, known_ptr, (first, last), n, index_variant(Q.vertices))
            begins = self.device.to_device(entry_ptr[first : last + 1])
            count = int(entry_ptr[last] - entry_ptr[first])
            sets.mark_known(Q.vertices)
            sets.mark_found(begins, columns, count)
            ends = sets.rank()
            host_ends = self.device.to_host(ends)
            src = self.device.empty(int(host_ends[-1]), Q.vertices.dtype)
            sets.place_known(Q.vertices, ends, src)
            sets.place_new(ends, src)
            sets.number(begins, columns, count)
            src_ptr.append(host_ends[1:] + src_ptr[-1][-1])
            parts.append(src)
        src = parts[1] if len(parts) == 2 else self.device.concatenate(parts)
        return Compaction(np.concatenate(src_ptr), src, columns)

    def _num_vertices(self, *ids: DeviceArray) -> int:
        """One more than the largest id."""
        largest = self.device.zeros(1, np.int64)
        for some in ids:
            self.run(LARGEST, len(some), some, len(some), largest, variant=index_variant(some))
        return int(self.device.to_host(largest)[0]) + 1
