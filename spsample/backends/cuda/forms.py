"""Minibatches in other libraries' terms."""

from __future__ import annotations

import numpy as np

from spsample.backends.cuda.calls import Calls, index_variant
from spsample.backends.cuda.chunks import chunk_kernel, chunks_of
from spsample.backends.protocol import Int64Array, IntArray

EDGES = chunk_kernel("forms", "edge_index")


class Forms(Calls):
    """`edge_index` and `widened`: neither waits. Minibatches call them outside of a session, so each has its own."""

    def edge_index(self, indptr: Int64Array, indices: IntArray) -> Int64Array:
        """(2, entries) column and row of each entry of a CSR matrix."""
        count = len(indices)
        with self.device.on_stream():
            edges: Int64Array = self.device.empty((2, count), np.int64)
            arguments = (indptr, len(indptr) - 1, indices, count, edges)
            self.run(EDGES, chunks_of(count), *arguments, variant=index_variant(indices))
            return edges

    def widened(self, ids: IntArray) -> Int64Array:
        """The ids as int64, in memory of their own."""
        with self.device.on_stream():
            return ids.astype(np.int64)
