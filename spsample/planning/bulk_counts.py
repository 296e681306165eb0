"""Sizes that decide memory: `GraphProfile` of a graph, `BulkCounts` of a bulk, counted, at most or of a `Trial`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

import numpy as np

from spsample.planning.budget import MostEntries
from spsample.sampling.bulk import BulkSample
from spsample.sampling.bulk_layer import BulkLayer
from spsample.sampling.sampler import Sampler
from spsample.sampling.workload import Workload
from spsample.sparse.probability import Weighting
from spsample.store import Graph
from spsample.store.base_graph import BaseGraph

POINTER_BYTES = 8  # bytes of a row of a result, and of a batch in each of its pointers
VALUE_BYTES, ID_BYTES = 8, 8
ENTRY_BYTES = 8 + VALUE_BYTES + ID_BYTES
WHOLE = -1  # the fanout that takes whole rows

_Hop = tuple[int, int, int]


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
    def of(cls, layer: BulkLayer, batches: slice = slice(None)) -> LayerCounts:
        """Counts of a layer, of some of its batches."""
        rows, sources = layer.dst_ranges.size[batches], layer.src_ranges.size[batches]
        return cls(
            rows=int(rows.sum()),
            sources=int(sources.sum()),
            entries=int(layer.entry_ranges.size[batches].sum()),
            largest_rows=int(rows.max(initial=0)),
            largest_sources=int(sources.max(initial=0)),
            value_bytes=0 if layer.data is None else layer.data.itemsize,
            id_bytes=0 if layer.edge_ids is None else layer.edge_ids.itemsize,
        )

    def scaled(self, factor: float) -> LayerCounts:
        """Counts of `factor` times as many batches."""
        rows, sources, entries = (ceil(factor * count) for count in (self.rows, self.sources, self.entries))
        return replace(self, rows=rows, sources=sources, entries=entries)


@dataclass(frozen=True)
class BulkCounts:
    """Sizes that decide the memory of a bulk: its batches, and the counts of its layers, layer 1 first.

    Attributes
    ----------
    sampler : Sampler
    batches : int
    layers : tuple of LayerCounts
    spread : float
        Standard deviation of the batches' sizes over their mean.
    """

    sampler: Sampler
    batches: int
    layers: tuple[LayerCounts, ...]
    spread: float = 0.0

    @classmethod
    def of(cls, bulk: BulkSample) -> BulkCounts:
        """Counts of a bulk."""
        sizes = sum((layer.entry_ranges.size + layer.src_ranges.size for layer in bulk.layers), np.zeros(len(bulk)))
        layers = tuple(LayerCounts.of(layer) for layer in bulk.layers)
        spread = float(sizes.std(ddof=1) / sizes.mean()) if len(sizes) > 1 and sizes.mean() > 0 else 0.0
        return cls(bulk.sampler, len(bulk), layers, spread)

    @classmethod
    def of_each(cls, bulk: BulkSample) -> Iterator[BulkCounts]:
        """Counts of each batch of a bulk."""
        for i in range(len(bulk)):
            yield cls(bulk.sampler, 1, tuple(LayerCounts.of(layer, slice(i, i + 1)) for layer in bulk.layers))

    def scaled(self, batches: int, margin: float = 1.0) -> BulkCounts:
        """Counts of a bulk of `batches` batches like these, each `margin` times as large."""
        factor = margin * batches / max(self.batches, 1)
        return replace(self, batches=batches, layers=tuple(layer.scaled(factor) for layer in self.layers))

    def with_edges(self) -> BulkCounts:
        """At least one entry per batch and layer: batches that happen to draw none promise nothing of others."""
        layers = (replace(layer, entries=max(layer.entries, self.batches)) for layer in self.layers)
        return replace(self, layers=tuple(layers))

    @property
    def entries(self) -> int:
        """Entries of all layers; in the subgraph layout, layer 1 has those of all hops."""
        return sum(layer.entries for layer in self._stored)

    def result_bytes(self, id_bytes: int) -> int:
        """Bytes of the arrays, with vertex ids of `id_bytes` bytes."""
        seeds = self.layers[-1].rows
        pointers = POINTER_BYTES * sum(layer.rows + 4 * self.batches for layer in self._stored)
        entries = sum(layer.entries * (id_bytes + layer.value_bytes + layer.id_bytes) for layer in self._stored)
        return id_bytes * (seeds + sum(layer.sources for layer in self._stored)) + pointers + entries

    @property
    def _stored(self) -> tuple[LayerCounts, ...]:
        """Layers with arrays of their own. Hops of the subgraph layout share those of layer 1."""
        return self.layers[:1] if self.sampler.layout == "subgraph" else self.layers


@dataclass(frozen=True, eq=False)
class Trial:
    """Batches that were sampled.

    Attributes
    ----------
    bulk : BulkSample
    seconds : float
    """

    bulk: BulkSample
    seconds: float

    @classmethod
    def of(cls, pilots: Workload, most_entries: int | None = None) -> Trial:
        """Sample them all at once; collective on a graph of several ranks.

        Raises
        ------
        TooManyEntriesError
            If they would have more than `most_entries`.

        Examples
        --------
        >>> import numpy as np
        >>> import spsample as sp
        >>> work = Workload(sp.load_dataset("rmat:8,4").graph, np.arange(64), sp.GraphSAGE([2]), batch_size=16)
        >>> Trial.of(work.pilots(2)).counts.batches
        2
        """
        start = time.perf_counter()
        bulk = pilots.run(None if most_entries is None else MostEntries(most_entries))
        return cls(bulk, time.perf_counter() - start)

    @property
    def counts(self) -> BulkCounts:
        """Sizes that decide the memory of bulks of such batches."""
        return BulkCounts.of(self.bulk)


# ---------------------------------------------------------------------------------------------------------- of a graph


@dataclass(frozen=True)
class GraphProfile:
    """Sizes of a graph and its features that decide memory and bytes.

    Attributes
    ----------
    num_nodes, num_edges : int
        n, and the number of entries.
    id_bytes, weight_bytes : int
        Bytes of an entry's column and weight: 4 or 8, and 0, 4 or 8.
    feature_bytes : int
        Bytes of a vertex's features; 0 without features.
    weighting : str
        As of `Graph`.
    longest_row : int
        Entries of the longest row; counted in weighted graphs only, where kernels keep a number for each.
    """

    num_nodes: int
    num_edges: int
    id_bytes: int = 4
    weight_bytes: int = 0
    feature_bytes: int = 0
    weighting: Weighting = "unweighted"
    longest_row: int = 0

    @classmethod
    def of(cls, graph: Graph, feature_bytes: int = 0) -> GraphProfile:
        """Read the profile off a graph that is here.

        Examples
        --------
        >>> import spsample as sp
        >>> GraphProfile.of(sp.Graph([0, 2, 3], [0, 1, 0])).num_edges
        3
        """
        if graph.weighting == "weighted" and "longest row" not in graph.kept:
            graph.kept["longest row"] = int(graph.in_degrees().max(initial=0))
        return cls(
            graph.num_nodes,
            graph.num_edges,
            graph.index_dtype.itemsize,
            0 if graph.data is None else graph.data.itemsize,
            feature_bytes,
            graph.weighting,
            graph.kept["longest row"] if graph.weighting == "weighted" else 0,
        )

    @property
    def entry_bytes(self) -> int:
        """Bytes of an entry of A."""
        return self.id_bytes + self.weight_bytes


# ------------------------------------------------------------------------------------ at most, whatever is drawn


def most_counts(graph: BaseGraph, sampler: Sampler, batch_size: int, edge_ids: bool) -> BulkCounts:
    """Counts that no batch of `batch_size` seeds passes. O(layers).

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:10,8").graph
    >>> [layer.entries for layer in most_counts(graph, sp.GraphSAGE([5, 2]), 32, False).layers]
    [384, 160]
    """
    has_values = sampler.kind == "layer-wise" or graph.weighting != "unweighted"
    sizes, kind, replace = sampler.sizes, sampler.kind, sampler.replace
    hops = list(_most_by_hop(graph.num_nodes, graph.num_edges, sizes, kind, replace, batch_size))
    if sampler.layout == "subgraph":  # layer 1 holds the edges of all hops
        hops[-1] = (*hops[-1][:2], sum(entries for _, _, entries in hops))
    layers = tuple(
        LayerCounts(rows, sources, entries, rows, sources, VALUE_BYTES * has_values, ID_BYTES * edge_ids)
        for rows, sources, entries in reversed(hops)
    )
    return BulkCounts(sampler, 1, layers)


def most_bytes(graph: BaseGraph, sampler: Sampler, batch_size: int) -> int:
    """Bytes of arrays that no batch of `batch_size` seeds passes, values and edge ids included. O(layers).

    Examples
    --------
    >>> import spsample as sp
    >>> most_bytes(sp.load_dataset("rmat:10,8").graph, sp.GraphSAGE([5, 2]), 32)
    20992
    """
    sizes, kind, replace = sampler.sizes, sampler.kind, sampler.replace
    hops = _most_by_hop(graph.num_nodes, graph.num_edges, sizes, kind, replace, batch_size)
    return sum(ENTRY_BYTES * entries + 8 * (rows + sources) for rows, sources, entries in hops)


@lru_cache(maxsize=128)  # most of the time of a small call
def _most_by_hop(
    num_nodes: int, num_edges: int, sizes: tuple[int, ...], kind: str, replace: bool, batch_size: int
) -> tuple[_Hop, ...]:
    """Rows, sources and entries, from the seeds outwards."""
    hops, rows = [], batch_size
    for s in sizes:
        entries = s * rows if kind == "node-wise" and s != WHOLE else num_edges
        if entries > num_edges and not replace:
            entries = num_edges
        sources = min(rows + (entries if kind == "node-wise" else s), num_nodes)
        hops.append((rows, sources, entries))
        rows = sources
    return tuple(hops)
