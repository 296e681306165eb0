"""Graphs over many ranks: replicated, or partitioned in 1.5D over a process grid."""

from __future__ import annotations

from spsample.distributed.graph import ReplicatedGraph
from spsample.distributed.grid import ProcessGrid
from spsample.distributed.partitioned import PartitionedGraph

__all__ = ["PartitionedGraph", "ProcessGrid", "ReplicatedGraph"]
