"""Q: selectors of k stacked minibatches, and the lazy products Q A (design: nothing of size |Q A| is ever written)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from spsample.backends import ColumnSample, Compaction, Draw, QuantisationRule, StackedSelector
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.common.checks import require_array, require_int, require_type
from spsample.common.lazily import lazily
from spsample.sparse.operand import Entries, FrontierTotals, GraphOperand, Numbering, RowRule, RowTotals
from spsample.sparse.probability import batch_totals, frontier_rule


class RowSelector(StackedSelector):
    """Q with one nonzero per row: row r selects row `vertices[r]` of A; rows are stacked batch by batch.

    Parameters
    ----------
    batch_ptr : int64 array (k + 1,)
        Batch i owns rows `batch_ptr[i]:batch_ptr[i + 1]`.
    vertices : int32 or int64 array (m,)
        Distinct within a batch.
    batch_ids : int64 array (k,)
        Global batch ids, which key the draws.

    Notes
    -----
    `Q @ A` is a lazy view of the selected rows (GraphSAGE's Q A, equation 1 of the paper). `Q.per_batch() @ A` adds up
    each batch's rows (LADIES' Q A, one row per batch).
    """

    __slots__ = ()

    @property
    def arrays(self) -> StackedSelector:
        """As the plain arrays that backends read: itself."""
        return self

    def per_batch(self) -> BatchSelector:
        """The same vertices as a selector with one row per batch and one nonzero per vertex."""
        return BatchSelector(self)

    def __matmul__(self, A: GraphOperand | Pattern) -> RowView:
        if isinstance(A, Pattern):
            return RowView(self, A.operand, "uniform")
        if not hasattr(A, "weighting"):
            _require_operand(A)
        return RowView(self, A, "weighted" if A.weighting == "weighted" else "uniform")


class BatchSelector(NamedTuple):
    """Q with one row per batch: row i has a 1 in the column of each vertex of batch i."""

    rows: RowSelector

    def __matmul__(self, A: GraphOperand | Squared) -> BatchProduct:
        if isinstance(A, Squared):
            return BatchProduct(self.rows, A.operand, power=2)
        if not hasattr(A, "weighting"):
            _require_operand(A)
        return BatchProduct(self.rows, A)


def _require_operand(A: object) -> None:
    require_type("A", A, GraphOperand, "what `graph.operand()` returns, or its pattern or square")


class Squared(NamedTuple):
    """A o A, the entrywise square, never formed."""

    operand: GraphOperand


class Pattern(NamedTuple):
    """A with every stored entry counted as 1, never formed."""

    operand: GraphOperand


class RowView(NamedTuple):
    """Lazy Q A with one row of A per row of Q: sampling it is one fused kernel at the rows' owners (row law)."""

    Q: RowSelector
    A: GraphOperand
    rule: RowRule

    def sample(self, draw: Draw, edge_ids: bool) -> Entries:
        """Draw entries of every row (`its_sample`); a size of -1 takes whole rows."""
        return self.A.sample_rows(self.Q.arrays, draw, self._rule(draw), edge_ids)

    def sample_numbered(self, draw: Draw, want: Numbering) -> tuple[Entries, Compaction]:
        """The same, with columns numbered on the way."""
        return self.A.sample_numbered(self.Q.arrays, draw, self._rule(draw), want)

    def _rule(self, draw: Draw) -> RowRule:
        return "whole" if draw.size < 0 else self.rule


