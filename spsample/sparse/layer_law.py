"""`LayerLaw`: what P is in all layer-wise samplers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spsample.backends import ColumnSample, Compaction, Draw, ExtractedLayer, QuantisationRule, UnbiasedExtraction
from spsample.backends.protocol import Int64Array, IntArray, UInt64Array
from spsample.common.checks import short
from spsample.common.lazily import lazily
from spsample.errors import DTypeError
from spsample.sparse.extraction import (
    ExtractOptions,
    Numerators,
    SourceWeights,
    StackedLayer,
    UnbiasedWeights,
    consumed,
)
from spsample.sparse.operand import Frontier
from spsample.sparse.selector import RowSelector

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class LayerSample:
    """S of a layer-wise sampler: the columns that were drawn for each batch. EXTRACT consumes it."""

    def __init__(self, P: LayerLaw, draw: Draw, drawn: ColumnSample) -> None:
        self.P = P
        self.draw = draw
        self._drawn: ColumnSample | None = drawn  # until EXTRACT takes it

    @property
    def drawn(self) -> ColumnSample:
        """All that was drawn."""
        if self._drawn is None:
            raise consumed()
        return self._drawn

    @property
    def indptr(self) -> Int64Array:
        """Positions where the columns of each batch begin."""
        return self.drawn.indptr

    @property
    def columns(self) -> IntArray:
        """Vertex ids, distinct in a batch, in the order first drawn."""
        return self.drawn.columns

    @property
    def counts(self) -> Int64Array:
        """Number of times that each column was drawn."""
        return self.drawn.counts

    @property
    def totals(self) -> UInt64Array:
        """T of each batch: the sum of its numerators."""
        return self.drawn.totals

    @property
    def whole(self) -> NDArray[np.bool_]:
        """True where the columns of a batch are all that can be drawn."""
        return self.drawn.whole

    def extract(self, options: ExtractOptions, weights: SourceWeights | None = None) -> StackedLayer:
        """The frontier's rows of A restricted to each batch's columns, with values."""
        if weights is None or not (hasattr(weights, "normalize") and hasattr(weights, "values")):
            expected = "UnbiasedWeights() or ReferenceWeights()"
            raise DTypeError(argument="weights", given=short(weights), expected=expected)
        layer = self.P.extract(self.draw, self.drawn, options, weights)
        self._drawn = None
        return layer


class LayerLaw:
    """P with one row per batch: a distribution over the columns of its frontier's rows.

    No abstract class: of such a one, `isinstance` takes four times as long, which a small call notices.
    """

    def __init__(self, Q: RowSelector, F: Frontier) -> None:
        self.Q = Q
        self.F = F

    def sample(self, draw: Draw) -> LayerSample:
        """Columns for every batch."""
        return LayerSample(self, draw, self.draw_columns(draw))

    def draw_columns(self, draw: Draw) -> ColumnSample:
        """Columns for every batch, as arrays."""
        raise NotImplementedError

    @lazily
    def rule(self) -> QuantisationRule | None:
        """From weights to numerators; None where those of `column_norms` are drawn by."""
        return None

    def numerators(self, sources: Compaction) -> Numerators:
        """N of every src column, or the rule by which they are read off the extraction."""
        return self.F.A.column_norms.numerators(sources.src) if self.rule is None else self.rule

    def extract(
        self, draw: Draw, sample: ColumnSample, options: ExtractOptions, weights: SourceWeights
    ) -> StackedLayer:
        """The frontier's rows of A restricted to each batch's columns, with values.

        Columns are found by a membership lookup; the published system multiplies by a block-diagonal column selector
        instead, in many small products (section 4.2.4).
        """
        is_in_kernel = type(weights) is UnbiasedWeights  # and of no subclass, which may have values of its own
        in_one = self._in_one_kernel(draw, sample, options, weights.normalize) if is_in_kernel else None
        return self._step_by_step(draw, sample, options, weights) if in_one is None else in_one

    def _in_one_kernel(
        self, draw: Draw, sample: ColumnSample, options: ExtractOptions, normalize: bool
    ) -> StackedLayer | None:
        """With unbiased values, where the frontier has a kernel for all of it: a small call waits for each kernel."""
        size = draw.size if draw.replace else 0
        how = UnbiasedExtraction(size, options.include_targets, options.edge_ids, normalize)
        found = self.F.extract_unbiased(sample, self.rule, how)
        if found is None:
            return None
        return StackedLayer(self.Q, *found)

    def _step_by_step(
        self, draw: Draw, sample: ColumnSample, options: ExtractOptions, weights: SourceWeights
    ) -> StackedLayer:
        """With values of any kind, from rows that lie anywhere."""
        Q, A, backend = self.Q, self.F.A, self.F.A.backend
        columns = sample.columns.astype(Q.vertices.dtype)  # a copy: they are numbered in place
        sources = backend.compact(Q, sample.indptr, columns, options.include_targets, A.num_nodes)
        rows, matrix, selector, edge_ids = self.F.extract(sources.src_ptr, sources.src, options.edge_ids)
        A.limit.at_extract(len(rows.columns))
        layer = ExtractedLayer(matrix, selector, rows, sample, sources, options.include_targets)
        data = weights.values(backend, draw, layer, self.numerators(sources))
        return StackedLayer(Q, sources.src_ptr, sources.src, rows, data, edge_ids)
