"""`ReplicatedGraph`: all of A on every rank."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray

from spsample.comm import Communicator, collective
from spsample.distributed.blocks import GraphRows
from spsample.distributed.graph import DistributedGraph, require_same_graph
from spsample.errors import DTypeError
from spsample.sparse import GraphOperand
from spsample.store import Graph
from spsample.store.base_graph import require_local


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
        if not isinstance(comm, Communicator):
            raise DTypeError(argument="comm", given=f"a {type(comm).__name__}", expected="an spsample Communicator")
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
