"""Where minibatches get their features from."""

from __future__ import annotations

from spsample.features.device import DeviceFeatures
from spsample.features.memory import FeatureStore
from spsample.features.partitioned import PartitionedFeatures
from spsample.features.partitioned_device import PartitionedDeviceFeatures
from spsample.features.protocol import FeatureSource
from spsample.features.scores import register_score, score, score_names

__all__ = [
    "DeviceFeatures",
    "FeatureSource",
    "FeatureStore",
    "PartitionedDeviceFeatures",
    "PartitionedFeatures",
    "register_score",
    "score",
    "score_names",
]
