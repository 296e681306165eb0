"""`GridShape`: the p/c x c process grid as numbers, for plans of grids that do not exist yet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_int
from spsample.distributed.grid import require_divisor
from spsample.distributed.published.fetch_plan import stage_columns

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


__all__ = ["FloatArray", "GridShape", "grouped"]
