"""PaGraph's partition: train vertices that share in-neighbours go to one part, an equal number to each."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from spsample.common.memory import available_memory
from spsample.common.threads import compiled_core
from spsample.common.units import format_bytes
from spsample.data.partition.request import PartitionRequest
from spsample.errors import CapacityError
from spsample.sparse import keys

__all__ = ["pagraph", "pagraph_parts"]


def pagraph(request: PartitionRequest) -> NDArray[np.int32]:
    """Put train vertices to parts by PaGraph's score, every other vertex to a part that needs it.

    Train vertices come in a random order. Vertex v goes to the part i of the largest

        (|TV_i ∩ IN(v)| + 1) (TV / K - |TV_i|) / (|PV_i| + 1)

    where TV_i are the train vertices of part i so far, PV_i these with their in-neighbourhoods, IN(v) the
    in-neighbourhood of v up to `hops` edges, K the number of parts. (The paper has no + 1, which leaves 0 / 0 on empty
    parts.) Of equal scores the part with fewer train vertices wins, then the first one. No part gets more than its
    share: the numbers of train vertices differ by 1 at most.

    Each other vertex, ascending, goes to one of the parts that need it, PV_i: to that with the fewest rows and entries
    of its own so far. One that no part needs goes to the part with the fewest of all.

    Parameters
    ----------
    request : PartitionRequest
        With seeds and hops.

    Returns
    -------
    int32 array (n,)
        The part of each vertex.

    Raises
    ------
    InputError
        If there are no seeds, fewer than parts, or no hops.
    CapacityError
        If a bit for each vertex and part does not fit in the memory that is available.

    References
    ----------
    Lin et al., "PaGraph: Scaling GNN Training on Large Graphs via Computation-aware Caching", SoCC 2020, section 3.3.

    Examples
    --------
    >>> import spsample as sp
    >>> ring = sp.Graph(range(7), [5, 0, 1, 2, 3, 4])
    >>> parts = pagraph(PartitionRequest(ring, 2, np.array([0, 2, 3, 5]), hops=1))
    >>> np.bincount(parts[[0, 2, 3, 5]])
    array([2, 2])
    """
    train, hops = request.train_vertices("pagraph"), request.layers("pagraph")
    order = train[keys.shuffle(len(train), request.random_seed)]
    indptr, indices = request.graph.indptr, request.graph.indices
    _require_memory(request)
    core = compiled_core()
    if core is None:
        return pagraph_parts(indptr, indices, order, request.num_parts, hops)
    made: NDArray[np.int32] = core.pagraph_parts(indptr, indices, order, request.num_parts, hops)
    return made


def _require_memory(request: PartitionRequest) -> None:
    """Refuse what does not fit: A's rows once more, and a bit for each vertex and part."""
    graph, free = request.graph, available_memory()
    needed = request.num_parts * graph.num_nodes // 8 + graph.num_edges * graph.index_dtype.itemsize
    if needed > free:
        given = f"{request.num_parts} parts of {graph.num_nodes} vertices, which take {format_bytes(needed)}"
        raise CapacityError(argument="num_parts", given=given, expected=f"at most the {format_bytes(free)} available")


def pagraph_parts(
    indptr: NDArray[np.int64], indices: NDArray[np.integer], train: NDArray[np.int64], num_parts: int, hops: int
) -> NDArray[np.int32]:
    """Assign vertices as the compiled core does, in plain Python: slow, and as the formula reads.

    Examples
    --------
    >>> pagraph_parts(np.array([0, 1, 2, 3, 4]), np.array([1, 0, 3, 2]), np.array([0, 2, 3, 1]), 2, 1).tolist()
    [0, 0, 1, 1]
    """
    parts = np.full(len(indptr) - 1, -1, np.int32)
    trains: list[set[int]] = [set() for _ in range(num_parts)]
    needed: list[set[int]] = [set() for _ in range(num_parts)]
    for v in train.tolist():
        near = _in_neighbourhood(indptr, indices, v, hops)
        larger = len(train) % num_parts - sum(len(one) > len(train) // num_parts for one in trains)

        def score(i: int, near: set[int] = near) -> Fraction:
            lacks = Fraction(len(train), num_parts) - len(trains[i])
            return (len(trains[i] & near) + 1) * lacks / (len(needed[i]) + 1)

        share = len(train) // num_parts + (larger > 0)
        open_parts = [i for i in range(num_parts) if len(trains[i]) < share]
        best = max(open_parts, key=lambda i: (score(i), -len(trains[i]), -i))
        parts[v] = best
        trains[best].add(v)
        needed[best] |= near
    _put_others(indptr, parts, needed)
    return parts


def _in_neighbourhood(indptr: NDArray[np.int64], indices: NDArray[np.integer], vertex: int, hops: int) -> set[int]:
    """The vertices that lead to `vertex` by at most `hops` edges, itself among them."""
    found = last = {vertex}
    for _ in range(hops):
        last = {int(u) for v in last for u in indices[indptr[v] : indptr[v + 1]]} - found
        found = found | last
    return found


def _put_others(indptr: NDArray[np.int64], parts: NDArray[np.int32], needed: list[set[int]]) -> None:
    """Put each vertex without a part to one that needs it, the one with the fewest rows and entries."""
    size = np.diff(indptr) + 1
    load = [int(size[parts == i].sum()) for i in range(len(needed))]
    for v in np.flatnonzero(parts < 0).tolist():
        best = min(range(len(needed)), key=lambda i: (v not in needed[i], load[i], i))
        parts[v] = best
        load[best] += int(size[v])
