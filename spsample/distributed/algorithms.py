"""The algorithms on a partitioned graph that users choose from."""

from __future__ import annotations

from spsample.distributed.column.operand import ColumnOperand
from spsample.distributed.operand import PartitionedOperand
from spsample.distributed.stages.stages import ObliviousOperand, StagesOperand

ALGORITHMS: dict[str, type[PartitionedOperand]] = {
    "column": ColumnOperand,
    "stages": StagesOperand,
    "oblivious": ObliviousOperand,
}
"""By name; called with the grid and this rank's parts of A."""

AUTO, DEFAULT = "auto", "column"
"""What stands for the one that is chosen for each kind of bulk, and what is taken where nothing is known of bulks."""

__all__ = ["ALGORITHMS", "AUTO", "DEFAULT"]
