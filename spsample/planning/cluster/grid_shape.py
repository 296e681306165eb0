"""The grid of a plan: `GridShape`, its ranks, and `BlockRows`, which rows of A each block has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_int
from spsample.distributed.grid import require_divisor
from spsample.distributed.hubs import hub_row_bytes, hub_threshold
from spsample.distributed.stages.fetch_plan import stage_columns
from spsample.store import Graph

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class GridShape:
    """p ranks as p/c rows of c columns; rank r is P(r // c, r mod c), as in `ProcessGrid`, which needs a communicator.

    Parameters
    ----------
    ranks : int
        p.
    replication : int
        c, a divisor of p.

    Raises
    ------
    InputError
        If c does not divide p.

    Examples
    --------
    >>> shape = GridShape(8, 2)
    >>> shape.num_blocks, shape.rows.tolist(), shape.batches(10).tolist()
    (4, [0, 0, 1, 1, 2, 2, 3, 3], [2, 2, 1, 1, 1, 1, 1, 1])
    """

    ranks: int
    replication: int = 1

    def __post_init__(self) -> None:
        p = require_int("ranks", self.ranks, minimum=1)
        require_divisor(self.replication, p)

    @property
    def num_blocks(self) -> int:
        """p/c, the number of block rows."""
        return self.ranks // self.replication

    @property
    def rows(self) -> Int64Array:
        """i of each rank P(i, j)."""
        return np.arange(self.ranks) // self.replication

    def batches(self, bulk_size: int) -> Int64Array:
        """Batches of each rank in a bulk: rank r gets those at the positions that are r modulo p."""
        return (bulk_size - np.arange(self.ranks) + self.ranks - 1) // self.ranks

    def group_batches(self, bulk_size: int) -> Int64Array:
        """Batches of each row group."""
        sums: Int64Array = self.batches(bulk_size).reshape(self.num_blocks, self.replication).sum(axis=1)
        return sums

    @property
    def stage_columns(self) -> Int64Array:
        """For each block row, the column of the grid in whose stages it takes part.

        Column j has the p/c^2 block rows from j p/c^2 on where c^2 divides p; else block row k goes to column k mod c.

        Examples
        --------
        >>> GridShape(8, 2).stage_columns.tolist(), GridShape(6, 2).stage_columns.tolist()
        ([0, 0, 1, 1], [0, 1, 0])
        """
        return stage_columns(self.num_blocks, self.replication)

    def __str__(self) -> str:
        return f"{self.num_blocks} x {self.replication}"


def grouped(shape: GridShape, by_rank: FloatArray, op: np.ufunc = np.add) -> FloatArray:
    """(p/c, ...): sums over the ranks of each row group, or another reduction, from (p, ...).

    Examples
    --------
    >>> grouped(GridShape(4, 2), np.array([1.0, 2.0, 3.0, 4.0])).tolist()
    [3.0, 7.0]
    """
    by_group = by_rank.reshape(shape.num_blocks, shape.replication, *by_rank.shape[1:])
    reduced: FloatArray = op.reduce(by_group, axis=1)
    return reduced


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
