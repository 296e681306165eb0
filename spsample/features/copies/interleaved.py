"""Hot rows interleaved over the devices, the hottest on all of them (Data Tiering)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.features.copies.request import CopyRequest
from spsample.features.score_order import hottest

__all__ = ["interleaved"]


def interleaved(request: CopyRequest) -> list[NDArray[np.int64]]:
    """Return the `head` hottest vertices for every device, and the next ones in turn for one device each.

    Where there is room for more than one copy of all, the head grows until less than a row for each device is left
    over.

    References
    ----------
    Min et al., "Graph neural network training with data tiering", KDD 2022.

    Examples
    --------
    >>> scores = np.array([9.0, 8, 7, 6, 5, 4])
    >>> [one.tolist() for one in interleaved(CopyRequest(scores, devices=2, budget=2, alpha=0.5))]
    [[0, 2], [1, 3]]
    >>> [one.tolist() for one in interleaved(CopyRequest(scores, devices=2, budget=2, alpha=0.5, head=1))]
    [[0, 1], [0, 2]]
    """
    n, budget = request.devices, request.budget
    surplus = max(n * budget - request.num_rows, 0)
    head = max(request.head, surplus // max(n - 1, 1)) if n > 1 else request.head
    order = hottest(request.equal_scores("interleaved"), min(head + n * (budget - head), request.num_rows))
    return [np.concatenate([order[:head], order[head + device :: n]]) for device in range(n)]
