"""`DistributedGraph`: the interface of a graph on several ranks."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.store.base_graph import BaseGraph

__all__ = ["DistributedGraph"]


class DistributedGraph(BaseGraph):
    """A graph on the ranks of `comm`, each of which samples some of every bulk's batches.

    `bulk_sample` on it is collective: all ranks give the same arguments, each gets batches of its own.
    """

    is_distributed = True

    _duplicated: Any = None
    """The communicator or grid that was made for a duplicate."""

    @abstractmethod
    def sampling(self) -> AbstractContextManager[None]:
        """Return a context for the collective calls of the operand: where one rank fails, all raise."""

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
