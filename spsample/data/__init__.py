"""Data sets: real ones from files, generators with known answers, and the digits of scikit-learn."""

from __future__ import annotations

from spsample.data.dataset import Dataset, Features, save_dataset, scale_features
from spsample.data.generators import planted, rewire
from spsample.data.named import load_dataset
from spsample.data.part_stores import (
    DatasetPart,
    PartitionQuality,
    part_dataset,
    partition_quality,
    read_part,
    write_part_stores,
)
from spsample.data.partition import metis_partition, partition_vertices

__all__ = [
    "Dataset",
    "DatasetPart",
    "Features",
    "PartitionQuality",
    "load_dataset",
    "metis_partition",
    "part_dataset",
    "partition_quality",
    "partition_vertices",
    "planted",
    "read_part",
    "rewire",
    "save_dataset",
    "scale_features",
    "write_part_stores",
]
