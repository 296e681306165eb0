"""The most that a bulk can hold, whatever is drawn: told without sampling."""

from __future__ import annotations

from collections.abc import Iterator

from spsample.sampling.device_memory import WHOLE
from spsample.sampling.graphsage import GraphSAGE, makes_subgraphs
from spsample.sampling.layerwise import LayerwiseSampler
from spsample.sampling.memory import BulkCounts, LayerCounts
from spsample.sampling.sampler import Sampler
from spsample.store import Graph

VALUE_BYTES, ID_BYTES = 8, 8


def most_counts(graph: Graph, sampler: Sampler, batch_size: int, edge_ids: bool) -> BulkCounts | None:
    """Counts that no batch of so many seeds passes; None of a sampler that this module does not know. O(layers).

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:10,8").graph
    >>> [layer.entries for layer in most_counts(graph, sp.GraphSAGE([5, 2]), 32, False).layers]
    [384, 160]
    """
    if not isinstance(sampler, (GraphSAGE, LayerwiseSampler)):
        return None
    has_values = isinstance(sampler, LayerwiseSampler) or graph.weighting != "unweighted"
    hops = list(_hops(graph, sampler, batch_size))
    if makes_subgraphs(sampler):  # layer 1 holds the edges of all hops
        hops[-1] = (*hops[-1][:2], sum(entries for _, _, entries in hops))
    layers = tuple(
        LayerCounts(rows, sources, entries, rows, sources, VALUE_BYTES * has_values, ID_BYTES * edge_ids)
        for rows, sources, entries in reversed(hops)
    )
    return BulkCounts(sampler, 1, layers)


def _hops(graph: Graph, sampler: Sampler, batch_size: int) -> Iterator[tuple[int, int, int]]:
    """Rows, sources and entries, from the seeds outwards."""
    rows = batch_size
    for s in sampler.sizes:
        entries = graph.num_edges if isinstance(sampler, LayerwiseSampler) or s == WHOLE else s * rows
        if not sampler.replace:
            entries = min(entries, graph.num_edges)
        new = s if isinstance(sampler, LayerwiseSampler) else entries
        sources = min(rows + new, graph.num_nodes)
        yield rows, sources, entries
        rows = sources