@dataclass(eq=False)
class BatchProduct:
    """Lazy `(Q A^power)^column_power` with one row per batch, powers entrywise: what LADIES draws from.

    Where the entries of a row of A weigh the same and nothing is squared after the sum, drawing an entry draws its
    column with the right probability and Q A is not formed (entry law); else columns are merged first (column law).
    """

    Q: RowSelector
    A: GraphOperand
    power: int = 1
    column_power: int = 1

    def sample(self, draw: Draw) -> ColumnSample:
        """Draw columns for every batch (`its_sample`)."""
        if self._draws_entries:
            return self._sample_entries(draw)
        return self.A.draw_merged(self.Q.arrays, self._rule, draw)

    def source_numerators(self, sources: Compaction, entries: Entries) -> UInt64Array:
        """(len(src),) N of every src column, read off the extraction of these columns."""
        return self.A.backend.extracted_numerators(
            entries.matrix, entries.selector, entries.rows, sources.src_ptr, self._rule
        )

    @lazily
    def _totals(self) -> RowTotals:
        """Of the frontier's rows: asked for once, for drawing and for the values."""
        return self.A.row_totals(self.Q.arrays)

    @property
    def _rule(self) -> QuantisationRule:
        if self.A.weighting == "unweighted" and self.column_power == 1:
            return QuantisationRule(None, self.power, self.column_power)  # and no totals are asked for
        return self._frontier_rule

    @lazily
    def _frontier_rule(self) -> QuantisationRule:
        if self._draws_entries:
            totals = batch_totals(self.A.backend, self.Q.batch_ptr, self._totals)
        else:
            totals = self._frontier_totals
        return frontier_rule(self.A.weighting, totals, self.power, self.column_power)

    @property
    def _frontier_totals(self) -> FrontierTotals:
        """Of the batches: all that is needed where no entry law asks for the totals of rows."""
        return self.A.frontier_totals(self.Q.arrays)

    @property
    def _draws_entries(self) -> bool:
        """Whether the entry law applies."""
        return self.column_power == 1 and self.A.weighting != "weighted"

    def _sample_entries(self, draw: Draw) -> ColumnSample:
        Q = self.Q.arrays
        if self.A.weighting == "unweighted":
            return self.A.draw_entries(Q, None, draw)
        numerators = self.A.backend.row_numerators(Q.batch_ptr, self._totals.counts, self._rule)
        return self.A.draw_entries(Q, numerators, draw)


class ColumnNorms(NamedTuple):
    """Lazy row of squared column norms of A, the same for every batch: what FastGCN draws from."""

    Q: RowSelector
    A: GraphOperand

    def sample(self, draw: Draw) -> ColumnSample:
        """Draw columns for every batch (`its_sample`)."""
        sample = self.A.draw_columns(self.Q.batch_ids, draw)
        columns = sample.columns.astype(self.A.index_dtype)
        return ColumnSample(sample.indptr, columns, sample.counts, sample.totals, sample.whole)

    def source_numerators(self, sources: Compaction, entries: Entries) -> UInt64Array:
        """(len(src),) N of every src column."""
        return self.A.column_totals(sources.src)


def stack(batches: list[IntArray], first_batch: int = 0) -> RowSelector:
    """Q of k minibatches stacked (equation 1 of the paper).

    Examples
    --------
    >>> stack([np.array([3, 1]), np.array([2])]).batch_ptr.tolist()
    [0, 2, 3]
    """
    require_type("batches", batches, (list, tuple), "a list of arrays of vertex ids")
    for number, batch in enumerate(batches):
        require_array(f"batches[{number}]", batch, ("i", "u"), "integers")
    first_batch = require_int("first_batch", first_batch, minimum=0, maximum=2**32)
    ptr = np.concatenate([[0], np.cumsum([len(b) for b in batches])]).astype(np.int64)
    vertices = np.concatenate(batches) if batches else np.zeros(0, np.int32)
    return RowSelector(ptr, vertices, first_batch + np.arange(len(batches), dtype=np.int64))


def split(stacked: IntArray, ptr: Int64Array) -> list[IntArray]:
    """The batches' parts of a stacked array, without a copy.

    Examples
    --------
    >>> [part.tolist() for part in split(np.array([3, 1, 2]), np.array([0, 2, 3]))]
    [[3, 1], [2]]
    """
    require_array("stacked", stacked, ("i", "u"), "integers")
    require_array("ptr", ptr, ("i", "u"), "integers")
    return [stacked[lo:hi] for lo, hi in pairwise(ptr)]
