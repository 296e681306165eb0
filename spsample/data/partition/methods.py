"""The methods that make parts, by name, and `partition_vertices`, which calls one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import require_choice
from spsample.data.partition.ldg import ldg
from spsample.data.partition.metis import metis, metis_seeds
from spsample.data.partition.pagraph import pagraph
from spsample.data.partition.random_parts import random_parts
from spsample.data.partition.ranges import ranges
from spsample.data.partition.request import PartitionRequest
from spsample.store import Graph

__all__ = ["METHODS", "partition_vertices"]

METHODS: dict[str, Callable[[PartitionRequest], NDArray[np.int32]]] = {
    "metis": metis,
    "metis-seeds": metis_seeds,
    "pagraph": pagraph,
    "ldg": ldg,
    "ranges": ranges,
    "random": random_parts,
}
"""By name: what makes of a request the part of each vertex."""


def partition_vertices(
    graph: Graph,
    num_parts: int,
    method: str = "metis",
    *,
    seeds: Any = None,
    hops: int | None = None,
    random_seed: int = 0,
) -> NDArray[np.int32]:
    """Give each vertex a part: a block row of a graph on ranks, or one of several graphs to train on independently.

    Parameters
    ----------
    graph : Graph
        All of it.
    num_parts : int
        From 1 to the number of train vertices, where these are given.
    method : str
        ``"metis"``: few edges between parts, as many rows and entries in each. ``"metis-seeds"``: few edges between
        parts, as many train vertices in each. ``"pagraph"``: train vertices that share in-neighbours in one part, as
        many in each to one. ``"ldg"``: one pass over the vertices, each to the part with most of its neighbours.
        ``"ranges"`` of vertices. ``"random"``.
    seeds : array-like of int, optional
        Train vertices; repeats count once. "metis-seeds" and "pagraph" need them; "ranges" and "random" share them out
        evenly where they are given.
    hops : int, optional
        Layers that will be sampled; "pagraph" needs them.
    random_seed : int
        Decides what is random in METIS, and the order in which "pagraph" and "random" take vertices.

    Returns
    -------
    int32 array (n,)
        The part of each vertex, below `num_parts`: the `partition` of `PartitionedGraph.open`.

    Raises
    ------
    MissingDependencyError
        For METIS without pymetis (``pip install spsample[metis]``).
    InputError, DTypeError
        If an argument cannot be used.

    Examples
    --------
    >>> ring = Graph(range(7), [5, 0, 1, 2, 3, 4])
    >>> partition_vertices(ring, 2, "ranges")
    array([0, 0, 0, 1, 1, 1], dtype=int32)
    >>> parts = partition_vertices(ring, 2, "pagraph", seeds=[0, 2, 3, 5], hops=1)
    >>> np.bincount(parts[[0, 2, 3, 5]])
    array([2, 2])
    """
    request = PartitionRequest.of(graph, num_parts, seeds, hops, random_seed)
    return METHODS[require_choice("method", method, tuple(METHODS))](request)
