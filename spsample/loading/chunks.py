"""Small batches are handed over several at a time: to wake a thread takes as long as to gather their features."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from spsample.loading.order import Delivered
    from spsample.loading.prefetch import ClosableIterator, Prefetcher

MAX_BATCHES = 8
"""Batches that are handed over at once, at most."""

MAX_BYTES, MAX_SECONDS = 1 << 20, 2e-3
"""A batch joins a chunk only while one as large as the last still fits, and while they took less time. A batch of
unknown size goes alone."""


class Chunk(NamedTuple):
    """Batches that are handed over together.

    Attributes
    ----------
    batches : deque of Delivered
    nbytes : int
        Bytes of their features.
    """

    batches: deque[Delivered]
    nbytes: int


def chunks(items: ClosableIterator[Delivered], most: int) -> Generator[Chunk, None, None]:
    """Yield the batches in chunks: first one, then two, four and so on; none waits for another bulk, nor for long.

    An exception of `items` comes after the batches before it.

    Parameters
    ----------
    items
        Closed at the end.
    most : int
        Batches of a chunk, at most.

    Examples
    --------
    >>> from spsample.loading.order import Delivered
    >>> batches = (Delivered(i, False, i, size=0) for i in range(12))
    >>> [len(chunk.batches) for chunk in chunks(batches, 4)]
    [1, 2, 4, 4, 1]
    """
    most_now = 1
    try:
        while True:
            batches: deque[Delivered] = deque()
            nbytes, held, begin = 0, 0, time.perf_counter()
            try:
                while len(batches) < min(most_now, most):
                    item = next(items)
                    batches.append(item)
                    nbytes += item.nbytes
                    size = MAX_BYTES if item.size is None else item.size
                    held += size
                    took = time.perf_counter() - begin
                    if item.ends_bulk or held + size > MAX_BYTES or took > MAX_SECONDS:
                        break
            except BaseException as error:
                if batches:
                    yield Chunk(batches, nbytes)
                if isinstance(error, StopIteration):
                    return
                raise
            yield Chunk(batches, nbytes)
            most_now = min(2 * most_now, MAX_BATCHES)
            del batches
    finally:
        items.close()


def one_by_one(items: Prefetcher[Any]) -> Iterator[Delivered]:
    """Yield the batches of the chunks that a thread makes, which may make another one meanwhile."""
    for chunk in items:
        items.release()
        while chunk.batches:
            yield chunk.batches.popleft()
