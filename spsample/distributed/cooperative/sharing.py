"""A bulk of whole minibatches, of which each rank sampled some, becomes one in which each rank has rows of all.

A minibatch is sampled by one rank, as every sampler samples it, p of them side by side. Then every rank gets the rows
of the vertices that it owns. That costs one exchange a bulk, and works for whatever a sampler draws.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends.on_host import pointers_of
from spsample.backends.protocol import IntArray
from spsample.comm import Channel, Communicator, Sent, collective
from spsample.distributed.cooperative.minibatch import CooperativeBulk, CooperativeMiniBatch
from spsample.distributed.cooperative.pieces import CutLayer, PieceReader, PieceWriter, entries_of_rows
from spsample.distributed.placement import parts_on_ranks
from spsample.errors import CapacityError, InputError
from spsample.sampling import BulkSample, Layer, MiniBatch, Sampler
from spsample.store.base_graph import BaseGraph


def share_out(bulk: BulkSample, owners: VertexOwners, comm: Communicator) -> CooperativeBulk:
    """Give each rank its rows of all minibatches of a bulk; collective.

    Parameters
    ----------
    bulk : BulkSample
        This rank's minibatches of the bulk, drawn with ``include_targets``.
    owners : VertexOwners
        The same on all ranks.
    comm : Communicator
        Phase "pieces".

    Raises
    ------
    InputError
        If the sampler leaves the targets out of the sources: their owner could not find their rows.

    Examples
    --------
    >>> import spsample
    >>> from spsample.comm import run_threads
    >>> from spsample.distributed.cooperative import owners_of
    >>> graph = spsample.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
    >>> def body(comm):
    ...     replicated = spsample.ReplicatedGraph(graph, comm)
    ...     bulk = spsample.bulk_sample(replicated, [0, 1, 3], spsample.GraphSAGE([2]), batch_size=3)
    ...     (batch,) = share_out(bulk, owners_of(replicated), comm)
    ...     return batch.seeds.tolist(), batch.src_nodes.tolist()
    >>> run_threads(2, body)
    [([0], [0, 2]), ([1, 3], [1, 3])]
    """
    channel = Channel(comm)
    with collective(comm, channel, call="sharing out a bulk"):
        require_targets(bulk.sampler)
        host = bulk.to_host()
        has = {"data": host.layers[0].data is not None, "edge_ids": host.layers[0].edge_ids is not None}
        arrays = pieces_of(host, owners)
        sends = [
            Sent(np.concatenate(parts), np.array([len(part) for part in parts], np.int64))
            for parts in zip(*arrays, strict=True)
        ]
        received = channel.exchange(sends, phase="pieces")
        from_ranks = zip(*(np.split(array.rows, np.cumsum(array.counts)[:-1]) for array in received), strict=True)
        pieces: list[CooperativeMiniBatch] = []
        for of_rank in from_ranks:
            pieces += PieceReader(of_rank, comm.size, **has).minibatches(len(host.layers))
    return CooperativeBulk(sorted(pieces, key=lambda piece: piece.batch_id))


def pieces_of(bulk: BulkSample, owners: VertexOwners) -> list[list[NDArray[Any]]]:
    """The arrays that each rank gets of the minibatches of a bulk on the host, as `PieceReader` reads them.

    Examples
    --------
    >>> import spsample
    >>> from spsample.distributed.cooperative import owners_of
    >>> graph = spsample.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
    >>> bulk = spsample.bulk_sample(graph, [0, 1, 3], spsample.GraphSAGE([2]), batch_size=3)
    >>> [vertices.tolist() for _, vertices, _ in pieces_of(bulk, owners_of(graph, ranks=2))]
    [[0, 2, 1], [1, 3, 0]]
    """
    writers = [PieceWriter() for _ in range(owners.ranks)]
    for minibatch in bulk:
        _cut(minibatch, owners, writers)
    return [writer.arrays(bulk.layers[0]) for writer in writers]


def require_targets(sampler: Sampler) -> None:
    """Refuse a sampler that leaves targets out of the sources: their owner could not find their rows.

    Raises
    ------
    InputError
    """
    if not sampler.include_targets:
        raise InputError(
            argument="sampler",
            given=repr(sampler),
            expected="include_targets=True for cooperative batches, whose owners keep the rows of targets",
        )


def _cut(minibatch: MiniBatch, owners: VertexOwners, writers: list[PieceWriter]) -> None:
    """Write each rank's rows of a minibatch."""
    src = minibatch.src_nodes
    if len(src) >= 2**31:
        raise CapacityError(
            argument="batch_size", given=f"a minibatch of {len(src)} vertices", expected="fewer than 2^31"
        )
    owner = owners.of(src)
    by_owner = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(writers))
    place = np.empty(len(src), np.int32)  # of each vertex among those of its owner
    seeds, seed_places = len(minibatch.seeds), minibatch.seed_places
    for writer, own in zip(writers, np.split(by_owner, np.cumsum(counts)[:-1]), strict=True):
        place[own] = np.arange(len(own))
        writer.begin(minibatch.batch_id, seeds, src[own], seed_places[own[: np.searchsorted(own, seeds)]])
    for layer in minibatch.layers:
        _cut_layer(layer, owner[: layer.adj.shape[1]], place, writers)


