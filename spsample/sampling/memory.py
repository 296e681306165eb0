"""What a call of `bulk_sample` takes beside its result: the one place that says so (see docs/memory.md)."""

from __future__ import annotations

from spsample.sampling.bulk import BulkSample
from spsample.sampling.bulk_layer import BulkLayer
from spsample.sampling.graphsage import makes_subgraphs
from spsample.sampling.ladies import LADIES
from spsample.sampling.layerwise import LayerwiseSampler
from spsample.store import Graph

KEPT_SHARE = 8  # the pool keeps up to an eighth of what was in use
THREAD_BYTES = 5 << 20  # trees, draws and what is found of one chunk of rows, and the unused part of a block
ROW_BYTES = 24  # the order that an extraction visits its rows in, and their lengths
RUN_BYTES, ROWS_PER_RUN = 64, 128  # where weighted rows go: one run a batch, and one more for so many rows that ascend
MOST_COUNTED = 1 << 16  # counts in 16 bits stay below
WHOLE = -1  # the fanout that takes whole rows
COLUMN_BYTES = 8 * 15  # the sets that a source column is looked up in, its numerator and its weight


def scratch_bytes(graph: Graph, bulk: BulkSample, threads: int) -> int:
    """The most memory that the compiled kernels take at a time to make `bulk`, beside its arrays. O(k layers).

    Parameters
    ----------
    graph : Graph
        What it is drawn from.
    bulk : BulkSample
        Of `GraphSAGE`, `LADIES` or `FastGCN`.
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
    per_call = _layerwise(graph, bulk) if isinstance(bulk.sampler, LayerwiseSampler) else _node_wise(graph, bulk)
    scratch = threads * _per_thread(graph, bulk) + per_call
    return scratch + scratch // KEPT_SHARE


def _per_thread(graph: Graph, bulk: BulkSample) -> int:
    """Bit sets and ranks of all vertices, and a number for each vertex of a batch; the sums of a dense row."""
    largest = max((int(layer.src_ranges.size.max(initial=0)) for layer in bulk.layers), default=0)
    bytes_ = THREAD_BYTES + graph.num_nodes // 2 + 5 * largest
    if isinstance(bulk.sampler, LADIES):
        bytes_ += _dense_row(graph, bulk, bulk.sampler.law) * graph.num_nodes
    if graph.weighting == "weighted":
        bytes_ += graph.num_nodes + 5 * int(graph.in_degrees().max(initial=0))
        bytes_ += RUN_BYTES * max((len(bulk) + len(layer.dst) // ROWS_PER_RUN for layer in bulk.layers), default=0)
    return bytes_


def _dense_row(graph: Graph, bulk: BulkSample, law: str) -> int:
    """Bytes a vertex of the sums by column that LADIES draws from under the column law, those of blocks included."""
    if law == "norm" and graph.weighting != "weighted":
        return 0  # the entry law sums nothing
    largest = max((int(layer.dst_ranges.size.max(initial=0)) for layer in bulk.layers), default=0)
    return 3 if graph.weighting == "unweighted" and largest < MOST_COUNTED else 9


def _node_wise(graph: Graph, bulk: BulkSample) -> int:
    """A byte a vertex; where whole rows begin; a hop's new vertices once more, or one kind of united hops' arrays."""
    itemsize = graph.indices.itemsize
    new = max(itemsize * int((one.src_ranges.size - one.dst_ranges.size).sum()) for one in bulk.layers)
    weights = 0 if graph.weighting == "unweighted" else max(16 * int(one.dst_ranges.size.sum()) for one in bulk.layers)
    rows = 8 * max(int(one.dst_ranges.size.sum()) for one in bulk.layers) if WHOLE in bulk.sampler.sizes else 0
    united = makes_subgraphs(bulk.sampler)
    return graph.num_nodes + weights + rows + (max(new, _longest_array(bulk.layers[0])) if united else new)


def _longest_array(layer: BulkLayer) -> int:
    arrays = (layer.indptr, layer.indices, layer.data, layer.edge_ids)
    return max(array.nbytes for array in arrays if array is not None)


def _layerwise(graph: Graph, bulk: BulkSample) -> int:
    """Of the layer where it is most: the entries once more before their values are made, column sets, row order."""
    return max(_extraction(graph, layer) for layer in bulk.layers)


def _extraction(graph: Graph, layer: BulkLayer) -> int:
    entries, sources, rows = (int(one.size.sum()) for one in (layer.entry_ranges, layer.src_ranges, layer.dst_ranges))
    value = 0 if layer.data is None else layer.data.itemsize
    found = graph.indices.itemsize
    if layer.edge_ids is not None:
        found += 16  # where it lies in A, twice at a time: as found and in order, or in order and as the caller's id
        found -= layer.edge_ids.itemsize
    elif graph.weighting == "weighted":
        found += 16
    return entries * max(found - value, 0) + COLUMN_BYTES * sources + ROW_BYTES * rows
