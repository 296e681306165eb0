"""EXTRACT of node-wise samples: src vertices of each batch, and columns as places among them."""

from __future__ import annotations

import numpy as np

from spsample.backends.cuda.calls import Calls, index_variant
from spsample.backends.cuda.compaction_sets import ColumnSets, groups
from spsample.backends.cuda.device import DeviceArray, Kernel
from spsample.backends.protocol import ColumnSample, Compaction, Int64Array, StackedRows, StackedSelector

LARGEST = Kernel("compaction", "largest")


class CompactionKernels(Calls):
    """`compact`, `compact_owned` and `merge_targets`."""

    def compact(
        self, Q: StackedSelector, rows: StackedRows, include_targets: bool, num_vertices: int | None = None
    ) -> Compaction:
        """src of each batch: its Q vertices first (`include_targets`), then the other columns ascending."""
        local = self.device.empty(len(rows.columns), rows.columns.dtype)
        return self._numbered(Q, (rows.entry_ptr, rows.columns, local), include_targets, num_vertices)

    def compact_owned(
        self, Q: StackedSelector, rows: StackedRows, include_targets: bool, num_vertices: int | None = None
    ) -> Compaction:
        """`compact` whose `local` is the memory of `rows.columns`."""
        return self._numbered(Q, (rows.entry_ptr, rows.columns, rows.columns), include_targets, num_vertices)

    def merge_targets(
        self, Q: StackedSelector, sample: ColumnSample, include_targets: bool, num_vertices: int | None = None
    ) -> Compaction:
        """src of a layer-wise draw: dst first (`include_targets`), then the other drawn columns ascending."""
        columns = sample.columns.astype(Q.vertices.dtype)
        return self._numbered(Q, (sample.indptr, columns, columns), include_targets, num_vertices)

    def _numbered(
        self,
        Q: StackedSelector,
        stacked: tuple[Int64Array, DeviceArray, DeviceArray],
        include_targets: bool,
        num_vertices: int | None,
    ) -> Compaction:
        """Number the stacked (pointers, columns) into `local`, group of batches by group; waits once for each group."""
        pointers, columns, local = stacked
        known_ptr = Q.batch_ptr if include_targets else np.zeros_like(Q.batch_ptr)
        n = self._num_vertices(Q.vertices, columns) if num_vertices is None else num_vertices
        src_ptr, parts = [np.zeros(1, np.int64)], [Q.vertices[:0]]
        for first, last in groups(self.device, len(Q.batch_ids), n):
            sets = ColumnSets(self.device, known_ptr, (first, last), n, index_variant(Q.vertices))
            begins = self.device.to_device(pointers[first : last + 1])
            count = int(pointers[last] - pointers[first])
            sets.mark_known(Q.vertices)
            sets.mark_found(begins, columns, count)
            ends = sets.rank()
            host_ends = self.device.to_host(ends)
            src = self.device.empty(int(host_ends[-1]), Q.vertices.dtype)
            sets.place_known(Q.vertices, ends, src)
            sets.place_new(ends, src)
            sets.number(begins, columns, local, count)
            src_ptr.append(host_ends[1:] + src_ptr[-1][-1])
            parts.append(src)
        src = parts[1] if len(parts) == 2 else self.device.concatenate(parts)
        return Compaction(np.concatenate(src_ptr), src, local)

    def _num_vertices(self, *ids: DeviceArray) -> int:
        """One more than the largest id."""
        largest = self.device.zeros(1, np.int64)
        for some in ids:
            self.run(LARGEST, len(some), some, len(some), largest, variant=index_variant(some))
        return int(self.device.to_host(largest)[0]) + 1
