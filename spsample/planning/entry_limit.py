"""Sampling that stops before a bulk has more entries than it may."""

from __future__ import annotations

import numpy as np

from spsample.backends import Draw
from spsample.backends.protocol import Int64Array
from spsample.sparse import Frontier
from spsample.sparse.operand import EntryLimit


class TooManyEntriesError(Exception):
    """A bulk would have more entries than it may: sample it in parts."""


class MostEntries(EntryLimit):
    """Counts down, and stops a bulk that would make more entries than are left.

    Entries drawn from rows are counted before they are drawn: at most the size of the draw for each row, or exactly
    where that bound would pass. Those of an extraction are counted once they are made.

    It stops one rank and knows nothing of others; also, it asks for totals of rows only where a bound does not do, and
    on a graph of several ranks that is a collective call. `SamplingCall.run` therefore refuses it there.
    """

    def __init__(self, most_entries: int) -> None:
        self._left = most_entries

    def surely_allows(self, entries: int) -> bool:
        """Whether that many are left."""
        return entries <= self._left

    def before_draw(self, frontier: Frontier, draw: Draw) -> None:
        """Refuse a draw that would make more entries than are left."""
        surely_fits = draw.size >= 0 and self.surely_allows(len(frontier.Q.vertices) * draw.size)
        if not surely_fits and _count(frontier, draw) > self._left:
            raise TooManyEntriesError

    def at_extract(self, entries: int) -> None:
        """Refuse entries that are more than are left."""
        if entries > self._left:
            raise TooManyEntriesError
        self._left -= entries


def _count(frontier: Frontier, draw: Draw) -> int:
    """Entries that a draw makes (of weighted rows: at most)."""
    counts: Int64Array = frontier.row_statistics.counts
    if draw.size >= 0:
        counts = draw.size * np.minimum(counts, 1) if draw.replace else np.minimum(counts, draw.size)
    of_batches, _ = frontier.A.backend.batch_statistics(frontier.Q.batch_ptr, counts, frontier.row_statistics.exponents)
    return int(of_batches.sum())
