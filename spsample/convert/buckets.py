"""How many edges lead to which vertices, and ranges of targets that hold about as many edges each."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.common.locks import renewed
from spsample.convert.resources import core

if TYPE_CHECKING:
    from spsample.convert.chunks import EdgeChunk

__all__ = ["Buckets", "TargetHistogram", "cut", "make_buckets"]

_BINS = 1 << 16
_MOST_BUCKETS = 4096
_KEY_BITS = 64
_SMALL_RECORD = 64


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
        self._lock = renewed(Lock())

    def reach(self, largest: int) -> None:
        """Let ids up to `largest` be counted."""
        with self._lock:
            self.largest = max(self.largest, largest)
            while self.largest >> self.shift >= _BINS:
                self.bins = _folded(self.bins)
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
                bins = _folded(bins)
                shift += 1
            self.bins += bins


def _folded(bins: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts in ranges of twice the length."""
    return np.concatenate([bins.reshape(-1, 2).sum(axis=1), np.zeros(_BINS // 2, np.int64)])


class Buckets(NamedTuple):
    """The bucket of target t is ``bucket_of[t >> shift]``; bucket b begins at target ``bounds[b]``."""

    bucket_of: NDArray[np.uint32]
    shift: int
    bounds: NDArray[np.int64]
    counts: NDArray[np.int64]

    def key_bits(self, source_bits: int) -> int:
        """Bits of the largest (target - first target of its bucket, source)."""
        widest = int(np.diff(self.bounds).max())
        return (widest - 1).bit_length() + source_bits


def make_buckets(histogram: TargetHistogram, num_nodes: int, most: int, position_bits: int) -> tuple[Buckets, int]:
    """Cut the targets into buckets of about `most` edges where ranges allow; also return the bits of a source.

    There are some thousands at most, so that the pieces in which a bucket is read do not become too small: one that
    does not fit in memory then is cut again. Buckets are cut where a record would need more than 64 bits, too, unless
    that made many more of them; keys never need more than 64.
    """
    bins, shift = histogram.bins, histogram.shift
    source_bits = max(1, (num_nodes - 1).bit_length())
    used = ((num_nodes - 1) >> shift) + 1
    total = int(bins.sum())
    size = max(most, total // _MOST_BUCKETS)
    wanted = _SMALL_RECORD - source_bits - position_bits
    if wanted < 0 or (num_nodes >> wanted) > max(2 * total // size, 16):
        wanted = _KEY_BITS - source_bits
    starts = cut(bins[:used], size, 1 << max(wanted - shift, 0))
    bounds = np.minimum(np.append(starts, used).astype(np.int64) << shift, num_nodes)
    bucket_of = np.repeat(np.arange(len(starts), dtype=np.uint32), np.diff(np.append(starts, used)))
    counts = np.add.reduceat(bins[:used], starts)
    return Buckets(bucket_of, shift, bounds, counts), source_bits


def cut(counts: NDArray[np.int64], size: int, widest: int) -> NDArray[np.int64]:
    """Return where groups of consecutive bins begin: at most `widest` bins, and at most `size` edges or one bin.

    Examples
    --------
    >>> cut(np.array([1, 2, 9, 0, 1, 1]), 3, 4)
    array([0, 2, 3])
    """
    ends = np.cumsum(counts)
    starts, begin = [], 0
    while begin < len(counts):
        starts.append(begin)
        before = int(ends[begin - 1]) if begin else 0
        stop = int(np.searchsorted(ends, before + size, side="right"))
        begin = min(max(stop, begin + 1), begin + widest)
    return np.array(starts, dtype=np.int64)
