"""Every device keeps the vertices that it needs most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.features.copies.request import CopyRequest
from spsample.features.score_order import hottest

__all__ = ["replicated"]


def replicated(request: CopyRequest) -> list[NDArray[np.int64]]:
    """Return for each device its `budget` hottest vertices: rule 1 of Song and Jiang.

    Examples
    --------
    >>> [one.tolist() for one in replicated(CopyRequest(np.array([1.0, 3, 2]), devices=2, budget=2, alpha=1.0))]
    [[1, 2], [1, 2]]
    """
    if request.scores.ndim == 1:
        return [hottest(request.scores, request.budget)] * request.devices
    return [hottest(scores, request.budget) for scores in request.scores]
