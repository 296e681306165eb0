"""`GraphOperand` and `Frontier`: what a graph must be able to do to stand in for A in the sampling algebra."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np

from spsample.backends import (
    Backend,
    ColumnMatrix,
    ColumnSample,
    ColumnScale,
    Compaction,
    Draw,
    Matrix,
    QuantisationRule,
    StackedRows,
    StackedSelector,
    UnbiasedExtraction,
    UnitedHops,
)
from spsample.backends.protocol import FloatArray, Int64Array, IntArray, UInt64Array
from spsample.common.lazily import lazily
from spsample.errors import InputError
from spsample.sparse.probability import FrontierStatistics, RowStatistics, Weighting, batch_statistics
from spsample.sparse.row_totals import RowTotals

RowForm = Literal["uniform", "weighted"]
"""The form of the row law: whether entries of a row are drawn uniformly or by weight."""


class ScaledForm(NamedTuple):
    """The form of the row law on A D, whose columns are scaled: by weight, those of A or 1 each."""

    form: RowForm
    scale: ColumnScale


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


class UnbiasedEntries(NamedTuple):
    """Stacked rows restricted to each batch's `src`, with the values of an unbiased estimate, and edge ids or None."""

    src_ptr: Int64Array
    src: IntArray
    rows: StackedRows
    values: FloatArray
    edge_ids: Int64Array | None


