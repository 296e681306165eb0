"""Into which bulks an epoch is cut."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["bulk_ranges", "ramp_of"]


def ramp_of(prefetch: int) -> int:
    """With prefetch a pass begins with a bulk of a so many-th of the size, so that the loop has something to do soon.

    Examples
    --------
    >>> ramp_of(0), ramp_of(1)
    (1, 8)
    """
    return 1 if prefetch == 0 else 8


def bulk_ranges(first: int, last: int, size: int, ramp: int = 1) -> Iterator[tuple[int, int]]:
    """Where bulks of the batches from `first` to `last` begin and end.

    They have `size` batches, the first ones fewer: ``size // ramp``, then twice that, and so on.

    Examples
    --------
    >>> list(bulk_ranges(0, 20, 8, ramp=4))
    [(0, 2), (2, 6), (6, 14), (14, 20)]
    """
    ahead = max(size // ramp, 1)
    while first < last:
        yield first, min(first + ahead, last)
        first += ahead
        ahead = min(2 * ahead, size)
