"""The entry law: P of layer-wise samplers where the entries of a row weigh the same; Q A is not formed."""

from __future__ import annotations

from spsample.backends import ColumnSample, Draw, QuantisationRule
from spsample.common.lazily import lazily
from spsample.sparse.layer_law import LayerLaw
from spsample.sparse.operand import Frontier
from spsample.sparse.probability import batch_statistics, frontier_rule
from spsample.sparse.selector import RowSelector


class EntryLaw(LayerLaw):
    """P of `Q A^power`: drawing an entry draws its column with the right probability (law, section 3: entry law)."""

    def __init__(self, Q: RowSelector, F: Frontier, power: int) -> None:
        super().__init__(Q, F)
        self.power = power

    @lazily
    def rule(self) -> QuantisationRule:
        """From weights to numerators; unweighted graphs are asked for nothing."""
        A = self.F.A
        if A.weighting == "unweighted":
            return QuantisationRule(None, self.power, 1)
        batches = batch_statistics(A.backend, self.Q.batch_ptr, self.F.row_statistics)
        return frontier_rule(A.weighting, batches, self.power, 1)

    def draw_columns(self, draw: Draw) -> ColumnSample:
        """Columns for every batch, as arrays."""
        if self.rule.shifts is None:
            return self.F.draw_entries(None, draw)
        counts = self.F.row_statistics.counts
        return self.F.draw_entries(self.F.A.backend.row_numerators(self.Q.batch_ptr, counts, self.rule), draw)
