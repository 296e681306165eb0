"""A D: A with its columns scaled by a diagonal matrix, never formed, as node-wise samplers draw from it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends import ColumnScale, Compaction, Draw, QuantisationRule, StackedSelector
from spsample.backends.on_host import row_lengths
from spsample.backends.protocol import FloatArray, Int64Array, IntArray
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
        totals = self.A.totals.of(self._form)[self.Q.vertices]
        return self._estimates(entries, sources, own, (self._draw, totals))

    def _estimates(
        self,
        entries: Entries,
        sources: Compaction,
        own: FloatArray | None,
        drawn: tuple[Draw, NDArray[np.float64]],
    ) -> FloatArray:
        """Weights of a sum over the rows of A, from a draw by the rows of A D."""
        (draw, totals), lengths = drawn, row_lengths(entries.rows)
        offsets = np.repeat(sources.src_ptr[:-1], np.diff(entries.rows.entry_ptr))
        is_entry = np.arange(max(int(lengths.max(initial=0)), 1)) < lengths[:, None]
        weights, in_set = np.zeros(is_entry.shape), np.zeros(is_entry.shape, np.bool_)
        weights[is_entry] = 1.0 if own is None or self._form == "uniform" else own
        in_set[is_entry] = self.A.scale.has(sources.src[offsets + sources.local])
        expand = _hansen_hurwitz if draw.replace else _des_raj
        expansions = expand(weights, in_set, totals, self.A.scale.factor)[is_entry]
        values = expansions if own is None else own * expansions
        return values.astype(np.float32 if own is None else own.dtype)

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


def _des_raj(
    weights: NDArray[np.float64], in_set: NDArray[np.bool_], totals: NDArray[np.float64], factor: float
) -> NDArray[np.float64]:
    """(rows, draws): of the r-th of s entries drawn without replacement (R_r / w_r + s - r) / s; 1 where all were.

    R_r is what the row weighs without those that were drawn before. What is in the set and what is not are added up
    apart, so that a large factor hides nothing. Des Raj, JASA 1956.
    """
    of_kind = np.stack([np.where(in_set, 0, weights), np.where(in_set, weights, 0)], axis=-1)
    after = totals[:, None] - np.cumsum(of_kind, axis=1)
    before = np.maximum(after + of_kind, 0)
    rest = before[..., 0] + before[..., 1] * factor
    s = np.maximum(np.count_nonzero(weights, axis=1), 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        estimates: NDArray[np.float64] = (
            rest / np.where(in_set, weights * factor, weights) + (s - 1 - np.arange(weights.shape[1]))
        ) / s
    estimates[(after[:, -1] <= totals * 1e-12).all(axis=1)] = 1.0  # none is left but for rounding
    return estimates


def _hansen_hurwitz(
    weights: NDArray[np.float64], in_set: NDArray[np.bool_], totals: NDArray[np.float64], factor: float
) -> NDArray[np.float64]:
    """(rows, draws): T / (s w) of each of s entries drawn with replacement, T what the row weighs.

    Hansen and Hurwitz, Ann. Math. Stat. 1943.
    """
    s = np.maximum(np.count_nonzero(weights, axis=1), 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.where(in_set, weights * factor, weights)
        estimates: NDArray[np.float64] = (totals[:, :1] + totals[:, 1:] * factor) / (s * scaled)
    return estimates


def _of_a_layer() -> InputError:
    return InputError(
        argument="sampler",
        given="a law of whole frontiers on scaled columns",
        expected="a node-wise sampler, whose rows draw each for itself",
    )