class Frontier(ABC):
    """The rows of A that Q selects, and what is known of them: entry counts, requests to their owners, fetched rows.

    What a method finds out is kept as long as the frontier, so that SAMPLE, EXTRACT and the values of one layer ask
    for it once. Methods take the whole bulk (k batches, m rows), are collective on a distributed graph, allow empty
    input, and return the same bits wherever A lies. Nothing is asked of other ranks before the first of them is called.

    Attributes
    ----------
    A : GraphOperand
    Q : StackedSelector
    """

    def __init__(self, A: GraphOperand, Q: StackedSelector) -> None:
        self.A = A
        self.Q = Q

    # --- what is known of the rows -------------------------------------------------------------------------------
    @lazily
    def row_statistics(self) -> RowStatistics:
        """Entry counts and exponents of the rows."""
        return self._row_statistics()

    @lazily
    def batch_statistics(self) -> FrontierStatistics:
        """Entry counts and exponents of each batch's rows together."""
        return self._batch_statistics()

    @abstractmethod
    def _row_statistics(self) -> RowStatistics: ...

    def _batch_statistics(self) -> FrontierStatistics:
        """Composed of the rows' statistics; a distributed graph adds up where the rows are."""
        return batch_statistics(self.A.backend, self.Q.batch_ptr, self.row_statistics)

    @abstractmethod
    def entry_counts(self, exclude: ColumnSample) -> Int64Array:
        """(m,) entries of the rows that are not in the columns that `exclude` holds for their batch."""

    @abstractmethod
    def locate(self, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None = None) -> IntArray:
        """The column of the `offsets[j]`-th entry, not counting excluded ones, of stacked row `rows[j]`."""

    # --- SAMPLE ----------------------------------------------------------------------------------------------------
    @abstractmethod
    def sample_rows(self, draw: Draw, form: RowForm | ScaledForm, edge_ids: bool) -> Entries:
        """Row law; `columns` are vertex ids. On a partitioned graph the rows' owners draw.

        The arrays are the caller's: EXTRACT writes local ids over `columns`.
        """

    @abstractmethod
    def take_rows(self, edge_ids: bool) -> Entries:
        """Whole rows, in A's order; otherwise as `sample_rows`."""

    @abstractmethod
    def draw_entries(self, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
        """Entry law, where `numerators` (m,) are q of the rows, or None for 1."""

    @abstractmethod
    def merge_columns(self, rule: QuantisationRule) -> ColumnMatrix:
        """Q A as one row of integer numerators per batch."""

    def draw_merged(self, rule: QuantisationRule, draw: Draw) -> ColumnSample:
        """Column law on Q A: composed of `merge_columns` and a draw; a local graph has one kernel for it."""
        return self.A.backend.draw_columns(self.merge_columns(rule), self.Q.batch_ids, draw)

    # --- EXTRACT ---------------------------------------------------------------------------------------------------
    def compact(self, entries: Entries, known: StackedSelector, include_targets: bool) -> Compaction:
        """Compact the columns of entries, which are given up: each becomes its place in its batch's src.

        src has each batch's `known` vertices first, where targets are included, and then the new ones.
        """
        rows, A = entries.rows, self.A
        return A.backend.compact(known, rows.entry_ptr, rows.columns, include_targets, A.num_nodes)

    def take_compacted(
        self, known: StackedSelector, include_targets: bool, edge_ids: bool
    ) -> tuple[Entries, Compaction]:
        """Whole rows, and their columns as `compact` gives them, which replace `columns`.

        Composed of the two; a local graph has one kernel for it.
        """
        entries = self.take_rows(edge_ids)
        return entries, self.compact(entries, known, include_targets)

    def sample_hops(self, draws: Sequence[Draw], edge_ids: bool) -> tuple[UnitedHops, Int64Array | None] | None:
        """The hops of the subgraph layout, uniform, the first from these rows; and edge ids where asked for.

        None where there is no kernel for all of them, or the limit has to see each: they are then drawn one by one. A
        local graph without weights has one.
        """
        return None

    def values(self, entries: Entries, sources: Compaction) -> FloatArray | None:
        """The values of entries that were drawn, or taken whole: A_iv, `1/d` in float32, None where A has no weights.

        `sources` is what `compact` made of the entries.
        """
        return own_weights(self.A, entries)

    @abstractmethod
    def extract(self, src_ptr: Int64Array, src: IntArray, edge_ids: bool) -> Entries:
        """The rows restricted to each batch's `src`; `columns` are local ids, entries in A's order."""

    def extract_unbiased(
        self, sample: ColumnSample, rule: QuantisationRule | None, how: UnbiasedExtraction
    ) -> UnbiasedEntries | None:
        """The sample's columns compacted, the rows restricted to them, and the values of an unbiased estimate.

        `rule` is that of the numerators, or None for those of `column_norms`. `how.positions` is whether edge ids are
        asked for. None where there is no kernel for all of it, or the limit has to see the entries before their values
        are made: it is then done step by step. A local graph has one.
        """
        return None


class ColumnDistribution(Protocol):
    """One distribution over all columns of A, from which every batch draws (column law under the graph rule)."""

    def draw(self, batch_ids: Int64Array, draw: Draw) -> ColumnSample:
        """Columns for every batch."""
        ...

    def numerators(self, columns: IntArray) -> UInt64Array:
        """N of the given columns."""
        ...


class EntryLimit:
    """Limit on the entries of a bulk: here any number. SAMPLE and EXTRACT call it, on each rank alone."""

    def surely_allows(self, entries: int) -> bool:
        """Return whether that many entries may be made at once; they are told to `at_extract` afterwards."""
        return True

    def before_draw(self, frontier: Frontier, draw: Draw) -> None:
        """Raise an error if this draw from rows, which is not made yet, would give too many entries."""

    def at_extract(self, entries: int) -> None:
        """Raise an error if a layer with this number of entries, which have been made, is one too many for the bulk."""


class GraphOperand(ABC):
    """A, as the sampling algebra sees it: local, replicated or partitioned.

    Vertex ids are original ids throughout. What there is to do with rows of A is done by a `Frontier` of them.

    Attributes
    ----------
    num_nodes : int
        n: A has n columns, and as many rows, except where it is a block of rows.
    num_edges : int
        Number of stored entries.
    weighting : {"unweighted", "row", "weighted"}
        Whether entries are 1, `1/d` or carry weights.
    index_dtype : dtype
        int32 or int64: type of vertex ids in results.
    backend : Backend
        Kernels for this rank's share of the work.
    limit : EntryLimit
        Of the bulks that are sampled from it.
    draws_here : bool
        True where a rank draws from the rows of its batches itself; else the rows' owners do.
    """

    num_nodes: int
    num_edges: int
    weighting: Weighting
    index_dtype: np.dtype[np.signedinteger]
    backend: Backend
    limit: EntryLimit = EntryLimit()
    draws_here: bool = True

    @abstractmethod
    def frontier(self, Q: StackedSelector) -> Frontier:
        """The rows that Q selects."""

    @property
    @abstractmethod
    def column_norms(self) -> ColumnDistribution:
        """Squared column norms of the whole A (FastGCN); made on first use, which is collective, and kept."""

    def row_totals(self, scale: ColumnScale) -> RowTotals:
        """The sums of the rows of A D; kept until another D is asked for.

        Raises
        ------
        InputError
            If the whole of A is not in this process's memory.
        """
        raise InputError(
            argument="importance_weights",
            given="True on a graph that is not whole in the memory of the host",
            expected="a graph in memory, or replicated over ranks",
        )

    def any_reduce(self, *here: bool) -> list[bool]:
        """Return whether each is true on any rank: for loops of collective calls that all ranks must leave together."""
        return list(here)


def own_weights(A: GraphOperand, sample: Entries) -> FloatArray | None:
    """A_iv of drawn entries: weights, `1/d` in float32, or None where the graph has none."""
    if A.weighting == "unweighted":
        return None
    if sample.rows.weights is not None:
        return sample.rows.weights
    return A.backend.own_weights(sample.matrix, sample.selector, sample.rows)


__all__ = [
    "ColumnDistribution",
    "Entries",
    "EntryLimit",
    "Frontier",
    "FrontierStatistics",
    "GraphOperand",
    "RowForm",
    "RowStatistics",
    "ScaledForm",
    "UnbiasedEntries",
    "Weighting",
    "own_weights",
]
