"""What feature sources that keep rows near have gathered, by the place that rows came from."""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

from spsample.common.locks import renewed

__all__ = ["CacheCounts", "Counter"]


class CacheCounts(NamedTuple):
    """What a source that keeps rows near has gathered, by the place that rows came from.

    Attributes
    ----------
    hits, misses : int
        Rows that were kept, and rows from the source, repeats counted.
    hit_bytes, miss_bytes : int
        Their bytes, as they are kept.

    Examples
    --------
    >>> CacheCounts(hits=3, misses=1, hit_bytes=24, miss_bytes=8).hit_share
    0.75
    """

    hits: int
    misses: int
    hit_bytes: int
    miss_bytes: int

    def as_dict(self) -> dict[str, int]:
        """Return plain Python values, ready for JSON.

        Examples
        --------
        >>> CacheCounts(3, 1, 24, 8).as_dict()
        {'hits': 3, 'misses': 1, 'hit_bytes': 24, 'miss_bytes': 8}
        """
        return {name: int(value) for name, value in self._asdict().items()}

    @property
    def hit_share(self) -> float:
        """Hits of all rows; 0 where there are none."""
        return self.hits / max(self.hits + self.misses, 1)


class Counter:
    """Rows by the place that they came from, counted by several threads.

    Parameters
    ----------
    kinds : int
        Number of these places.

    Examples
    --------
    >>> counter = Counter(kinds=2)
    >>> counter.add(3, 1)
    >>> CacheCounts(*counter.read(row_bytes=8))
    CacheCounts(hits=3, misses=1, hit_bytes=24, miss_bytes=8)
    """

    def __init__(self, kinds: int) -> None:
        self._adding = renewed(Lock())
        self._rows = [0] * kinds

    def add(self, *rows: int) -> None:
        """Count some rows from each place."""
        with self._adding:
            self._rows = [one + more for one, more in zip(self._rows, rows, strict=True)]

    def read(self, row_bytes: int) -> list[int]:
        """Rows from each place, then their bytes."""
        with self._adding:
            rows = self._rows
        return [*rows, *(number * row_bytes for number in rows)]

    def reset(self) -> None:
        """Begin at 0 again."""
        with self._adding:
            self._rows = [0] * len(self._rows)
