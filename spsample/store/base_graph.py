"""`BaseGraph`: what every graph answers, wherever it lies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array, Matrix
from spsample.comm import Communicator, LocalCommunicator
from spsample.common.memory import available_memory
from spsample.errors import DTypeError, InputError
from spsample.sparse.operand import GraphOperand
from spsample.sparse.probability import Weighting

_CONSTRUCTORS = "Graph.from_edge_index, Graph.from_scipy or Graph(indptr, indices)"
_ADAPTERS = {"dgl": "spsample.store.from_dgl(graph)", "torch_geometric": "Graph.from_pyg(data)"}
"""Calls that make a graph of another library's, by its package."""
_NOTHING: AbstractContextManager[None] = nullcontext()


class BaseGraph(ABC):
    """A graph that can be sampled: on this rank, on its device, on every rank, or in parts on several.

    Whoever samples, loads, plans or trains asks these questions and never for the class. The answers given here are
    those of a graph that one rank has for itself in its own memory: nothing is exchanged, and every batch of a call is
    sampled and kept by the caller. `spsample.distributed.graph.DistributedGraph` answers for several ranks.

    Attributes
    ----------
    comm : Communicator
        The ranks that have the graph: every call on it is one of all of them.
    is_distributed : bool
        True where calls on the graph are collective: it is on the ranks of `comm`, though that may be one.
    is_on_device : bool
        Whether bulks of the graph, and what is needed to make them, are in the memory of a device.

    Examples
    --------
    >>> import spsample
    >>> graph = spsample.Graph([0, 2, 3], [0, 1, 0])
    >>> graph.comm.size, graph.local_batches(3).tolist(), graph.duplicate() is graph, graph.host is graph
    (1, [0, 1, 2], True, True)
    """

    __slots__ = ()

    comm: Communicator = LocalCommunicator()
    is_distributed: ClassVar[bool] = False
    is_on_device: ClassVar[bool] = False

    # ------------------------------------------------------------------------------------------------ the matrix

    @property
    @abstractmethod
    def num_nodes(self) -> int:
        """Number of vertices of the whole graph."""

    @property
    @abstractmethod
    def num_edges(self) -> int:
        """Number of entries of the whole A, parallel edges counted each."""

    @property
    @abstractmethod
    def weighting(self) -> Weighting:
        """Kind of values of A: "unweighted" (1), "row" (1 / entries of the row) or "weighted" (stored)."""

    @property
    @abstractmethod
    def index_dtype(self) -> np.dtype[np.signedinteger]:
        """int32 or int64: type of vertex ids in samples."""

    @property
    def digest(self) -> str | None:
        """SHA-256 that identifies the graph, where it is a store's; else None."""
        return None

    @abstractmethod
    def operand(self, backend: str | None = None) -> GraphOperand:
        """Return A as the sampling algebra sees it, on the backend of that name (None: the fastest)."""

    @abstractmethod
    def row_sums(self) -> NDArray[np.float32]:
        """Return the sum of each row of the whole A, shape (n,); collective where the rows lie on several ranks."""

    def block_row(self) -> Matrix:
        """Return the rows of A that this rank has, in memory of the host: all of them, or its block row.

        Raises
        ------
        InputError
            If no rows are on the host, as of a graph made of arrays on a device.

        Examples
        --------
        >>> import spsample
        >>> spsample.Graph([0, 2, 3], [0, 1, 0]).block_row().indices.tolist()
        [0, 1, 0]
        """
        if self.host is None:
            raise InputError(argument="graph", given=repr(self), expected="a graph whose rows are on the host")
        return cast("Matrix", self.host.operand().matrix)

    def add_block_rows(self, sums: NDArray[Any], *, phase: str = "other") -> NDArray[Any]:
        """Return the sums over all rows of A of what each rank has summed over its `block_row`; collective on ranks."""
        return sums

    def normalized(self, kind: str) -> BaseGraph:
        """Return A normalised by rows ("row") or symmetrically ("sym"), lying where this graph lies.

        Raises
        ------
        InputError
            If this kind of graph cannot be normalised in that way.
        """
        raise InputError(argument="graph", given=repr(self), expected="a Graph, normalised before it is put elsewhere")

    # -------------------------------------------------------------------------------------------------- its ranks

    def sampling(self) -> AbstractContextManager[None]:
        """Return what is put around the calls of the operand: where one rank fails, all raise."""
        return _NOTHING

    def duplicate(self) -> BaseGraph:
        """Return the same graph over duplicated communicators, for another thread; itself where nothing is sent."""
        return self

    def close(self) -> None:  # noqa: B027  (nothing to free, for most)
        """Free the communicators that `duplicate` made for this graph, if it did; collective, and the last call."""

    def local_batches(self, num_batches: int) -> Int64Array:
        """Return the ascending positions of the batches of a call that this rank gets: all; on p ranks every p-th."""
        return np.arange(num_batches)

    def sampled_batches(self, num_batches: int) -> Int64Array:
        """Return the ascending positions of the batches of a call that this rank samples: those that it gets, or more.

        Ranks that fetch rows for each other sample each other's batches too.
        """
        return self.local_batches(num_batches)

    def for_bulks(self, sampler: Any, options: Hashable, num_batches: int) -> BaseGraph:
        """Return the graph as it is best sampled from in bulks like these: itself, where there is one way only.

        `options` are what else the time of a bulk depends on: batch size, whether there are edge ids, backend.
        """
        return self

    @property
    def chosen_algorithms(self) -> Sequence[Any]:
        """The ways to sample that were chosen of several, in words as text; nothing where there is one only."""
        return ()

    @property
    def num_block_rows(self) -> int:
        """Block rows that A lies in, p/c; 1 where each rank has all of it."""
        return 1

    def block_rows_of(self, vertices: Int64Array) -> Int64Array:
        """Return the block row of each of these vertices: int64, from 0 to `num_block_rows` - 1.

        Examples
        --------
        >>> import spsample
        >>> spsample.Graph([0, 2, 3], [0, 1, 0]).block_rows_of(np.array([1, 0, 1])).tolist()
        [0, 0, 0]
        """
        return np.zeros(len(vertices), np.int64)

    # ------------------------------------------------------------------------------------------------ its memory

    def to_device(self, backend: str | None) -> BaseGraph:
        """Return the graph where that backend reads it: with "cuda" a `Graph` gives the `DeviceGraph` that it keeps."""
        return self

    @property
    def host(self) -> Any:
        """The whole graph as a `Graph` in the memory of this rank's host; None where it has none."""
        return None

    @property
    def kept_nbytes(self) -> int:
        """Bytes kept for samplers beyond the arrays of the graph, made on first use."""
        return 0

    def free_bytes(self) -> int:
        """Return the bytes that bulks of this graph may take now: of its device, or of this machine."""
        return available_memory()


