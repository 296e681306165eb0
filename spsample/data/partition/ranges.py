"""Ranges of vertices: the parts that need no table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.data.partition.request import PartitionRequest
from spsample.distributed.placement import balanced

__all__ = ["ranges"]


def ranges(request: PartitionRequest) -> NDArray[np.int32]:
    """Cut the vertices in ranges with about as many rows and entries, as `PartitionedGraph.open` does by itself.

    With train vertices there are about as many of them in each range instead.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph([0, 2, 2, 2, 2], [1, 2])
    >>> ranges(PartitionRequest(graph, 2)), ranges(PartitionRequest(graph, 2, np.array([0, 2])))
    (array([0, 1, 1, 1], dtype=int32), array([0, 0, 1, 1], dtype=int32))
    """
    if request.seeds is None:
        sizes = np.diff(balanced(request.graph.indptr, request.num_parts).bounds)
        return np.repeat(np.arange(request.num_parts, dtype=np.int32), sizes)
    return train_ranges(request.graph.num_nodes, request.seeds, request.num_parts)


def train_ranges(num_nodes: int, train: NDArray[np.int64], num_parts: int) -> NDArray[np.int32]:
    """Cut vertices in ranges; train vertices, which ascend, are shared out as evenly as can be.

    Examples
    --------
    >>> train_ranges(5, np.array([1, 3, 4]), 3)
    array([0, 0, 0, 1, 2], dtype=int32)
    """
    first = train[np.arange(1, num_parts) * len(train) // num_parts]
    return np.searchsorted(first, np.arange(num_nodes), side="right").astype(np.int32)
