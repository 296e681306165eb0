"""`DistributedGraph`: a graph on several ranks, which all have to have the same one. `ReplicatedGraph`: all on each."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.comm import Communicator, collective
from spsample.comm.headers import exchange_numbers
from spsample.comm.objects import differing
from spsample.common.checks import require_type
from spsample.distributed.blocks import BlockReader, GraphRows
from spsample.errors import InputError
from spsample.sparse import GraphOperand
from spsample.sparse.probability import Weighting
from spsample.store import Graph
from spsample.store.base_graph import BaseGraph, require_local

_ARRAYS = {"indptr": "row pointers", "indices": "sources", "data": "weights", "edge_ids": "edge ids"}


class DistributedGraph(BaseGraph):
    """A graph on the ranks of `comm`, each of which samples some of every bulk's batches.

    `bulk_sample` on it is collective: all ranks give the same arguments, each gets batches of its own.
    """

    is_distributed = True

    _rows: BlockReader

    _duplicated: Any = None
    """The communicator or grid that was made for a duplicate."""

    @property
    def num_nodes(self) -> int:
        """Number of vertices of the whole graph."""
        return self._rows.num_nodes

    @property
    def num_edges(self) -> int:
        """Number of entries of the whole A."""
        return self._rows.num_edges

    @property
    def weighting(self) -> Weighting:
        """Kind of the values of A."""
        return self._rows.weighting

    @property
    def index_dtype(self) -> np.dtype[np.signedinteger]:
        """Type of vertex ids in samples."""
        return self._rows.index_dtype

    @property
    def digest(self) -> str | None:
        """Digest that tells the graph from others, where it is a store's."""
        return self._rows.digest

    @abstractmethod
    def sampling(self) -> AbstractContextManager[None]:
        """Return a context for the collective calls of the operand: where one rank fails, all raise."""

    @abstractmethod
    def duplicate(self) -> DistributedGraph:
        """Return the same graph over duplicated communicators, for another thread; collective."""

    def close(self) -> None:
        """Free the communicators that `duplicate` made for this graph, if it did; collective, and the last call."""
        if self._duplicated is not None:
            self._duplicated.close()

    def local_batches(self, num_batches: int) -> Int64Array:
        """Return the ascending positions of the batches of a call that this rank gets: every p-th one."""
        return np.arange(self.comm.rank, num_batches, self.comm.size, dtype=np.int64)


def require_same_graph(comm: Communicator, rows: BlockReader) -> None:
    """Refuse graphs that differ between ranks; collective.

    Graphs of stores are compared by the checksums that their stores keep; nothing is read. Where a rank has its graph
    in memory, all compare contents: each reads its graph once, and keeps the result.

    Raises
    ------
    InputError
        On every rank, naming what differs, and where.
    """
    facts: dict[str, Any] = {
        "numbers of vertices": rows.num_nodes,
        "numbers of edges": rows.num_edges,
        "weighting": rows.weighting,
        "dtypes": (str(rows.index_dtype), str(rows.data_dtype)),
    }
    _require(differing(comm, **facts))
    are_stored = np.full((comm.size, 1), int(rows.digest is not None))
    if exchange_numbers(comm, are_stored, "comparison of graphs").all():
        _require(differing(comm, contents=rows.digest))
        return
    with collective(comm, call="reading of graphs"):
        contents = {_ARRAYS[name]: number for name, number in rows.fingerprint().items()}
    _require(differing(comm, **contents))


def _require(different: dict[str, str]) -> None:
    if different:
        where = [f"{name} on {ranks}" for name, ranks in different.items()]
        if len(set(different.values())) == 1:
            where = [f"{', '.join(different)} on {next(iter(different.values()))}"]
        expected = "the same graph on every rank"
        raise InputError(argument="graph", given=f"other {'; other '.join(where)}", expected=expected)


class ReplicatedGraph(DistributedGraph):
    """A graph that every rank has: batches are split over the ranks, and sampling needs no communication.

    Rank r gets every p-th batch of a call, from position r on; they are the batches that one rank alone would get.
    Making one is collective, and so is every `bulk_sample` on it.

    Parameters
    ----------
    graph : Graph
        All of it, on every rank: in memory, or the maps of a store (`Graph.open`), whose pages the ranks of a machine
        share.
    comm : Communicator
        The ranks.

    Raises
    ------
    InputError
        On every rank, if they do not all give the same graph; it names what differs, and where. Graphs in memory are
        compared by their contents, which reads each of them once, and those of stores by the stores' checksums.

    Notes
    -----
    Tripathy, Yelick, Buluc, MLSys 2024, section 5.1: Q is split in block rows, A is on each rank.

    Examples
    --------
    >>> import spsample
    >>> from spsample.comm import run_threads
    >>> graph = spsample.Graph([0, 2, 3, 4], [1, 2, 0, 1])
    >>> def body(comm):
    ...     shared = ReplicatedGraph(graph, comm)
    ...     return spsample.bulk_sample(shared, [0, 1, 2], spsample.GraphSAGE([1]), batch_size=1).batch_ids.tolist()
    >>> run_threads(2, body)
    [[0, 2], [1]]
    """

    def __init__(self, graph: Graph, comm: Communicator) -> None:
        require_type("comm", comm, Communicator, "an spsample Communicator")
        self.comm = comm
        with collective(comm, call="the checks of ReplicatedGraph"):
            require_local(graph)
        self.graph, self._rows = graph, GraphRows(graph)
        require_same_graph(comm, self._rows)

    @property
    def host(self) -> Graph:
        """The whole graph, which every rank has."""
        return self.graph

    @property
    def kept_nbytes(self) -> int:
        """Bytes kept on this rank for samplers beyond the arrays of the graph, made on first use."""
        return self.graph.kept_nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays on this rank: all of them."""
        return self.graph.nbytes

    def operand(self, backend: str | None = None) -> GraphOperand:
        """A, local."""
        return self.graph.operand(backend)

    def sampling(self) -> AbstractContextManager[None]:
        """Return a context at whose end all ranks raise where one failed; nothing is exchanged before."""
        return collective(self.comm, call="the checks of bulk_sample")

    def row_sums(self) -> NDArray[np.float32]:
        """Sum the values of each row, on every rank: float32, shape (n,); collective."""
        with collective(self.comm, call="row_sums"):
            return self.graph.row_sums()

    def duplicate(self) -> ReplicatedGraph:
        """Return this graph over a duplicated communicator, for another thread; collective."""
        other = ReplicatedGraph(self.graph, self.comm.duplicate())
        other._duplicated = other.comm
        return other

    def normalized(self, kind: str) -> ReplicatedGraph:
        """Return the normalised graph on the same ranks, as `Graph.normalized`; collective."""
        return ReplicatedGraph(self.graph.normalized(kind), self.comm)

    def __repr__(self) -> str:
        return f"ReplicatedGraph({self.graph!r}, rank {self.comm.rank} of {self.comm.size})"
