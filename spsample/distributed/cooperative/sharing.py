"""A bulk of whole minibatches, of which each rank sampled some, becomes one in which each rank has rows of all.

A minibatch is sampled by one rank, as every sampler samples it, p of them side by side. Then every rank gets the rows
of the vertices that it owns. That costs one exchange a bulk, and works for whatever a sampler draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends.on_host import pointers_of
from spsample.comm import Channel, Sent, collective
from spsample.distributed.cooperative.minibatch import CooperativeBulk, CooperativeMiniBatch
from spsample.distributed.cooperative.pieces import CutLayer, PieceReader, PieceWriter, entries_of_rows
from spsample.errors import CapacityError, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.comm import Communicator
    from spsample.distributed.cooperative.owned import VertexOwners
    from spsample.sampling import BulkSample, Layer, MiniBatch, Sampler


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
