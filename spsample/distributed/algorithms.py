"""The algorithms on a partitioned graph, by name."""

from __future__ import annotations

from spsample.distributed.column.operand import ColumnOperand
from spsample.distributed.operand import PartitionedOperand
from spsample.distributed.published.stages import ObliviousOperand, StagesOperand
from spsample.distributed.published.variants import StagesDistinctOperand, StagesSplitOperand

CHOICES = ("column", "stages", "oblivious")
"""What users choose from."""

ALGORITHMS: dict[str, type[PartitionedOperand]] = {
    "column": ColumnOperand,
    "stages": StagesOperand,
    "stages-distinct": StagesDistinctOperand,
    "stages-split": StagesSplitOperand,
    "oblivious": ObliviousOperand,
}
"""All of them, those for tests and measurements too: called with the grid and this rank's parts of A."""

__all__ = ["ALGORITHMS", "CHOICES"]
