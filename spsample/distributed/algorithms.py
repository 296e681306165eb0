"""The algorithms on a partitioned graph, by the names that users choose them by."""

from __future__ import annotations

from spsample.distributed.column.operand import ColumnOperand
from spsample.distributed.operand import PartitionedOperand
from spsample.distributed.published.oblivious import ObliviousOperand
from spsample.distributed.published.stages import StagesOperand
from spsample.distributed.published.stages_distinct import StagesDistinctOperand
from spsample.distributed.published.stages_split import StagesSplitOperand

ALGORITHMS: dict[str, type[PartitionedOperand]] = {
    "column": ColumnOperand,
    "stages": StagesOperand,
    "stages-distinct": StagesDistinctOperand,
    "stages-split": StagesSplitOperand,
    "oblivious": ObliviousOperand,
}
"""What a graph's operand is made of: called with the grid and this rank's parts of A."""

__all__ = ["ALGORITHMS"]
