"""`DistributedGraph`: what a graph on several ranks answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.distributed.placement import equal_bounds
from spsample.sampling.graphsage import GraphSAGE
from spsample.sparse import RowSelector, derive_key
from spsample.sparse.keys import SAMPLING
from spsample.store.base_graph import BaseGraph
from spsample.store.normalization import sums_by_row, sums_of_alike

__all__ = ["DistributedGraph"]

ROWS_AT_ONCE = 1 << 16  # of a rank, where sums of rows are asked for


class DistributedGraph(BaseGraph):
    """A graph on the ranks of `comm`, each of which samples some of every bulk's batches.

    `bulk_sample` on it is collective: all ranks give the same arguments, each gets batches of its own.
    """

    is_distributed = True

    _duplicated: Any = None  # of a duplicate: the communicator or grid that was made for it

    @abstractmethod
    def sampling(self) -> AbstractContextManager[None]:
        """Return what is put around the collective calls of the operand: where one rank fails, all raise."""

    @abstractmethod
    def duplicate(self) -> DistributedGraph:
        """Return the same graph over duplicated communicators, for another thread; collective."""

    def close(self) -> None:
        """Free the communicators that `duplicate` made for this graph, if it did; collective, and the last call."""
        if self._duplicated is not None:
            self._duplicated.close()

    def local_batches(self, num_batches: int) -> Int64Array:
        """Return the ascending positions of the batches of a call that this rank gets: every p-th one."""
        return np.arange(self.comm.rank, num_batches, self.comm.size, dtype=np.int64)

    def row_sums(self) -> NDArray[np.float32]:
        """Sum the values of each row on every rank, each rank a range of the rows: float32, shape (n,); collective."""
        bounds = equal_bounds(self.num_nodes, self.comm.size)
        sums = np.concatenate([self._sums_of(first, end) for first, end in self._ranges(bounds)])
        return self.comm.all_gather_v(sums, np.diff(bounds), phase="set-up")

    def _ranges(self, bounds: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Vertices of this rank, `ROWS_AT_ONCE` at a time: as many ranges on every rank, some of them empty."""
        first, end = bounds[[self.comm.rank, self.comm.rank + 1]].tolist()
        for offset in range(0, -(-self.num_nodes // self.comm.size) + 1, ROWS_AT_ONCE):
            low = min(first + offset, end)
            yield low, min(low + ROWS_AT_ONCE, end)

    def _sums_of(self, first: int, end: int) -> NDArray[np.float32]:
        """Sums of a range of rows; collective, each rank with a range of its own."""
        A = self.operand()
        ids = np.arange(first, end, dtype=A.index_dtype)
        Q = RowSelector(np.array([0, len(ids)]), ids, np.zeros(1, np.int64))
        with self.sampling():
            if A.weighting != "weighted":
                return sums_of_alike(A.weighting, A.frontier(Q).row_statistics.counts)
            layer = GraphSAGE([-1]).run(A, Q, derive_key(0, 0, SAMPLING), False)[0]
        data: Any = layer.data  # there are data: it is weighted
        return sums_by_row(layer.indptr, data).astype(np.float32)
