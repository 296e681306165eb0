"""Sources of the features of minibatches: stores, caches, disks, devices and other ranks."""

from __future__ import annotations

from spsample.features.aggregated import aggregate_features, aggregated_dim
from spsample.features.cached import CachedFeatures
from spsample.features.copies import CopyCost, CopyPlan, copy_cost, plan_copies
from spsample.features.device import DeviceFeatures
from spsample.features.disk import DiskCounts, DiskFeatures
from spsample.features.keeper import CacheCounts
from spsample.features.lookahead import Lookahead
from spsample.features.memory import FeatureStore
from spsample.features.partitioned import PartitionedDeviceFeatures, PartitionedFeatures
from spsample.features.routed import RoutedFeatures
from spsample.features.scores import register_score, score, score_names
from spsample.features.scores.visits import DrawShift, draw_shift
from spsample.features.source import FeatureSource

__all__ = [
    "CacheCounts",
    "CachedFeatures",
    "CopyCost",
    "CopyPlan",
    "DeviceFeatures",
    "DiskCounts",
    "DiskFeatures",
    "DrawShift",
    "FeatureSource",
    "FeatureStore",
    "Lookahead",
    "PartitionedDeviceFeatures",
    "PartitionedFeatures",
    "RoutedFeatures",
    "aggregate_features",
    "aggregated_dim",
    "copy_cost",
    "draw_shift",
    "plan_copies",
    "register_score",
    "score",
    "score_names",
]
