"""`StepCounts`: rows, edges and exchanges of a step, of pilots that are cut among the ranks as a loader cuts them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from spsample.distributed.cooperative import Owners, PieceReader, pieces_of
from spsample.planning.cluster.exchanges import Exchange, Kind, Phase

if TYPE_CHECKING:
    from spsample.planning.cluster.grid_shape import FloatArray
    from spsample.sampling import BulkSample


@dataclass(frozen=True, eq=False)
class StepCounts:
    """A step of p ranks, mean of the pilots.

    Attributes
    ----------
    rows, edges : array (p,)
        Rows of features that each rank fetches, and edges that it computes with.
    exchanges : list of Exchange
        Of the whole step.
    header_bytes : float
        What the sampled rows of a step have in lengths, which a rank receives however large the batch is.
    """

    rows: FloatArray
    edges: FloatArray
    exchanges: list[Exchange]
    header_bytes: float = 0.0

    def scaled(self, scale: float) -> StepCounts:
        """Counts of a graph and batches that are `scale` times as large, whose vertices a hash deals out.

        A rank's number is then the sum of `scale` independent ones: ranks differ by the square root of it.

        Examples
        --------
        >>> StepCounts(np.array([90.0, 110.0]), np.array([400.0, 400.0]), []).scaled(100).rows.tolist()
        [9900.0, 10100.0]
        """
        return StepCounts(
            _scaled(self.rows, scale),
            _scaled(self.edges, scale),
            [_scaled_exchange(one, scale, self.header_bytes * (one.phase == "pieces")) for one in self.exchanges],
            self.header_bytes,
        )


def independent_step(bulk: BulkSample, owners: Owners, row_bytes: int, id_bytes: int) -> StepCounts:
    """Count a step in which each rank has a batch like the mean one.

    Parameters
    ----------
    bulk : BulkSample
        Pilots of b seeds.
    owners : Owners
        Who has the features of a vertex.
    row_bytes, id_bytes : int
        Of a vertex: its features, and its id. Without features nothing is asked for.

    Examples
    --------
    >>> import spsample as sp
    >>> from spsample.distributed.cooperative import owners_of
    >>> graph = sp.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
    >>> bulk = sp.bulk_sample(graph, [0], sp.GraphSAGE([2]), batch_size=1)
    >>> owners = owners_of(graph, np.array([0, 0, 1, 1]), ranks=2)
    >>> step = independent_step(bulk, owners, row_bytes=100, id_bytes=4)
    >>> step.rows.tolist(), step.edges.tolist(), [one.received.tolist() for one in step.exchanges]
    ([3.0, 3.0], [2.0, 2.0], [[8.0, 4.0], [100.0, 200.0]])
    """
    p, batches = owners.ranks, max(len(bulk), 1)
    owned = np.bincount(np.concatenate([owners.of(one.src_nodes) for one in bulk]), minlength=p) / batches
    edges = sum(layer.adj.nnz for one in bulk for layer in one.layers) / batches
    asked, answered = owned.sum() - owned, (p - 1) * owned
    exchanges = [
        _all_to_all("features", id_bytes * asked, id_bytes * answered, kind="request"),
        _all_to_all("features", row_bytes * answered, row_bytes * asked),
    ]
    return StepCounts(np.full(p, owned.sum()), np.full(p, edges), exchanges if row_bytes else [])


def cooperative_step(bulk: BulkSample, owners: Owners, row_bytes: int, activation_bytes: int) -> StepCounts:
    """Count a step in which all ranks have one batch like the mean one.

    Who samples it does not matter in the mean: of its sampled rows each rank gets a share (p - 1) / p from others.

    Parameters
    ----------
    bulk : BulkSample
        Pilots of p b seeds.
    owners : Owners
    row_bytes, activation_bytes : int
        Of a vertex: its features, which layer 1 exchanges, and its activations in each later layer.

    Examples
    --------
    >>> import spsample as sp
    >>> from spsample.distributed.cooperative import owners_of
    >>> graph = sp.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
    >>> bulk = sp.bulk_sample(graph, [0], sp.GraphSAGE([2]), batch_size=1)
    >>> owners = owners_of(graph, np.array([0, 0, 1, 1]), ranks=2)
    >>> step = cooperative_step(bulk, owners, row_bytes=100, activation_bytes=16)
    >>> step.rows.tolist(), step.edges.tolist(), step.exchanges[1].phase, step.exchanges[1].received.tolist()
    ([2.0, 1.0], [2.0, 0.0], 'batch activations', [100.0, 0.0])
    """
    p, batches, depth = owners.ranks, max(len(bulk), 1), len(bulk.layers)
    has = {"data": bulk.layers[0].data is not None, "edge_ids": bulk.layers[0].edge_ids is not None}
    rows, edges, pieces, headers = np.zeros(p), np.zeros(p), np.zeros(p), 0.0
    first, later = np.zeros((2, p)), np.zeros((2, p))  # rows that each rank sends and receives
    for rank, arrays in enumerate(pieces_of(bulk, owners)):
        pieces[rank] = sum(array.nbytes for array in arrays)
        headers += arrays[0].nbytes / p  # the lengths, the same number on all ranks
        for piece in PieceReader(arrays, p, **has).minibatches(depth):
            rows[rank] += len(piece.src_nodes)
            edges[rank] += sum(layer.adj.nnz for layer in piece.layers)
            through = np.array([(one.routes.send_counts.sum(), one.routes.recv_counts.sum()) for one in piece.layers])
            first[:, rank] += through[0]
            later[:, rank] += through[1:].sum(axis=0)
    share = (p - 1) / (p * batches)
    from_others, header_bytes = pieces * share, headers * share
    out, back = (row_bytes * first + activation_bytes * later) / batches, activation_bytes * later[::-1] / batches
    exchanges = [
        _all_to_all("pieces", np.full(p, from_others.mean()), from_others, times=1 / p),
        _all_to_all("batch activations", *out, times=depth),
        _all_to_all("batch gradients", *back, times=depth - 1),
    ]
    return StepCounts(rows / batches, edges / batches, exchanges, header_bytes)


def _scaled(values: FloatArray, scale: float) -> FloatArray:
    mean = values.mean()
    found: FloatArray = scale * mean + np.sqrt(scale) * (values - mean)
    return found


def _scaled_exchange(one: Exchange, scale: float, fixed: float) -> Exchange:
    """As many messages of more bytes, but for `fixed` bytes of each rank."""
    sent, received = (fixed + _scaled(values - fixed, scale) for values in (one.sent, one.received))
    return replace(one, sent=sent, received=received, serial=float(max(sent.max(), received.max())))


def _all_to_all(
    phase: Phase, sent: FloatArray, received: FloatArray, *, kind: Kind = "reply", times: float = 1.0
) -> Exchange:
    """Exchange this `times` times a step: sampled rows once a bulk of p batches, activations once a layer."""
    p = len(sent)
    messages = np.full(p, times * (p - 1))
    return Exchange(phase, kind, "column", sent, received, messages, float(max(sent.max(), received.max())))


__all__ = ["StepCounts", "cooperative_step", "independent_step"]
