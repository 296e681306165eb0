"""`GraphOperand`: what a graph must be able to do to stand in for A in the sampling algebra."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.backends import (
    Backend,
    ColumnMatrix,
    ColumnSample,
    Compaction,
    Draw,
    Matrix,
    QuantisationRule,
    StackedRows,
    StackedSelector,
)
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array

Weighting = Literal["unweighted", "row", "weighted"]
RowRule = Literal["uniform", "weighted", "whole"]


class RowTotals(NamedTuple):
    """Of each of m selected rows: its number of entries, and the largest binary exponent of its weights."""

    counts: Int64Array
    exponents: NDArray[np.int32]


class FrontierTotals(NamedTuple):
    """Of each of k frontiers: the number of entries of its rows, and the largest binary exponent of their weights.

    The exponent is 0 where no entry is positive.
    """

    counts: Int64Array
    exponents: Int64Array


class Entries(NamedTuple):
    """Stacked rows of entries of A together with the matrix that their positions point into.

    `rows.positions` index the entries of `matrix`, `selector` the rows of `matrix` that `rows` came from; `edge_ids`
    are positions in the user's input, or None where they were not asked for. On a distributed graph `matrix` holds the
    received entries only.
    """

    rows: StackedRows
    matrix: Matrix
    selector: StackedSelector
    edge_ids: Int64Array | None


class Numbering(NamedTuple):
    """How src is numbered: each batch's `known` vertices first (`include_targets`); and whether edge ids are wanted."""

    known: StackedSelector
    include_targets: bool
    edge_ids: bool


class GraphOperand(ABC):
    """A, as the sampling algebra sees it: local, replicated or partitioned.

    Every method takes the whole bulk (Q stacks k batches and m rows), is collective on a distributed graph, allows
    empty input, and returns the same bits wherever A lies. Vertex ids are original ids throughout.
    """

    @property
    @abstractmethod
    def num_nodes(self) -> int:
        """n: A is n x n."""

    @property
    def num_vertices(self) -> int:
        """All columns are below it: n, also where the rows are a part of A's."""
        return self.num_nodes

    @property
    @abstractmethod
    def num_edges(self) -> int:
        """Number of stored entries of the whole A."""

    @property
    @abstractmethod
    def weighting(self) -> Weighting:
        """Whether entries are 1, `1/d` or carry weights."""

    @property
    @abstractmethod
    def index_dtype(self) -> np.dtype[np.signedinteger]:
        """int32 or int64: type of vertex ids in results."""

    @property
    @abstractmethod
    def backend(self) -> Backend:
        """Kernels for this rank's share of the work."""

    @abstractmethod
    def row_totals(self, Q: StackedSelector, exclude: ColumnSample | None = None) -> RowTotals:
        """Entry counts of the selected rows, without the columns that `exclude` holds for the batch, and exponents."""

    def frontier_totals(self, Q: StackedSelector) -> FrontierTotals:
        """The same of each batch's rows together; a distributed graph adds up where the rows are."""
        from spsample.sparse.probability import batch_totals

        return batch_totals(self.backend, Q.batch_ptr, self.row_totals(Q))

    def any_rank(self, here: bool) -> bool:
        """Whether it is true on any rank: for loops of collective calls, which all ranks must leave together."""
        return here

    @abstractmethod
    def sample_rows(self, Q: StackedSelector, draw: Draw, rule: RowRule, edge_ids: bool) -> Entries:
        """Row law on the selected rows; `columns` are vertex ids. On a partitioned graph the rows' owners draw.

        The arrays are the caller's: EXTRACT writes local ids over `columns`.
        """

    def sample_numbered(
        self, Q: StackedSelector, draw: Draw, rule: RowRule, want: Numbering
    ) -> tuple[Entries, Compaction]:
        """The same, and the entries' columns as places in each batch's src, which replace `columns`.

        Composed of `sample_rows` and a compaction; a local graph overrides it for whole rows.
        """
        entries = self.sample_rows(Q, draw, rule, want.edge_ids)
        return entries, self.backend.compact_owned(want.known, entries.rows, want.include_targets, self.num_vertices)

    @abstractmethod
    def locate(
        self, Q: StackedSelector, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None = None
    ) -> IntArray:
        """The column of the `offsets[j]`-th entry, not counting excluded ones, of stacked row `rows[j]`."""

    @abstractmethod
    def left_multiply(self, Q: StackedSelector, rule: QuantisationRule) -> ColumnMatrix:
        """Q A as one row of integer numerators per batch."""

    @abstractmethod
    def draw_columns(self, batch_ids: Int64Array, draw: Draw) -> ColumnSample:
        """Column law of every batch on the squared column norms of the whole A (FastGCN; graph rule)."""

    @abstractmethod
    def column_totals(self, columns: IntArray) -> UInt64Array:
        """Numerators of the given columns under the graph rule."""

    @abstractmethod
    def extract(self, Q: StackedSelector, src_ptr: Int64Array, src: IntArray, edge_ids: bool) -> Entries:
        """Rows Q of A restricted to each batch's `src`; `columns` are local ids, entries in A's order."""

    def draw_entries(self, Q: StackedSelector, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
        """Entry law: composed of `row_totals` and `locate`; a local graph overrides it with one fused kernel."""
        from spsample.sparse.entry_law import draw_entries

        return draw_entries(self, Q, numerators, draw)

    def draw_merged(self, Q: StackedSelector, rule: QuantisationRule, draw: Draw) -> ColumnSample:
        """Column law on Q A: composed of `left_multiply` and a draw; a local graph overrides it with one kernel."""
        return self.backend.draw_columns(self.left_multiply(Q, rule), Q.batch_ids, draw)


__all__ = ["Entries", "FrontierTotals", "GraphOperand", "Numbering", "RowRule", "RowTotals", "Weighting"]
