"""`LayerLaw`: what P is in all layer-wise samplers."""

from __future__ import annotations

from spsample.backends import ColumnSample, Compaction, Draw, ExtractedLayer
from spsample.sparse.extraction import ExtractOptions, Numerators, SourceWeights, StackedLayer
from spsample.sparse.operand import Frontier
from spsample.sparse.selector import RowSelector


class LayerLaw:
    """P with one row per batch: a distribution over the columns of its frontier's rows.

    No abstract class: of such a one, `isinstance` takes four times as long, which a small call notices.
    """

    def __init__(self, Q: RowSelector, F: Frontier) -> None:
        self.Q = Q
        self.F = F

    def sample(self, draw: Draw) -> ColumnSample:
        """Columns for every batch."""
        raise NotImplementedError

    def numerators(self, sources: Compaction) -> Numerators:
        """N of every src column, or the rule by which they are read off the extraction."""
        raise NotImplementedError

    def extract(
        self, draw: Draw, sample: ColumnSample, options: ExtractOptions, weights: SourceWeights
    ) -> StackedLayer:
        """The frontier's rows of A restricted to each batch's columns, with values.

        Columns are found by a membership lookup; the published system multiplies by a block-diagonal column selector
        instead, in many small products (section 4.2.4).
        """
        Q, A, backend = self.Q, self.F.A, self.F.A.backend
        columns = sample.columns.astype(Q.vertices.dtype)  # a copy: they are numbered in place
        sources = backend.compact(Q, sample.indptr, columns, options.include_targets, A.num_nodes)
        rows, matrix, selector, edge_ids = self.F.extract(sources.src_ptr, sources.src, options.edge_ids)
        A.limit.at_extract(len(rows.columns))
        layer = ExtractedLayer(matrix, selector, rows, sample, sources, options.include_targets)
        data = weights.values(backend, draw, layer, self.numerators(sources))
        return StackedLayer(Q, sources.src_ptr, sources.src, rows, data, edge_ids)


__all__ = ["LayerLaw"]
