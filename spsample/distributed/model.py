"""What a bulk moves over the network: bytes by phase and rank, as formulas of its counts.

Three things are kept apart: *counts* (`RankCounts`), which are counted from a bulk (`count_bulk`) or predicted
(`Pilot.counts`); the *formulas* here, one small function for each exchange of a protocol; and *time* (`Links`).

`bulk_traffic` puts the formulas of an algorithm together. The algorithms:

"column"
    Every rank asks the owners in its own column group, in one all-to-allv. Node-wise: the owner of a row draws. Entry
    law: row totals to the batch's rank, positions to the owners, columns back. Column law: per block row the cheaper
    of distinct rows and the owner's sums. Then the masked extraction.
"stages"
    Algorithm 2 of the paper: distinct rows of a row group's batches, stage by stage, then the all-reduce of P over the
    row group; layer-wise, the extraction fetches the rows once more.
"stages-split"
    The same without the all-reduce where that is redundant (node-wise): the rows of P stay split over the row group,
    and only what was drawn from them is gathered.
"oblivious"
    Whole block rows of A are broadcast instead, whatever is needed of them.

References
----------
Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spsample.distributed.counts import HopCounts, RankCounts
from spsample.distributed.exchanges import (
    PHASES,
    Phase,
    Traffic,
    broadcasts,
    headers,
    reply,
    request,
    ring_reduction,
    row_gather,
    staged_reply,
    staged_request,
)
from spsample.distributed.shape import FloatArray, GridShape
from spsample.errors import InputError
from spsample.sampling import LADIES, GraphSAGE, Sampler

Algorithm = Literal["column", "stages", "stages-split", "oblivious"]
ALGORITHMS: tuple[Algorithm, ...] = ("column", "stages", "stages-split", "oblivious")
DrawLaw = Literal["row", "entry", "column", "graph"]
"""The row law is that of node-wise samplers; "graph" is the column law on one distribution for all (FastGCN)."""

COUNT_BYTES = 8  # of a number that says how much is coming
POINTER_BYTES = 8  # of the length of a row that is sent whole
TOTAL_BYTES = 4  # of the number of entries of a row
NUMERATOR_BYTES = 8  # of a sum of numerators
STATUS_WORDS = 1  # that ranks tell each other at the end of a collective call


@dataclass(frozen=True)
class Wire:
    """Bytes of what is sent.

    Attributes
    ----------
    id_bytes : int
        Of a vertex id, 4 or 8.
    weight_bytes : int
        Of an entry's weight; 0 where entries have none.
    edge_id_bytes : int
        Of an edge id, 8; 0 where they were not asked for.
    position_bytes : int
        Of a draw's position, 4 or 8.
    """

    id_bytes: int = 4
    weight_bytes: int = 0
    edge_id_bytes: int = 0
    position_bytes: int = 4

    @property
    def entry_bytes(self) -> int:
        """Of an entry of a row of A."""
        return self.id_bytes + self.weight_bytes + self.edge_id_bytes


def draw_law(sampler: Sampler, weighting: str) -> DrawLaw:
    """Which law draws (docs/law.md): it decides what has to be exchanged.

    Examples
    --------
    >>> draw_law(LADIES([8]), "unweighted"), draw_law(LADIES([8]), "weighted")
    ('entry', 'column')
    """
    if isinstance(sampler, GraphSAGE):
        return "row"
    if isinstance(sampler, LADIES):
        return "entry" if sampler.law == "norm" and weighting != "weighted" else "column"
    return "graph"


def bulk_traffic(
    counts: RankCounts,
    sampler: Sampler,
    law: DrawLaw,
    wire: Wire,
    algorithm: Algorithm = "column",
    *,
    feature_bytes: int = 0,
    model_bytes: int = 0,
) -> list[Traffic]:
    """Every exchange that sampling a bulk and a training step on each of its batches takes.

    Parameters
    ----------
    counts : RankCounts
    sampler : Sampler
    law : str
        As `draw_law` tells it.
    wire : Wire
    algorithm : str
        One of `ALGORITHMS`.
    feature_bytes : int
        Of a vertex; 0: no features are fetched.
    model_bytes : int
        Of the gradients; 0: none are averaged.

    Returns
    -------
    list of Traffic

    Raises
    ------
    InputError
        If there is no such algorithm.
    """
    require_algorithm(algorithm)
    if counts.shape.num_blocks == 1:
        sampling: list[Traffic] = []
    else:
        steps = zip(counts.hops, sampler.sizes, strict=True)
        sampling = [one for hop, s in steps for one in _layer(counts, hop, s, law, wire, algorithm)]
    return sampling + list(_training(counts, wire, feature_bytes, model_bytes))


def require_algorithm(name: str) -> Algorithm:
    """Return the name of an algorithm, or refuse it."""
    for algorithm in ALGORITHMS:
        if name == algorithm:
            return algorithm
    raise InputError(argument="algorithm", given=repr(name), expected="one of " + ", ".join(ALGORITHMS))


def _layer(
    counts: RankCounts, hop: HopCounts, s: int, law: DrawLaw, wire: Wire, algorithm: Algorithm
) -> Iterator[Traffic]:
    if algorithm == "column":
        yield from _COLUMN[law](counts, hop, s, wire)
    elif algorithm == "oblivious":
        yield from oblivious(counts, hop, law, wire)
    else:
        yield from stages(counts.shape, hop, s, law, wire, split=algorithm == "stages-split" and law == "row")
    yield from status(counts.shape, _CALLS[law] if algorithm == "column" else 1 + (law in ("entry", "column")))


def _training(counts: RankCounts, wire: Wire, feature_bytes: int, model_bytes: int) -> Iterator[Traffic]:
    steps = int(counts.batches.max())
    if feature_bytes and counts.shape.num_blocks > 1:
        yield from features(counts.shape, counts.inputs, wire, feature_bytes, steps)
    if model_bytes and counts.shape.ranks > 1:
        yield gradients(counts.shape, model_bytes, steps)


# ------------------------------------------------------------------------------------------------ algorithm "column"


def node_wise(counts: RankCounts, hop: HopCounts, s: int, wire: Wire) -> Iterator[Traffic]:
    """The owners draw: vertices out, and s ids each back."""
    shape = counts.shape
    yield request("rows", shape, asked_pairs(hop, counts.batches, wire))
    yield reply("rows", shape, drawn_edges(hop, s, wire))
    yield headers("rows", shape, exchanges=2)


def asked_pairs(hop: HopCounts, batches: NDArray[np.int64], wire: Wire) -> FloatArray:
    """A vertex for each pair, and how many of each batch go to each owner."""
    return hop.pairs * wire.id_bytes + COUNT_BYTES * batches[:, None]


def drawn_edges(hop: HopCounts, s: int, wire: Wire) -> FloatArray:
    """How many were drawn for each pair, and their ids."""
    return hop.pairs * length_bytes(s) + hop.edges * wire.entry_bytes


def length_bytes(most: int) -> int:
    """Of a number up to `most`; -1: not known.

    Examples
    --------
    >>> length_bytes(255), length_bytes(256), length_bytes(-1)
    (1, 2, 4)
    """
    return 4 if most < 0 or most > 65535 else 1 + (most > 255)


def entry_law(counts: RankCounts, hop: HopCounts, s: int, wire: Wire) -> Iterator[Traffic]:
    """Row totals, positions, then the extraction."""
    shape = counts.shape
    yield request("totals", shape, named_rows(hop, counts.batches, wire))
    yield reply("totals", shape, hop.rows * TOTAL_BYTES)
    yield request("positions", shape, hop.positions * wire.position_bytes)
    yield reply("positions", shape, hop.positions * wire.id_bytes)
    yield from extraction(shape, hop, wire, fetched=np.zeros_like(hop.rows, np.bool_))
    yield headers("totals", shape, exchanges=2)
    yield headers("positions", shape, exchanges=2)


def named_rows(hop: HopCounts, batches: NDArray[np.int64], wire: Wire) -> FloatArray:
    """Each distinct row once, with a bit for each batch of the rank."""
    return hop.rows * (wire.id_bytes + -(-batches[:, None] // 8))


def column_law(counts: RankCounts, hop: HopCounts, s: int, wire: Wire) -> Iterator[Traffic]:
    """Per block row the cheaper of its distinct rows and its owner's sums, then the extraction of what is not there."""
    shape, rows, sums = counts.shape, whole_rows(hop.rows, hop.row_entries, wire), summed(hop, wire)
    yield request("totals", shape, named_rows(hop, counts.batches, wire))
    yield reply("rows", shape, np.where(rows <= sums, rows, 0.0))
    yield reply("sums", shape, np.where(rows <= sums, 0.0, sums))
    yield from extraction(shape, hop, wire, fetched=rows <= sums)
    yield headers("totals", shape, exchanges=1)
    yield headers("rows", shape, exchanges=1)


