"""FastGCN's distribution in ranges of columns over the ranks of a column group: totals everywhere, draws routed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spsample.backends import ColumnSample, Draw, QuantisationRule, StackedSelector
from spsample.backends.arithmetic import draw_limit_error
from spsample.backends.protocol import NO_EXPONENT, Int64Array, IntArray, UInt64Array
from spsample.backends.reference.random import NARROW_DRAWS, NARROW_LIMIT, WIDE_DRAWS, Stream
from spsample.comm import Channel, Sent
from spsample.distributed.wire_format import narrow, widen
from spsample.sampling.seeds import pointers_of
from spsample.sparse import LocalOperand
from spsample.sparse.operand import FrontierTotals
from spsample.sparse.probability import frontier_rule

PHASE = "columns"

ENTRIES_AT_A_TIME = 1 << 23
"""Of a block row, while columns are added up."""


class Found(NamedTuple):
    """Columns that hold units of the distribution: their ids, their first units and their numerators."""

    columns: Int64Array
    starts: Int64Array
    numerators: Int64Array


class ColumnRanges:
    """Squared column norms of A under the graph rule, each rank of the column group with a range of n / (p/c) columns.

    Making one is collective. No rank ever has n numbers.

    Attributes
    ----------
    total : int
        T, the sum of all numerators.
    support : int
        How many columns have a numerator above 0.
    """

    def __init__(self, channel: Channel, block: LocalOperand, num_edges: int) -> None:
        self._channel = channel
        ranks, n = channel.group.size, block.num_columns
        self._bounds: Int64Array = np.arange(ranks + 1, dtype=np.int64) * n // ranks
        self._first = int(self._bounds[channel.group.rank])
        totals = column_sums(channel, block, _graph_rule(channel, block, num_edges), self._bounds, PHASE)
        self._ends: UInt64Array = np.zeros(len(totals) + 1, np.uint64)
        np.cumsum(totals, dtype=np.uint64, out=self._ends[1:])
        facts = np.array([int(self._ends[-1]), np.count_nonzero(totals)], np.int64)
        sums, supports = channel.gather([facts], phase=PHASE)[0].rows.reshape(ranks, 2).T
        self._range_ends: Int64Array = np.cumsum(sums)
        self.total = int(self._range_ends[-1])
        self.support = int(supports.sum())

    def draw(self, batch_ids: Int64Array, draw: Draw) -> ColumnSample:
        """Column law of every batch, as `Backend.draw_shared` draws."""
        k, whole = len(batch_ids), not draw.replace and self.support <= draw.size
        if whole:
            columns = self._all_columns()
            drawn = [columns] * k
            counts = [np.ones(len(columns), np.int64)] * k
        elif draw.replace:
            draws = _Draws(self, batch_ids, draw)
            units = self._units(draws, np.arange(k), np.arange(draw.size), draws.taken_out())
            drawn, counts = _merged(self._find(units).columns, k)
        else:
            drawn = self._first_distinct(_Draws(self, batch_ids, draw))
            counts = [np.ones(len(columns), np.int64) for columns in drawn]
        return ColumnSample(
            pointers_of([len(columns) for columns in drawn]),
            np.concatenate([np.zeros(0, np.int64), *drawn]),
            np.concatenate([np.zeros(0, np.int64), *counts]),
            np.full(k, self.total, np.uint64),
            np.full(k, whole),
        )

    def numerators(self, columns: IntArray) -> UInt64Array:
        """N of any columns, from the ranks that have them."""
        order, counts = self._routed(columns.astype(np.int64), self._bounds[1:])
        (asked,) = self._channel.exchange([Sent(columns[order], counts)], phase=f"{PHASE} requests")
        local = asked.rows - self._first
        values = self._ends[1:][local] - self._ends[:-1][local]
        (answer,) = self._channel.exchange([narrow(values, asked.counts)], phase=PHASE)
        result = np.empty(len(columns), np.uint64)
        result[order] = widen(answer, counts).view(np.uint64)
        return result

    def _all_columns(self) -> Int64Array:
        """All columns that can be drawn, ascending."""
        own = np.flatnonzero(np.diff(self._ends)).astype(np.int64) + self._first
        return self._channel.gather([own], phase=PHASE)[0].rows

    def _first_distinct(self, draws: _Draws) -> list[Int64Array]:
        """The first s distinct columns of every batch, in rounds of 4 s draws, each made in pieces."""
        size, first = draws.draw.size, 0
        piece = size + size // 8 + 16
        last = WIDE_DRAWS if self.total > NARROW_LIMIT else NARROW_DRAWS
        while self._channel.reduce_max(int(draws.pending(size).any())):
            if first + 4 * size > last:
                raise draw_limit_error()
            taken = draws.taken_out()
            for begin in range(first, first + 4 * size, piece):
                pending = draws.pending(size)
                if begin > first and not self._channel.reduce_max(int(pending.any())):
                    break
                numbers = np.arange(begin, min(begin + piece, first + 4 * size))
                batches = np.flatnonzero(pending)
                draws.add(self._find(self._units(draws, batches, numbers, taken)), batches, len(numbers), size)
            first += 4 * size
        return draws.columns()

    def _units(
        self, draws: _Draws, batches: Int64Array, numbers: Int64Array, taken: list[tuple[Int64Array, Int64Array]]
    ) -> Int64Array:
        """(batches, draws) units of the distribution that the draws with these numbers fall on.

        `taken` are the intervals of each batch that were taken out: where they begin once those before them are gone,
        and the running sum of their lengths, from 0.
        """
        if self.total == 0 or len(batches) == 0:
            return np.zeros((len(batches), 0), np.int64)
        left = np.array([self.total - int(taken[i][1][-1]) for i in batches], np.uint64)
        stream = Stream(draws.draw.key, 0, draws.draw.hop, np.repeat(draws.batch_ids[batches], len(numbers)))
        j, totals = np.tile(numbers, len(batches)), np.repeat(left, len(numbers))
        x = stream.integers(j, totals, self.total > NARROW_LIMIT).astype(np.int64).reshape(len(batches), -1)
        for row, i in enumerate(batches):
            begins, lengths = taken[i]
            x[row] += lengths[np.searchsorted(begins, x[row], side="right")]
        return x

    def _find(self, units: Int64Array) -> Found:
        """The columns that hold these units; each question goes to the rank of its range."""
        units = units.ravel()
        order, counts = self._routed(units, self._range_ends)
        base = self._range_ends - np.diff(self._range_ends, prepend=0)
        local = units[order] - np.repeat(base, counts)
        sends = [narrow(local, counts), Sent(counts, np.ones(len(counts), np.int64))]
        asked, sizes = self._channel.exchange(sends, phase=f"{PHASE} requests")
        where = np.searchsorted(self._ends[1:], widen(asked, sizes.rows).view(np.uint64), side="right")
        starts, ends = self._ends[:-1][where], self._ends[1:][where]
        answers = [Sent(where + self._first, sizes.rows)]
        answers += [narrow(starts, sizes.rows), narrow(ends - starts, sizes.rows)]
        columns, begins, numerators = self._channel.exchange(answers, phase=PHASE)
        found = Found(columns.rows, widen(begins, counts) + np.repeat(base, counts), widen(numerators, counts))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return Found(*(array[back] for array in found))

    def _routed(self, values: Int64Array, ends: Int64Array) -> tuple[Int64Array, Int64Array]:
        """The order by the rank below whose end each value is, and how many each rank gets."""
        rank = np.searchsorted(ends, values, side="right")
        return np.argsort(rank, kind="stable"), np.bincount(rank, minlength=len(ends)).astype(np.int64)


def column_sums(
    channel: Channel, block: LocalOperand, rule: QuantisationRule, bounds: Int64Array, phase: str
) -> UInt64Array:
    """Sums by column over all block rows of the column group, for this rank's range of columns.

    Rank r has the columns `bounds[r]` to `bounds[r + 1] - 1`. Blocks are added up some rows at a time.
    """
    first, end = (int(bound) for bound in bounds[channel.group.rank : channel.group.rank + 2])
    totals = np.zeros(end - first, np.uint64)
    cuts = _row_cuts(block.matrix.indptr)
    for step in range(channel.reduce_max(len(cuts) - 1)):
        begin, stop = (cuts[step], cuts[step + 1]) if step + 1 < len(cuts) else (0, 0)
        rows = np.arange(begin, stop, dtype=block.matrix.indices.dtype)
        Q = StackedSelector(np.array([0, len(rows)], np.int64), rows, np.zeros(1, np.int64))
        part = block.backend.merge_columns(block.matrix, Q, rule)
        counts = np.diff(np.searchsorted(part.columns, bounds)).astype(np.int64)
        columns, numerators = channel.exchange(
            [Sent(part.columns, counts), narrow(part.numerators, counts)], phase=phase
        )
        np.add.at(totals, columns.rows - first, widen(numerators, columns.counts).view(np.uint64))
    return totals


class _Draws:
    """Draws of k batches, and what each has chosen: the columns in the order drawn, with their intervals."""

    def __init__(self, ranges: ColumnRanges, batch_ids: Int64Array, draw: Draw) -> None:
        self.batch_ids = batch_ids
        self.draw = draw
        self._support = ranges.support
        empty = np.zeros(0, np.int64)
        self._chosen = [Found(empty, empty, empty) for _ in batch_ids]

    def pending(self, size: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """(k,) which batches have fewer than they should."""
        return np.array([len(chosen.columns) < min(size, self._support) for chosen in self._chosen], np.bool_)

    def taken_out(self) -> list[tuple[Int64Array, Int64Array]]:
        """Of each batch, the intervals of what it has chosen, as `ColumnRanges._units` takes them."""
        intervals = []
        for chosen in self._chosen:
            order = np.argsort(chosen.starts)
            lengths = pointers_of(chosen.numerators[order])
            intervals.append((chosen.starts[order] - lengths[:-1], lengths))
        return intervals

    def add(self, found: Found, batches: Int64Array, count: int, size: int) -> None:
        """`count` more draws of each of these batches: new columns, up to `size` of each."""
        for r, i in enumerate(batches.tolist()):
            part = slice(r * count, (r + 1) * count)
            together = [np.concatenate([old, new[part]]) for old, new in zip(self._chosen[i], found, strict=True)]
            first = np.sort(np.unique(together[0], return_index=True)[1])[:size]
            self._chosen[i] = Found(*(array[first] for array in together))

    def columns(self) -> list[Int64Array]:
        """What each batch has chosen."""
        return [chosen.columns for chosen in self._chosen]


def _merged(columns: Int64Array, k: int) -> tuple[list[Int64Array], list[Int64Array]]:
    """Of each batch the distinct columns in the order first drawn, and how often each was."""
    drawn, counts = [], []
    for row in columns.reshape(k, len(columns) // max(k, 1)):  # no batch: no row
        distinct, first, times = np.unique(row, return_index=True, return_counts=True)
        order = np.argsort(first)
        drawn.append(distinct[order])
        counts.append(times[order].astype(np.int64))
    return drawn, counts


def _graph_rule(channel: Channel, block: LocalOperand, num_edges: int) -> QuantisationRule:
    """The graph rule, of the largest exponent of all blocks."""
    largest = NO_EXPONENT
    if block.weighting != "unweighted" and block.num_nodes:
        largest = int(block.row_exponents.max())
    largest = channel.reduce_max(largest)
    exponent = 0 if largest == NO_EXPONENT else largest
    return frontier_rule(block.weighting, FrontierTotals(np.array([num_edges]), np.array([exponent])), 2, 1)


def _row_cuts(indptr: Int64Array) -> list[int]:
    """Where to cut a block so that each piece has about `ENTRIES_AT_A_TIME` entries, or is one row."""
    cuts = [0]
    while cuts[-1] < len(indptr) - 1:
        end = int(np.searchsorted(indptr, indptr[cuts[-1]] + ENTRIES_AT_A_TIME, side="right")) - 1
        cuts.append(max(end, cuts[-1] + 1))
    return cuts


__all__ = ["ColumnRanges", "column_sums"]
