"""`LocalOperand`: A in this process's memory."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spsample.backends import (
    Backend,
    ColumnMatrix,
    ColumnSample,
    Compaction,
    Draw,
    Matrix,
    Numerators,
    StackedRows,
    StackedSelector,
)
from spsample.backends.protocol import UNKNOWN_RULE, Int64Array, IntArray, UInt64Array
from spsample.sparse.operand import Entries, GraphOperand, Numbering, RowRule, RowTotals, Weighting
from spsample.sparse.probability import graph_rule


class LocalOperand(GraphOperand):
    """The whole A as arrays, worked on by one backend.

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

    Examples
    --------
    >>> from spsample.backends import get_backend
    >>> A = Matrix(np.array([0, 2, 3, 3]), np.array([1, 2, 0], np.int32))
    >>> operand = LocalOperand(A, None, get_backend("reference"))
    >>> operand.row_totals(StackedSelector(np.array([0, 2]), np.array([2, 0], np.int32), np.array([0]))).counts.tolist()
    [0, 2]
    """

    def __init__(self, matrix: Matrix, edge_ids: Int64Array | None, backend: Backend, first_edge_id: int = 0) -> None:
        self.matrix = matrix
        self.edge_ids = edge_ids
        self.first_edge_id = first_edge_id
        self._backend = backend
        self._weighting: Weighting = "row" if matrix.row_normalized else "unweighted"
        if matrix.data is not None:
            self._weighting = "weighted"

    @property
    def num_nodes(self) -> int:
        return len(self.matrix.indptr) - 1

    @property
    def num_columns(self) -> int:
        """Columns of the matrix: as many as rows, but where it is a block of rows."""
        return self.num_nodes if self.matrix.num_columns is None else self.matrix.num_columns

    @property
    def num_vertices(self) -> int:
        return self.num_columns

    @property
    def num_edges(self) -> int:
        return len(self.matrix.indices)

    @property
    def weighting(self) -> Weighting:
        return self._weighting

    @property
    def index_dtype(self) -> np.dtype[np.signedinteger]:
        return self.matrix.indices.dtype

    @property
    def backend(self) -> Backend:
        return self._backend

    def row_totals(self, Q: StackedSelector, exclude: ColumnSample | None = None) -> RowTotals:
        counts = self.backend.row_totals(self.matrix, Q, exclude)
        return RowTotals(counts, self.backend.to_device(self.row_exponents)[Q.vertices])

    def sample_rows(self, Q: StackedSelector, draw: Draw, rule: RowRule, edge_ids: bool) -> Entries:
        positions = edge_ids or self.matrix.data is not None  # they lead to the weights
        if rule == "whole":
            rows = self.backend.take_rows(self.matrix, Q, positions)
        elif rule == "weighted":
            rows = self.backend.sample_rows_weighted(self.matrix, Q, draw, edge_ids, True, self._row_rules)
        else:
            rows = self.backend.sample_rows_uniform(self.matrix, Q, draw, positions)
        return self._entries(rows, Q, edge_ids)

    def sample_numbered(
        self, Q: StackedSelector, draw: Draw, rule: RowRule, want: Numbering
    ) -> tuple[Entries, Compaction]:
        if rule != "whole":
            return super().sample_numbered(Q, draw, rule, want)
        positions = want.edge_ids or self.matrix.data is not None
        rows, sources = self.backend.take_rows_numbered(self.matrix, Q, want.known, positions, want.include_targets)
        return self._entries(rows, Q, want.edge_ids), sources

    def locate(
        self, Q: StackedSelector, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None = None
    ) -> IntArray:
        return self.backend.locate(self.matrix, Q, rows, offsets, exclude)

    def left_multiply(self, Q: StackedSelector, rule: Numerators) -> ColumnMatrix:
        return self.backend.merge_columns(self.matrix, Q, rule)

    def draw_columns(self, batch_ids: Int64Array, draw: Draw) -> ColumnSample:
        return self.backend.draw_shared(self._cumulative[1:], batch_ids, draw, self._guide)

    def column_totals(self, columns: IntArray) -> UInt64Array:
        cumulative = self.backend.to_device(self._cumulative)
        totals: UInt64Array = cumulative[1:][columns] - cumulative[columns]
        return totals

    def extract(self, Q: StackedSelector, src_ptr: Int64Array, src: IntArray, edge_ids: bool) -> Entries:
        positions = edge_ids or self.matrix.data is not None
        return self._entries(self.backend.extract(self.matrix, Q, src_ptr, src, positions), Q, edge_ids)

    def draw_entries(self, Q: StackedSelector, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
        return self.backend.draw_entries(self.matrix, Q, numerators, draw)

    def draw_merged(self, Q: StackedSelector, rule: Numerators, draw: Draw) -> ColumnSample:
        return self.backend.draw_merged(self.matrix, Q, rule, draw)

    def _entries(self, rows: StackedRows, Q: StackedSelector, edge_ids: bool) -> Entries:
        """With the edge ids of the rows' entries where they are wanted."""
        ids = None if rows.positions is None or not edge_ids else self.edge_ids_at(rows.positions)
        return Entries(rows, self.matrix, Q, ids)

    def edge_ids_at(self, positions: Int64Array) -> Int64Array:
        """Positions in the user's input of entries at these positions of the matrix."""
        if self.edge_ids is not None:
            ids: Int64Array = self.backend.to_device(self.edge_ids)[positions]
            return ids
        return positions + self.first_edge_id if self.first_edge_id else positions

    @property
    def kept_nbytes(self) -> int:
        """Bytes of what is derived from the whole graph, made on first use and kept.

        For FastGCN 8 (n + 1) of prefix sums and at most 4 (n + 1) (8 (n + 1) from n = 2^31 on) of the guide table that
        leads to them; 4 n of row exponents where weights or squared counts ask for them; for weighted rows 2 n of their
        rules, as far as they are known.
        """
        kept = (self.__dict__.get(name) for name in ("row_exponents", "_row_rules", "_cumulative", "_guide"))
        return sum(array.nbytes for array in kept if array is not None)

    @cached_property
    def row_exponents(self) -> NDArray[np.int32]:
        """(rows,) the largest binary exponent of each row's weights: 4 bytes a row, made on first use and kept."""
        return self.backend.row_exponents(self.matrix)

    @cached_property
    def _row_rules(self) -> NDArray[np.int16]:
        """For the backend, which fills it as rows are drawn from."""
        return np.full(self.num_nodes, UNKNOWN_RULE, np.int16)

    @cached_property
    def _cumulative(self) -> UInt64Array:
        """(n + 1,) prefix sums of FastGCN's column numerators, from 0: 8 n bytes, made once per graph."""
        counts = np.diff(self.matrix.indptr)
        exponents = np.zeros(0, np.int32) if self.weighting == "unweighted" else self.row_exponents  # not asked for
        rule = graph_rule(self.backend, self.weighting, RowTotals(counts, exponents))
        cumulative = np.zeros(self.num_nodes + 1, np.uint64)
        np.cumsum(self.backend.column_totals(self.matrix, rule), dtype=np.uint64, out=cumulative[1:])
        return cumulative

    @cached_property
    def _guide(self) -> IntArray:
        """Leads from a unit of `_cumulative` to its column: at most 4 (n + 1) bytes, made once per graph."""
        return self.backend.shared_guide(self._cumulative[1:])
