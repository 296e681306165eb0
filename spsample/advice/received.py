"""Bytes of features that ranks receive in a step: what `PartitionedFeatures` exchanges behind a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.features.caching.lookahead import Lookahead

__all__ = ["Grid", "MissesOf", "lookahead_misses", "received_bytes", "static_misses"]

Ids = NDArray[np.int64]
MissesOf = Callable[[Sequence[Ids]], list[Ids]]
"""What of a rank's batches, in order, is not in its cache."""


class Grid(NamedTuple):
    """p ranks in p/c rows of c, and the block row of each vertex.

    Attributes
    ----------
    ranks, replication : int
        p and c.
    parts : int array (n,)
        Block row of each vertex, below p/c.
    row_bytes : int
        Bytes of a row on its way.
    """

    ranks: int
    replication: int
    parts: NDArray[np.integer]
    row_bytes: int

    @property
    def id_bytes(self) -> int:
        """Bytes of a request for one row."""
        return 4 if len(self.parts) < 2**31 else 8


def received_bytes(grid: Grid, batches: Sequence[Sequence[Ids]], misses: Sequence[MissesOf]) -> NDArray[np.float64]:
    """(p,) bytes of features that each rank receives in a step, the mean over its steps.

    A rank receives the rows that it has neither in its cache nor in its block, once each, and the requests of the ranks
    of its column group for rows of its block.

    Parameters
    ----------
    grid : Grid
    batches : for each rank the vertices of its batches, in order
        The first as many steps as all ranks have are counted.
    misses : for each rank what is not in its cache
        `static_misses` or `lookahead_misses`.

    Examples
    --------
    >>> grid = Grid(2, 1, np.array([0, 0, 1, 1]), row_bytes=8)
    >>> none = static_misses(np.zeros(4, bool))
    >>> received_bytes(grid, [[np.array([0, 2, 3])], [np.array([0, 3])]], [none, none]).tolist()
    [20.0, 16.0]
    """
    steps = min(len(one) for one in batches)
    received = np.zeros(grid.ranks)
    for rank in range(grid.ranks):
        row, column = divmod(rank, grid.replication)
        for missed in misses[rank](batches[rank])[:steps]:
            asked = np.bincount(grid.parts[missed], minlength=grid.ranks // grid.replication)
            asked[row] = 0
            received[rank] += int(asked.sum()) * grid.row_bytes
            received[column :: grid.replication] += asked * grid.id_bytes
    return received / max(steps, 1)


def static_misses(is_cached: NDArray[np.bool_]) -> MissesOf:
    """Return what a cache misses whose rows stay."""
    return lambda batches: [batch[~is_cached[batch]] for batch in batches]


def lookahead_misses(scores: NDArray[np.float64], capacity: int, bulk_size: int) -> MissesOf:
    """Return what a cache misses that knows the batches of this bulk and of the next.

    Examples
    --------
    >>> misses = lookahead_misses(np.array([1.0, 0.0, 0.0]), capacity=1, bulk_size=1)
    >>> [one.tolist() for one in misses([np.array([1]), np.array([1]), np.array([0, 1])])]
    [[1], [], [0]]
    """

    def missed(batches: Sequence[Ids]) -> list[Ids]:
        lookahead = Lookahead(scores, capacity)
        lookahead.announce(batches[:bulk_size])
        found = []
        for first in range(0, len(batches), bulk_size):
            lookahead.announce(batches[first + bulk_size : first + 2 * bulk_size])
            found += [batch[lookahead.step().misses] for batch in batches[first : first + bulk_size]]
        return found

    return missed
