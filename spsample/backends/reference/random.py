"""Philox4x32-10 and bounded integers (law, section 1), vectorised over draws."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spsample.backends.arithmetic import draw_limit_error

UInt32Array = NDArray[np.uint32]
UInt64Array = NDArray[np.uint64]

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
NARROW_LIMIT = 2**32
LAST_ATTEMPT = 255
NARROW_DRAWS, WIDE_DRAWS = 2**34, 2**33
ROUND_DRAWS = 4
"""Draws of a round, for each that is wanted, before the chosen are taken out (law, section 3).

Kernels have it as `kRoundDraws`, in `kernels/include/spsample/philox.h`.
"""


def philox(counters: UInt32Array, key: tuple[int, int]) -> UInt32Array:
    """Philox4x32 with 10 rounds of each row of `counters` (r, 4).

    Examples
    --------
    >>> [hex(w) for w in philox(np.zeros((1, 4), np.uint32), (0, 0))[0]]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c = [counters[:, i].astype(np.uint64) for i in range(4)]
    k = [int(key[0]), int(key[1])]
    for _ in range(10):
        p0, p1 = MULTIPLIERS[0] * c[0], MULTIPLIERS[1] * c[2]
        c = [(p1 >> HALF) ^ c[1] ^ np.uint64(k[0]), p1 & LOW, (p0 >> HALF) ^ c[3] ^ np.uint64(k[1]), p0 & LOW]
        k = [(k[0] + WEYL[0]) % 2**32, (k[1] + WEYL[1]) % 2**32]
    return np.stack(c, axis=1).astype(np.uint32)


def philox_words(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32 with 10 rounds of one counter, in plain integers: ten times faster than an array of one.

    Examples
    --------
    >>> [hex(w) for w in philox_words((0, 0, 0, 0), (0, 0))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + WEYL[0]) & 0xFFFFFFFF, (k1 + WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


class Stream(NamedTuple):
    """The draws of rows: what of the counter does not change from draw to draw. `vertex` and `batch` broadcast."""

    key: tuple[int, int]
    vertex: ArrayLike
    hop: int
    batch: ArrayLike

    def integers(self, j: ArrayLike, total: ArrayLike, wide: ArrayLike) -> UInt64Array:
        """Draw number `j` as an integer in [0, total); `wide` picks 64-bit words. All arguments broadcast.

        CapacityError where a draw number passes the last one.
        """
        vertex, batch, j, total, wide = np.broadcast_arrays(
            *(np.asarray(a) for a in (self.vertex, self.batch, j, total, wide))
        )
        if (j >= np.where(wide, WIDE_DRAWS, NARROW_DRAWS)).any():
            raise draw_limit_error()
        result = np.zeros(j.shape, np.uint64)
        pending = np.arange(j.size)
        for attempt in range(LAST_ATTEMPT + 1):
            word = _words(
                self._replace(vertex=vertex[pending], batch=batch[pending]), j[pending], wide[pending], attempt
            )
            high, accepted = _lemire(word, total[pending].astype(np.uint64), wide[pending])
            accepted |= attempt == LAST_ATTEMPT
            result[pending[accepted]] = high[accepted]
            pending = pending[~accepted]
            if pending.size == 0:
                break
        return result


def _words(stream: Stream, j: NDArray[np.int64], wide: NDArray[np.bool_], attempt: int) -> UInt64Array:
    vertex = np.asarray(stream.vertex).astype(np.uint64)
    number = j.astype(np.uint64)
    per_block = np.where(wide, 2, 4).astype(np.uint64)
    counters = np.empty((len(number), 4), np.uint32)
    counters[:, 0] = vertex & LOW
    counters[:, 1] = (vertex >> HALF) | np.uint64(stream.hop << 16 | attempt << 24)
    counters[:, 2] = number // per_block
    counters[:, 3] = np.asarray(stream.batch).astype(np.uint64)
    w = philox(counters, stream.key).astype(np.uint64)
    row, slot = np.arange(len(number)), (number % per_block).astype(np.int64)
    low = w[row, np.where(wide, 2 * slot, slot)]
    words: UInt64Array = np.where(wide, low | w[row, np.where(wide, 2 * slot + 1, 0)] << HALF, low)
    return words


def _lemire(word: UInt64Array, total: UInt64Array, wide: NDArray[np.bool_]) -> tuple[UInt64Array, NDArray[np.bool_]]:
    """High half of `word * total` and whether Lemire's test accepts it."""
    narrow_product = word * total  # below 2^64 where the draw is narrow
    bits = np.where(wide, np.uint64(64), HALF)
    high = np.where(wide, multiply_high(word, total), narrow_product >> HALF)
    low = np.where(wide, narrow_product, narrow_product & LOW)
    # 2^B mod t = (2^B - t) mod t, and 2^64 - t wraps to the right number
    threshold = np.where(bits == HALF, np.uint64(2**32) - total, np.uint64(0) - total) % total
    return high, low >= threshold


def multiply_high(a: UInt64Array, b: UInt64Array) -> UInt64Array:
    """High 64 bits of the 128-bit product.

    Examples
    --------
    >>> multiply_high(np.array([2**63], np.uint64), np.array([6], np.uint64)).tolist()
    [3]
    """
    a0, a1, b0, b1 = a & LOW, a >> HALF, b & LOW, b >> HALF
    middle = a1 * b0 + (a0 * b0 >> HALF)
    other = a0 * b1 + (middle & LOW)
    high: UInt64Array = a1 * b1 + (middle >> HALF) + (other >> HALF)
    return high


def shuffle(count: int, key: tuple[int, int]) -> NDArray[np.int64]:
    """Positions 0 .. count-1 in the order of their 64-bit words (law, section 5)."""
    position = np.arange(count, dtype=np.uint64)
    counters = np.zeros((count, 4), np.uint32)
    counters[:, 0], counters[:, 1] = position & LOW, position >> HALF
    w = philox(counters, key).astype(np.uint64)
    return np.argsort(w[:, 0] | w[:, 1] << HALF, kind="stable").astype(np.int64)
