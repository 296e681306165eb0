"""`LayerLaw`: what P is in all layer-wise samplers."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from spsample.backends import Backend, ColumnSample, Compaction, Draw, QuantisationRule
from spsample.backends.protocol import UInt64Array
from spsample.sparse.extraction import ExtractOptions, Sources, SourceWeights, StackedLayer
from spsample.sparse.operand import Entries, Frontier
from spsample.sparse.selector import RowSelector


class LayerLaw(ABC):
    """P with one row per batch: a distribution over the columns of its frontier's rows."""

    def __init__(self, Q: RowSelector, F: Frontier) -> None:
        self.Q = Q
        self.F = F

    @abstractmethod
    def sample(self, draw: Draw) -> ColumnSample:
        """Columns for every batch."""

    @abstractmethod
    def numerators(self, sources: Compaction, entries: Entries) -> UInt64Array:
        """(len(src),) N of every src column, where `entries` are the edges into them."""

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
        entries = self.F.extract(sources.src_ptr, sources.src, options.edge_ids)
        A.limit.at_extract(len(entries.rows.columns))
        targets = (
            Q.batch_ptr[1:] - Q.batch_ptr[:-1] if options.include_targets else np.zeros(len(Q.batch_ids), np.int64)
        )
        c = weights(backend, draw, sample, Sources(sources, targets, self.numerators(sources, entries)))
        matrix, selector, rows = entries.matrix, entries.selector, entries.rows
        data = backend.entry_values(matrix, selector, rows, sources.src_ptr, c, weights.normalize)
        return StackedLayer(Q, sources.src_ptr, sources.src, rows, data, entries.edge_ids)


def read_numerators(backend: Backend, rule: QuantisationRule, sources: Compaction, entries: Entries) -> UInt64Array:
    """(len(src),) N of every src column, read off the extraction: column sums of its entries' numerators."""
    return backend.extracted_numerators(entries.matrix, entries.selector, entries.rows, sources.src_ptr, rule)


__all__ = ["LayerLaw", "read_numerators"]
