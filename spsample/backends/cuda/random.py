"""Random words and the shuffled order (law, sections 1 and 5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends.cuda.device import Kernel
from spsample.backends.cuda.launcher import KernelLauncher
from spsample.backends.protocol import Int64Array

PHILOX = Kernel("random", "philox")
SHUFFLE_WORDS = Kernel("random", "shuffle_words")


class RandomKernels(KernelLauncher):
    """`philox` and `shuffle`: neither waits."""

    def philox(self, counters: NDArray[np.uint32], key: tuple[int, int]) -> NDArray[np.uint32]:
        """Philox4x32-10 of each row of `counters` (r, 4) -> (r, 4)."""
        words: NDArray[np.uint32] = self.device.empty((len(counters), 4), np.uint32)
        self.run(PHILOX, len(counters), counters.reshape(-1), len(counters), key[0] | key[1] << 32, words)
        return words

    def shuffle(self, count: int, key: tuple[int, int]) -> Int64Array:
        """Positions 0 .. count-1 sorted by their 64-bit word (law, section 5)."""
        words = self.device.empty(count, np.uint64)
        self.run(SHUFFLE_WORDS, count, count, key[0] | key[1] << 32, words)
        order: Int64Array = self.device.argsort(words)
        return order
