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
"""Operands by the name of their algorithm; called with the grid and this rank's parts of A."""

AUTO, DEFAULT = "auto", "column"
"""The name of a choice for each kind of bulk, and the algorithm where nothing is known of bulks."""

__all__ = ["ALGORITHMS", "AUTO", "DEFAULT"]
