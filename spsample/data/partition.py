"""Partitions of a graph's vertices: which block row each one goes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse

from spsample.errors import DTypeError, InputError, require_module
from spsample.sparse.checks import require_int
from spsample.store import Graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PartitionQuality", "metis_partition", "partition_quality"]


def metis_partition(graph: Graph, num_parts: int, *, random_seed: int = 0) -> NDArray[np.int32]:
    """Assign each vertex to a part such that few edges join two parts, by METIS (pymetis), k-way.

    The graph is taken as undirected: what matters is which vertices have something to do with each other. A part has
    about as many rows and entries of A as the others, a row counting as one entry more than it has, as in the ranges
    that `PartitionedGraph.open` makes by itself.

    Parameters
    ----------
    graph : Graph
        All of it. Another copy of its pattern, twice as large, is made in memory.
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
    _require_graph(graph)
    num_parts = require_int("num_parts", num_parts, minimum=1)
    random_seed = require_int("random_seed", random_seed, minimum=0, maximum=2**31 - 1)
    pymetis = require_module("pymetis", needed_for="partitions by METIS", extra="metis")
    if num_parts == 1 or graph.num_nodes <= num_parts:
        return np.arange(graph.num_nodes, dtype=np.int32) % np.int32(num_parts)
    both = _undirected(graph)
    weights = np.diff(np.asarray(graph.indptr, np.int64)) + 1
    adjacency = pymetis.CSRAdjacency(both.indptr.astype(np.int64), both.indices.astype(np.int64))
    made = pymetis.part_graph(
        num_parts,
        adjacency,
        vweights=weights,
        recursive=False,  # recursive bisection, pymetis's choice for up to 8 parts, has cut 70 times as many edges
        options=pymetis.Options(seed=random_seed),
    )
    return np.asarray(made.vertex_part, np.int32)


def _undirected(graph: Graph) -> sparse.csr_array:
    """The pattern of A + A^T without its diagonal."""
    n = graph.num_nodes
    entries = np.ones(graph.num_edges, np.bool_)
    A = sparse.csr_array((entries, np.asarray(graph.indices), np.asarray(graph.indptr)), shape=(n, n))
    both = (A + A.T).tocsr()
    both.setdiag(False)
    both.eliminate_zeros()
    return both


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

    Examples
    --------
    >>> partition_quality(Graph([0, 1, 2, 3, 4], [1, 0, 3, 0]), np.array([0, 0, 1, 1]), 2)
    PartitionQuality(largest=1.0, cut=0.25, empty=0)
    """
    _require_graph(graph)
    if np.shape(parts) != (graph.num_nodes,):
        raise InputError(argument="parts", given=f"shape {np.shape(parts)}", expected=f"({graph.num_nodes},)")
    degrees = np.asarray(np.diff(graph.indptr), np.int64)
    load = np.bincount(parts, weights=degrees + 1, minlength=num_parts)
    target = np.repeat(parts, degrees)
    crossing = int(np.count_nonzero(target != parts[np.asarray(graph.indices)]))
    mean = load.sum() / num_parts
    empty = num_parts - len(np.unique(parts))
    return PartitionQuality(
        largest=float(load.max(initial=0.0) / mean) if mean else 1.0,
        cut=crossing / graph.num_edges if graph.num_edges else 0.0,
        empty=empty,
    )


def _require_graph(graph: object) -> None:
    if not isinstance(graph, Graph):
        raise DTypeError(argument="graph", given=f"a {type(graph).__name__}", expected="an spsample Graph")
