"""`LocalOperand`: A in this process's memory, and frontiers of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
from spsample.backends.protocol import NO_EXPONENT, UNKNOWN_RULE, Int64Array, IntArray, UInt64Array
from spsample.common.lazily import lazily
from spsample.sparse.entry_ranks import EntryRanks
from spsample.sparse.operand import Entries, Frontier, GraphOperand, RowForm, ScaledForm, UnbiasedEntries
from spsample.sparse.probability import RowStatistics, Weighting, graph_rule
from spsample.sparse.row_totals import RowTotals


class LocalOperand(GraphOperand):
    """The whole A as arrays, or a block of its rows, worked on by one backend.

    Parameters
    ----------
    matrix : Matrix
        A, entries in the law's order (target, source, input position).
    edge_ids : int64 array (nnz,) or None
        Entry -> position in the user's input; None is the identity.
    backend : Backend
        The kernels.
    first_edge_id : int
        Of the first entry, where `edge_ids` is None and the entries are a part of those of a larger matrix.

    Attributes
    ----------
    kept : KeptArrays
        What is derived from all of A, shared by copies of the operand.

    Examples
    --------
    >>> from spsample.backends import get_backend
    >>> A = LocalOperand(Matrix(np.array([0, 2, 3, 3]), np.array([1, 2, 0], np.int32)), None, get_backend("reference"))
    >>> Q = StackedSelector(np.array([0, 2]), np.array([2, 0], np.int32), np.array([0]))
    >>> A.frontier(Q).row_statistics.counts.tolist()
    [0, 2]
    """

    def __init__(self, matrix: Matrix, edge_ids: Int64Array | None, backend: Backend, first_edge_id: int = 0) -> None:
        self.matrix = matrix
        self.edge_ids = edge_ids
        self.backend = backend
        self.first_edge_id = first_edge_id
        self.num_nodes = self.num_rows if matrix.num_columns is None else matrix.num_columns
        self.num_edges = len(matrix.indices)
        self.index_dtype = matrix.indices.dtype
        self.weighting = _weighting_of(matrix)
        self.kept: KeptArrays = KeptArrays(matrix, backend, self.weighting)

    @property
    def num_rows(self) -> int:
        """Rows of the matrix: as many as columns, except where it is a block of A."""
        return len(self.matrix.indptr) - 1

    def frontier(self, Q: StackedSelector) -> LocalFrontier:
        return LocalFrontier(self, Q)

    @property
    def column_norms(self) -> LocalColumnNorms:
        return LocalColumnNorms(self)

    @property
    def row_exponents(self) -> NDArray[np.int32]:
        """(rows,) the largest binary exponent of each row's weights."""
        exponents: NDArray[np.int32] = self.kept.row_exponents
        return exponents

    def edge_ids_at(self, positions: Int64Array) -> Int64Array:
        """Positions in the user's input of entries at these positions of the matrix."""
        if self.edge_ids is not None:
            ids: Int64Array = self.backend.to_device(self.edge_ids)[positions]
            return ids
        return positions + self.first_edge_id if self.first_edge_id else positions

    def row_totals(self, scale: ColumnScale) -> RowTotals:
        return self.kept.row_totals(scale)

    @property
    def kept_nbytes(self) -> int:
        """Bytes of what is derived from the whole graph, made on first use and kept."""
        return self.kept.nbytes


def _weighting_of(matrix: Matrix) -> Weighting:
    if matrix.data is not None:
        return "weighted"
    return "row" if matrix.row_normalized else "unweighted"


