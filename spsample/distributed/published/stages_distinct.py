"""`StagesDistinctOperand`: the published algorithm where no row travels twice in a layer (`"stages-distinct"`)."""

from __future__ import annotations

from spsample.distributed.published.shares import Shares
from spsample.distributed.published.staged import HeldRows
from spsample.distributed.published.stages import StagesOperand


class StagesDistinctOperand(StagesOperand):
    """`StagesOperand` with an all-reduce of the distinct rows of P: each travels once for all batches that want it.

    Not published. All ranks of a row group still get all rows, as they do there: the fairest baseline of its kind.
    """

    def all_reduced(self, shares: Shares, column: HeldRows) -> HeldRows:
        """All distinct rows of P, column by column."""
        arrays = self.row_group.rows(column.arrays, shares.bounds[1:] - shares.bounds[:-1])
        return HeldRows(arrays.operand(self.parts.block, shares.vertices), shares.selector(), arrays)


__all__ = ["StagesDistinctOperand"]
