"""Orders of ids in groups, and distinct ids, where most of them already ascend or lie close together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array, IntArray

SPARSE = 32
"""Ratio of possible ids to ids up to which ids are marked among all possible ones."""


def order_in_groups(group: IntArray, num_groups: int, ids: IntArray, num_ids: int) -> Int64Array:
    """The order by group, and by id within each: as of ``np.lexsort((ids, group))``.

    Runs that ascend are merged, so that it takes little more than a pass where there are few of them.

    Examples
    --------
    >>> order_in_groups(np.array([1, 0, 1]), 2, np.array([5, 7, 3]), 8).tolist()
    [1, 2, 0]
    """
    if num_groups * num_ids > np.iinfo(np.int64).max:
        return np.lexsort((ids, group))
    key = group.astype(np.int64)
    key *= num_ids
    key += ids
    return np.argsort(key, kind="stable")


def distinct_ids(ids: IntArray, num_ids: int) -> tuple[IntArray, NDArray[Any]]:
    """Ascending distinct ids, and of each id its place among them: as of `np.unique` with its inverse.

    Examples
    --------
    >>> [array.tolist() for array in distinct_ids(np.array([4, 1, 4]), 6)]
    [[1, 4], [1, 0, 1]]
    """
    if num_ids > SPARSE * len(ids):
        distinct, place = np.unique(ids, return_inverse=True)
        return distinct, place
    is_there = np.zeros(num_ids, np.bool_)
    is_there[ids] = True
    distinct = np.flatnonzero(is_there)
    places = np.empty(num_ids, np.int64)
    places[distinct] = np.arange(len(distinct))
    return distinct.astype(ids.dtype, copy=False), places[ids]


__all__ = ["distinct_ids", "order_in_groups"]
