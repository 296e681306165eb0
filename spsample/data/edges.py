"""From pairs of vertices to a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.store import Graph
from spsample.store.validation import INT32_NODES

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["symmetric_graph"]


def symmetric_graph(a: NDArray[Any], b: NDArray[Any], num_nodes: int) -> Graph:
    """Return the undirected graph of the pairs: both directions, no self-loops, no duplicates.

    Examples
    --------
    >>> graph = symmetric_graph(np.array([0, 1, 2]), np.array([1, 0, 2]), 3)
    >>> graph.indptr.tolist(), graph.indices.tolist()
    ([0, 1, 2, 2], [1, 0])
    """
    a, b = a[a != b].astype(np.int64), b[a != b].astype(np.int64)
    keys = np.concatenate([a * num_nodes + b, b * num_nodes + a])
    keys.sort()
    keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys
    targets, sources = np.divmod(keys, num_nodes)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=num_nodes))])
    return Graph(indptr.astype(np.int64), sources.astype(np.int32 if num_nodes <= INT32_NODES else np.int64))
