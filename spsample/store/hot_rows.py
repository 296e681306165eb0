"""The hot/cold split of a graph: which rows lie on the device, and where kernels find each row.

Data Tiering (Min et al., KDD 2022) keeps the features of vertices on the device that are most likely to be sampled;
this applies the same to topology. A vertex comes into a frontier where it is drawn as an in-neighbour: of a row of d
entries each is drawn with probability min(s / d, 1); but however often a batch draws it, its row is drawn from once. A
row that is drawn from costs min(s, d) reads over the bus and its d entries take room, so rows are taken by the reads
that an entry saves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from spsample.backends.cuda.device import Device
    from spsample.store.graph import Graph

__all__ = ["expected_visits", "hottest_rows", "split_rows"]

DRAWN_OF_A_ROW = 16
"""s: of a shorter row all entries are read, of a longer one a fanout's worth."""

DRAWS_OF_A_BATCH = 1 << 17
"""That find the farthest frontier: about 1024 seeds, 15 neighbours of each and 10 of each of those."""

ENTRIES_AT_ONCE = 1 << 24


def hottest_rows(graph: Graph, share: float) -> NDArray[np.int64]:
    """Vertices, ascending, whose rows have at most `share` of all entries, chosen for the reads that they save.

    O(entries) time; some 50 bytes a vertex, and 8 bytes an entry of 2^24, or as many as there are vertices, at a time.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[0, 0, 0, 1, 2], [1, 2, 3, 0, 0]], num_nodes=4)
    >>> hottest_rows(graph, 0.5).tolist()    # vertex 0: three vertices have it as an in-neighbour
    [0]
    """
    degrees = np.diff(graph.indptr)
    drawn = np.minimum(degrees, DRAWN_OF_A_ROW) / np.maximum(degrees, 1)
    visits = expected_visits(graph)
    in_frontier = -np.expm1(-visits * (DRAWS_OF_A_BATCH / max(float(visits.sum()), 1.0)))  # of a batch, at least once
    saved_per_entry = in_frontier * drawn
    order = np.argsort(-saved_per_entry, kind="stable")
    fitting = np.cumsum(degrees[order]) <= share * graph.num_edges
    hot: NDArray[np.int64] = np.sort(order[fitting])
    return hot


def expected_visits(graph: Graph) -> NDArray[np.float64]:
    """(n,) how often each vertex is drawn as an in-neighbour, if every vertex draws up to 16 entries of its row once.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[0, 0, 0, 1, 2], [1, 2, 3, 0, 0]], num_nodes=4)
    >>> expected_visits(graph).tolist()
    [3.0, 1.0, 1.0, 0.0]
    """
    degrees = np.diff(graph.indptr)
    drawn = np.minimum(degrees, DRAWN_OF_A_ROW) / np.maximum(degrees, 1)
    visits = np.zeros(graph.num_nodes)
    step = max(ENTRIES_AT_ONCE, graph.num_nodes)
    for first in range(0, graph.num_edges, step):
        last = min(first + step, graph.num_edges)
        begin, end = np.searchsorted(graph.indptr, [first, last - 1], side="right") - 1
        lengths: NDArray[np.int64] = np.diff(np.clip(graph.indptr[begin : end + 2], first, last)).astype(np.int64)
        weights = np.repeat(drawn[begin : end + 1], lengths)
        visits += np.bincount(graph.indices[first:last], weights=weights, minlength=graph.num_nodes)
    return visits


def split_rows(
    device: Device, indptr: NDArray[np.int64], values: NDArray[Any], cold: Any, hot: NDArray[np.int64]
) -> tuple[Any, Any]:
    """(n,) uint64 on the device: the address of each row's first value; and the copy of the hot rows that is meant.

    Parameters
    ----------
    values : array (nnz,)
        Columns or weights on the host.
    cold : device array (nnz,)
        The same where kernels read them over the bus.
    hot : int64 array
        Rows, ascending.
    """
    lengths = np.diff(indptr)[hot]
    begins = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    chosen = np.repeat(indptr[hot] - begins[:-1], lengths) + np.arange(begins[-1])
    copied = device.to_device(values[chosen])
    places = device.address(cold) + indptr[:-1].astype(np.uint64) * np.uint64(values.itemsize)
    places[hot] = device.address(copied) + begins[:-1].astype(np.uint64) * np.uint64(values.itemsize)
    return device.to_device(places), copied
