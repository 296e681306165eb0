"""Random arrays for the generators, the same on every machine and for every NumPy version.

NumPy promises that the raw words of a bit generator stay as they are (NEP 19), but not what ``Generator``
makes of them; so the few conversions the generators need are written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spsample.common.checks import require_int

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PhiloxStream"]

_WORDS = 4
"""That one step of the counter makes."""


class PhiloxStream:
    """A stream of random arrays from Philox4x64-10.

    Parameters
    ----------
    seed
        Any non-negative integer.
    purpose
        Streams of one seed and different purposes are independent.

    Examples
    --------
    >>> PhiloxStream(0).permutation(5).tolist() == PhiloxStream(0).permutation(5).tolist()
    True
    """

    def __init__(self, seed: int, purpose: int = 0) -> None:
        self._seed, self._purpose = require_int("random_seed", seed, minimum=0), purpose
        spawn_key = (purpose,) if purpose else ()
        self._bits = np.random.Philox(np.random.SeedSequence(self._seed, spawn_key=spawn_key))

    def at(self, place: int) -> PhiloxStream:
        """Return this stream from word `place` on, whatever was taken from it.

        Examples
        --------
        >>> bool(PhiloxStream(0).at(5).words(1) == PhiloxStream(0).words(6)[5])
        True
        """
        stream = PhiloxStream(self._seed, self._purpose)
        stream._bits.advance(place // _WORDS)
        stream._bits.random_raw(place % _WORDS)
        return stream

    def words(self, count: int) -> NDArray[np.uint64]:
        """``count`` random 64-bit words."""
        result: NDArray[np.uint64] = self._bits.random_raw(count)
        return result

    def uniform(self, count: int) -> NDArray[np.float64]:
        """``count`` multiples of 2**-53 in [0, 1)."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, bound: int, count: int) -> NDArray[np.int64]:
        """``count`` integers in [0, bound), uniform up to a relative error of ``bound / 2**53``."""
        return (self.uniform(count) * bound).astype(np.int64)

    def permutation(self, count: int) -> NDArray[np.int64]:
        """A random order of ``0 .. count - 1``: positions sorted by their random word."""
        return np.argsort(self.words(count), kind="stable").astype(np.int64)
