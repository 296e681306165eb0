"""The column law: distinct columns for each batch from prefix sums of integer probabilities."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spsample.backends.cuda.column_law_merged import Merged, MergedColumnKernels
from spsample.backends.cuda.device import BLOCK, Device, DeviceArray, Kernel
from spsample.backends.cuda.distinct_draws import DistinctDraws, Drawn, Names
from spsample.backends.cuda.launcher import index_variant
from spsample.backends.cuda.sources import Variant
from spsample.backends.protocol import (
    ColumnMatrix,
    ColumnSample,
    Draw,
    Int64Array,
    Matrix,
    QuantisationRule,
    StackedSelector,
)

DRAW = Kernel("column_law", "draw_positions", lanes=BLOCK)
SUPPORT = Kernel("column_law", "count_support")
FILL_GUIDE = Kernel("column_law", "fill_guide")

TAKEN_BYTES = 24
"""Bytes for a column that is taken out between rounds."""


class _Distributions(NamedTuple):
    """Rows of prefix sums: one for each batch (`indptr` is given), or one row of `columns` sums for all.

    `limit` is the largest number of columns that a batch can draw.
    """

    prefix: DeviceArray
    limit: int
    columns: int = 0
    indptr: DeviceArray | None = None
    support: DeviceArray | None = None
    guide: DeviceArray | None = None


class ColumnLawKernels(MergedColumnKernels, DistinctDraws):
    """`draw_columns`, `draw_merged`, `shared_guide`, `draw_shared` and `shared_numerators`."""

    def draw_columns(self, P: ColumnMatrix, batch_ids: Int64Array, draw: Draw) -> ColumnSample:
        """Column law on the k rows of P. Waits once."""
        part = Merged(0, len(batch_ids), P.indptr, P.columns, P.numerators)
        return self._drawn_merged(part, self.uploaded(batch_ids), draw)

    def draw_merged(self, A: Matrix, Q: StackedSelector, rule: QuantisationRule, draw: Draw) -> ColumnSample:
        """Column law on Q A, of which as much is written out at a time as memory allows. Waits twice for each part."""
        ids = self.uploaded(Q.batch_ids)
        samples = [
            self._drawn_merged(part, ids[part.first : part.last], draw) for part in self.merged_parts(A, Q, rule)
        ]
        return samples[0] if len(samples) == 1 else _stacked(self.device, samples, A.indices[:0])

    def shared_guide(self, cumulative: DeviceArray) -> DeviceArray:
        """Guide table of prefix sums (n,): the position of each slice's first unit, and of unit T - 1. Waits once."""
        n = len(cumulative)
        total = int(self.device.to_host(cumulative[n - 1 :])[0]) if n else 0
        shift = max((max(total, 1) - 1).bit_length() - max(n, 1).bit_length(), 0)
        while (max(total, 1) - 1) >> shift >= max(n, 1):
            shift += 1
        size = ((total - 1) >> shift) + 2 if total else 1
        guide = self.device.empty(size, np.int32 if n < 2**31 else np.int64)
        self.run(FILL_GUIDE, size, n, cumulative, size, guide, variant=index_variant(guide))
        return guide

    def draw_shared(
        self, cumulative: DeviceArray, batch_ids: Int64Array, draw: Draw, guide: DeviceArray | None = None
    ) -> ColumnSample:
        """Column law of every batch on one row over all columns, given its prefix sums (n,). Waits once."""
        n, k = len(cumulative), len(batch_ids)
        support = self.device.zeros(1, np.int64)
        if not draw.replace:
            self.run(SUPPORT, min(n, 32 * self.device.resident_warps()), n, cumulative, draw.size, support)
        shared = _Distributions(cumulative, min(draw.size, n), n, None, support, guide)
        drawn = self.drawn_room(np.full(k, shared.limit, np.int64), draw.replace)
        self._draw_positions(shared, self.uploaded(batch_ids), draw, drawn)
        return self.drawn_sample(drawn, self.drawn_state(drawn), np.dtype(np.int64))

    def shared_numerators(self, cumulative: DeviceArray, columns: DeviceArray) -> DeviceArray:
        """N of columns of that row: differences of its prefix sums."""
        before = cumulative[columns - (columns > 0)]
        return cumulative[columns] - before * (columns > 0)

    def _drawn_merged(self, part: Merged, batch_ids: DeviceArray, draw: Draw) -> ColumnSample:
        room = np.minimum(np.diff(part.indptr), draw.size)
        pointers = self.device.to_device(part.indptr)
        limit = int(room.max(initial=0))
        drawn = self.drawn_room(room, draw.replace)
        rows = _Distributions(self.merged_prefix(part.numerators), limit, indptr=pointers)
        self._draw_positions(rows, batch_ids, draw, drawn)
        return self.drawn_sample(drawn, self.drawn_state(drawn), part.columns.dtype, Names(pointers, part.columns))

    def _draw_positions(self, rows: _Distributions, batch_ids: DeviceArray, draw: Draw, drawn: Drawn) -> None:
        """Positions drawn by each batch, into their room."""
        guide_size = 0 if rows.guide is None else len(rows.guide)
        tables = self.drawn_tables(len(batch_ids), rows.limit, TAKEN_BYTES * rows.limit)
        taken = self.device.empty(tables.blocks * 3 * rows.limit, np.uint64)
        row = (rows.indptr, rows.prefix, rows.columns, rows.support, rows.guide, guide_size)
        scratch = (*tables.parameters, taken, rows.limit)
        out = (drawn.ptr, drawn.outcomes, drawn.counts, drawn.state)
        variant = Variant() if rows.guide is None else index_variant(rows.guide)
        arguments = (*self.draw(draw), batch_ids, len(batch_ids), *row, *scratch, *out)
        self.run(DRAW, min(tables.blocks, len(batch_ids)), *arguments, variant=variant)


def _stacked(device: Device, samples: list[ColumnSample], empty: DeviceArray) -> ColumnSample:
    """One sample of those of consecutive batches."""
    if not samples:
        none = np.zeros(0, np.uint64)
        no_counts = device.empty(0, np.int64)
        return ColumnSample(np.zeros(1, np.int64), empty, no_counts, none, np.zeros(0, np.bool_))
    lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(sample.indptr) for sample in samples)])
    return ColumnSample(
        np.cumsum(lengths, dtype=np.int64),
        device.concatenate([sample.columns for sample in samples]),
        device.concatenate([sample.counts for sample in samples]),
        np.concatenate([sample.totals for sample in samples]),
        np.concatenate([sample.whole for sample in samples]),
    )
