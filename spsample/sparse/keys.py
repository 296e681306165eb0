"""Keys of the counter-based generator, and shuffling (law, sections 1 and 5)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from spsample.backends import get_backend
from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_int
from spsample.common.threads import compiled_core

LAW_VERSION = 1
SAMPLING, SHUFFLING, TRIAL, DROPOUT = 1, 2, 3, 4


def derive_key(random_seed: int, epoch: int, purpose: int) -> tuple[int, int]:
    """Two 32-bit key words for one epoch and purpose; both arguments in [0, 2^64).

    Examples
    --------
    >>> derive_key(0, 0, SAMPLING) != derive_key(0, 0, SHUFFLING)
    True
    """
    random_seed = require_int("random_seed", random_seed, 0, 2**64 - 1)
    epoch = require_int("epoch", epoch, 0, 2**64 - 1)
    return _key(random_seed, epoch, require_int("purpose", purpose, 0, 2**32 - 1))


def trial_seed(random_seed: int) -> int:
    """Return the random seed of trial epochs, which are sampled to count visits and thrown away; in [0, 2^64).

    With it the epochs of a trial are ordered and drawn like any others, and equal none of those of `random_seed`.

    Examples
    --------
    >>> trial_seed(0) == trial_seed(0), trial_seed(0) in (0, trial_seed(1))
    (True, False)
    """
    low, high = derive_key(random_seed, 0, TRIAL)
    return low + (high << 32)


@lru_cache(maxsize=64)
def _key(random_seed: int, epoch: int, purpose: int) -> tuple[int, int]:
    """The key of arguments that are known to be right; an epoch is often sampled in many calls."""
    core = compiled_core()
    if core is not None:
        words: tuple[int, int] = core.philox_key(epoch, purpose, random_seed)
        return words
    counter = np.array([[epoch % 2**32, epoch >> 32, purpose, 0]], np.uint32)
    first, second, _, _ = get_backend().philox(counter, (random_seed % 2**32, random_seed >> 32))[0].tolist()
    return first, second


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
