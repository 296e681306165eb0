"""Algorithm 1 of Song and Jiang: duplicates give way to the next vertex while one pair gains by it."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from spsample.features.copies.replicated import replicated
from spsample.features.copies.request import CopyRequest
from spsample.features.score_order import hottest

__all__ = ["song_jiang"]


def song_jiang(request: CopyRequest) -> list[NDArray[np.int64]]:
    """Return the plan of Song and Jiang for devices that reach each other at the cost `alpha` of the host's.

    Case 1, alpha >= 1: every device keeps the hottest vertices. Case 2: it begins so. Then, from the coldest vertex
    that is kept to the hottest, all its copies but one are replaced by the next vertices that are on no device, as long
    as p(new) > alpha p(old). Within a round the devices take turns, those that got the least probability so far first.
    As printed, the loop skips a new vertex at each copy that stays, and ends early; here none is skipped, as in the
    worked example. O(n log n).

    References
    ----------
    Song and Jiang, "Rethinking graph data placement for graph neural network training on multiple GPUs", ICS 2022.

    Examples
    --------
    >>> scores = np.array([6.0, 5, 4, 3, 2, 1])
    >>> [one.tolist() for one in song_jiang(CopyRequest(scores, devices=2, budget=2, alpha=0.3))]
    [[0, 2], [3, 1]]
    """
    n, budget = request.devices, request.budget
    alpha, scores = request.equal_alpha("song-jiang"), request.equal_scores("song-jiang")
    if alpha >= 1 or n == 1:
        return replicated(request)
    order = hottest(scores, min(n * budget, request.num_rows))
    sorted_scores = scores[order]
    count = _replacements(sorted_scores, n, budget, alpha)
    kept = np.tile(order[:budget], (n, 1))
    where = _devices_of_replacements(sorted_scores[budget : budget + count], n)
    kept[where, budget - 1 - np.arange(count) // (n - 1)] = order[budget : budget + count]
    return list(kept)


def _replacements(scores: NDArray[np.float64], devices: int, budget: int, alpha: float) -> int:
    """How many of the vertices after the first `budget` replace a copy: new ones get colder, old ones hotter."""

    def is_worse(new: int) -> bool:
        return not scores[budget + new] > alpha * scores[budget - 1 - new // (devices - 1)]

    return bisect_left(range(len(scores) - budget), True, key=is_worse)


def _devices_of_replacements(scores: NDArray[np.float64], devices: int) -> NDArray[np.int64]:
    """The device of each replacement: n - 1 in a round, by the sums of what was replaced so far, ascending."""
    sums = [0.0] * devices
    where: list[int] = []
    for first in range(0, len(scores), devices - 1):
        ascending = sorted(range(devices), key=sums.__getitem__)
        for device, score in zip(ascending, scores[first : first + devices - 1].tolist(), strict=False):
            sums[device] += score
            where.append(device)
    return np.array(where, np.int64)