def require_graph(graph: Any) -> None:
    """Refuse what is no graph, local or on several ranks.

    Raises
    ------
    DTypeError

    Examples
    --------
    >>> require_graph([[0, 1], [1, 0]])
    Traceback (most recent call last):
    ...
    spsample.errors.DTypeError: graph: got an object of type list; expected an spsample.Graph. Make one by ...
    """
    if not isinstance(graph, BaseGraph):
        packages = {kind.__module__.partition(".")[0] for kind in type(graph).__mro__}
        known = [_ADAPTERS[name] for name in packages & _ADAPTERS.keys()]
        raise DTypeError(
            argument="graph",
            given=f"an object of type {type(graph).__name__}",
            expected="an spsample.Graph",
            hint=f"Make one by {(known or [_CONSTRUCTORS])[0]}.",
        )


def require_local(graph: Any, expected: str = "an spsample Graph", hint: str = "") -> None:
    """Refuse what is not a `Graph` in the memory of this host, a graph of another kind too.

    Raises
    ------
    DTypeError

    Examples
    --------
    >>> require_local(3)
    Traceback (most recent call last):
    ...
    spsample.errors.DTypeError: graph: got a int; expected an spsample Graph
    """
    if not isinstance(graph, BaseGraph) or graph.host is not graph:
        raise DTypeError(argument="graph", given=f"a {type(graph).__name__}", expected=expected, hint=hint)
