"""`partition_quality`: how even parts are, what lies between them, and what they hold twice."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.data.partition.reach import Reach
from spsample.data.partition.request import as_train_vertices, require_hops, require_num_parts
from spsample.distributed.placement import require_parts
from spsample.errors import InputError
from spsample.store import Graph
from spsample.store.base_graph import require_local

__all__ = ["PartitionQuality", "partition_quality"]


class PartitionQuality(NamedTuple):
    """How even the parts are, how much lies between them, and how often vertices are in several.

    Attributes
    ----------
    largest : float
        Rows and entries of the largest part over the mean.
    cut : float
        Share of the edges whose two vertices are in different parts.
    empty : int
        Parts without a vertex.
    train_balance : float or None
        Train vertices of the part with the most over the mean. None where none were given.
    replication : float or None
        Mean number of parts that need a vertex, over the vertices that any part needs: its train vertices, and what
        leads to them by at most `hops` edges. 1 is the least, the number of parts the most. None without hops.
    edges_kept : float or None
        Share of the graph's edges that a part needs, mean over the parts: those into vertices less than `hops` edges
        from its train vertices. None without hops.
    """

    largest: float
    cut: float
    empty: int
    train_balance: float | None = None
    replication: float | None = None
    edges_kept: float | None = None


def partition_quality(
    graph: Graph, parts: NDArray[np.integer], num_parts: int, *, seeds: Any = None, hops: int | None = None
) -> PartitionQuality:
    """Measure a partition of a graph.

    Parameters
    ----------
    graph : Graph
    parts : int array (n,)
        The part of each vertex.
    num_parts : int
    seeds : array-like of int, optional
        Train vertices: tells how evenly they are shared out.
    hops : int, optional
        Layers that will be sampled from the train vertices: tells what the parts hold twice.

    Raises
    ------
    InputError, DTypeError
        If `parts` does not have a number below `num_parts` for each vertex, or there are hops without seeds.

    Examples
    --------
    >>> graph = Graph([0, 1, 2, 3, 4], [1, 0, 3, 0])
    >>> partition_quality(graph, np.array([0, 0, 1, 1]), 2)
    PartitionQuality(largest=1.0, cut=0.25, empty=0, train_balance=None, replication=None, edges_kept=None)
    >>> quality = partition_quality(graph, np.array([0, 0, 1, 1]), 2, seeds=[0, 3], hops=1)
    >>> quality.train_balance, quality.replication, quality.edges_kept
    (1.0, 1.3333333333333333, 0.25)
    """
    require_local(graph)
    num_parts = require_num_parts(num_parts)
    parts = require_parts(parts, graph.num_nodes, num_parts, "parts")
    degrees = np.asarray(np.diff(graph.indptr), np.int64)
    load = np.bincount(parts, weights=degrees + 1, minlength=num_parts)
    crossing = int(np.count_nonzero(np.repeat(parts, degrees) != parts[np.asarray(graph.indices)]))
    plain = PartitionQuality(
        largest=float(load.max() * num_parts / load.sum()),
        cut=crossing / graph.num_edges if graph.num_edges else 0.0,
        empty=int(np.count_nonzero(load == 0)),
    )
    if seeds is None:
        if hops is not None:
            raise InputError(argument="seeds", given="nothing", expected="train vertices, which hops are counted from")
        return plain
    train = as_train_vertices(seeds, graph.num_nodes)
    counts = np.bincount(parts[train], minlength=num_parts)
    balanced = plain._replace(train_balance=float(counts.max() * num_parts / len(train)))
    if hops is None:
        return balanced
    hops = require_hops(hops)
    replication, edges_kept = _copies(graph, [train[parts[train] == part] for part in range(num_parts)], hops)
    return balanced._replace(replication=replication, edges_kept=edges_kept)


def _copies(graph: Graph, trains: list[NDArray[np.int64]], hops: int) -> tuple[float, float]:
    """Parts that need a vertex, mean over those that any needs, and the share of the edges that a part needs."""
    needing, entries = np.zeros(graph.num_nodes, np.int64), 0
    for train in trains:
        reach = Reach.of(graph, train, hops)
        needing[reach.vertices] += 1
        entries += int((graph.indptr[reach.inner + 1] - graph.indptr[reach.inner]).sum())
    replication = float(needing.sum() / np.count_nonzero(needing))
    return replication, entries / (len(trains) * graph.num_edges) if graph.num_edges else 0.0
