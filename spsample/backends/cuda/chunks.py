"""Kernels that walk consecutive items, one warp for a chunk of 256 (`kernels/cuda/chunks.h`)."""

from __future__ import annotations

from spsample.backends.cuda.device import Kernel

CHUNK = 256
WARP = 32


def chunk_kernel(source: str, name: str) -> Kernel:
    """A kernel whose pieces of work are chunks."""
    return Kernel(source, name, lanes=WARP)


def chunks_of(items: int) -> int:
    """How many chunks so many items are.

    Examples
    --------
    >>> [chunks_of(items) for items in (0, 1, 256, 257)]
    [0, 1, 1, 2]
    """
    return -(-items // CHUNK)
