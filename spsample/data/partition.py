"""Methods that make parts of the vertices, by name, and what they make them from."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spsample.common.checks import require_choice, require_int
from spsample.common.memory import available_memory
from spsample.common.threads import require_core
from spsample.common.units import format_bytes
from spsample.distributed.placement import balanced
from spsample.errors import CapacityError, InputError, require_module
from spsample.sparse import keys
from spsample.store import Graph
from spsample.store.base_graph import require_local
from spsample.store.validation import validate_seeds

_MAX_PARTS = 2**20
"""Methods take memory for each part, whether it gets a vertex or not."""


class PartitionRequest:
    """A graph, how many parts it is wanted in, and what training needs of them.

    Attributes
    ----------
    graph : Graph
    num_parts : int
        At least 1.
    seeds : int64 array or None
        Train vertices, ascending and distinct, at least one a part.
    hops : int or None
        How far sampling goes from a train vertex: layers of the model.
    random_seed : int

    Raises
    ------
    InputError, DTypeError
        Naming the argument.

    Examples
    --------
    >>> PartitionRequest(Graph([0, 1, 2], [1, 0]), 1, [1, 0, 1]).seeds
    array([0, 1])
    """

    def __init__(self, graph: Any, num_parts: Any, seeds: Any = None, hops: Any = None, random_seed: Any = 0) -> None:
        require_local(graph)
        self.graph: Graph = graph
        self.num_parts = require_num_parts(num_parts)
        self.seeds = None if seeds is None else as_train_vertices(seeds, graph.num_nodes)
        if self.seeds is not None:
            check_parts_of_train(self.num_parts, self.seeds)
        self.hops = None if hops is None else require_hops(hops)
        self.random_seed = require_int("random_seed", random_seed, minimum=0, maximum=2**31 - 1)

    def require(self, method: str, name: str, expected: str) -> Any:
        """Return seeds or hops, which this method cannot do without."""
        if getattr(self, name) is None:
            raise InputError(argument=name, given="nothing", expected=f"{expected} for method={method!r}")
        return getattr(self, name)


def require_num_parts(num_parts: Any) -> int:
    """Return a number of parts, from 1 to 2^20."""
    return require_int("num_parts", num_parts, minimum=1, maximum=_MAX_PARTS)


def require_hops(hops: Any) -> int:
    """Return a number of hops, at least 1."""
    return require_int("hops", hops, minimum=1, maximum=2**31 - 1)


def as_train_vertices(seeds: Any, num_nodes: int) -> NDArray[np.int64]:
    """Return train vertices ascending, each once; refuse what is none.

    Examples
    --------
    >>> as_train_vertices([3, 1, 3], 4)
    array([1, 3])
    """
    train = np.unique(validate_seeds(seeds, num_nodes))
    if len(train) == 0:
        raise InputError(argument="seeds", given="no vertex", expected="at least one train vertex")
    return train


def check_parts_of_train(num_parts: int, train: NDArray[np.int64]) -> None:
    """Refuse more parts than train vertices.

    Examples
    --------
    >>> check_parts_of_train(3, np.array([0, 7]))
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: num_parts: got 3; expected at most 2, the number of train vertices
    """
    if num_parts > len(train):
        expected = f"at most {len(train)}, the number of train vertices"
        raise InputError(argument="num_parts", given=str(num_parts), expected=expected)


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


def random_parts(request: PartitionRequest) -> NDArray[np.int32]:
    """Assign vertices in random order in turn: train vertices first, if there are any, then the others.

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
        order = order[np.argsort(~np.isin(order, request.seeds), kind="stable")]
    parts = np.empty(n, np.int32)
    parts[order] = np.arange(n) % request.num_parts
    return parts


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

    Raises
    ------
    BackendError
        Without the compiled core.

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
    parts: NDArray[np.int32] = require_core('method="ldg"').ldg_parts(indptr, indices, num_parts)
    return parts


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
    BackendError
        Without the compiled core.
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
    train, graph, num_parts = request.require("pagraph", "seeds", "train vertices"), request.graph, request.num_parts
    hops = request.require("pagraph", "hops", "the number of layers that will be sampled,")
    free = available_memory()
    needed = num_parts * graph.num_nodes // 8 + graph.num_edges * graph.index_dtype.itemsize  # A's rows once more
    if needed > free:
        given = f"{num_parts} parts of {graph.num_nodes} vertices, which take {format_bytes(needed)}"
        raise CapacityError(argument="num_parts", given=given, expected=f"at most the {format_bytes(free)} available")
    order = train[keys.shuffle(len(train), request.random_seed)]
    assign = require_core('method="pagraph"').pagraph_parts
    parts: NDArray[np.int32] = assign(graph.indptr, graph.indices, order, num_parts, hops)
    return parts


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
    return metis(PartitionRequest(graph, num_parts, random_seed=random_seed))


def metis(request: PartitionRequest) -> NDArray[np.int32]:
    """Cut few edges; each part has about as many rows and entries: see `metis_partition`."""
    graph = request.graph
    return _cut(request, np.arange(graph.num_nodes), np.asarray(np.diff(graph.indptr), np.int64) + 1)


def metis_seeds(request: PartitionRequest) -> NDArray[np.int32]:
    """Cut few edges; each part has about as many train vertices, whatever rows and entries it has.

    A train vertex weighs 1, any other 0. METIS may give a part 0.5 % more than the mean, or two train
    vertices where that is less than two, and mostly keeps to it. (With less, it leaves parts that have no cut worth the
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
    train = request.require("metis-seeds", "seeds", "train vertices")
    weights = np.zeros(request.graph.num_nodes, np.int64)
    weights[train] = 1
    allowed = max(5, -(-2000 * request.num_parts // len(train)))  # over the mean, in thousandths of it
    return _cut(request, train, weights, ufactor=allowed)


def _cut(
    request: PartitionRequest, shared: NDArray[np.int64], weights: NDArray[np.int64], **options: int
) -> NDArray[np.int32]:
    """Cut by METIS with these weights of vertices; in ranges that share out `shared` where these are few."""
    pymetis = require_module("pymetis", needed_for="partitions by METIS", extra="metis")
    if request.num_parts == 1 or len(shared) < VERTICES_PER_PART * request.num_parts:
        return train_ranges(request.graph.num_nodes, shared, request.num_parts)
    adjacency = pymetis.CSRAdjacency(*undirected(request.graph))
    with _stdout_to_stderr():
        made = pymetis.part_graph(
            request.num_parts,
            adjacency,
            vweights=weights,
            recursive=False,  # recursive bisection, pymetis's choice for up to 8 parts, has cut 70 times as many edges
            options=pymetis.Options(seed=request.random_seed, **options),
        )
    return np.asarray(made.vertex_part, np.int32)


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send what C code prints to standard error: METIS complains on standard output, where results go."""
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


METHODS: dict[str, Callable[[PartitionRequest], NDArray[np.int32]]] = {
    "metis": metis,
    "metis-seeds": metis_seeds,
    "pagraph": pagraph,
    "ldg": ldg,
    "ranges": ranges,
    "random": random_parts,
}
"""Functions that return the part of each vertex for a request, by name."""


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
    BackendError
        For "pagraph" and "ldg" without the compiled core.
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
    request = PartitionRequest(graph, num_parts, seeds, hops, random_seed)
    return METHODS[require_choice("method", method, tuple(METHODS))](request)
