"""Neighbours in either direction, as methods that cut edges want them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spsample.store import Graph

__all__ = ["undirected"]


def undirected(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row starts and columns of A + A^T without its diagonal; parallel edges are one.

    Examples
    --------
    >>> undirected(Graph([0, 2, 2], [0, 1]))
    (array([0, 1, 2]), array([1, 0]))
    """
    n = graph.num_nodes
    entries, indptr = np.ones(graph.num_edges, np.bool_), np.asarray(graph.indptr)
    small = indptr.astype(np.int32) if 2 * graph.num_edges < 2**31 else indptr
    A = sparse.csr_array((entries, np.asarray(graph.indices), small), shape=(n, n))
    both = A + A.T.tocsr()
    if both.diagonal().any():
        both.setdiag(False)
        both.eliminate_zeros()
    return both.indptr.astype(np.int64), both.indices.astype(np.int64)
