"""Random parts: what every other method is to be better than."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.data.partition.request import PartitionRequest
from spsample.sparse import keys

__all__ = ["random_parts"]


def random_parts(request: PartitionRequest) -> NDArray[np.int32]:
    """Deal vertices out in random order: train vertices first, if there are any, then the others.

    Numbers of train vertices, and of vertices, differ by 1 at most between parts.

    Examples
    --------
    >>> import spsample as sp
    >>> parts = random_parts(PartitionRequest(sp.Graph([0] * 10, []), 3, np.array([0, 1, 8])))
    >>> sorted(parts[[0, 1, 8]].tolist()), np.bincount(parts).tolist()
    ([0, 1, 2], [3, 3, 3])
    """
    n = request.graph.num_nodes
    order = keys.shuffle(n, request.random_seed)
    if request.seeds is not None:
        is_train = np.zeros(n, np.bool_)
        is_train[request.seeds] = True
        order = order[np.argsort(~is_train[order], kind="stable")]
    parts = np.empty(n, np.int32)
    parts[order] = np.arange(n) % request.num_parts
    return parts
