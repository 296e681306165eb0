"""METIS: parts that few edges join."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.data.partition.neighbours import undirected
from spsample.data.partition.ranges import train_ranges
from spsample.data.partition.request import PartitionRequest
from spsample.errors import require_module
from spsample.store import Graph

__all__ = ["VERTICES_PER_PART", "metis", "metis_partition", "metis_seeds"]

VERTICES_PER_PART = 32
"""Vertices that METIS should have for each part."""


def metis_partition(graph: Graph, num_parts: int, *, random_seed: int = 0) -> NDArray[np.int32]:
    """Assign each vertex to a part such that few edges join two parts, by METIS (pymetis), k-way.

    The graph is taken as undirected: what matters is which vertices have something to do with each other. A part has
    about as many rows and entries of A as the others, a row counting as one entry more than it has, as in the ranges
    that `PartitionedGraph.open` makes by itself. Graphs of fewer than `VERTICES_PER_PART` vertices a part are cut
    in ranges: METIS leaves parts empty there.

    Parameters
    ----------
    graph : Graph
        All of it. METIS takes some 120 bytes of memory for each edge.
    num_parts : int
        p/c, the number of block rows of a `ProcessGrid`.
    random_seed : int
        Of METIS.

    Returns
    -------
    int32 array (n,)
        The part of each vertex: the `partition` of `PartitionedGraph.open`.

    Raises
    ------
    MissingDependencyError
        Without pymetis (``pip install spsample[metis]``).
    InputError, DTypeError
        If an argument cannot be used.

    References
    ----------
    Karypis and Kumar, "A fast and high quality multilevel scheme for partitioning irregular graphs", SIAM J. Sci.
    Comput. 20, 1998.

    Examples
    --------
    >>> graph = Graph([0, 1, 2, 3, 4], [1, 0, 3, 2])
    >>> parts = metis_partition(graph, 2)  # doctest: +SKIP
    >>> bool(parts[0] == parts[1] != parts[2])  # doctest: +SKIP
    True
    """
    return metis(PartitionRequest.of(graph, num_parts, None, None, random_seed))


def metis(request: PartitionRequest) -> NDArray[np.int32]:
    """Cut few edges; each part has about as many rows and entries: see `metis_partition`."""
    pymetis, graph = _pymetis(), request.graph
    if request.num_parts == 1 or graph.num_nodes < VERTICES_PER_PART * request.num_parts:
        return train_ranges(graph.num_nodes, np.arange(graph.num_nodes), request.num_parts)
    weights = np.asarray(np.diff(graph.indptr), np.int64) + 1
    return _cut(request, weights, pymetis.Options(seed=request.random_seed))


def metis_seeds(request: PartitionRequest) -> NDArray[np.int32]:
    """Cut few edges; each part has about as many train vertices, whatever rows and entries it has.

    A train vertex weighs 1, any other 0. METIS is told that a part may have 0.5 % more than the mean, or two train
    vertices where that is less than two, and mostly keeps to it. (Told less, it leaves parts that have no cut worth the
    name.) Fewer than `VERTICES_PER_PART` train vertices a part are cut in ranges.

    Parameters
    ----------
    request : PartitionRequest
        With seeds.

    Returns
    -------
    int32 array (n,)
        The part of each vertex.

    Raises
    ------
    MissingDependencyError
        Without pymetis.
    InputError
        If there are no seeds, or fewer than parts.

    Examples
    --------
    >>> graph = Graph([0, 1, 2, 3, 4], [1, 0, 3, 2])
    >>> metis_seeds(PartitionRequest(graph, 2, np.array([0, 3])))  # doctest: +SKIP
    array([0, 0, 0, 1], dtype=int32)
    """
    pymetis, train = _pymetis(), request.train_vertices("metis-seeds")
    if request.num_parts == 1 or len(train) < VERTICES_PER_PART * request.num_parts:
        return train_ranges(request.graph.num_nodes, train, request.num_parts)
    weights = np.zeros(request.graph.num_nodes, np.int64)
    weights[train] = 1
    allowed = max(5, -(-2000 * request.num_parts // len(train)))  # over the mean, in thousandths of it
    return _cut(request, weights, pymetis.Options(seed=request.random_seed, ufactor=allowed))


def _pymetis() -> Any:
    return require_module("pymetis", needed_for="partitions by METIS", extra="metis")


def _cut(request: PartitionRequest, weights: NDArray[np.int64], options: Any) -> NDArray[np.int32]:
    pymetis = _pymetis()
    adjacency = pymetis.CSRAdjacency(*undirected(request.graph))
    with _stdout_to_stderr():
        made = pymetis.part_graph(
            request.num_parts,
            adjacency,
            vweights=weights,
            recursive=False,  # recursive bisection, pymetis's choice for up to 8 parts, has cut 70 times as many edges
            options=options,
        )
    return np.asarray(made.vertex_part, np.int32)


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """What C code prints goes to standard error: METIS complains on standard output, where results go."""
    libc = ctypes.CDLL(None)
    libc.fflush(None)
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        libc.fflush(None)
        os.dup2(stdout, 1)
        os.close(stdout)
