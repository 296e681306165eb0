"""Sampling that stops before a bulk has more entries than it may."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Backend, ColumnMatrix, ColumnSample, Compaction, Draw, Numerators, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.sparse import Entries, GraphOperand, RowTotals
from spsample.sparse.operand import FrontierTotals, Numbering, RowRule, Weighting
from spsample.store.base_graph import BaseGraph


class TooManyEntriesError(Exception):
    """A bulk would have more entries than it may: sample it in parts."""


class CappedGraph(BaseGraph):
    """A graph from which a call draws at most `most_entries` entries; for one call."""

    def __init__(self, graph: BaseGraph, most_entries: int) -> None:
        self.inner = graph
        self._most_entries = most_entries

    @property
    def num_nodes(self) -> int:
        """Number of vertices."""
        return int(self.inner.num_nodes)

    @property
    def num_edges(self) -> int:
        """Number of entries of A."""
        return int(self.inner.num_edges)

    @property
    def weighting(self) -> Weighting:
        """What the values of A are."""
        return self.inner.weighting

    @property
    def index_dtype(self) -> np.dtype[np.signedinteger]:
        """Type of vertex ids."""
        return self.inner.index_dtype

    def row_sums(self) -> NDArray[np.float32]:
        """Sums of the rows."""
        return self.inner.row_sums()

    def operand(self, backend: str | None = None) -> GraphOperand:
        """A, counting."""
        return CappedOperand(self.inner.operand(backend), self._most_entries)


class CappedOperand(GraphOperand):
    """Another operand that refuses to make more entries than are left.

    Entries drawn from rows are counted before they are drawn: at most the size of the draw for each row, or exactly
    where that bound would pass. Those of an extraction are counted once they are made.
    """

    def __init__(self, inner: GraphOperand, most_entries: int) -> None:
        self._inner = inner
        self._left = most_entries

    @property
    def num_nodes(self) -> int:
        return self._inner.num_nodes

    @property
    def num_edges(self) -> int:
        return self._inner.num_edges

    @property
    def weighting(self) -> Weighting:
        return self._inner.weighting

    @property
    def index_dtype(self) -> np.dtype[np.signedinteger]:
        return self._inner.index_dtype

    @property
    def backend(self) -> Backend:
        return self._inner.backend

    def row_totals(self, Q: StackedSelector, exclude: ColumnSample | None = None) -> RowTotals:
        return self._inner.row_totals(Q, exclude)

    def frontier_totals(self, Q: StackedSelector) -> FrontierTotals:
        return self._inner.frontier_totals(Q)

    def any_rank(self, here: bool) -> bool:
        return self._inner.any_rank(here)

    def sample_rows(self, Q: StackedSelector, draw: Draw, rule: RowRule, edge_ids: bool) -> Entries:
        self._check(Q, draw, rule)
        entries = self._inner.sample_rows(Q, draw, rule, edge_ids)
        self._take(len(entries.rows.columns))
        return entries

    def sample_numbered(
        self, Q: StackedSelector, draw: Draw, rule: RowRule, want: Numbering
    ) -> tuple[Entries, Compaction]:
        self._check(Q, draw, rule)
        entries, sources = self._inner.sample_numbered(Q, draw, rule, want)
        self._take(len(entries.rows.columns))
        return entries, sources

    def locate(
        self, Q: StackedSelector, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None = None
    ) -> IntArray:
        return self._inner.locate(Q, rows, offsets, exclude)

    def left_multiply(self, Q: StackedSelector, rule: Numerators) -> ColumnMatrix:
        return self._inner.left_multiply(Q, rule)

    def draw_columns(self, batch_ids: Int64Array, draw: Draw) -> ColumnSample:
        return self._inner.draw_columns(batch_ids, draw)

    def column_totals(self, columns: IntArray) -> UInt64Array:
        return self._inner.column_totals(columns)

    def extract(self, Q: StackedSelector, src_ptr: Int64Array, src: IntArray, edge_ids: bool) -> Entries:
        entries = self._inner.extract(Q, src_ptr, src, edge_ids)
        self._take(len(entries.rows.columns))
        return entries

    def draw_entries(self, Q: StackedSelector, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
        return self._inner.draw_entries(Q, numerators, draw)

    def draw_merged(self, Q: StackedSelector, rule: Numerators, draw: Draw) -> ColumnSample:
        return self._inner.draw_merged(Q, rule, draw)

    def _check(self, Q: StackedSelector, draw: Draw, rule: RowRule) -> None:
        """Refuse a draw that would make more entries than are left, before it is made."""
        surely_fits = rule != "whole" and len(Q.vertices) * draw.size <= self._left
        if not surely_fits and self._count(Q, draw, rule) > self._left:
            raise TooManyEntriesError

    def _count(self, Q: StackedSelector, draw: Draw, rule: RowRule) -> int:
        """Entries that a draw makes (of weighted rows: at most)."""
        totals = self._inner.row_totals(Q)
        counts: Int64Array = totals.counts
        if rule != "whole":
            counts = draw.size * np.minimum(counts, 1) if draw.replace else np.minimum(counts, draw.size)
        of_batches, _ = self.backend.batch_totals(Q.batch_ptr, counts, totals.exponents)
        return int(of_batches.sum())

    def _take(self, entries: int) -> None:
        if entries > self._left:
            raise TooManyEntriesError
        self._left -= entries
