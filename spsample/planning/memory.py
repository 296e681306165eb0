"""What a call of `bulk_sample` takes: the one place that says so (see docs/memory.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from spsample.planning.device_memory import POINTER_BYTES, WHOLE, device_scratch, index_dtype
from spsample.sampling.bulk import BulkSample
from spsample.sampling.bulk_layer import BulkLayer
from spsample.sampling.fastgcn import FastGCN
from spsample.sampling.graphsage import GraphSAGE, makes_subgraphs
from spsample.sampling.ladies import LADIES
from spsample.sampling.layerwise import LayerwiseSampler
from spsample.sampling.sampler import Sampler
from spsample.store import Graph
from spsample.store.device_graph import DeviceGraph

KEPT_SHARE = 8  # the pool keeps up to an eighth of what was in use
UNIFORM_THREAD_BYTES = 2 << 20  # what is drawn for one chunk of rows, and the unused part of a block
THREAD_BYTES = 5 << 20  # trees, draws and what is found of one chunk of rows, and the unused part of a block
ROW_BYTES = 24  # the order that an extraction visits its rows in, and their lengths
RUN_BYTES, ROWS_PER_RUN = 64, 128  # where weighted rows go: one run a batch, and one more for so many rows that ascend
MOST_COUNTED = 1 << 16  # counts in 16 bits stay below
COLUMN_BYTES = 64  # the sets that a source column is looked up in, its numerator and its weight


@dataclass(frozen=True)
class LayerCounts:
    """Rows, sources and entries of a layer of all batches, the most of one; bytes of an entry's value and id."""

    rows: int
    sources: int
    entries: int
    largest_rows: int
    largest_sources: int
    value_bytes: int
    id_bytes: int

    @classmethod
    def of(cls, layer: BulkLayer) -> LayerCounts:
        """What a layer holds."""
        rows, sources = layer.dst_ranges.size, layer.src_ranges.size
        return cls(
            rows=int(rows.sum()),
            sources=int(sources.sum()),
            entries=int(layer.entry_ranges.size.sum()),
            largest_rows=int(rows.max(initial=0)),
            largest_sources=int(sources.max(initial=0)),
            value_bytes=0 if layer.data is None else layer.data.itemsize,
            id_bytes=0 if layer.edge_ids is None else layer.edge_ids.itemsize,
        )

    def scaled(self, factor: float) -> LayerCounts:
        """Of `factor` times as many batches."""
        rows, sources, entries = (ceil(factor * count) for count in (self.rows, self.sources, self.entries))
        return LayerCounts(
            rows, sources, entries, self.largest_rows, self.largest_sources, self.value_bytes, self.id_bytes
        )


@dataclass(frozen=True)
class BulkCounts:
    """What decides the memory of a bulk: how many batches it has, and the counts of its layers, layer 1 first."""

    sampler: Sampler
    batches: int
    layers: tuple[LayerCounts, ...]

    @classmethod
    def of(cls, bulk: BulkSample) -> BulkCounts:
        """What a bulk holds."""
        return cls(bulk.sampler, len(bulk), tuple(LayerCounts.of(layer) for layer in bulk.layers))

    def scaled(self, batches: int, margin: float = 1.0) -> BulkCounts:
        """Of so many batches like these, with so many times as much in each."""
        factor = margin * batches / max(self.batches, 1)
        return BulkCounts(self.sampler, batches, tuple(layer.scaled(factor) for layer in self.layers))

    def of_edges(self) -> BulkCounts:
        """The same with an entry per batch and layer at least: batches that happen to draw none promise nothing."""
        layers = (replace(layer, entries=max(layer.entries, self.batches)) for layer in self.layers)
        return BulkCounts(self.sampler, self.batches, tuple(layers))

    @property
    def entries(self) -> int:
        """Of all layers; in the subgraph layout, layer 1 has those of all hops."""
        layers = self.layers[:1] if makes_subgraphs(self.sampler) else self.layers
        return sum(layer.entries for layer in layers)

    def result_bytes(self, itemsize: int) -> int:
        """Bytes of the arrays, with ids of `itemsize` bytes. Hops of the subgraph layout share those of layer 1."""
        layers = self.layers[:1] if makes_subgraphs(self.sampler) else self.layers
        seeds = self.layers[-1].rows
        return itemsize * seeds + sum(_layer_bytes(layer, self.batches, itemsize) for layer in layers)


