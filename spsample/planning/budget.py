"""`BudgetedPlan`: the largest bulk within a budget, how a larger one is refused, and what a loader holds beside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spsample.backends import Draw
from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_int
from spsample.common.units import format_bytes
from spsample.errors import CapacityError
from spsample.sampling.bulk import BulkSample
from spsample.sparse import Frontier
from spsample.sparse.operand import EntryLimit

USE_BYTES = 16
"""Bytes of a vertex that a batch will ask for: its id and its next use, in room for a power of two."""


@dataclass(frozen=True)
class FeaturesAhead:
    """Memory of features beside those of batches, by the number of vertices whose features a bulk needs.

    Attributes
    ----------
    known_bulks : int
        Bulks that are sampled before the one in use is over, so that sources know what they will be asked for: 0 or 1.
    use_bytes : int
        Of a vertex that a batch of such a bulk will ask for.
    row_bytes : int
        Of a row of a bulk that is fetched at once; 0 where each batch fetches its own.
    num_vertices : int
        Of the graph: a bulk fetches no row twice.

    Examples
    --------
    >>> ahead = FeaturesAhead(known_bulks=1, use_bytes=16, row_bytes=400, num_vertices=1000)
    >>> ahead.known_bytes(5000), ahead.fetched_bytes(5000)
    (160000, 400000)
    """

    known_bulks: int = 0
    use_bytes: int = 0
    row_bytes: int = 0
    num_vertices: int = 0

    def known_bytes(self, sources: int) -> int:
        """Bytes for what is known of the bulk in use and of the next ones, of `sources` vertices each."""
        return (1 + self.known_bulks) * self.use_bytes * sources if self.known_bulks else 0

    def fetched_bytes(self, sources: int) -> int:
        """Bytes of the rows of a bulk whose batches have `sources` vertices in all."""
        return self.row_bytes * min(sources, self.num_vertices)

    def nbytes(self, sources: int) -> int:
        """Bytes of both."""
        return self.known_bytes(sources) + self.fetched_bytes(sources)


NOTHING_AHEAD = FeaturesAhead()
"""No features beside those of batches: of a loader without features, and of one call."""


@dataclass(frozen=True)
class Buffers:
    """Contents of a loader while it makes a bulk.

    Attributes
    ----------
    prefetch : int or None
        Bulks that are sampled ahead; None for a call, while which no other bulk exists.
    feature_batches, feature_bytes : int
        Batches that hold features at a time, and the bytes of a vertex's.
    ahead : FeaturesAhead
        Features beside those of batches, and how many more bulks are sampled for them.
    share : function or None
        Gives a rank's part of a bulk once ranks have shared out its batches, collective: minibatches in a sequence that
        has `nbytes`. None where each keeps its own.
    """

    prefetch: int | None = None
    feature_batches: int = 0
    feature_bytes: int = 0
    ahead: FeaturesAhead = NOTHING_AHEAD
    share: Callable[[BulkSample], Any] | None = None

    @property
    def finished(self) -> int:
        """Finished bulks that exist while one is made."""
        return 0 if self.prefetch is None else max(self.prefetch, 1) + self.ahead.known_bulks


NO_BUFFERS = Buffers()
"""No buffers: those of a call of `bulk_sample`."""


MAX_BATCHES = 1 << 62


@dataclass(frozen=True)
class BudgetedPlan(ABC):
    """Memory of bulks by the number of their batches, held against a budget.

    Attributes
    ----------
    memory_budget : int
        Bytes.
    batch_size : int
        Seeds of a batch.
    ahead : FeaturesAhead
        Features beside those of batches.
    """

    memory_budget: int
    batch_size: int
    ahead: FeaturesAhead = field(default=NOTHING_AHEAD, kw_only=True)

    _single_batches = "one at a time"  # the smallest bulk, in words

    @abstractmethod
    def peak(self, bulk_size: int) -> int:
        """Bytes at the peak with bulks of `bulk_size` batches; more batches never take less."""

    @abstractmethod
    def most_entries(self, batches: int) -> int | None:
        """Entries that a bulk of `batches` batches may have; None where nothing limits them."""

    @abstractmethod
    def sources_of(self, bulk_size: int) -> int:
        """Vertices whose features the batches of a bulk need, margin included; on several ranks those of a rank."""

    def known_bytes(self, bulk_size: int) -> int:
        """Bytes for what is known of the next calls of `gather`; 0 where nothing is announced."""
        return self.ahead.known_bytes(self.sources_of(bulk_size))

    def fetched_bytes(self, bulk_size: int) -> int:
        """Bytes of the rows of a bulk that are fetched at once; 0 where each batch fetches its own."""
        return self.ahead.fetched_bytes(self.sources_of(bulk_size))

    def fits(self, bulk_size: int) -> bool:
        """Return whether bulks of `bulk_size` batches are within the budget."""
        return self.peak(bulk_size) <= self.memory_budget

    def largest(self, most: int) -> int:
        """The largest k up to `most` whose peak is within the budget; 0 where there is none."""
        return largest_fitting(require_int("most", most, minimum=0, maximum=MAX_BATCHES), self.fits)

    def require(self, bulk_size: int) -> None:
        """Refuse a bulk size that does not fit.

        Raises
        ------
        CapacityError
            It names the largest one that does.
        """
        bulk_size = require_int("bulk_size", bulk_size, minimum=0, maximum=MAX_BATCHES)
        if bulk_size == 0 or self.fits(bulk_size):
            return
        largest = self.largest(bulk_size)
        if largest == 0:
            raise CapacityError(
                argument="memory_budget",
                given=f"{self._budget} for batches of {self.batch_size} seeds",
                expected=f"at least {format_bytes(self.peak(1))}, which {self._single_batches} takes",
                hint="Give more, or use smaller batches, fanouts or layer sizes.",
            )
        raise CapacityError(
            argument="bulk_size",
            given=f"{bulk_size}, which takes {format_bytes(self.peak(bulk_size))}",
            expected=f"at most {largest} within the memory budget of {self._budget}",
            hint="bulk_size='auto' finds it.",
        )

    @property
    def _budget(self) -> str:
        """The budget in words."""
        return format_bytes(self.memory_budget)


def largest_fitting(most: int, fits: Callable[[int], bool]) -> int:
    """The largest of 1 .. `most` that fits, where all below one that fits do; 0 where none does. O(log most) calls.

    Examples
    --------
    >>> largest_fitting(100, lambda k: 3 * k <= 50), largest_fitting(100, lambda k: False)
    (16, 0)
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


# ----------------------------------------------------------------------------- bulks that turn out larger than they may


class TooManyEntriesError(Exception):
    """A bulk would have more entries than it may: sample it in parts."""


class MostEntries(EntryLimit):
    """Counts down, and stops a bulk that would make more entries than are left.

    Entries drawn from rows are counted before they are drawn: at most the size of the draw for each row, or exactly
    where that bound would pass. Those of an extraction are counted once they are made.

    It stops one rank and knows nothing of others; also, it asks for totals of rows only where a bound does not do, and
    on a graph of several ranks that is a collective call. `Workload.run` therefore refuses it there.
    """

    def __init__(self, most_entries: int) -> None:
        self._left = most_entries

    def surely_allows(self, entries: int) -> bool:
        """Return whether that many are left."""
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
