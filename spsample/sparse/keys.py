"""Keys of the counter-based generator, and shuffling (law, sections 1 and 5)."""

from __future__ import annotations

from functools import lru_cache

from spsample.backends import get_backend
from spsample.backends.protocol import Int64Array
from spsample.backends.reference.random import philox_words
from spsample.sparse.checks import require_int

LAW_VERSION = 1
SAMPLING, SHUFFLING = 1, 2


def derive_key(random_seed: int, epoch: int, purpose: int) -> tuple[int, int]:
    """Two 32-bit key words for one epoch and purpose; both arguments in [0, 2^64).

    Examples
    --------
    >>> derive_key(0, 0, SAMPLING) != derive_key(0, 0, SHUFFLING)
    True
    """
    random_seed = require_int("random_seed", random_seed, 0, 2**64 - 1)
    epoch = require_int("epoch", epoch, 0, 2**64 - 1)
    return _key(random_seed, epoch, purpose)


@lru_cache(maxsize=64)
def _key(random_seed: int, epoch: int, purpose: int) -> tuple[int, int]:
    """The same of arguments that are known to be right; an epoch is often sampled in many calls."""
    counter = (epoch % 2**32, epoch >> 32, purpose, 0)
    return philox_words(counter, (random_seed % 2**32, random_seed >> 32))[:2]


def shuffle(count: int, random_seed: int = 0, epoch: int = 0, *, backend: str | None = None) -> Int64Array:
    """Positions 0 .. count-1 in an order that depends on the seed and the epoch only (int64).

    Examples
    --------
    >>> shuffle(5, random_seed=1).tolist() == shuffle(5, random_seed=1).tolist()
    True
    >>> sorted(shuffle(5, epoch=3).tolist())
    [0, 1, 2, 3, 4]
    """
    count = require_int("count", count, 0, 2**62 - 1)
    return get_backend(backend).shuffle(count, derive_key(random_seed, epoch, SHUFFLING))
