"""Fingerprints of the contents of arrays, computed by all threads about as fast as memory is read."""

from __future__ import annotations

import mmap
from hashlib import sha256
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import is_scipy_sparse
from spsample.common.locks import renewed
from spsample.common.threads import compiled_core

_WORD = 8
_BLOCK_BYTES = 16 << 20
_STEP = 0x9E3779B97F4A7C15


class Contents:
    """Fingerprints of several arrays, which must not change: computed on first use, and kept.

    Examples
    --------
    >>> contents = Contents({"ones": np.ones(2), "nothing": None})
    >>> list(contents.numbers()), contents.numbers() is contents.numbers()
    (['ones', 'nothing'], True)
    """

    def __init__(self, arrays: dict[str, Any]) -> None:
        self._arrays = arrays
        self._numbers: dict[str, int] | None = None
        self._making = renewed(Lock())

    def numbers(self) -> dict[str, int]:
        """Return `contents_of` each array; of several threads one computes."""
        with self._making:
            if self._numbers is None:
                self._numbers = {name: contents_of(array) for name, array in self._arrays.items()}
            return self._numbers


def contents_of(value: Any) -> int:
    """Return 63 bits that are equal for equal contents, and hardly ever for others; not made against forgery.

    Of arrays and SciPy sparse matrices shape, dtype and elements count, not their order in memory; one changed number
    of up to eight bytes always shows. Of anything else its ``repr`` counts. A map is read as a whole.

    Examples
    --------
    >>> ones = np.ones((3, 2))
    >>> contents_of(ones) == contents_of(np.asfortranarray(ones)), contents_of(ones) == contents_of(ones.T)
    (True, False)
    """
    if is_scipy_sparse(value):
        csr = value.tocsr()
        parts = [contents_of(part) for part in (csr.indptr, csr.indices, csr.data)]
        return _hashed(f"sparse {csr.shape} {parts}")
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return _hashed(f"{value.dtype.str} {value.shape} {_sum_of(value)}")
    return _hashed(repr(value))


def is_mapped(array: Any) -> bool:
    """Return whether an array, or the values of a SciPy sparse matrix, are the map of a file.

    Examples
    --------
    >>> is_mapped(np.zeros(3)), is_mapped(None)
    (False, False)
    """
    owner = array.data if is_scipy_sparse(array) else array
    while owner is not None:
        if isinstance(owner, mmap.mmap):
            return True
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return False


def _hashed(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:_WORD], "little") >> 1


def _sum_of(array: NDArray[Any]) -> int:
    """Sum over the words of an array in C order; one in another order is copied a block of rows at a time."""
    if array.flags.c_contiguous:
        return _words_sum(array.reshape(-1).view(np.uint8), 0)
    row_bytes = array[:1].nbytes
    step = max(1, _BLOCK_BYTES // max(row_bytes, 1) // _WORD) * _WORD  # blocks of whole words
    total = 0
    for first in range(0, len(array), step):
        block = np.ascontiguousarray(array[first : first + step])
        total += _words_sum(block.reshape(-1).view(np.uint8), first * row_bytes // _WORD)
    return total % 2**64


def _words_sum(block: NDArray[np.uint8], first: int) -> int:
    """Compute `words_sum` by the compiled core, where it is there."""
    core = compiled_core()
    return int((core.content_sum if core is not None else words_sum)(block, first))


def words_sum(block: NDArray[np.uint8], first: int) -> int:
    """Sum modulo 2^64 over the 64-bit words of a block, each mixed with its number, which is `first` for the first one.

    Bytes after the last whole word are filled up with zeros. The mixing is a bijection of words: SplitMix64's finalizer
    (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).

    Examples
    --------
    >>> words_sum(np.zeros(8, np.uint8), 0) == words_sum(np.zeros(7, np.uint8), 0) == 0xE220A8397B1DCDAF
    True
    """
    whole = len(block) // _WORD * _WORD
    rest = np.zeros(_WORD, np.uint8)
    rest[: len(block) - whole] = block[whole:]
    words = block[:whole].view(np.uint64)
    if whole < len(block):
        words = np.concatenate([words, rest.view(np.uint64)])
    mixed = words + np.arange(first + 1, first + len(words) + 1, dtype=np.uint64) * np.uint64(_STEP)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return int(mixed.sum(dtype=np.uint64))
