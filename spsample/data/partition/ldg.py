"""Linear deterministic greedy: parts in one pass over the vertices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.common.threads import compiled_core
from spsample.data.partition.neighbours import undirected
from spsample.data.partition.request import PartitionRequest

__all__ = ["ldg", "ldg_parts"]


def ldg(request: PartitionRequest) -> NDArray[np.int32]:
    """Put each vertex, ascending, to the part that has most of its neighbours, weighed by the room left there.

    A part takes n / K vertices, rounded up. Vertex v goes to the part with the largest number of neighbours of v, in
    either direction, times the places left; of equal scores to that with the most places left, then to the first one.
    It follows the order of the ids: where neighbours have ids near each other, as in crawls of the web, it does well.

    Parameters
    ----------
    request : PartitionRequest
        Seeds, hops and random seed are not asked for.

    Returns
    -------
    int32 array (n,)
        The part of each vertex.

    References
    ----------
    Stanton and Kliot, "Streaming graph partitioning for large distributed graphs", KDD 2012, section 4.

    Examples
    --------
    >>> import spsample as sp
    >>> ldg(PartitionRequest(sp.Graph([0, 1, 2, 3, 4], [1, 0, 3, 2]), 2))
    array([0, 0, 1, 1], dtype=int32)
    """
    indptr, indices = undirected(request.graph)
    num_parts = min(request.num_parts, max(request.graph.num_nodes, 1))  # further ones stay empty
    core = compiled_core()
    if core is None:
        return ldg_parts(indptr, indices, num_parts)
    made: NDArray[np.int32] = core.ldg_parts(indptr, indices, num_parts)
    return made


def ldg_parts(indptr: NDArray[np.int64], indices: NDArray[np.int64], num_parts: int) -> NDArray[np.int32]:
    """Assign vertices as the compiled core does, by NumPy.

    Examples
    --------
    >>> ldg_parts(np.array([0, 1, 2, 3, 4]), np.array([2, 3, 0, 1]), 2)
    array([0, 1, 0, 1], dtype=int32)
    """
    n = len(indptr) - 1
    parts = np.full(n, -1, np.int32)
    room = [-(-n // num_parts)] * num_parts
    for v in range(n):
        near = parts[indices[indptr[v] : indptr[v + 1]]]
        found = np.bincount(near[near >= 0], minlength=num_parts).tolist()
        best = max(range(num_parts), key=lambda i: (found[i] * room[i], room[i], -i))
        parts[v] = best
        room[best] -= 1
    return parts