def _cut_layer(layer: Layer, owner: NDArray[np.uint16], place: NDArray[np.int32], writers: list[PieceWriter]) -> None:
    """Write each rank's rows of a layer, and the rows that it sends to each other rank."""
    ranks, adj = len(writers), layer.adj
    cut = CutLayer.of(adj, owner, place[: len(owner)], ranks)
    row_counts = np.diff(adj.indptr)[cut.rows]
    data = None if adj.data is None else entries_of_rows(adj, cut.rows, adj.data)
    edge_ids = None if layer.edge_ids is None else entries_of_rows(adj, cut.rows, layer.edge_ids)
    others, sent = layer.src_nodes[cut.others], place[cut.others]
    first = pointers_of(cut.others_counts.reshape(-1))
    for rank, writer in enumerate(writers):
        writer.layer(cut, rank, row_counts, others, data, edge_ids)
        runs = first[rank : ranks * ranks : ranks], first[rank + 1 : ranks * ranks + 1 : ranks]
        writer.sends([sent[begin:end] for begin, end in zip(*runs, strict=True)])


class VertexOwners:
    """The rank that owns each vertex: one of those that have its block row, or its part, by a hash of the vertex id.

    Parameters
    ----------
    graph : graph
        With one block row, or one for every c ranks.
    parts : int array (n,) or None
        Part of each vertex, in place of its block row.
    num_parts : int
        Parts or block rows, a divisor of p.

    Examples
    --------
    >>> import spsample
    >>> graph = spsample.Graph([0, 0, 0, 0, 0], [])
    >>> VertexOwners(graph, np.array([1, 0, 1, 0]), 2, ranks=4).of(np.array([0, 1, 2, 3]))
    array([2, 1, 2, 1], dtype=uint16)
    """

    def __init__(self, graph: BaseGraph, parts: IntArray | None, num_parts: int, *, ranks: int) -> None:
        self._graph, self._parts = graph, parts
        self._num_parts, self.ranks = num_parts, ranks

    @property
    def identity(self) -> str:
        """Text of what decides the owners, beside the graph."""
        if self._parts is None:
            return f"{self._num_parts} block rows"
        return f"{self._num_parts} parts {sha256(self._parts.astype('<i8').tobytes()).hexdigest()}"

    def of(self, vertices: IntArray) -> NDArray[np.uint16]:
        """Return the owner of each of these vertices."""
        columns = self.ranks // self._num_parts
        # Fibonacci hashing (Knuth, volume 3, section 6.4), so that neighbouring ids, and ids that are alike in some
        # bits, get different ranks: the high bits of a product with 2^64 over the golden ratio.
        high = (vertices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
        owners = ((high * np.uint64(columns)) >> np.uint64(32)).astype(np.int64)
        if self._num_parts > 1:
            part = self._graph.block_rows_of(vertices) if self._parts is None else self._parts[vertices]
            owners += np.asarray(part, np.int64) * columns
        return owners.astype(np.uint16)


def owners_of(graph: BaseGraph, parts: Any = None, ranks: int | None = None) -> VertexOwners:
    """Return the owners of the vertices of a graph.

    Of a graph in block rows a vertex belongs to the ranks of its block row, which have its row of A and, where they are
    placed alike, its features. Of any other graph vertices are distributed by a hash, unless there are parts.

    Parameters
    ----------
    graph : graph
    parts : int array (n,), optional
        The part of each vertex; as many parts as divide the ranks evenly. Only for a graph that every rank has whole.
    ranks : int, optional
        p, for a plan; by default the ranks of the graph.

    Raises
    ------
    InputError
        If the parts do not fit the graph or its ranks.

    Examples
    --------
    >>> import spsample
    >>> owners_of(spsample.Graph([0, 1, 2], [1, 0])).of(np.array([1, 0]))
    array([0, 0], dtype=uint16)
    """
    ranks = graph.comm.size if ranks is None else ranks
    if parts is None:
        return VertexOwners(graph, None, graph.num_block_rows, ranks=ranks)
    return VertexOwners(graph, *parts_on_ranks(graph, parts, ranks), ranks=ranks)
