"""The arrays of splits, as files and stores name them, and what is wrong with some."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PARTS", "SPLIT_IDS", "SPLIT_MASKS", "repeated"]

PARTS = ("train", "val", "test")
SPLIT_IDS = tuple(f"{part}_idx" for part in PARTS)
"""Vertex ids, of one split."""
SPLIT_MASKS = tuple(f"{part}_masks" for part in PARTS)
"""Booleans of shape (splits, n)."""


def repeated(ids: NDArray[Any]) -> int | None:
    """The smallest id that occurs more than once.

    Examples
    --------
    >>> repeated(np.array([3, 2, 5, 3, 2]))
    2
    >>> repeated(np.array([1, 0])) is None
    True
    """
    ordered = np.sort(ids)
    places = np.flatnonzero(ordered[1:] == ordered[:-1])
    return int(ordered[places[0]]) if len(places) else None
