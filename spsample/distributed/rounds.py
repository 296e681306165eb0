"""Columns drawn for k batches at once, in rounds, where the distributions lie on several ranks.

The entry law is composed of answers of the rows' owners: counts of entries, and columns by position.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from spsample.backends import ColumnSample, Draw
from spsample.backends.arithmetic import draw_limit_error
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.backends.reference.random import NARROW_DRAWS, NARROW_LIMIT, ROUND_DRAWS, WIDE_DRAWS, Stream
from spsample.sparse.operand import Frontier

SPARE_DRAWS = 16
"""Draws of a piece that does not grow with the number of columns wanted."""

AT_A_TIME = 32
"""Batches that draw together: their arrays stay in the cache."""

Counts = dict[int, int]
"""Each column that a batch has drawn so far, in the order first drawn, and how often."""


class BatchDistributions(ABC):
    """A distribution over columns for each of k batches, in which the ranks find columns together.

    Attributes
    ----------
    batch_ids : int64 array (k,)
    totals : uint64 array (k,)
        T of each, without the columns that were excluded.
    margin : int
        1 where a batch that has drawn all the columns it needs does not know whether there are others: one column more
        shows that its support was not taken whole. 0 where that is known beforehand.
    """

    batch_ids: Int64Array
    totals: UInt64Array
    margin: int

    @abstractmethod
    def any_reduce(self, *here: bool) -> list[bool]:
        """Return for each value whether it is true on any rank."""

    @abstractmethod
    def find(self, batches: list[int], units: UInt64Array) -> IntArray:
        """Find the columns of draws; collective.

        Row j of `units` (batches, draws) has the draws of batch `batches[j]`, integers below its total. Each is one
        unit of the distribution; the column that it belongs to is returned in its place.
        """

    @abstractmethod
    def exclude(self, batches: list[int], chosen: list[Counts]) -> None:
        """Exclude all columns that these batches have chosen from their distributions; collective.

        Called where there are such batches on any rank.
        """


def draw_in_rounds(
    distributions: BatchDistributions, draw: Draw, dtype: np.dtype[np.signedinteger], known: list[Counts] | None = None
) -> ColumnSample:
    """Draw columns for every batch, in the same few exchanges.

    Parameters
    ----------
    distributions : BatchDistributions
    draw : Draw
        Size, replacement and the counter's key and hop.
    dtype : dtype
        Of the columns.
    known : list of dict, optional
        Whole supports, of the batches for which they are known and not larger than the size; these draw nothing.

    Raises
    ------
    CapacityError
        Before a round that would pass the last draw number.
    """
    initial = distributions.totals.copy()
    draws = _Draws(distributions, draw, initial)
    if draw.replace:
        return stacked(draws.repeated(), initial, np.zeros(len(initial), np.bool_), dtype)
    return stacked(*draws.first_distinct(known or [{} for _ in initial]), dtype)


class _Draws:
    """The draws of all batches; `initial` are their totals before any redraw."""

    def __init__(self, distributions: BatchDistributions, draw: Draw, initial: UInt64Array) -> None:
        self.distributions = distributions
        self.draw = draw
        self.initial = initial
        self.wide = initial > NARROW_LIMIT

    def repeated(self) -> list[Counts]:
        """Draws 0 .. s - 1 of every batch with a total."""
        chosen: list[Counts] = [{} for _ in self.initial]
        for i, columns in self._columns(np.flatnonzero(self.initial).tolist(), 0, self.draw.size):
            chosen[i] = Counter(columns)
        return chosen

    def first_distinct(self, chosen: list[Counts]) -> tuple[list[Counts], UInt64Array, NDArray[np.bool_]]:
        """The first s distinct columns of every batch, the totals, and whether a support was taken whole.

        After each round a batch that has too few columns, or just enough and a `margin` of 1, excludes those that it
        has chosen. Where nothing is left then, its support was taken whole.
        """
        P, size, first = self.distributions, self.draw.size, 0
        limits = np.where(self.wide, WIDE_DRAWS, NARROW_DRAWS)
        whole = np.array([bool(columns) for columns in chosen], np.bool_) | (P.totals == 0)
        while True:
            pending = self._pending(chosen, whole)
            if pending and first + ROUND_DRAWS * size > limits[pending].min():
                raise draw_limit_error()
            if not self._draw_round(chosen, whole, first):
                break
            first += ROUND_DRAWS * size
            unsure = self._unsure(pending, chosen)
            P.exclude(unsure, chosen)
            whole[unsure] = P.totals[unsure] == 0
            if not any(P.any_reduce(bool(self._pending(chosen, whole)))):
                break
        return [dict(islice(columns.items(), size)) for columns in chosen], self.initial, whole

    def _pending(self, chosen: list[Counts], whole: NDArray[np.bool_]) -> list[int]:
        """Return the batches that have fewer columns than they should."""
        return [i for i, columns in enumerate(chosen) if len(columns) < self.draw.size and not whole[i]]

    def _unsure(self, drawing: list[int], chosen: list[Counts]) -> list[int]:
        """Return the batches of a round which may have nothing more to draw."""
        return [i for i in drawing if len(chosen[i]) < self.draw.size + self.distributions.margin]

    def _draw_round(self, chosen: list[Counts], whole: NDArray[np.bool_], first: int) -> bool:
        """`ROUND_DRAWS` s draws of every batch that needs some, in pieces: most often one is enough.

        Returns whether a batch is unsure afterwards, on any rank.
        """
        size, end = self.draw.size, first + ROUND_DRAWS * self.draw.size
        piece = int(piece_of_draws(size))
        drawing = pending = self._pending(chosen, whole)
        some_unsure = False
        for begin in range(first, end, piece):
            for i, columns in self._columns(pending, begin, min(piece, end - begin)):
                fresh = dict.fromkeys([*chosen[i], *columns], 1)
                chosen[i] = dict(islice(fresh.items(), size + self.distributions.margin))
            pending = self._pending(chosen, whole)
            unsure = self._unsure(drawing, chosen)
            some_pending, some_unsure = self.distributions.any_reduce(bool(pending), bool(unsure))
            if not some_pending:
                break
        return some_unsure

    def _columns(self, batches: list[int], first: int, count: int) -> zip[tuple[int, list[int]]]:
        """Columns of the draws first .. first + count - 1 of these batches."""
        columns = self.distributions.find(batches, self._units(batches, first, count))
        return zip(batches, columns.tolist(), strict=True)

    def _units(self, batches: list[int], first: int, count: int) -> UInt64Array:
        """(batches, count) draws of these batches, below their totals."""
        P = self.distributions
        ids, totals, wide = (array[batches] for array in (P.batch_ids, P.totals, self.wide))
        x = [np.zeros(0, np.uint64)]
        for some in (slice(i, i + AT_A_TIME) for i in range(0, len(batches), AT_A_TIME)):
            numbers = np.tile(np.arange(first, first + count), len(ids[some]))
            stream = Stream(self.draw.key, 0, self.draw.hop, np.repeat(ids[some], count))
            x.append(stream.integers(numbers, np.repeat(totals[some], count), np.repeat(wide[some], count)))
        return np.concatenate(x).reshape(len(batches), count)


def piece_of_draws(size: int, spare: float = SPARE_DRAWS) -> float:
    """Draws that are sent off together: a little more than the number of columns wanted, which most often is enough.

    Examples
    --------
    >>> piece_of_draws(400)
    466
    """
    return size + size // 8 + spare


def stacked(
    chosen: list[Counts], totals: UInt64Array, whole: NDArray[np.bool_], dtype: np.dtype[np.signedinteger]
) -> ColumnSample:
    """The batches' columns as one sample; those of supports that were taken whole ascend.

    Examples
    --------
    >>> sample = stacked([{7: 1, 2: 3}, {}], np.array([9, 0], np.uint64), np.array([False, True]), np.dtype(np.int32))
    >>> sample.columns.tolist(), sample.counts.tolist(), sample.indptr.tolist()
    ([7, 2], [1, 3], [0, 2, 2])
    """
    ordered = [sorted(columns) if w else list(columns) for columns, w in zip(chosen, whole, strict=True)]
    return ColumnSample(
        np.concatenate([[0], np.cumsum([len(columns) for columns in ordered])]).astype(np.int64),
        np.array([v for columns in ordered for v in columns], dtype),
        np.array([counts[v] for counts, columns in zip(chosen, ordered, strict=True) for v in columns], np.int64),
        totals,
        whole,
    )


def draw_entries_in_rounds(F: Frontier, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
    """Draw columns by the entry law where rows lie on other ranks: bit for bit what a fused kernel returns.

    Parameters
    ----------
    F : Frontier
        Gives entry counts of rows, and columns by position.
    numerators : uint64 array (m,) or None
        q of each selected row; None for 1.
    draw : Draw
        Size, replacement and the counter's key and hop.
    """
    entries = _FrontierEntries(F, numerators)
    known = None if draw.replace else entries.small_supports(draw.size)
    return draw_in_rounds(entries, draw, F.A.index_dtype, known)


class _FrontierEntries(BatchDistributions):
    """The entries of all frontiers' rows, each q units long."""

    margin = 1

    def __init__(self, F: Frontier, numerators: UInt64Array | None) -> None:
        self.F = F
        self.batch_ids = F.Q.batch_ids
        self._q = np.ones(len(F.Q.vertices), np.uint64) if numerators is None else numerators
        self._rows = self._row_totals(F.row_statistics.counts)
        self._excluded: ColumnSample | None = None
        self.totals = np.array([rows.sum(dtype=np.uint64) for rows in self._rows], np.uint64)

    def any_reduce(self, *here: bool) -> list[bool]:
        return self.F.A.any_reduce(*here)

    def small_supports(self, size: int) -> list[Counts]:
        """Every column of the batches that have at most `size` entries; nothing of the others."""
        Q, counts = self.F.Q, np.where(self._q > 0, self.F.row_statistics.counts, 0)
        batch = np.repeat(np.arange(len(Q.batch_ids)), np.diff(Q.batch_ptr))
        small = np.bincount(batch, counts, len(Q.batch_ids)) <= size
        chosen: list[Counts] = [{} for _ in Q.batch_ids]
        if not any(self.any_reduce(bool(small.any()))):
            return chosen
        taken = np.where(small[batch], counts, 0)
        rows = np.repeat(np.arange(len(taken)), taken)
        offsets = np.arange(len(rows)) - np.repeat(np.cumsum(taken) - taken, taken)
        for i, column in zip(batch[rows].tolist(), self.F.locate(rows, offsets).tolist(), strict=True):
            chosen[i][column] = 1
        return chosen

    def find(self, batches: list[int], units: UInt64Array) -> IntArray:
        """Find the row of each unit by prefix sums of the rows' totals, and there the entry by position."""
        rows, offsets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for i, x in zip(batches, units, strict=True):
            sums = np.cumsum(self._rows[i], dtype=np.uint64)
            row = np.searchsorted(sums, x, side="right")
            rows.append((row + self.F.Q.batch_ptr[i]).astype(np.int64))
            offsets.append(((x - (sums - self._rows[i])[row]) // self._q[rows[-1]]).astype(np.int64))
        columns = self.F.locate(np.concatenate(rows), np.concatenate(offsets), self._excluded)
        return columns.reshape(units.shape)

    def exclude(self, batches: list[int], chosen: list[Counts]) -> None:
        """Ask for the rows' entry counts again, without these columns."""
        k, here = len(chosen), set(batches)
        columns = [columns if i in here else {} for i, columns in enumerate(chosen)]  # others are done
        none = np.zeros(k, np.bool_)
        self._excluded = stacked(columns, self.totals, none, self.F.A.index_dtype)
        self._rows = self._row_totals(self.F.entry_counts(self._excluded))
        for i in batches:
            self.totals[i] = self._rows[i].sum(dtype=np.uint64)

    def _row_totals(self, counts: Int64Array) -> list[UInt64Array]:
        """Totals of each batch's rows."""
        totals, ptr = self._q * counts.astype(np.uint64), self.F.Q.batch_ptr
        return [totals[lo:hi] for lo, hi in pairwise(ptr)]
