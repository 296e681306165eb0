"""How many edges lead to which vertices, before the largest id is known."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spsample.convert.core import core

if TYPE_CHECKING:
    from spsample.convert.chunks import EdgeChunk

__all__ = ["TargetHistogram"]

_BINS = 1 << 16


class TargetHistogram:
    """Counts of targets in at most 65536 ranges of equal length 2^shift, which grow with the largest id.

    Parameters
    ----------
    mirror, drop_loops
        Which edges count: see `ConvertOptions`.
    """

    def __init__(self, *, mirror: bool, drop_loops: bool) -> None:
        self.bins: NDArray[np.int64] = np.zeros(_BINS, np.int64)
        self.shift = 0
        self.largest = -1
        self._mirror = mirror
        self._drop_loops = drop_loops
        self._lock = Lock()

    def reach(self, largest: int) -> None:
        """Let ids up to `largest` be counted."""
        with self._lock:
            self.largest = max(self.largest, largest)
            while self.largest >> self.shift >= _BINS:
                folded = self.bins.reshape(-1, 2).sum(axis=1)
                self.bins = np.concatenate([folded, np.zeros(_BINS // 2, np.int64)])
                self.shift += 1

    def count(self, chunk: EdgeChunk) -> None:
        """Count the edges of a chunk; their ids were given to `reach`. Several threads may call it at once."""
        bins, shift = np.zeros(_BINS, np.int64), self.shift
        core().edge_histogram(
            chunk.sources, chunk.targets, chunk.step, chunk.count, bins, shift, self._mirror, self._drop_loops
        )
        self._add(bins, shift)

    def add_loops(self, num_nodes: int) -> None:
        """Count one more edge to each vertex."""
        starts = np.arange(_BINS, dtype=np.int64) << self.shift
        self.bins += np.clip(num_nodes - starts, 0, 1 << self.shift)

    def _add(self, bins: NDArray[Any], shift: int) -> None:
        with self._lock:
            while shift < self.shift:
                bins = np.concatenate([bins.reshape(-1, 2).sum(axis=1), np.zeros(_BINS // 2, np.int64)])
                shift += 1
            self.bins += bins
