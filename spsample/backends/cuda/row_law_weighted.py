"""The weighted row law."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from spsample.backends.arithmetic import draw_limit_error
from spsample.backends.cuda.device import WARP, Device, DeviceArray, Kernel
from spsample.backends.cuda.launcher import variant_of
from spsample.backends.cuda.row_law_weighted_sums import (
    LONG_BLOCK,
    LONG_ROW,
    RowSums,
    RowSumsKernels,
    long_blocks,
    long_list,
)
from spsample.backends.protocol import Draw, Matrix, StackedRows, StackedSelector
from spsample.backends.reference.random import ROUND_DRAWS

PLAN = Kernel("row_law_weighted_plan", "plan_weighted", lanes=WARP)
PLAN_LONG = Kernel("row_law_weighted_plan", "plan_weighted_long", LONG_BLOCK, LONG_BLOCK)
SUMMED = Kernel("row_law_weighted_summed", "draw_summed", lanes=WARP)
FEW = Kernel("row_law_weighted_few", "draw_few", lanes=WARP)
FEW_LONG = Kernel("row_law_weighted_few_long", "draw_few_long", LONG_BLOCK, LONG_BLOCK)
MANY = Kernel("row_law_weighted_many", "draw_many", lanes=WARP)
MANY_LONG = Kernel("row_law_weighted_many_long", "draw_many_long", LONG_BLOCK, LONG_BLOCK)

SCRATCH_BYTES = 256 << 20
"""At most, for the sets of entries chosen so far from the rows that are drawn from at a time, or that of one row."""


class Plans(NamedTuple):
    """Findings of the first pass: per stacked row how many entries it gives, and how it is drawn from."""

    lengths: DeviceArray
    plans: DeviceArray


class WeightedRowLawKernels(RowSumsKernels):
    """`sample_rows_weighted`."""

    def sample_rows_weighted(
        self,
        A: Matrix,
        Q: StackedSelector,
        draw: Draw,
        positions: bool,
        weights: bool = False,
        rules: RowSums | DeviceArray | None = None,
    ) -> StackedRows:
        """Row law, weighted: the drawn entries of each selected row.

        Waits once, and twice where draw numbers could run out. In `rules` stands the exponent K of
        each row that was met: twice K, and 1 more where the row has weights of 0. With `RowSums` few
        draws from a row read some of its weights only.
        """
        sums, rules = (rules, rules.rules) if isinstance(rules, RowSums) else (None, rules)
        if rules is not None and (rules.dtype != np.int16 or len(rules) != len(A.indptr) - 1):
            raise ValueError("rules: one int16 for each row of A")
        sums = sums if is_few(draw) else None
        kernels = draw_kernels(draw) if sums is None else (SUMMED,)
        self.device.prepare([PLAN, PLAN_LONG, *kernels], variant_of(A))
        plans = self._plan_weighted(A, Q, draw, rules)
        pointers = self.stacked(Q.batch_ptr, plans.lengths)
        columns = self.device.empty(pointers.total, A.indices.dtype)
        where = self.device.empty(pointers.total, np.int64) if positions else None
        drawn = self.device.empty(pointers.total, A.data.dtype) if weights else None  # type: ignore[union-attr]
        out = (pointers.ends, plans.plans, columns, where, drawn)
        if sums is None:
            self._draw_weighted(A, Q, draw, out)
        else:
            self._draw_summed(A, Q, draw, sums, out)
        return StackedRows(Q.batch_ptr, pointers.entry_ptr, pointers.indptr, columns, where, drawn)

    def _plan_weighted(self, A: Matrix, Q: StackedSelector, draw: Draw, rules: DeviceArray | None) -> Plans:
        rows = len(Q.vertices)
        plans = Plans(self.device.empty(rows, np.int64), self.device.empty(rows, np.int16))
        long_rows = long_list(self.device, rows)
        arguments = (*self.matrix(A), *self.weights(A), *self.selector(Q), draw.size, draw.replace, rules, *plans)
        per_warp = rows_per_warp(self.device, rows)
        self.run(PLAN, -(-rows // per_warp), *arguments, per_warp, *long_rows, variant=variant_of(A))
        self.run(PLAN_LONG, long_blocks(self.device, rows), *arguments, *long_rows, variant=variant_of(A))
        return plans

    def _draw_summed(self, A: Matrix, Q: StackedSelector, draw: Draw, sums: RowSums, out: tuple[Any, ...]) -> None:
        rows, width = len(Q.vertices), lanes_a_row(draw)
        at_once = WARP // width
        per_warp = max(rows_per_warp(self.device, rows) // at_once, 1) * at_once
        arguments = (*self.matrix(A), *self.weights(A), *self.selector(Q), *self.draw(draw), width, per_warp)
        given = (self.reading_order(A, Q), sums.totals, sums.sums)
        self.run(SUMMED, -(-rows // per_warp), *arguments, *given, *out, variant=variant_of(A))

    def _draw_weighted(self, A: Matrix, Q: StackedSelector, draw: Draw, out: tuple[Any, ...]) -> None:
        rows = len(Q.vertices)
        failed = self.device.zeros(1, np.uint64)
        results = (*out, *long_list(self.device, rows), failed)
        arguments = (*self.matrix(A), *self.weights(A), *self.selector(Q), *self.draw(draw), *results)
        per_warp = rows_per_warp(self.device, rows)
        warps, blocks = -(-rows // per_warp), long_blocks(self.device, rows)
        short_rows, long_rows = draw_kernels(draw)
        room: tuple[Any, ...] = ()
        if short_rows is MANY:
            scratch, warps, blocks = chosen_room(self.device, draw.size, warps, blocks)
            room = (scratch, scratch.shape[1])
        self.run(short_rows, warps, *arguments, per_warp, *room, variant=variant_of(A))
        self.run(long_rows, blocks, *arguments, *room, variant=variant_of(A))
        if may_run_out(draw) and int(self.device.to_host(failed)[0]):
            raise draw_limit_error()


def is_few(draw: Draw) -> bool:
    """Return whether a draw needs no memory for the entries chosen from a row."""
    return draw.replace or draw.size <= WARP


def draw_kernels(draw: Draw) -> tuple[Kernel, ...]:
    """The kernels of a draw's second pass without sums: that of rows of a warp, and that of long rows."""
    return (FEW, FEW_LONG) if is_few(draw) else (MANY, MANY_LONG)