def _layer_bytes(layer: LayerCounts, batches: int, itemsize: int) -> int:
    pointers = POINTER_BYTES * (layer.rows + 4 * batches)
    return itemsize * layer.sources + pointers + layer.entries * (itemsize + layer.value_bytes + layer.id_bytes)


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
    return scratch_of(graph, BulkCounts.of(bulk), threads)


def scratch_of(graph: Any, counts: BulkCounts, threads: int) -> int:
    """The same of a bulk of these counts; of the device where the graph is on one."""
    if isinstance(graph, DeviceGraph):
        return device_scratch(graph, counts)
    scratch = threads * _per_thread(graph, counts) + _per_call(graph, counts)
    return scratch + scratch // KEPT_SHARE


def _per_call(graph: Any, counts: BulkCounts) -> int:
    """A sampler that is not the library's own may do either."""
    node_wise = 0 if isinstance(counts.sampler, LayerwiseSampler) else _node_wise(graph, counts)
    return max(node_wise, 0 if isinstance(counts.sampler, GraphSAGE) else _layerwise(graph, counts))


def _per_thread(graph: Any, counts: BulkCounts) -> int:
    """Bit sets and ranks of all vertices, and a number for each vertex of a batch; the sums of a dense row."""
    layers = counts.layers
    dense = 0 if isinstance(counts.sampler, (GraphSAGE, FastGCN)) else _dense_row(graph, layers, counts.sampler)
    bytes_ = THREAD_BYTES if dense or graph.weighting == "weighted" else UNIFORM_THREAD_BYTES
    bytes_ += graph.num_nodes // 2 + 5 * max((one.largest_sources for one in layers), default=0)
    bytes_ += dense * graph.num_nodes
    if graph.weighting == "weighted":
        bytes_ += graph.num_nodes + 5 * _longest_row(graph)
        bytes_ += RUN_BYTES * max((counts.batches + one.rows // ROWS_PER_RUN for one in layers), default=0)
    return int(bytes_)


def _longest_row(graph: Any) -> int:
    def find() -> int:
        return int(graph.in_degrees().max(initial=0))

    return graph.known("longest row", find) if isinstance(graph, Graph) else find()


def _dense_row(graph: Any, layers: Sequence[LayerCounts], sampler: Sampler) -> int:
    """Bytes a vertex of the sums by column that are drawn from under the column law, those of blocks included."""
    if isinstance(sampler, LADIES) and sampler.law == "norm" and graph.weighting != "weighted":
        return 0  # the entry law sums nothing
    largest = max((one.largest_rows for one in layers), default=0)
    return 3 if graph.weighting == "unweighted" and largest < MOST_COUNTED else 9


def _node_wise(graph: Any, counts: BulkCounts) -> int:
    """A byte a vertex; where whole rows begin; a hop's new vertices once more, or one kind of united hops' arrays."""
    itemsize, layers = index_dtype(graph).itemsize, counts.layers
    new = max(itemsize * (one.sources - one.rows) for one in layers)
    weights = 0 if graph.weighting == "unweighted" else max(16 * one.rows for one in layers)
    rows = 8 * max(one.rows for one in layers) if WHOLE in counts.sampler.sizes else 0
    united = makes_subgraphs(counts.sampler)
    longest = _longest_array(layers[0], counts.batches, itemsize)
    return int(graph.num_nodes + weights + rows + (max(new, longest) if united else new))


def _longest_array(layer: LayerCounts, batches: int, itemsize: int) -> int:
    return max(8 * (layer.rows + batches), layer.entries * max(itemsize, layer.value_bytes, layer.id_bytes))


def _layerwise(graph: Any, counts: BulkCounts) -> int:
    """Of the layer where it is most: the entries once more before their values are made, column sets, row order."""
    return max(_extraction(graph, layer) for layer in counts.layers)


def _extraction(graph: Any, layer: LayerCounts) -> int:
    found = index_dtype(graph).itemsize
    if layer.id_bytes:
        found += 16  # where it lies in A, twice at a time: as found and in order, or in order and as the caller's id
        found -= layer.id_bytes
    elif graph.weighting == "weighted":
        found += 16
    entries = layer.entries * max(found - layer.value_bytes, 0)
    return int(entries + COLUMN_BYTES * layer.sources + ROW_BYTES * layer.rows)
