"""`BlockRows`: which rows of A each block of a grid has, and the hub rows that every rank holds."""

from __future__ import annotations

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.distributed.hubs import hub_row_bytes, hub_threshold
from spsample.store import Graph


class BlockRows:
    """Contiguous block rows of A, and hub rows, which every rank holds.

    Parameters
    ----------
    starts : int64 array (p/c + 1,)
        Block row i has the rows from starts[i] to starts[i + 1].
    hubs : int64 array, optional
        Vertices, ascending.

    Examples
    --------
    >>> BlockRows(np.array([0, 2, 5]), hubs=np.array([3])).owners(np.array([1, 2, 3])).tolist()
    [0, 1, -1]
    """

    def __init__(self, starts: Int64Array, hubs: Int64Array | None = None) -> None:
        self.starts = np.asarray(starts, np.int64)
        self.hubs = np.zeros(0, np.int64) if hubs is None else np.asarray(hubs, np.int64)
        self.num_blocks = len(self.starts) - 1

    def owners(self, vertices: Int64Array) -> Int64Array:
        """Block row of each vertex; -1 for hubs."""
        owners = np.searchsorted(self.starts, vertices, side="right") - 1
        if len(self.hubs):
            at = np.minimum(np.searchsorted(self.hubs, vertices), len(self.hubs) - 1)
            owners[self.hubs[at] == vertices] = -1
        return owners


def hub_rows(graph: Graph, budget: int, entry_bytes: int) -> Int64Array:
    """The vertices that are sources of the most edges and whose rows fit in the budget, ascending.

    They are chosen as a partitioned graph chooses those that it replicates. `entry_bytes` is that of the graph planned
    for, which may differ from `graph`.
    """
    if budget == 0:
        return np.zeros(0, np.int64)
    times = np.bincount(graph.indices, minlength=graph.num_nodes)
    costs = hub_row_bytes(np.diff(graph.indptr), entry_bytes)
    hubs: Int64Array = np.flatnonzero(times >= hub_threshold(times, costs, budget))
    return hubs


__all__ = ["BlockRows", "hub_rows"]