def whole_rows(rows: FloatArray, entries: FloatArray, wire: Wire) -> FloatArray:
    """Rows of A as they are."""
    return rows * POINTER_BYTES + entries * wire.entry_bytes


def summed(hop: HopCounts, wire: Wire) -> FloatArray:
    """Entries of Q A, summed by the owner of a block row."""
    return hop.sums * (wire.id_bytes + NUMERATOR_BYTES)


def graph_law(counts: RankCounts, hop: HopCounts, s: int, wire: Wire) -> Iterator[Traffic]:
    """Draws to the owners of ranges of columns, columns and their numerators back; then the extraction."""
    shape = counts.shape
    yield request("positions", shape, hop.positions * NUMERATOR_BYTES)
    yield reply("positions", shape, hop.positions * (wire.id_bytes + NUMERATOR_BYTES))
    yield request("extraction", shape, named_rows(hop, counts.batches, wire))
    yield from extraction(shape, hop, wire, fetched=np.zeros_like(hop.rows, np.bool_))
    yield headers("positions", shape, exchanges=2)


def extraction(shape: GridShape, hop: HopCounts, wire: Wire, *, fetched: NDArray[np.bool_]) -> Iterator[Traffic]:
    """Src vertices to the owners and edges back, or the rows where they are cheaper; nothing where they are here."""
    out, back = np.broadcast_to(src_sets(hop, wire)[:, None], hop.rows.shape), masked_edges(hop, wire)
    rows = whole_rows(hop.rows, hop.row_entries, wire)
    masked = ~fetched & (out + back < rows)
    yield request("extraction", shape, np.where(masked, out, 0.0))
    yield reply("extraction", shape, np.where(masked, back, np.where(fetched, 0.0, rows)))
    yield headers("extraction", shape, exchanges=2)


