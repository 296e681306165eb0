"""The most that a bulk can hold, whatever is drawn: told without sampling."""

from __future__ import annotations

from collections.abc import Iterator

from spsample.planning.device_memory import WHOLE
from spsample.planning.memory import BulkCounts, LayerCounts
from spsample.sampling.graphsage import GraphSAGE, makes_subgraphs
from spsample.sampling.layerwise import LayerwiseSampler
from spsample.sampling.sampler import Sampler
from spsample.store import Graph

VALUE_BYTES, ID_BYTES = 8, 8
ENTRY_BYTES = 8 + VALUE_BYTES + ID_BYTES


def most_counts(graph: Graph, sampler: Sampler, batch_size: int, edge_ids: bool) -> BulkCounts:
    """Counts that no batch of so many seeds passes. O(layers).

    A sampler that is not the library's own may draw s entries from each row, or keep all edges of its frontier.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:10,8").graph
    >>> [layer.entries for layer in most_counts(graph, sp.GraphSAGE([5, 2]), 32, False).layers]
    [384, 160]
    """
    has_values = not isinstance(sampler, GraphSAGE) or graph.weighting != "unweighted"
    hops = list(_hops(graph, sampler, batch_size))
    if makes_subgraphs(sampler):  # layer 1 holds the edges of all hops
        hops[-1] = (*hops[-1][:2], sum(entries for _, _, entries in hops))
    layers = tuple(
        LayerCounts(rows, sources, entries, rows, sources, VALUE_BYTES * has_values, ID_BYTES * edge_ids)
        for rows, sources, entries in reversed(hops)
    )
    return BulkCounts(sampler, 1, layers)


def most_bytes(graph: Graph, sampler: Sampler, batch_size: int) -> int:
    """The bytes of its arrays that no batch of so many seeds passes, with values and edge ids. O(layers).

    Examples
    --------
    >>> import spsample as sp
    >>> most_bytes(sp.load_dataset("rmat:10,8").graph, sp.GraphSAGE([5, 2]), 32)
    20992
    """
    hops = _hops(graph, sampler, batch_size)
    return sum(ENTRY_BYTES * entries + 8 * (rows + sources) for rows, sources, entries in hops)


def _hops(graph: Graph, sampler: Sampler, batch_size: int) -> Iterator[tuple[int, int, int]]:
    """Rows, sources and entries, from the seeds outwards."""
    draws_from_rows = not isinstance(sampler, LayerwiseSampler)
    keeps_edges = not isinstance(sampler, GraphSAGE)
    rows = batch_size
    for s in sampler.sizes:
        drawn = s * rows if draws_from_rows and s != WHOLE else 0
        if not sampler.replace:
            drawn = min(drawn, graph.num_edges)
        entries = max(drawn, graph.num_edges) if keeps_edges or s == WHOLE else drawn
        new = entries if draws_from_rows else s
        sources = min(rows + new, graph.num_nodes)
        yield rows, sources, entries
        rows = sources
