"""Memory of a device that a bulk takes beside its arrays."""

from __future__ import annotations

from spsample.backends.cuda.compaction_sets import set_bytes
from spsample.backends.cuda.device import SHARE_OF_FREE, WARP
from spsample.backends.cuda.extraction import MOST_FILTER_BITS
from spsample.backends.cuda.row_law import SCRATCH_BYTES
from spsample.planning.bulk_counts import POINTER_BYTES, WHOLE, BulkCounts, LayerCounts
from spsample.store.base_graph import BaseGraph

ROW_ARRAYS_BYTES = 4 * POINTER_BYTES  # lengths, their sums, places of known vertices, positions of rows in an order
CALL_BYTES = 16 << 20  # pointers and counts of batches, tables of draws
SOURCE_BYTES = 4 * 16  # slots of a hash table in which a source of a layer-wise sample is looked up, four for each
DRAWN_BYTES = 104  # of a column that a layer-wise sampler may draw: as drawn, counted, in a table, taken out, closed up
WARPS = 1 << 14  # more than a GPU holds at a time


def device_scratch(graph: BaseGraph, counts: BulkCounts) -> int:
    """The most bytes of the device that a bulk of these counts takes at a time, beside its arrays.

    Sets of columns take half a byte for each vertex of the graph and batch; where that is more than a quarter of what
    is free, groups of batches are numbered one after the other. Left out is what adapts itself to the memory that is
    free when it is made, at most a quarter of it: a bit for each entry of a layer-wise sampler's frontier, and the
    merged columns of batches under the column law.
    """
    sets = min(counts.batches * set_bytes(graph.num_nodes), graph.free_bytes() // SHARE_OF_FREE)
    sets = max(sets, set_bytes(graph.num_nodes) if counts.batches else 0)
    rows = max((_layer_bytes(layer) for layer in counts.layers), default=0)
    drawn = _drawn_bytes(counts) + _position_bytes(graph, counts) + _union_bytes(counts)
    return int(CALL_BYTES + sets + sets // 16 + rows + drawn)


def _layer_bytes(layer: LayerCounts) -> int:
    return ROW_ARRAYS_BYTES * layer.rows + POINTER_BYTES * layer.sources


def _drawn_bytes(counts: BulkCounts) -> int:
    """What is drawn, before it is the sample: positions of long draws from rows, or columns and sources."""
    sampler = counts.sampler
    largest = max(sampler.sizes, default=0)
    if sampler.kind == "layer-wise":
        per_batch = DRAWN_BYTES * largest + MOST_FILTER_BITS // 8
        return per_batch * counts.batches + SOURCE_BYTES * max(one.sources for one in counts.layers)
    if largest <= WARP or sampler.replace:
        return 0
    warps = min(max(one.rows for one in counts.layers) + WARP, WARPS)
    return min(POINTER_BYTES * (2 << (largest - 1).bit_length()) * warps, SCRATCH_BYTES)


def _position_bytes(graph: BaseGraph, counts: BulkCounts) -> int:
    """Where entries lie in A, until their weights are read: kept for all layers; edge ids take their place."""
    with_weights = counts.sampler.kind == "node-wise" and WHOLE not in counts.sampler.sizes  # drawn with them
    if graph.weighting != "weighted" or with_weights:
        return 0
    return POINTER_BYTES * sum(layer.entries for layer in counts.layers if not layer.id_bytes)


def _union_bytes(counts: BulkCounts) -> int:
    """United hops are copied, one kind of arrays at a time."""
    if counts.sampler.layout != "subgraph":
        return 0
    layer = counts.layers[0]
    return POINTER_BYTES * max(layer.rows + counts.batches, layer.entries)


__all__ = ["device_scratch"]