def lanes_a_row(draw: Draw) -> int:
    """Lanes that draw from a row by sums: one for each entry, one for a repeat, and as many more as a warp has.

    Examples
    --------
    >>> [lanes_a_row(Draw((0, 0), 0, size)) for size in (1, 2, 5, 10, 15, 20, 32)]
    [1, 3, 6, 16, 16, 32, 32]
    >>> [lanes_a_row(Draw((0, 0), 0, size, True)) for size in (5, 10, 1000)]
    [5, 10, 32]
    """
    spare = 0 if draw.replace or draw.size == 1 else 1
    return WARP // (WARP // min(draw.size + spare, WARP))


def may_run_out(draw: Draw) -> bool:
    """Return whether draw numbers can run out: at most `size` rounds of `4 size` draws, as each finds a new entry.

    Examples
    --------
    >>> may_run_out(Draw((0, 0), 0, 1 << 15)), may_run_out(Draw((0, 0), 0, 1 << 20))
    (False, True)
    """
    return not draw.replace and ROUND_DRAWS * draw.size * draw.size > 1 << 33


def rows_per_warp(device: Device, rows: int) -> int:
    """Rows of a warp: all warps have some, and each at most one a lane."""
    return min(max(rows // device.resident_warps(), 1), WARP)


def chosen_room(device: Device, size: int, warps: int, blocks: int) -> tuple[DeviceArray, int, int]:
    """Room for the set of chosen entries, for each warp or block of a grid; how many warps and blocks there are then.

    Warps come in whole blocks. They draw from no row of more than `LONG_ROW` entries, so that they need no room where
    `size` is not below that.
    """
    capacity = 2 << (size - 1).bit_length()
    fitting = max(SCRATCH_BYTES // (8 * capacity), 1)
    blocks = min(blocks, fitting)
    if size >= LONG_ROW:
        return device.empty((blocks, capacity), np.int64), warps, blocks
    per_block = MANY.block // WARP
    warps = max(-(-min(warps, fitting, device.resident_warps()) // per_block), 1) * per_block
    return device.empty((max(warps, blocks), capacity), np.int64), warps, blocks
