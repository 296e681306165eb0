"""Vertices by score: those of the largest, and all of them hottest first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_AT_ONCE = 1 << 15
"""Places that are looked at together: they stay in the cache."""


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


def hottest(scores: NDArray[Any], count: int) -> NDArray[np.int64]:
    """The vertices of `highest`, hottest first; of equal ones those of lowest id, on every processor. O(n + k log k).

    Scores are at least 0. Integers are sorted, the leading bits of a score and then its place, which takes less time
    than `np.argsort`; scores of equal leading bits are put in order then.

    Examples
    --------
    >>> hottest(np.array([1.0, 5.0, 1.0, 7.0]), 3).tolist()
    [3, 1, 0]
    """
    if count < len(scores):
        chosen = highest(scores, count)
        return chosen[hottest(scores[chosen], count)]
    place_bits = (len(scores) - 1).bit_length()
    places = (1 << place_bits) - 1
    values = np.add(scores, 0.0, dtype=np.float64)  # -0.0 becomes 0.0
    keys: NDArray[np.int64] = values.view(np.int64)  # bits of floats of at least 0 are in their order
    np.subtract(keys.max(initial=0), keys, out=keys)
    keys <<= 63 - int(keys.max(initial=0)).bit_length()  # leading bits that are equal in all scores
    keys &= ~places
    for first in range(0, len(keys), _AT_ONCE):
        part = keys[first : first + _AT_ONCE]
        part |= np.arange(first, first + len(part))
    keys.sort()
    is_tied = np.zeros(len(keys), np.bool_)
    for first in range(0, len(keys), _AT_ONCE):
        part = keys[first : first + _AT_ONCE + 1]
        is_equal = (part[1:] ^ part[:-1]) <= places
        is_tied[first : first + len(is_equal)] |= is_equal
        is_tied[first + 1 : first + len(part)] |= is_equal
    keys &= places
    at = np.flatnonzero(is_tied)
    tied = scores[keys[at]]
    if (tied[1:] > tied[:-1]).any():
        keys[at] = keys[at][np.argsort(-tied, kind="stable")]
    return keys
