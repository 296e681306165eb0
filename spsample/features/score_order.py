"""Vertices by score: those of the largest, and all of them hottest first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_KEY_BITS = 63
"""Bits of an integer that is not negative."""

_AT_ONCE = 1 << 15
"""Places that are looked at together: they stay in the cache."""


def hottest(scores: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the `count` vertices of highest score, hottest first; of equal ones those of lowest id.

    The order is the same on every processor, which that of `np.argsort` is not where scores are equal. Integers are
    sorted, the leading bits of a score and then the place, which takes less time than `np.argsort`; scores of
    equal leading bits are put in order then. O(n + k log k) for scores that are not negative.

    Examples
    --------
    >>> hottest(np.array([1.0, 5.0, 1.0, 7.0]), 3).tolist()
    [3, 1, 0]
    """
    if count >= len(scores):
        return _descending(scores)
    chosen = highest(scores, count)
    return chosen[_descending(scores[chosen])]


def highest(scores: NDArray[Any], count: int) -> NDArray[np.int64]:
    """The `count` vertices with the largest scores, ascending; of equal ones the first.

    Examples
    --------
    >>> highest(np.array([0.5, 0.1, 0.5, 0.9, 0.5]), 3).tolist()
    [0, 2, 3]
    """
    if count == 0 or count >= len(scores):
        return np.arange(min(count, len(scores)))
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    is_chosen = scores > least
    equal = np.flatnonzero(scores == least)
    is_chosen[equal[: count - np.count_nonzero(is_chosen)]] = True
    return np.flatnonzero(is_chosen)


def _descending(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """All places by score, the highest first; of equal ones the first place."""
    if len(scores) == 0:
        return np.empty(0, np.int64)
    place_bits = (len(scores) - 1).bit_length()
    places = (1 << place_bits) - 1
    keys = (scores + 0.0).view(np.int64)  # bits of floats of at least 0 are in their order; -0.0 becomes 0.0
    np.subtract(keys.max(), keys, out=keys)
    keys <<= _KEY_BITS - int(keys.max()).bit_length()  # leading bits that are equal in all scores
    keys &= ~places
    for first in range(0, len(keys), _AT_ONCE):
        part = keys[first : first + _AT_ONCE]
        part |= np.arange(first, first + len(part))
    keys.sort()
    at = _tied(keys, places)
    run = keys[at] >> place_bits
    keys &= places
    _sort_runs(keys, at, run, scores)
    return keys


def _tied(keys: NDArray[np.int64], places: int) -> NDArray[np.int64]:
    """Return the positions of sorted keys that differ from one beside them in the place alone."""
    is_tied = np.zeros(len(keys), np.bool_)
    for first in range(0, len(keys) - 1, _AT_ONCE):
        part = keys[first : first + _AT_ONCE + 1]
        is_equal = (part[1:] ^ part[:-1]) <= places
        is_tied[first : first + len(is_equal)] |= is_equal
        is_tied[first + 1 : first + 1 + len(is_equal)] |= is_equal
    return np.flatnonzero(is_tied)


def _sort_runs(
    order: NDArray[np.int64], at: NDArray[np.int64], run: NDArray[np.int64], scores: NDArray[np.float64]
) -> None:
    """Sort `order` by score within each `run` of the positions `at`, in place."""
    values = scores[order[at]]
    if (values[1:] > values[:-1]).any():
        order[at] = order[at][np.lexsort((order[at], -values, run))]