def src_sets(hop: HopCounts, wire: Wire) -> FloatArray:
    """(p,): the src vertices of a rank's batches, to one owner."""
    return hop.sources * wire.id_bytes


def masked_edges(hop: HopCounts, wire: Wire) -> FloatArray:
    """Edges as local ids, and how many there are in each pair's row."""
    local = 2 if hop.most_sources <= 1 << 16 else 4
    return hop.pairs * local + hop.edges * (local + wire.weight_bytes + wire.edge_id_bytes)


_COLUMN: dict[DrawLaw, Callable[[RankCounts, HopCounts, int, Wire], Iterable[Traffic]]] = {
    "row": node_wise,
    "entry": entry_law,
    "column": column_law,
    "graph": graph_law,
}
_CALLS: dict[DrawLaw, int] = {"row": 1, "entry": 3, "column": 2, "graph": 3}
"""Collective calls of a layer: each ends with the ranks' status."""

# ------------------------------------------------------------------------------- algorithm 2 of the paper, and its kin


def stages(shape: GridShape, hop: HopCounts, s: int, law: DrawLaw, wire: Wire, *, split: bool) -> Iterator[Traffic]:
    """P = Q A stage by stage and its all-reduce; layer-wise, the rows once more for the extraction."""
    if law != "graph":
        yield from staged_rows("rows", shape, hop, wire)
        yield row_gather("sums", shape, split_samples(hop, s, wire) if split else partial_sums(hop, law, wire))
    if law != "row":
        yield from staged_rows("extraction", shape, hop, wire)


