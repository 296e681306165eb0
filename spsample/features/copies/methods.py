"""The methods that plan copies, by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from spsample.features.copies.best_copies import best_copies
from spsample.features.copies.interleaved import interleaved
from spsample.features.copies.replicated import replicated
from spsample.features.copies.request import CopyRequest
from spsample.features.copies.song_jiang import song_jiang

__all__ = ["METHODS"]

METHODS: dict[str, Callable[[CopyRequest], list[NDArray[np.int64]]]] = {
    "best-copies": best_copies,
    "interleaved": interleaved,
    "replicated": replicated,
    "song-jiang": song_jiang,
}
"""By name: what makes of a request the vertices of each device."""
