"""The uniform row law and whole rows."""

from __future__ import annotations

import numpy as np

from spsample.backends.cuda.compaction import CompactionKernels
from spsample.backends.cuda.device import WARP, DeviceArray, Kernel, chunk_kernel, chunks_of
from spsample.backends.cuda.launcher import StackedPointers, index_variant, num_columns
from spsample.backends.protocol import Compaction, Draw, Matrix, StackedRows, StackedSelector

TAKE = chunk_kernel("row_law", "take_rows")
NARROW = Kernel("row_law", "sample_uniform_narrow", lanes=WARP)
WIDE = Kernel("row_law", "sample_uniform_wide", lanes=32)
SCRATCH_BYTES = 256 << 20
"""At most, for the positions drawn so far of the rows that are drawn from at a time."""


class RowLawKernels(CompactionKernels):
    """`sample_rows_uniform`, `take_rows` and `take_rows_numbered`."""

    def sample_rows_uniform(self, A: Matrix, Q: StackedSelector, draw: Draw, positions: bool) -> StackedRows:
        """Row law, uniform: the drawn entries' columns (global ids) of each selected row."""
        pointers = self.stacked_at(Q.batch_ptr, self.row_ends(A, Q, draw.size, draw.replace))
        columns, where = self._room(A, pointers, positions)
        arguments = (*self.matrix(A), *self.selector(Q), *self.draw(draw))
        out = (self.reading_order(A, Q), pointers.ends, columns, where)
        if draw.size <= WARP:
            width = 1 << (draw.size - 1).bit_length()
            turn = rows_at_a_turn(len(Q.vertices), width, self.device.resident_warps())
            turns = -(-len(Q.vertices) // turn)
            self.run(NARROW, turns, *arguments, width, turn, *out, variant=index_variant(A.indices))
        else:
            scratch, warps = self._scratch(draw.size, len(Q.vertices))
            self.run(WIDE, warps, *arguments, scratch, scratch.shape[1], *out, variant=index_variant(A.indices))
        return StackedRows(Q.batch_ptr, pointers.entry_ptr, pointers.indptr, columns, where)

    def take_rows(self, A: Matrix, Q: StackedSelector, positions: bool) -> StackedRows:
        """Whole rows, all entries, in A's order (fanout -1)."""
        pointers = self.stacked_at(Q.batch_ptr, self.row_ends(A, Q, -1, False))
        columns, where = self._room(A, pointers, positions)
        arguments = (*self.matrix(A), *self.selector(Q), pointers.ends, columns, where)
        self.run(TAKE, chunks_of(pointers.total), *arguments, variant=index_variant(A.indices))
        return StackedRows(Q.batch_ptr, pointers.entry_ptr, pointers.indptr, columns, where)

    def take_rows_numbered(
        self, A: Matrix, Q: StackedSelector, known: StackedSelector, positions: bool, include_targets: bool
    ) -> tuple[StackedRows, Compaction]:
        """`take_rows` and `compact`."""
        rows = self.take_rows(A, Q, positions)
        return rows, self.compact(known, rows.entry_ptr, rows.columns, include_targets, num_columns(A))

    def _room(self, A: Matrix, pointers: StackedPointers, positions: bool) -> tuple[DeviceArray, DeviceArray | None]:
        where = self.device.empty(pointers.total, np.int64) if positions else None
        return self.device.empty(pointers.total, A.indices.dtype), where

    def _scratch(self, size: int, rows: int) -> tuple[DeviceArray, int]:
        """Room for the positions of a row, for each warp of the grid, and how many warps there are: whole blocks."""
        capacity = 2 << (size - 1).bit_length()
        fitting = max(SCRATCH_BYTES // (8 * capacity), 1)
        warps = min(rows, fitting, self.device.resident_warps())
        per_block = WIDE.block // WARP
        warps = max(-(-warps // per_block), 1) * per_block
        return self.device.empty((warps, capacity), np.int64), warps


def rows_at_a_turn(rows: int, width: int, warps: int) -> int:
    """Number of rows that a warp looks up at a time, where it draws with `width` lanes from each.

    A power of two: one for each lane, or fewer, so that there is work for all warps that the GPU holds.

    Examples
    --------
    >>> [rows_at_a_turn(rows, 8, 1000) for rows in (10, 9_000, 1_000_000)]
    [4, 8, 32]
    """
    share = max(rows // warps, 1)
    return min(max(1 << share.bit_length() >> 1, WARP // width), WARP)
