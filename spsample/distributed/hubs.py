"""Hub rows: rows that samplers need most often, held by every rank within a budget of bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from spsample.backends import QuantisationRule
from spsample.backends.protocol import Int64Array, IntArray
from spsample.comm import Channel
from spsample.distributed.blocks import BlockReader
from spsample.distributed.column_ranges import column_sums
from spsample.distributed.placement import Placement, equal_bounds
from spsample.sparse import LocalOperand

PHASE = "hubs"

HUB_ROW_OVERHEAD = 8 + 8 + 8
"""Bytes of a hub row besides its entries: its pointer, its id and the place of its entries."""


def hub_vertices(channel: Channel, block: LocalOperand, rows: BlockReader, budget: int) -> IntArray:
    """Ascending ids of the vertices that are sources of the most edges and whose rows fit in `budget` bytes together.

    A sampler needs the row of a vertex about as often as it draws the vertex, which it does along its out-edges.
    Vertices with equally many are all taken or none. No more are taken than leave places that the dtype of ids can
    count (`with_hubs`). Collective; ranks count ranges of columns.
    """
    ranks, n = channel.group.size, block.num_nodes
    budget = min(budget, HUB_ROW_OVERHEAD * (np.iinfo(rows.index_dtype).max - n))
    bounds = equal_bounds(n, ranks)
    pattern = LocalOperand(block.matrix._replace(data=None, row_normalized=False), None, block.backend)
    counts = column_sums(channel, pattern, QuantisationRule(None, 1, 1), bounds, PHASE)
    first = int(bounds[channel.group.rank])
    starts = np.asarray(rows.array("indptr", first, first + len(counts) + 1), np.int64)
    entry_bytes = rows.index_dtype.itemsize + (0 if rows.data_dtype is None else rows.data_dtype.itemsize)

    def added(cost: int) -> int:
        return int(channel.gather([np.array([cost], np.int64)], phase=PHASE)[0].rows.sum())

    costs = hub_row_bytes(np.diff(starts), entry_bytes)
    least = hub_threshold(counts, costs, budget, channel.reduce_max, added)
    own = first + np.flatnonzero(counts >= np.uint64(least))
    return channel.gather([own.astype(rows.index_dtype)], phase=PHASE)[0].rows


def hub_row_bytes(lengths: Int64Array, entry_bytes: int) -> Int64Array:
    """Bytes that a rank needs to hold rows of these lengths beside its block row.

    Examples
    --------
    >>> hub_row_bytes(np.array([0, 10]), 4).tolist()
    [24, 64]
    """
    return lengths * entry_bytes + HUB_ROW_OVERHEAD


def hub_threshold(
    counts: NDArray[np.integer],
    costs: Int64Array,
    budget: int,
    largest: Callable[[int], int] = int,
    added: Callable[[int], int] = int,
) -> int:
    """The smallest count, at least 1, such that all vertices that reach it cost no more than the budget together.

    Parameters
    ----------
    counts : int array
        Number of edges of which each vertex is the source.
    costs : int64 array
        Bytes of each row: see `hub_row_bytes`.
    budget : int
        Bytes.
    largest, added : callable
        Where each rank has some of the vertices: the largest of the ranks' numbers, and their sum.

    Examples
    --------
    >>> hub_threshold(np.array([5, 2, 2, 7]), np.array([30, 30, 30, 30]), 100)    # not one of two equals
    3
    """
    order = np.argsort(counts, kind="stable")
    ascending, total = counts[order], np.concatenate([[0], np.cumsum(costs[order][::-1])]).astype(np.int64)
    low, high = 1, largest(int(counts.max(initial=0))) + 1  # no vertex is as frequent as `high`
    while low < high:
        middle = (low + high) // 2
        taken = len(counts) - int(np.searchsorted(ascending, ascending.dtype.type(middle)))
        if added(int(total[taken])) <= budget:
            high = middle
        else:
            low = middle + 1
    return high


def with_hubs(placement: Placement, hubs: IntArray, n: int) -> Placement:
    """A placement with one part more, which holds the hub rows; their places in the blocks stay empty.

    Examples
    --------
    >>> placement = with_hubs(Placement(np.array([0, 2, 4])), np.array([1, 3]), 4)
    >>> placement.bounds.tolist(), placement.position.tolist()
    ([0, 2, 4, 6], [0, 4, 2, 5, 0, 0])
    """
    position = np.zeros(n + len(hubs), hubs.dtype)  # as many as places; the last ones belong to no vertex
    position[:n] = np.arange(n) if placement.position is None else placement.position
    position[hubs] = n + np.arange(len(hubs))
    return Placement(np.append(placement.bounds, n + len(hubs)), position)
