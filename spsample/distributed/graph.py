"""`DistributedGraph`: the interface of a graph on several ranks, which all have to have the same one."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from spsample.backends.protocol import Int64Array
from spsample.comm import Communicator, collective
from spsample.comm.headers import exchange_numbers
from spsample.comm.objects import differing
from spsample.distributed.blocks import BlockReader
from spsample.errors import InputError
from spsample.sparse.probability import Weighting
from spsample.store.base_graph import BaseGraph

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
