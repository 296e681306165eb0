"""The entry law composed of `row_totals` and `locate`: the way it runs where rows lie on other ranks."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.backends import ColumnSample, Draw, StackedSelector
from spsample.backends.arithmetic import draw_limit_error
from spsample.backends.protocol import Int64Array, UInt64Array
from spsample.backends.reference.random import NARROW_DRAWS, NARROW_LIMIT, WIDE_DRAWS, Stream
from spsample.sparse.operand import GraphOperand

AT_A_TIME = 32
"""Batches that draw together: their arrays stay in the cache."""

Counts = list[dict[int, int]]
"""Per batch: each column drawn so far, in the order first drawn, and how often."""


def draw_entries(A: GraphOperand, Q: StackedSelector, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
    """Draw columns by the entry law from the frontiers Q, every batch in the same few exchanges.

    Parameters
    ----------
    numerators : uint64 array (m,) or None
        q of each selected row; None for 1.
    draw : Draw
        Size, replacement and the counter's key and hop.

    Returns
    -------
    ColumnSample
        Bit for bit what a backend's fused `draw_entries` returns.
    """
    q = np.ones(len(Q.vertices), np.uint64) if numerators is None else numerators
    counts = A.row_totals(Q).counts
    totals = _per_batch(q * counts.astype(np.uint64), Q)
    frontiers = _Frontiers(A, Q, q, draw, np.array([t.sum(dtype=np.uint64) for t in totals], np.uint64))
    if draw.replace:
        chosen = _with_repeats(frontiers, totals)
        return _stack(chosen, frontiers, np.zeros(len(totals), np.bool_))
    chosen = _small_supports(frontiers, np.where(q > 0, counts, 0))
    totals = [t[:0] if c else t for t, c in zip(totals, chosen, strict=True)]
    return _stack(*_first_distinct(frontiers, totals, chosen))


class _Frontiers(NamedTuple):
    """The frontiers of all batches, q of their rows, how to draw from them, and their totals before any redraw."""

    A: GraphOperand
    Q: StackedSelector
    q: UInt64Array
    draw: Draw
    initial: UInt64Array

    def totals(self, exclude: ColumnSample) -> list[UInt64Array]:
        """Row totals of each batch without its excluded columns."""
        return _per_batch(self.q * self.A.row_totals(self.Q, exclude).counts.astype(np.uint64), self.Q)

    def columns(
        self, totals: list[UInt64Array], first: int, count: int, exclude: ColumnSample | None
    ) -> dict[int, list[int]]:
        """Columns of the draws first .. first + count - 1 of every batch with a total; one `locate` for all."""
        rows, offsets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        batches = [i for i, row_totals in enumerate(totals) if row_totals.any()]
        cumulative = [np.cumsum(totals[i], dtype=np.uint64) for i in batches]
        units = self._units(batches, np.array([sums[-1] for sums in cumulative], np.uint64), first, count)
        for i, sums, x in zip(batches, cumulative, units, strict=True):
            row = np.searchsorted(sums, x, side="right")
            rows.append((row + self.Q.batch_ptr[i]).astype(np.int64))
            offsets.append(((x - (sums - totals[i])[row]) // self.q[rows[-1]]).astype(np.int64))
        columns = self.A.locate(self.Q, np.concatenate(rows), np.concatenate(offsets), exclude)
        return {i: columns[r * count : (r + 1) * count].tolist() for r, i in enumerate(batches)}

    def _units(self, batches: list[int], totals: UInt64Array, first: int, count: int) -> UInt64Array:
        """(batches, count) draws first .. first + count - 1 of these batches, below their totals."""
        ids, wide = self.Q.batch_ids[batches], self.initial[batches] > NARROW_LIMIT
        x = [np.zeros(0, np.uint64)]
        for some in (slice(i, i + AT_A_TIME) for i in range(0, len(batches), AT_A_TIME)):
            numbers = np.tile(np.arange(first, first + count), len(ids[some]))
            stream = Stream(self.draw.key, 0, self.draw.hop, np.repeat(ids[some], count))
            x.append(stream.integers(numbers, np.repeat(totals[some], count), np.repeat(wide[some], count)))
        return np.concatenate(x).reshape(len(batches), count)


def _with_repeats(frontiers: _Frontiers, totals: list[UInt64Array]) -> Counts:
    """Draws 0 .. s - 1 of every batch."""
    chosen: Counts = [{} for _ in totals]
    for i, columns in frontiers.columns(totals, 0, frontiers.draw.size, None).items():
        for column in columns:
            chosen[i][column] = chosen[i].get(column, 0) + 1
    return chosen


def _small_supports(frontiers: _Frontiers, counts: Int64Array) -> Counts:
    """Every column of the batches that have at most s entries, which need no draw; nothing of the others."""
    Q = frontiers.Q
    batch = np.repeat(np.arange(len(Q.batch_ids)), np.diff(Q.batch_ptr))
    small = np.bincount(batch, counts, len(Q.batch_ids)) <= frontiers.draw.size
    if not frontiers.A.any_rank(bool(small.any())):
        return [{} for _ in Q.batch_ids]
    taken = np.where(small[batch], counts, 0)
    rows = np.repeat(np.arange(len(taken)), taken)
    offsets = np.arange(len(rows)) - np.repeat(np.cumsum(taken) - taken, taken)
    chosen: Counts = [{} for _ in Q.batch_ids]
    for i, column in zip(batch[rows].tolist(), frontiers.A.locate(Q, rows, offsets).tolist(), strict=True):
        chosen[i][column] = 1
    return chosen


def _first_distinct(
    frontiers: _Frontiers, totals: list[UInt64Array], chosen: Counts
) -> tuple[Counts, _Frontiers, NDArray[np.bool_]]:
    """The first s distinct columns of every batch with a total, and whether nothing else is left in it.

    A batch that draws one column more than it needs has something left; the others' totals are asked for again,
    without the columns that they have.
    CapacityError before a round that would pass the last draw number.
    """
    size, first, exclude = frontiers.draw.size, 0, None
    limits = np.where(frontiers.initial > NARROW_LIMIT, WIDE_DRAWS, NARROW_DRAWS)
    whole = np.array([not t.any() for t in totals], np.bool_)
    while True:
        pending = [i for i, t in enumerate(totals) if len(chosen[i]) < size and t.any()]
        if not frontiers.A.any_rank(bool(pending)):
            break
        if pending and first + 4 * size > limits[pending].min():
            raise draw_limit_error()
        _draw_round(frontiers, totals, chosen, (first, exclude))
        first += 4 * size
        unsure = {i for i in pending if len(chosen[i]) <= size}
        if frontiers.A.any_rank(bool(unsure)):
            drawing = [c if i in unsure else {} for i, c in enumerate(_cut(chosen, size))]  # the others are done
            exclude = _stack(drawing, frontiers, np.zeros(len(totals), np.bool_))
            totals = [t if i in unsure else t[:0] for i, t in enumerate(frontiers.totals(exclude))]
            for i in unsure:
                whole[i] = not totals[i].any()
    return _cut(chosen, size), frontiers, whole


def _draw_round(
    frontiers: _Frontiers, totals: list[UInt64Array], chosen: Counts, begin: tuple[int, ColumnSample | None]
) -> None:
    """4s draws of every batch that needs some, in pieces of a little more than s: most often the first one is enough.

    A batch keeps up to s + 1 distinct columns. `begin` is the round's first draw number and what it excludes.
    """
    size, (first, exclude) = frontiers.draw.size, begin
    piece = size + size // 8 + 16
    short = [len(c) < size for c in chosen]
    for start in range(first, first + 4 * size, piece):
        wanted = [t if s and len(c) < size else t[:0] for t, c, s in zip(totals, chosen, short, strict=True)]
        if start > first and not frontiers.A.any_rank(any(t.any() for t in wanted)):
            break
        count = min(piece, first + 4 * size - start)
        for i, columns in frontiers.columns(wanted, start, count, exclude).items():
            fresh = dict.fromkeys([*chosen[i], *columns], 1)
            chosen[i] = dict(islice(fresh.items(), size + 1))


def _cut(chosen: Counts, size: int) -> Counts:
    """The first `size` columns of each batch."""
    return [dict(islice(c.items(), size)) for c in chosen]


def _per_batch(values: UInt64Array, Q: StackedSelector) -> list[UInt64Array]:
    return [values[lo:hi] for lo, hi in zip(Q.batch_ptr[:-1], Q.batch_ptr[1:], strict=True)]


def _stack(chosen: Counts, frontiers: _Frontiers, whole: NDArray[np.bool_]) -> ColumnSample:
    """Stacked; the columns of batches taken whole ascend."""
    ordered = [sorted(c) if w else list(c) for c, w in zip(chosen, whole, strict=True)]
    return ColumnSample(
        np.concatenate([[0], np.cumsum([len(c) for c in ordered])]).astype(np.int64),
        np.array([v for c in ordered for v in c], frontiers.A.index_dtype),
        np.array([c[v] for c, o in zip(chosen, ordered, strict=True) for v in o], np.int64),
        frontiers.initial,
        whole,
    )
