"""A D: A with its columns scaled by a diagonal matrix, never formed, as node-wise samplers draw from it."""

from __future__ import annotations

from typing import Any

from spsample.backends import ColumnScale, Compaction, Draw, QuantisationRule, StackedSelector
from spsample.backends.protocol import Expansion, FloatArray, Int64Array, IntArray
from spsample.errors import InputError
from spsample.sparse.operand import Entries, Frontier, GraphOperand, RowForm, ScaledForm, own_weights
from spsample.sparse.probability import RowStatistics
from spsample.sparse.row_totals import RowTotals

__all__ = ["ScaledOperand"]


class ScaledOperand(GraphOperand):
    """A D in place of A: rows are drawn from by the weights of A D, and what is drawn are entries of A.

    Parameters
    ----------
    A : GraphOperand
    scale : ColumnScale
        D.
    totals : RowTotals or None
        What the rows weigh. With them the values of a sample are estimates, which undo the scaling: weights of
        a sum over the whole row of A (Des Raj's ordered estimator; with replacement Hansen and Hurwitz's). None: values
        are the weights of A.

    Examples
    --------
    >>> import numpy as np
    >>> from spsample.backends import Matrix, get_backend
    >>> from spsample.sparse import LocalOperand, RowSelector, its_sample, normalize_rows
    >>> A = LocalOperand(Matrix(np.array([0, 3, 3, 3]), np.array([0, 1, 2], np.int32)), None, get_backend("reference"))
    >>> only = ScaledOperand(A, ColumnScale(np.array([0b100], np.uint64), 1e9), None)
    >>> Q = RowSelector(np.array([0, 1]), np.array([0], np.int32), np.array([0]))
    >>> its_sample(normalize_rows(Q @ only), Draw((1, 2), 0, 1)).rows.columns.tolist()
    [2]
    """

    def __init__(self, A: GraphOperand, scale: ColumnScale, totals: RowTotals | None) -> None:
        self.A = A
        self.scale = scale
        self.totals = totals
        self.num_nodes, self.num_edges = A.num_nodes, A.num_edges
        self.weighting, self.index_dtype = A.weighting, A.index_dtype
        self.backend, self.limit = A.backend, A.limit

    def frontier(self, Q: StackedSelector) -> ScaledFrontier:
        """The rows of A D that Q selects."""
        return ScaledFrontier(self, Q)

    @property
    def column_norms(self) -> Any:
        """A layer-wise law has no scaled columns."""
        raise _of_a_layer()


class ScaledFrontier(Frontier):
    """Rows of A D, for the row law."""

    A: ScaledOperand

    def __init__(self, A: ScaledOperand, Q: StackedSelector) -> None:
        super().__init__(A, Q)
        self._rows = A.A.frontier(Q)
        self._draw: Draw | None = None
        self._form: RowForm = "uniform"

    def sample_rows(self, draw: Draw, form: RowForm | ScaledForm, edge_ids: bool) -> Entries:
        if isinstance(form, ScaledForm):
            raise InputError(argument="A", given="columns scaled twice", expected="one scale")
        self._draw, self._form = draw, form
        return self._rows.sample_rows(draw, ScaledForm(form, self.A.scale), edge_ids)

    def take_rows(self, edge_ids: bool) -> Entries:
        return self._rows.take_rows(edge_ids)

    def take_compacted(
        self, known: StackedSelector, include_targets: bool, edge_ids: bool
    ) -> tuple[Entries, Compaction]:
        return self._rows.take_compacted(known, include_targets, edge_ids)

    def values(self, entries: Entries, sources: Compaction) -> FloatArray | None:
        own = own_weights(self.A.A, entries)
        if self.A.totals is None or self._draw is None:
            return own
        totals = self.A.totals.of(self._form)
        how = Expansion(self.A.scale, totals, self._form == "weighted", self._draw.replace)
        return self.A.backend.expansion_values(self.Q, entries.rows, sources, own, how)

    def _row_statistics(self) -> RowStatistics:
        raise _of_a_layer()

    def entry_counts(self, exclude: Any) -> Int64Array:
        raise _of_a_layer()

    def locate(self, rows: Int64Array, offsets: Int64Array, exclude: Any = None) -> IntArray:
        raise _of_a_layer()

    def draw_entries(self, numerators: Any, draw: Draw) -> Any:
        raise _of_a_layer()

    def merge_columns(self, rule: QuantisationRule) -> Any:
        raise _of_a_layer()

    def extract(self, src_ptr: Int64Array, src: IntArray, edge_ids: bool) -> Entries:
        raise _of_a_layer()


def _of_a_layer() -> InputError:
    return InputError(
        argument="sampler",
        given="a law of whole frontiers on scaled columns",
        expected="a node-wise sampler, whose rows draw each for itself",
    )
