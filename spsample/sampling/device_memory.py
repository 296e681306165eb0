"""How much memory of a device a bulk takes beside its arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends.cuda.column_sets import set_bytes
from spsample.store.device_graph import DeviceGraph

if TYPE_CHECKING:
    from spsample.sampling.memory import BulkCounts, LayerCounts

POINTER_BYTES = 8
ROW_BYTES = 4 * POINTER_BYTES  # lengths, their sums, places of known vertices, positions of rows in an order
CALL_BYTES = 16 << 20  # pointers and counts of batches, tables of draws
SETS_SHARE = 4
"""Sets of columns are made group by group of batches where they would take more than a quarter of the free memory."""


def device_scratch(graph: DeviceGraph, counts: BulkCounts) -> int:
    """The most bytes of the device that a bulk of these counts takes at a time, beside its arrays.

    Sets of columns take half a byte for each vertex of the graph and batch; where that is more than a quarter of what
    is free, groups of batches are numbered one after the other.
    """
    sets = min(counts.batches * set_bytes(graph.num_nodes), graph.free_bytes() // SETS_SHARE)
    sets = max(sets, set_bytes(graph.num_nodes) if counts.batches else 0)
    rows = max((_layer_bytes(layer) for layer in counts.layers), default=0)
    return int(CALL_BYTES + sets + sets // 16 + rows)


def _layer_bytes(layer: LayerCounts) -> int:
    return ROW_BYTES * layer.rows + POINTER_BYTES * layer.sources


def available_for(graph: Any, otherwise: int) -> int:
    """Bytes that bulks of the graph may take: of its device, or those of the host."""
    return graph.free_bytes() if isinstance(graph, DeviceGraph) else otherwise


def index_dtype(graph: Any) -> np.dtype[Any]:
    """Type of the graph's vertex ids."""
    dtype: np.dtype[Any] = graph.index_dtype if isinstance(graph, DeviceGraph) else graph.indices.dtype
    return dtype


__all__ = ["available_for", "device_scratch", "index_dtype"]
