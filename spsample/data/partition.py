"""Partitions of a graph's vertices: which block row each one goes to."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse

from spsample.common.checks import require_int
from spsample.distributed.placement import require_parts
from spsample.errors import require_module
from spsample.store import Graph
from spsample.store.base_graph import require_local

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["VERTICES_PER_PART", "PartitionQuality", "metis_partition", "partition_quality"]

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
    require_local(graph)
    num_parts = require_int("num_parts", num_parts, minimum=1, maximum=2**31 - 1)
    random_seed = require_int("random_seed", random_seed, minimum=0, maximum=2**31 - 1)
    pymetis = require_module("pymetis", needed_for="partitions by METIS", extra="metis")
    if num_parts == 1 or graph.num_nodes < VERTICES_PER_PART * num_parts:
        return (np.arange(graph.num_nodes, dtype=np.int64) * num_parts // max(graph.num_nodes, 1)).astype(np.int32)
    adjacency = pymetis.CSRAdjacency(*_undirected(graph))
    weights = np.asarray(np.diff(graph.indptr), np.int64) + 1
    with _stdout_to_stderr():
        made = pymetis.part_graph(
            num_parts,
            adjacency,
            vweights=weights,
            recursive=False,  # recursive bisection, pymetis's choice for up to 8 parts, has cut 70 times as many edges
            options=pymetis.Options(seed=random_seed),
        )
    return np.asarray(made.vertex_part, np.int32)


def _undirected(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row starts and columns of A + A^T without its diagonal, in METIS's type."""
    n = graph.num_nodes
    entries, indptr = np.ones(graph.num_edges, np.bool_), np.asarray(graph.indptr)
    small = indptr.astype(np.int32) if 2 * graph.num_edges < 2**31 else indptr
    A = sparse.csr_array((entries, np.asarray(graph.indices), small), shape=(n, n))
    both = A + A.T.tocsr()
    if both.diagonal().any():
        both.setdiag(False)
        both.eliminate_zeros()
    return both.indptr.astype(np.int64), both.indices.astype(np.int64)


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


class PartitionQuality(NamedTuple):
    """How even the parts are, and how much lies between them.

    Attributes
    ----------
    largest : float
        Rows and entries of the largest part over the mean.
    cut : float
        Share of the edges whose two vertices are in different parts.
    empty : int
        Parts without a vertex.
    """

    largest: float
    cut: float
    empty: int


def partition_quality(graph: Graph, parts: NDArray[np.integer], num_parts: int) -> PartitionQuality:
    """Measure a partition of a graph.

    Raises
    ------
    InputError, DTypeError
        If `parts` does not have a number below `num_parts` for each vertex.

    Examples
    --------
    >>> partition_quality(Graph([0, 1, 2, 3, 4], [1, 0, 3, 0]), np.array([0, 0, 1, 1]), 2)
    PartitionQuality(largest=1.0, cut=0.25, empty=0)
    """
    require_local(graph)
    num_parts = require_int("num_parts", num_parts, minimum=1, maximum=2**31 - 1)
    parts = require_parts(parts, graph.num_nodes, num_parts)
    degrees = np.asarray(np.diff(graph.indptr), np.int64)
    load = np.bincount(parts, weights=degrees + 1, minlength=num_parts)
    crossing = int(np.count_nonzero(np.repeat(parts, degrees) != parts[np.asarray(graph.indices)]))
    return PartitionQuality(
        largest=float(load.max() * num_parts / load.sum()),
        cut=crossing / graph.num_edges if graph.num_edges else 0.0,
        empty=int(np.count_nonzero(load == 0)),
    )