class LocalFrontier(Frontier):
    """Rows of a local A: each method is one kernel."""

    A: LocalOperand

    def _row_statistics(self) -> RowStatistics:
        A, Q = self.A, self.Q
        counts = A.backend.entry_counts(A.matrix, Q, None)
        return RowStatistics(counts, A.backend.to_device(A.row_exponents)[Q.vertices])

    def entry_counts(self, exclude: ColumnSample) -> Int64Array:
        return self.A.backend.entry_counts(self.A.matrix, self.Q, exclude)

    def locate(self, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None = None) -> IntArray:
        return self.A.backend.locate(self.A.matrix, self.Q, rows, offsets, exclude)

    def sample_rows(self, draw: Draw, form: RowForm | ScaledForm, edge_ids: bool) -> Entries:
        A, Q = self.A, self.Q
        positions = edge_ids or A.matrix.data is not None  # they lead to the weights
        if isinstance(form, ScaledForm):
            matrix = A.matrix if form.form == "weighted" else A.matrix._replace(data=None, row_normalized=False)
            ranks = A.kept.entry_ranks(form.scale, len(Q.vertices)) if matrix.data is None else None
            rows = A.backend.sample_rows_scaled(matrix, Q, draw, form.scale, positions, ranks)
        elif form == "weighted":
            rows = A.backend.sample_rows_weighted(A.matrix, Q, draw, edge_ids, True, A.kept.row_rules)
        else:
            rows = A.backend.sample_rows_uniform(A.matrix, Q, draw, positions)
        return self._entries(rows, edge_ids)

    def take_rows(self, edge_ids: bool) -> Entries:
        positions = edge_ids or self.A.matrix.data is not None
        return self._entries(self.A.backend.take_rows(self.A.matrix, self.Q, positions), edge_ids)

    def take_compacted(
        self, known: StackedSelector, include_targets: bool, edge_ids: bool
    ) -> tuple[Entries, Compaction]:
        A = self.A
        positions = edge_ids or A.matrix.data is not None
        rows, sources = A.backend.take_rows_numbered(A.matrix, self.Q, known, positions, include_targets)
        return self._entries(rows, edge_ids), sources

    def sample_hops(self, draws: Sequence[Draw], edge_ids: bool) -> tuple[UnitedHops, Int64Array | None] | None:
        A = self.A
        if A.weighting != "unweighted" or A.matrix.ids is not None or A.matrix.num_columns is not None:
            return None
        sizes = [draw.size for draw in draws]
        if min(sizes) < 0 or not A.limit.surely_allows(sum(accumulate(sizes, mul, initial=len(self.Q.vertices)))):
            return None
        hops = A.backend.sample_hops(A.matrix, self.Q, draws, edge_ids)
        A.limit.at_extract(len(hops.columns))
        return hops, None if hops.positions is None else A.edge_ids_at(hops.positions)

    def draw_entries(self, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
        return self.A.backend.draw_entries(self.A.matrix, self.Q, numerators, draw)

    def merge_columns(self, rule: QuantisationRule) -> ColumnMatrix:
        return self.A.backend.merge_columns(self.A.matrix, self.Q, rule)

    def draw_merged(self, rule: QuantisationRule, draw: Draw) -> ColumnSample:
        return self.A.backend.draw_merged(self.A.matrix, self.Q, rule, draw)

    def extract(self, src_ptr: Int64Array, src: IntArray, edge_ids: bool) -> Entries:
        positions = edge_ids or self.A.matrix.data is not None
        return self._entries(self.A.backend.extract(self.A.matrix, self.Q, src_ptr, src, positions), edge_ids)

    def extract_unbiased(
        self, sample: ColumnSample, rule: QuantisationRule | None, how: UnbiasedExtraction
    ) -> UnbiasedEntries | None:
        A, Q = self.A, self.Q
        if A.matrix.ids is not None or A.matrix.num_columns is not None:
            return None
        pairs = len(Q.vertices) * (len(Q.vertices) + len(sample.columns))
        if not (A.limit.surely_allows(pairs) or A.limit.surely_allows(self._most_pairs(sample))):
            return None
        are_asked = how.positions
        if A.matrix.data is not None:
            how = how._replace(positions=True)  # they lead to the weights
        numerators = A.kept.inclusive if rule is None else rule
        src_ptr, src, rows, values = A.backend.extract_unbiased(A.matrix, Q, sample, numerators, how)
        A.limit.at_extract(len(rows.columns))  # parallel entries may be more than pairs
        return UnbiasedEntries(src_ptr, src, rows, values, self._edge_ids(rows, are_asked))

    def _most_pairs(self, sample: ColumnSample) -> int:
        """Pairs of a row and a src column of its batch: as many entries at most, but for parallel ones."""
        rows = np.diff(self.Q.batch_ptr)
        return int(np.sum(rows * (rows + np.diff(sample.indptr))))

    def _entries(self, rows: StackedRows, edge_ids: bool) -> Entries:
        """With the edge ids of the rows' entries where they are asked for."""
        return Entries(rows, self.A.matrix, self.Q, self._edge_ids(rows, edge_ids))

    def _edge_ids(self, rows: StackedRows, are_asked: bool) -> Int64Array | None:
        return None if rows.positions is None or not are_asked else self.A.edge_ids_at(rows.positions)


class LocalColumnNorms(NamedTuple):
    """Squared column norms of a local A as one distribution."""

    A: LocalOperand

    def draw(self, batch_ids: Int64Array, draw: Draw) -> ColumnSample:
        """Columns for every batch."""
        kept = self.A.kept
        sample = self.A.backend.draw_shared(kept.inclusive, batch_ids, draw, kept.guide)
        if sample.columns.dtype == self.A.index_dtype:
            return sample
        indptr, columns, counts, totals, whole = sample
        return ColumnSample(indptr, columns.astype(self.A.index_dtype), counts, totals, whole)

    def numerators(self, columns: IntArray) -> UInt64Array:
        """N of the given columns."""
        return self.A.backend.shared_numerators(self.A.kept.inclusive, columns)


class KeptArrays:
    """Arrays derived from all of A, made on first use and kept.

    For FastGCN 8 (n + 1) bytes of prefix sums and at most 4 (n + 1) (8 (n + 1) from n = 2^31 on) of the guide table
    that leads to them; 4 n of row exponents where weights or squared counts ask for them; for weighted rows 2 n of
    their rules, as far as they are known, and on a device 8 n and 1 an entry of their sums.
    """

    def __init__(self, matrix: Matrix, backend: Backend, weighting: Weighting) -> None:
        self.matrix = matrix
        self.backend: Any = backend
        self.weighting: Weighting = weighting
        self._totals: RowTotals | None = None
        self._ranks: EntryRanks | None = None

    def row_totals(self, scale: ColumnScale) -> RowTotals:
        """Those of the set that was asked for last."""
        known = self._totals
        if known is None or not scale.is_of_set(known.scale):
            known = self._totals = RowTotals(self.matrix, scale)
        return known

    def entry_ranks(self, scale: ColumnScale, rows: int) -> Any:
        """Those of the set that was asked for last, once they are worth it; now `rows` are drawn from."""
        known = self._ranks
        if known is None or not scale.is_of_set(known.scale):
            known = self._ranks = EntryRanks(self.matrix, scale, self.backend)
        return known.after(rows)

    @property
    def nbytes(self) -> int:
        """Bytes of what was made, and of ranks that are still to be."""
        kept = (self.__dict__.get(name) for name in ("row_exponents", "row_rules", "cumulative", "guide"))
        of_scale = sum(of.nbytes for of in (self._totals, self._ranks) if of is not None)
        return of_scale + sum(int(array.nbytes) for array in kept if array is not None)

    @lazily
    def row_exponents(self) -> Any:
        """(rows,) int32: the largest binary exponent of each row's weights."""
        return self.backend.row_exponents(self.matrix)

    @lazily
    def row_rules(self) -> Any:
        """(rows,) int16, for the backend, which fills it as rows are drawn from."""
        return np.full(len(self.matrix.indptr) - 1, UNKNOWN_RULE, np.int16)

    @lazily
    def cumulative(self) -> Any:
        """(n + 1,) uint64 prefix sums of FastGCN's column numerators, from 0."""
        rule = graph_rule(self.weighting, len(self.matrix.indices), self.largest_exponent())
        cumulative = np.zeros(len(self.matrix.indptr), np.uint64)
        np.cumsum(self.backend.column_totals(self.matrix, rule), dtype=np.uint64, out=cumulative[1:])
        return cumulative

    @lazily
    def inclusive(self) -> Any:
        """(n,) those that end with each column: a view."""
        return self.cumulative[1:]

    def largest_exponent(self) -> int:
        """The largest of `row_exponents`; `NO_EXPONENT` without any, and where all entries are 1."""
        if self.weighting == "unweighted":
            return NO_EXPONENT
        return int(self.row_exponents.max(initial=NO_EXPONENT))

    @lazily
    def guide(self) -> Any:
        """Leads from a unit of `cumulative` to its column."""
        return self.backend.shared_guide(self.inclusive)
