"""Counts of what may be wrong with a graph: repeated edges, and vertices without any."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_PIECE = 1 << 19


def num_repeated(indptr: NDArray[np.int64], indices: NDArray[Any]) -> int:
    """Return how many entries have the same source as the one before them in their row.

    Parameters
    ----------
    indptr, indices
        CSR arrays, int64 and int32 or int64, the entries of a row sorted; mapped ones are read in pieces.

    Examples
    --------
    >>> num_repeated(np.array([0, 3, 4]), np.array([1, 1, 1, 1]))
    2
    """
    equal = 0
    for first in range(0, len(indices) - 1, _PIECE):
        part = indices[first : first + _PIECE + 1]
        equal += int(np.count_nonzero(part[1:] == part[:-1]))
    for first in range(0, len(indptr) - 1, _PIECE):
        bounds = np.asarray(indptr[first : first + _PIECE + 1])
        begins = bounds[:-1][(bounds[:-1] > 0) & (bounds[1:] > bounds[:-1])]  # of rows that are not empty
        equal -= int(np.count_nonzero(indices[begins] == indices[begins - 1]))
    return equal


def num_with_edges(indptr: NDArray[np.int64], indices: NDArray[Any]) -> int:
    """Return how many vertices are the end of an edge. Memory: 1 byte for each of at most 2^26 vertices at a time.

    Examples
    --------
    >>> num_with_edges(np.array([0, 1, 1, 1]), np.array([2]))
    2
    """
    count, n, room = 0, len(indptr) - 1, 1 << 26
    for first in range(0, n, room):
        last = min(first + room, n)
        seen = np.zeros(last - first, np.bool_)
        for begin in range(first, last, _PIECE):
            end = min(begin + _PIECE, last)
            seen[begin - first : end - first] = np.diff(indptr[begin : end + 1]) > 0
        for begin in range(0, len(indices), _PIECE):
            part = indices[begin : begin + _PIECE]
            seen[part[(part >= first) & (part < last)] - first] = True
        count += int(np.count_nonzero(seen))
    return count
