"""Partitions of a graph's vertices: which block row, or which independent trainer, each one goes to."""

from __future__ import annotations

from spsample.data.partition.methods import METHODS, metis_partition, partition_vertices
from spsample.data.partition.parts import PartitionQuality, part_dataset, partition_quality, write_part_stores

__all__ = [
    "METHODS",
    "PartitionQuality",
    "metis_partition",
    "part_dataset",
    "partition_quality",
    "partition_vertices",
    "write_part_stores",
]
