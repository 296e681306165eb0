"""Bulk minibatch sampling for graph neural networks as sparse matrix algebra.

Examples
--------
>>> import spsample as sp
>>> graph = sp.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
>>> bulk = sp.bulk_sample(graph, seeds=[0, 1, 3], sampler=sp.GraphSAGE([2, 2]), batch_size=2)
>>> [len(minibatch.src_nodes) for minibatch in bulk]
[4, 4]
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from spsample.backends import available_backends
from spsample.planning import BulkPlan, bulk_sample, plan_bulk
from spsample.sampling import (
    LADIES,
    Biased,
    BulkSample,
    FastGCN,
    GraphSAGE,
    MiniBatch,
    Sampler,
)
from spsample.sparse import CSRMatrix, clear_pool, set_num_threads, shuffle
from spsample.sparse.keys import LAW_VERSION
from spsample.store import Graph

if TYPE_CHECKING:
    from spsample.comm import init
    from spsample.data import Dataset, load_dataset
    from spsample.distributed import PartitionedGraph, ProcessGrid, ReplicatedGraph
    from spsample.features import CachedFeatures, DeviceFeatures, DiskFeatures, FeatureStore
    from spsample.loading import BulkLoader, FactoredLoader, load_bulk
    from spsample.store.device_graph import DeviceGraph

__version__ = "0.1.0.dev0"
law_version = LAW_VERSION

_LAZY = {
    "BulkLoader": "spsample.loading",
    "CachedFeatures": "spsample.features",
    "Dataset": "spsample.data",
    "DeviceFeatures": "spsample.features",
    "DeviceGraph": "spsample.store.device_graph",
    "DiskFeatures": "spsample.features",
    "FactoredLoader": "spsample.loading",
    "FeatureStore": "spsample.features",
    "PartitionedGraph": "spsample.distributed",
    "ProcessGrid": "spsample.distributed",
    "ReplicatedGraph": "spsample.distributed",
    "init": "spsample.comm",
    "load_bulk": "spsample.loading",
    "load_dataset": "spsample.data",
}
"""Names imported on first use, so that `import spsample` stays quick."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if not name.startswith("_") and find_spec(f"{__name__}.{name}"):  # a package of this one
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'spsample' has no attribute {name!r}")


__all__ = [
    "LADIES",
    "Biased",
    "BulkLoader",
    "BulkPlan",
    "BulkSample",
    "CSRMatrix",
    "CachedFeatures",
    "Dataset",
    "DeviceFeatures",
    "DeviceGraph",
    "DiskFeatures",
    "FactoredLoader",
    "FastGCN",
    "FeatureStore",
    "Graph",
    "GraphSAGE",
    "MiniBatch",
    "PartitionedGraph",
    "ProcessGrid",
    "ReplicatedGraph",
    "Sampler",
    "available_backends",
    "bulk_sample",
    "clear_pool",
    "init",
    "law_version",
    "load_bulk",
    "load_dataset",
    "plan_bulk",
    "set_num_threads",
    "shuffle",
]