def staged_rows(phase: Phase, shape: GridShape, hop: HopCounts, wire: Wire) -> Iterator[Traffic]:
    """Ids of the distinct rows that a row group needs, and the rows."""
    yield staged_request(phase, shape, hop.group_rows * wire.id_bytes)
    yield staged_reply(phase, shape, whole_rows(hop.group_rows, hop.group_entries, wire))


def partial_sums(hop: HopCounts, law: DrawLaw, wire: Wire) -> FloatArray:
    """(p,): what a rank has of P before the all-reduce, which gathers it in the row group."""
    value = wire.weight_bytes + wire.edge_id_bytes if law == "row" else NUMERATOR_BYTES
    return hop.partial_rows * POINTER_BYTES + hop.partials * (wire.id_bytes + value)


def split_samples(hop: HopCounts, s: int, wire: Wire) -> FloatArray:
    """(p,): what was drawn from the rows of P that a rank has."""
    return hop.partial_rows * length_bytes(s) + hop.partial_edges * wire.entry_bytes


def oblivious(counts: RankCounts, hop: HopCounts, law: DrawLaw, wire: Wire) -> Iterator[Traffic]:
    """Block rows of A to all, for each product."""
    shape, blocks = counts.shape, whole_rows(counts.block_rows, counts.block_entries, wire)
    if law != "graph":
        yield broadcasts("rows", shape, blocks)
        yield row_gather("sums", shape, partial_sums(hop, law, wire))
    if law != "row":
        yield broadcasts("extraction", shape, blocks)


# ----------------------------------------------------------------------------------------- status, features, gradients


def status(shape: GridShape, calls: int) -> Iterator[Traffic]:
    """The last header of each collective call, and what ranks then tell each other."""
    yield headers("status", shape, exchanges=calls)
    yield headers("status", shape, exchanges=calls, words=STATUS_WORDS)


def features(shape: GridShape, inputs: FloatArray, wire: Wire, feature_bytes: int, steps: int) -> Iterator[Traffic]:
    """Ids out and rows of features back, a batch at a time; a share 1 - c/p of them is on other ranks."""
    yield _per_step(request("features", shape, inputs * wire.id_bytes), steps)
    yield _per_step(reply("features", shape, inputs * feature_bytes), steps)
    yield headers("features", shape, exchanges=2 * steps)


def _per_step(traffic: Traffic, steps: int) -> Traffic:
    """As many bytes in so many times as many messages."""
    messages = steps * traffic.messages
    return Traffic(traffic.phase, traffic.kind, traffic.scope, traffic.sent, traffic.received, messages, traffic.serial)


def gradients(shape: GridShape, model_bytes: int, steps: int) -> Traffic:
    """The ring all-reduce of every step."""
    return ring_reduction("gradients", shape, model_bytes).scaled(steps)


# ------------------------------------------------------------------------------------------------------------ by phase


@dataclass(frozen=True)
class PhaseBytes:
    """Of all exchanges of a phase: bytes of a rank, in the mean and at most, and the most messages."""

    sent_mean: float
    sent_max: float
    received_mean: float
    received_max: float
    messages_max: float


def by_phase(traffic: Iterable[Traffic]) -> dict[Phase, PhaseBytes]:
    """Sums by phase, in the order of `PHASES`; phases without exchanges are left out.

    Examples
    --------
    >>> from spsample.distributed.exchanges import ring_reduction
    >>> by_phase([ring_reduction("gradients", GridShape(4), 100)])["gradients"].sent_max
    150.0
    """
    listed = list(traffic)
    grouped = {phase: [one for one in listed if one.phase == phase] for phase in PHASES}
    return {phase: _summed(ones) for phase, ones in grouped.items() if ones}


def _summed(traffic: list[Traffic]) -> PhaseBytes:
    sent, received, messages = (
        np.sum([getattr(one, name) for one in traffic], axis=0) for name in ("sent", "received", "messages")
    )
    return PhaseBytes(
        float(sent.mean()), float(sent.max()), float(received.mean()), float(received.max()), float(messages.max())
    )


__all__ = ["ALGORITHMS", "Algorithm", "PhaseBytes", "Wire", "bulk_traffic", "by_phase", "draw_law", "require_algorithm"]
