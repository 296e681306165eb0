"""FastGCN's distribution in ranges of columns over the ranks of a column group: totals everywhere, draws routed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spsample.backends import ColumnSample, Draw, QuantisationRule, StackedSelector
from spsample.backends.on_host import pointers_of
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.comm import Channel, Sent
from spsample.distributed.placement import equal_bounds
from spsample.distributed.rounds import BatchDistributions, Counts, draw_in_rounds
from spsample.distributed.wire_format import pack, unpack
from spsample.sparse import LocalOperand
from spsample.sparse.probability import graph_rule

PHASE = "columns"

ENTRIES_AT_A_TIME = 1 << 23
"""Entries of a block row that are added up at a time."""


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
    channel : Channel
        Over the column group.
    total : int
        T, the sum of all numerators.
    support : int
        Number of columns with a numerator above 0.
    """

    def __init__(self, channel: Channel, block: LocalOperand, num_edges: int) -> None:
        self.channel = channel
        ranks, n = channel.group.size, block.num_nodes
        self._dtype = block.index_dtype
        self._bounds = equal_bounds(n, ranks)
        self._first = int(self._bounds[channel.group.rank])
        exponent = channel.reduce_max(block.kept.largest_exponent())
        totals = column_sums(channel, block, graph_rule(block.weighting, num_edges, exponent), self._bounds, PHASE)
        self._ends: UInt64Array = np.zeros(len(totals) + 1, np.uint64)
        np.cumsum(totals, dtype=np.uint64, out=self._ends[1:])
        facts = np.array([int(self._ends[-1]), np.count_nonzero(totals)], np.int64)
        sums, supports = channel.gather([facts], phase=PHASE)[0].rows.reshape(ranks, 2).T
        self._range_ends: Int64Array = np.cumsum(sums)
        self.total = int(self._range_ends[-1])
        self.support = int(supports.sum())

    def draw(self, batch_ids: Int64Array, draw: Draw) -> ColumnSample:
        """Column law of every batch, as `Backend.draw_shared` draws."""
        if draw.replace or self.support > draw.size:
            return draw_in_rounds(_RangeDraws(self, batch_ids), draw, self._dtype)
        own = np.flatnonzero(np.diff(self._ends)).astype(np.int64) + self._first
        k, columns = len(batch_ids), self.channel.gather([own], phase=PHASE)[0].rows.astype(self._dtype)
        return ColumnSample(
            np.arange(k + 1, dtype=np.int64) * len(columns),
            np.tile(columns, k),
            np.ones(k * len(columns), np.int64),
            np.full(k, self.total, np.uint64),
            np.ones(k, np.bool_),
        )

    def numerators(self, columns: IntArray) -> UInt64Array:
        """N of any columns, from the ranks that have them."""
        order, counts = self._routed(columns.astype(np.int64), self._bounds[1:])
        (asked,) = self.channel.exchange([Sent(columns[order], counts)], phase=f"{PHASE} requests")
        local = asked.rows - self._first
        values = self._ends[1:][local] - self._ends[:-1][local]
        (answer,) = self.channel.exchange([pack(values, asked.counts)], phase=PHASE)
        result = np.empty(len(columns), np.uint64)
        result[order] = unpack(answer, counts).view(np.uint64)
        return result

    def find(self, units: Int64Array) -> Found:
        """Find the columns that hold these units; each request goes to the rank of its range."""
        order, counts = self._routed(units, self._range_ends)
        base = self._range_ends - np.diff(self._range_ends, prepend=0)
        local = units[order] - np.repeat(base, counts)
        sends = [pack(local, counts), Sent(counts, np.ones(len(counts), np.int64))]
        asked, sizes = self.channel.exchange(sends, phase=f"{PHASE} requests")
        where = np.searchsorted(self._ends[1:], unpack(asked, sizes.rows).view(np.uint64), side="right")
        starts, ends = self._ends[:-1][where], self._ends[1:][where]
        answers = [Sent(where + self._first, sizes.rows)]
        answers += [pack(starts, sizes.rows), pack(ends - starts, sizes.rows)]
        columns, begins, numerators = self.channel.exchange(answers, phase=PHASE)
        routed = Found(columns.rows, unpack(begins, counts) + np.repeat(base, counts), unpack(numerators, counts))
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return Found(*(array[back] for array in routed))

    def _routed(self, values: Int64Array, ends: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the order by the rank below whose end each value is, and the number of values of each rank."""
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
        columns, numerators = channel.exchange([Sent(part.columns, counts), pack(part.numerators, counts)], phase=phase)
        np.add.at(totals, columns.rows - first, unpack(numerators, columns.counts).view(np.uint64))
    return totals


class _RangeDraws(BatchDistributions):
    """The one distribution, of which each of k batches excludes intervals: those of the columns it has chosen."""

    margin = 0

    def __init__(self, ranges: ColumnRanges, batch_ids: Int64Array) -> None:
        self._ranges = ranges
        self.batch_ids = batch_ids
        self.totals = np.full(len(batch_ids), ranges.total, np.uint64)
        self._found: list[list[Found]] = [[] for _ in batch_ids]
        nothing = np.zeros(0, np.int64), np.zeros(1, np.int64)
        # Where excluded intervals begin once those before them are gone, and the running sum of their lengths, from 0:
        self._excluded = [nothing for _ in batch_ids]

    def any_reduce(self, *here: bool) -> list[bool]:
        return self._ranges.channel.any_reduce(*here)

    def find(self, batches: list[int], units: UInt64Array) -> IntArray:
        """Find the columns of units, which are counted without the excluded intervals."""
        x = units.astype(np.int64)
        for row, i in enumerate(batches):
            begins, lengths = self._excluded[i]
            x[row] += lengths[np.searchsorted(begins, x[row], side="right")]
        drawn = self._ranges.find(x.ravel())
        for row, i in enumerate(batches):
            part = slice(row * x.shape[1], (row + 1) * x.shape[1])
            self._found[i].append(Found(*(array[part] for array in drawn)))
        return drawn.columns.reshape(x.shape)

    def exclude(self, batches: list[int], chosen: list[Counts]) -> None:
        """Exclude all columns found so far: a batch that has not enough columns has chosen all of them."""
        for i in batches:
            _, starts, numerators = (np.concatenate(arrays) for arrays in zip(*self._found[i], strict=True))
            begins, first = np.unique(starts, return_index=True)
            lengths = pointers_of(numerators[first])
            self._excluded[i] = begins - lengths[:-1], lengths
            self.totals[i] = self._ranges.total - int(lengths[-1])


def _row_cuts(indptr: Int64Array) -> list[int]:
    """Cut a block into pieces of about `ENTRIES_AT_A_TIME` entries, or of one row."""
    cuts = [0]
    while cuts[-1] < len(indptr) - 1:
        end = int(np.searchsorted(indptr, indptr[cuts[-1]] + ENTRIES_AT_A_TIME, side="right")) - 1
        cuts.append(max(end, cuts[-1] + 1))
    return cuts
