"""Memory that a bulk takes beside its arrays, of the host (docs/memory.md) and of a device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from spsample.backends.cuda.compaction_sets import set_bytes
from spsample.backends.cuda.device import SHARE_OF_FREE, WARP
from spsample.backends.cuda.extraction import MOST_FILTER_BITS
from spsample.backends.cuda.row_law import SCRATCH_BYTES
from spsample.planning.bulk_counts import POINTER_BYTES, WHOLE, BulkCounts, GraphProfile, LayerCounts
from spsample.sampling.bulk import BulkSample
from spsample.store import Graph
from spsample.store.base_graph import BaseGraph

ROW_ARRAYS_BYTES = 4 * POINTER_BYTES  # lengths, their sums, places of known vertices, positions of rows in an order
CALL_BYTES = 16 << 20  # pointers and counts of batches, tables of draws
SOURCE_BYTES = 4 * 16  # four slots of a hash table for each source of a layer-wise sample
DRAWN_BYTES = 104  # bytes of a column that a layer-wise sampler may draw, in all arrays of the draw
WARPS = 1 << 14  # more than a GPU runs at a time


def device_scratch(graph: BaseGraph, counts: BulkCounts) -> int:
    """The most bytes of the device that a bulk of these counts takes at a time, beside its arrays.

    Sets of columns take half a byte for each vertex of the graph and batch; where that is more than a quarter of what
    is free, groups of batches are numbered one after the other. Left out is what adapts itself to the memory that is
    free when it is made, at most a quarter of it: a bit for each entry of a layer-wise sampler's frontier, and the
    merged columns of batches under the column law.
    """
    sets = min(counts.batches * set_bytes(graph.num_nodes), graph.free_bytes() // SHARE_OF_FREE)
    sets = max(sets, set_bytes(graph.num_nodes) if counts.batches else 0)
    layers, drawn = counts.layers, _drawn_bytes(counts)
    rows = max((ROW_ARRAYS_BYTES * layer.rows + POINTER_BYTES * layer.sources for layer in layers), default=0)
    with_weights = counts.sampler.kind == "node-wise" and WHOLE not in counts.sampler.sizes  # read with the draws
    if graph.weighting == "weighted" and not with_weights:
        # Places of entries in A, kept for all layers until their weights are read; edge ids take their place.
        drawn += POINTER_BYTES * sum(layer.entries for layer in layers if not layer.id_bytes)
    if counts.sampler.layout == "subgraph":  # united hops are copied, one kind of arrays at a time
        drawn += POINTER_BYTES * max(layers[0].rows + counts.batches, layers[0].entries)
    return int(CALL_BYTES + sets + sets // 16 + rows + drawn)


def _drawn_bytes(counts: BulkCounts) -> int:
    """Draws before they are the sample: positions of long draws from rows, or columns and sources."""
    sampler = counts.sampler
    largest = max(sampler.sizes, default=0)
    if sampler.kind == "layer-wise":
        per_batch = DRAWN_BYTES * largest + MOST_FILTER_BITS // 8
        return per_batch * counts.batches + SOURCE_BYTES * max(layer.sources for layer in counts.layers)
    if largest <= WARP or sampler.replace:
        return 0
    warps = min(max(layer.rows for layer in counts.layers) + WARP, WARPS)
    return min(POINTER_BYTES * (2 << (largest - 1).bit_length()) * warps, SCRATCH_BYTES)


POOL_SHARE = 3 / 8  # share of what was in use that the pool keeps at most between calls, apart from a few MiB
UNIFORM_THREAD_BYTES = 2 << 20  # draws for one chunk of rows, and the unused part of a block
PLACED_THREAD_BYTES = 6 << 20  # the unused parts of a block of columns and of one of their places in A
THREAD_BYTES = 5 << 20  # trees, draws and matches of one chunk of rows, and the unused part of a block
ROW_ORDER_BYTES = 16  # the order of the rows of an extraction, their lengths and batches; and two ids
RUN_BYTES, ROWS_PER_RUN = 64, 128  # destinations of weighted rows: a run a batch, and one more for 128 ascending rows
MAX_COUNTED = 1 << 16  # 16 bits hold smaller counts
MAX_BIT_BYTES = 8 << 20  # bytes of bit sets and ranks, within the second-level cache
MIN_RANGED = 1 << 20  # vertices from which on batches may be numbered range by range
RANGE_BYTES = 3 << 20  # the table and the set of a range
RANGED_ENTRY_BYTES, RANGED_ROW_BYTES = 5, 10
COLUMN_BYTES = 64  # the sets that a source column is looked up in, its numerator and its weight
SHARED_BATCHES = 64  # batches for which a row is read once
SHARED_COLUMN_BYTES = 12  # bytes a vertex of the table of their columns
MAX_SHARED_COLUMNS = 1 << 22  # columns of such a table at most
ROW_WORK, LONG_ROW = 32, 24  # entries read as long as a row is found; the longest row read over the source columns
MATCH_BYTES = 16  # a match of these batches in one row, before and after matches are parted by batch; and two ids


def scratch_bytes(graph: Graph, bulk: BulkSample, threads: int) -> int:
    """The most memory that the compiled kernels take at a time to make `bulk`, beside its arrays. O(k layers).

    Parameters
    ----------
    graph : Graph
        What it is drawn from.
    bulk : BulkSample
        The bulk that is made.
    threads : int
        That the kernels may use.

    Examples
    --------
    >>> import spsample
    >>> graph = spsample.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
    >>> bulk = spsample.bulk_sample(graph, [0, 1, 3], spsample.GraphSAGE([2, 2]), batch_size=2)
    >>> scratch_bytes(graph, bulk, threads=2) < 20 << 20
    True
    """
    return scratch_on(graph, threads)(BulkCounts.of(bulk))


def scratch_on(graph: BaseGraph, threads: int) -> Callable[[BulkCounts], int]:
    """Bytes of scratch that bulks of a graph take by their counts, on the host or on its device."""
    if graph.is_on_device:
        return partial(device_scratch, graph)
    return partial(host_scratch, GraphProfile.of(graph.host), threads)


def host_scratch(graph: GraphProfile, threads: int, counts: BulkCounts) -> int:
    """The most memory that the compiled kernels take at a time to make a bulk of these counts, beside its arrays."""
    is_layerwise = counts.sampler.kind == "layer-wise"
    of_call = max(_extraction(graph, layer) for layer in counts.layers) if is_layerwise else _node_wise(graph, counts)
    scratch = threads * _per_thread(graph, counts) + of_call
    return scratch + int(POOL_SHARE * scratch)


def _per_thread(graph: GraphProfile, counts: BulkCounts) -> int:
    """Tables that number the vertices of a batch, and a number for each of them; the sums of a dense row."""
    layers, dense = counts.layers, 0
    if counts.sampler.draw_law(graph.weighting) == "column":  # bytes a vertex of the sums that are drawn from
        largest = max((layer.largest_rows for layer in layers), default=0)
        dense = 3 if graph.weighting == "unweighted" and largest < MAX_COUNTED else 9  # those of blocks included
    bytes_ = THREAD_BYTES if dense or graph.weighting == "weighted" else UNIFORM_THREAD_BYTES
    if counts.sampler.kind == "layer-wise":
        bytes_ = max(bytes_, *(_found(graph, counts.batches, layer) for layer in layers))
    bytes_ += max(_numbering(graph, layer) for layer in layers)
    bytes_ += 5 * max((layer.largest_sources for layer in layers), default=0)
    bytes_ += dense * graph.num_nodes
    if graph.weighting == "weighted":
        bytes_ += graph.num_nodes + 5 * graph.longest_row
        bytes_ += RUN_BYTES * max((counts.batches + layer.rows // ROWS_PER_RUN for layer in layers), default=0)
    return int(bytes_)


def _found(graph: GraphProfile, batches: int, layer: LayerCounts) -> int:
    """Matches of a row without parallel entries for all batches that it is read for; or blocks that are not full."""
    matches = min(min(batches, SHARED_BATCHES) * layer.largest_sources, layer.entries)
    return max((MATCH_BYTES + 2 * graph.id_bytes) * matches, PLACED_THREAD_BYTES if layer.id_bytes else 0)


def _numbering(graph: GraphProfile, layer: LayerCounts) -> int:
    """Bit sets and ranks, or what numbers a batch range by range, with as many entries a row as the others."""
    bits = min(graph.num_nodes // 2, MAX_BIT_BYTES)
    if graph.num_nodes < MIN_RANGED:
        return bits
    entries = layer.largest_rows * layer.entries // max(layer.rows, 1)
    return max(bits, RANGE_BYTES + RANGED_ENTRY_BYTES * entries + RANGED_ROW_BYTES * layer.largest_rows)


def _node_wise(graph: GraphProfile, counts: BulkCounts) -> int:
    """A byte a vertex; where whole rows begin; a hop's new vertices once more, or an array of united hops."""
    id_bytes, layers = graph.id_bytes, counts.layers
    new = max(id_bytes * (layer.sources - layer.rows) for layer in layers)
    weights = 0 if graph.weighting == "unweighted" else max(16 * layer.rows for layer in layers)
    rows = 8 * max(layer.rows for layer in layers) if WHOLE in counts.sampler.sizes else 0
    if counts.sampler.layout == "subgraph":
        first = layers[0]
        entry_bytes = max(id_bytes, first.value_bytes, first.id_bytes)
        new = max(new, 8 * (first.rows + counts.batches), first.entries * entry_bytes)
    return int(graph.num_nodes + weights + rows + new)


def _extraction(graph: GraphProfile, layer: LayerCounts) -> int:
    """Entries once more before their values are made, column sets, row order."""
    entry_bytes = graph.id_bytes
    if layer.id_bytes:
        entry_bytes += 16  # its place in A, twice at a time: as drawn and in order, or in order and as the caller's id
        entry_bytes -= layer.id_bytes
    elif graph.weighting == "weighted":
        entry_bytes += 16
    entries = layer.entries * max(entry_bytes - layer.value_bytes, 0)
    read = layer.rows * (ROW_WORK + LONG_ROW * layer.largest_sources)  # an upper bound: each batch reads its own rows
    table = SHARED_COLUMN_BYTES * min(graph.num_nodes, MAX_SHARED_COLUMNS, read)
    columns = max(COLUMN_BYTES * layer.sources, table + graph.id_bytes * layer.sources)
    return int(entries + columns + (ROW_ORDER_BYTES + 2 * graph.id_bytes) * layer.rows)
