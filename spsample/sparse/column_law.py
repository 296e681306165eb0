"""The column law: P of layer-wise samplers whose columns are merged before they are drawn."""

from __future__ import annotations

from spsample.backends import ColumnSample, Draw, QuantisationRule
from spsample.common.lazily import lazily
from spsample.sparse.layer_law import LayerLaw
from spsample.sparse.operand import Frontier
from spsample.sparse.probability import frontier_rule
from spsample.sparse.selector import RowSelector


class ColumnLaw(LayerLaw):
    """P of `(Q A^power)^column_power`, its rows merged by column (law, section 3: column law, frontier rule)."""

    def __init__(self, Q: RowSelector, F: Frontier, power: int, column_power: int) -> None:
        super().__init__(Q, F)
        self.power = power
        self.column_power = column_power

    @lazily
    def rule(self) -> QuantisationRule:
        """From weights to numerators."""
        return frontier_rule(self.F.A.weighting, self.F.batch_statistics, self.power, self.column_power)

    def draw_columns(self, draw: Draw) -> ColumnSample:
        """Columns for every batch, as arrays."""
        return self.F.draw_merged(self.rule, draw)


class GraphLaw(LayerLaw):
    """P of the squared column norms of the whole A, one row for all batches (law, section 3: column law, graph rule).

    The graph keeps its numerators.
    """

    def draw_columns(self, draw: Draw) -> ColumnSample:
        """Columns for every batch, as arrays."""
        return self.F.A.column_norms.draw(self.Q.batch_ids, draw)
