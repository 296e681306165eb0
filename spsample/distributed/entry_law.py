"""The entry law, composed of answers of the rows' owners: counts of entries, and columns by position."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from spsample.backends import ColumnSample, Draw
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.distributed.rounds import BatchDistributions, Counts, draw_in_rounds, stacked
from spsample.sparse.operand import Frontier


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


__all__ = ["draw_entries_in_rounds"]
