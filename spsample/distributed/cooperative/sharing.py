"""A bulk of whole minibatches, of which each rank sampled some, becomes one in which each rank has rows of all.

A minibatch is sampled by one rank, as every sampler samples it, p of them side by side. Then every rank gets the rows
of the vertices that it owns. That costs one exchange a bulk, and works for whatever a sampler draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spsample.comm import Channel, Sent, collective
from spsample.distributed.cooperative.minibatch import CooperativeBulk
from spsample.distributed.cooperative.pieces import PieceReader, PieceWriter
from spsample.errors import CapacityError, InputError

if TYPE_CHECKING:
    from spsample.comm import Communicator
    from spsample.distributed.cooperative.owned import Owners
    from spsample.sampling import BulkSample, MiniBatch, Sampler

__all__ = ["require_targets", "share_out"]


def share_out(bulk: BulkSample, owners: Owners, comm: Communicator) -> CooperativeBulk:
    """Give each rank its rows of all minibatches of a bulk; collective.

    Parameters
    ----------
    bulk : BulkSample
        This rank's minibatches of the bulk, drawn with ``include_targets``.
    owners : Owners
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
        host = bulk.to_host()
        has = {"data": host.layers[0].data is not None, "edge_ids": host.layers[0].edge_ids is not None}
        writers = [PieceWriter(comm.size) for _ in range(comm.size)]
        require_targets(bulk.sampler)
        for minibatch in host:
            _cut(minibatch, owners, writers)
        arrays = [writer.arrays(host.layers[0]) for writer in writers]
        sends = [
            Sent(np.concatenate(parts), np.array([len(part) for part in parts], np.int64))
            for parts in zip(*arrays, strict=True)
        ]
        received = channel.exchange(sends, phase="pieces")
        pieces = []
        for rank in range(comm.size):
            reader = PieceReader([_from(rank, one.rows, one.counts) for one in received], comm.size, **has)
            pieces += reader.minibatches(len(host.layers))
    return CooperativeBulk(sorted(pieces, key=lambda piece: piece.batch_id))


def _from(rank: int, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """What came from one rank."""
    end = int(counts[: rank + 1].sum())
    return rows[end - int(counts[rank]) : end]


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


def _cut(minibatch: MiniBatch, owners: Owners, writers: list[PieceWriter]) -> None:
    """Write each rank's rows of a minibatch."""
    ranks, layers = len(writers), minibatch.layers
    src = layers[0].src_nodes
    if len(src) >= 2**31:
        raise CapacityError(
            argument="batch_size", given=f"a minibatch of {len(src)} vertices", expected="fewer than 2^31"
        )
    owner = owners.of(src)
    place = _places(owner, ranks)
    seeds = len(minibatch.seeds)
    first_places = minibatch.seed_places
    for rank, writer in enumerate(writers):
        here = owner[:seeds] == rank
        writer.begin(minibatch.batch_id, seeds, src[owner == rank], first_places[here])
    for layer in layers:
        num_dst, num_src = layer.adj.shape
        counts, of_row = np.diff(layer.adj.indptr), owner[:num_dst]
        of_entry = of_row.repeat(counts)
        is_needed = np.zeros((ranks, num_src), np.bool_)
        is_needed[of_entry, layer.adj.indices] = True
        is_needed[of_row, np.arange(num_dst)] = True
        number = np.empty(num_src, np.int32)
        sends: list[list[np.ndarray]] = [[] for _ in range(ranks)]  # by owner, to each rank
        for rank, writer in enumerate(writers):
            columns = np.flatnonzero(is_needed[rank])
            of_column = owner[columns]
            own = columns[of_column == rank]
            others = columns[np.argsort(of_column, kind="stable")]
            others = others[owner[others] != rank]
            number[own] = np.arange(len(own))
            number[others] = np.arange(len(own), len(own) + len(others))
            entries = of_entry == rank
            received = np.bincount(owner[others], minlength=ranks)
            for other in range(ranks):
                sends[other].append(place[others[owner[others] == other]])
            writer.layer(
                row_counts=counts[of_row == rank],
                owned=int((owner[:num_src] == rank).sum()),
                own=place[own],
                others=layer.src_nodes[others],
                recv_counts=received,
                indices=number[layer.adj.indices[entries]],
                data=None if layer.adj.data is None else layer.adj.data[entries],
                edge_ids=None if layer.edge_ids is None else layer.edge_ids[entries],
            )
        for writer, parts in zip(writers, sends, strict=True):
            writer.sends(parts)


def _places(owner: np.ndarray, ranks: int) -> np.ndarray:
    """The place of each vertex among those of its owner, in the order of the batch."""
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=ranks)
    place = np.empty(len(owner), np.int32)
    place[order] = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return place
