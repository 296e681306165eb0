"""Traffic of a bulk: bytes by phase and rank, as formulas of its counts.

Three things are kept apart: *counts* (`RankCounts`), which a `GridPilot` predicts; the *formulas* here, one small
function for each exchange of a protocol; and *time* (`Network`).

`bulk_traffic` puts the formulas of an algorithm together. The algorithms:

"column"
    Every rank asks the owners in its own column group, in one all-to-allv. Node-wise: the owner of a row draws. Entry
    law: row totals to the batch's rank, positions to the owners, columns back. Column law: per block row the cheaper
    of distinct rows and the owner's sums. Then the masked extraction.
"stages"
    Algorithm 2 of the paper: distinct rows of a row group's batches, stage by stage, then the all-reduce of P over the
    row group: of every batch its rows, or (column law) its sums by column and later the extracted edges.
"oblivious"
    Whole block rows of A are broadcast instead, whatever is needed of them.

References
----------
Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.comm.headers import HEADER_WORDS
from spsample.common.checks import require_choice
from spsample.distributed.algorithms import ALGORITHMS
from spsample.distributed.column.operand import GAP_BYTES
from spsample.planning.cluster.counting import HopCounts, RankCounts
from spsample.planning.cluster.exchanges import (
    EXPONENT_BYTES,
    NORM_BYTES,
    PHASES,
    WORD_BYTES,
    Algorithm,
    Exchange,
    Phase,
    WireWidths,
    all_gather,
    broadcasts,
    header,
    length_bytes,
    numerator_bytes,
    reply,
    request,
    ring_reduction,
    row_gather,
    stages_header,
    stages_reply,
    stages_request,
    widths,
)
from spsample.planning.cluster.grid_shape import FloatArray, GridShape, grouped
from spsample.sampling import Sampler
from spsample.sampling.sampler import DrawLaw


def row_law(counts: RankCounts, hop: HopCounts, s: int, wire: WireWidths) -> Iterator[Exchange]:
    """The owners draw: vertices out, and s ids each back."""
    yield from _asked("rows", counts, asked_pairs(hop, counts.batches, wire), drawn_edges(hop, s, wire))


def _asked(phase: Phase, counts: RankCounts, out: FloatArray, back: FloatArray) -> Iterator[Exchange]:
    """A question to the owners and its answer, each with its header."""
    yield header(counts.shape, 2)
    yield request(phase, counts.shape, out)
    yield reply(phase, counts.shape, back)


def asked_pairs(hop: HopCounts, batches: NDArray[np.int64], wire: WireWidths) -> FloatArray:
    """A vertex for each pair; how many of each batch, and its id, for each owner."""
    return hop.pairs * wire.id_bytes + 2 * WORD_BYTES * batches[:, None]


def drawn_edges(hop: HopCounts, s: int, wire: WireWidths) -> FloatArray:
    """How many were drawn for each pair, and their ids; the length of the row where the graph is row-normalised."""
    pair_bytes = length_bytes(s) + WORD_BYTES * wire.row_normalized
    return hop.pairs * pair_bytes + hop.edges * wire.entry_bytes


def entry_law(counts: RankCounts, hop: HopCounts, s: int, wire: WireWidths) -> Iterator[Exchange]:
    """The frontier, row totals, positions, then the extraction."""
    nothing = np.zeros_like(hop.rows)
    yield from frontier(counts, hop, wire, row_totals(hop))
    yield from _asked("positions", counts, positions(hop), hop.positions * wire.id_bytes)
    yield from extraction(counts, hop, wire, held=nothing > 0)


def frontier(
    counts: RankCounts, hop: HopCounts, wire: WireWidths, more: FloatArray | float = 0.0
) -> Iterator[Exchange]:
    """The owners are told which rows are wanted; they tell how many entries these have, and `more` bytes."""
    told = np.full_like(hop.rows, float(WORD_BYTES)) + more
    yield from _asked("frontier", counts, named_rows(hop, counts.batches, wire), told)


def named_rows(hop: HopCounts, batches: NDArray[np.int64], wire: WireWidths) -> FloatArray:
    """Each distinct row once, with a bit for each batch of the rank; and the batches' ids."""
    k = batches[:, None]
    return hop.rows * (wire.id_bytes + -(-k // 8)) + WORD_BYTES * k


def row_totals(hop: HopCounts) -> FloatArray:
    """How many entries each distinct row has."""
    return hop.rows * widths(hop.longest)


def positions(hop: HopCounts) -> FloatArray:
    """For each draw the row among those of its owner, and the entry in it."""
    return hop.positions * (widths(hop.pairs - 1) + widths(hop.longest - 1)) + WORD_BYTES


def column_law(counts: RankCounts, hop: HopCounts, s: int, wire: WireWidths) -> Iterator[Exchange]:
    """Per block row its distinct rows or its owner's sums, as owners choose; then the extraction of what is missing."""
    k = np.broadcast_to(counts.batches[:, None], hop.rows.shape)
    sums = hop.sums * (wire.id_bytes + numerator_bytes(hop.most_summed, wire))
    later = GAP_BYTES * (hop.pairs.sum(axis=1) + counts.batches * s)
    rows = whole_rows(hop, wire, edge_ids=False)
    as_rows = rows <= sums + later[:, None]
    yield from frontier(counts, hop, wire)
    yield from _asked("totals", counts, np.zeros_like(sums), batch_totals(hop, k))
    if wire.row_normalized:
        yield from _asked("totals", counts, np.zeros_like(hop.rows), row_totals(hop))
    per_batch = np.where(as_rows, 1.0, widths(hop.sums / np.maximum(k, 1)))
    answer = (1.0 + per_batch * k + np.where(as_rows, rows, sums)).astype(np.float64)
    yield from _asked("sums", counts, np.full_like(sums, float(WORD_BYTES)) + WORD_BYTES * k, answer)
    yield from extraction(counts, hop, wire, held=as_rows & (wire.edge_id_bytes == 0))


def batch_totals(hop: HopCounts, batches: NDArray[Any]) -> FloatArray:
    """For each batch the entries of its frontier, and the largest exponent."""
    return batches * (widths(hop.row_entries) + EXPONENT_BYTES)


def whole_rows(hop: HopCounts, wire: WireWidths, *, edge_ids: bool) -> FloatArray:
    """Distinct rows as they are."""
    entry_bytes = wire.entry_bytes if edge_ids else wire.id_bytes + wire.weight_bytes
    return hop.rows * widths(hop.longest) + hop.row_entries * entry_bytes


def graph_law(counts: RankCounts, hop: HopCounts, s: int, wire: WireWidths) -> Iterator[Exchange]:
    """Draws to the owners of ranges of columns; columns, their first units and numerators back; the extraction.

    Then the numerators of all src vertices, for the values.
    """
    yield from _asked("columns", counts, *drawn_columns(counts, hop))
    yield from frontier(counts, hop, wire, row_totals(hop) if wire.row_normalized else 0.0)
    yield from extraction(counts, hop, wire, held=np.zeros_like(hop.rows, np.bool_))
    yield from _asked("columns", counts, hop.sources_by_range * wire.id_bytes, hop.sources_by_range * NORM_BYTES)


def drawn_columns(counts: RankCounts, hop: HopCounts) -> tuple[FloatArray, FloatArray]:
    """Units of the distribution out; columns, their first units and their numerators back."""
    unit_bytes = float(widths(counts.block_entries.max()))  # a unit an entry, about
    return hop.positions * unit_bytes + WORD_BYTES, hop.positions * (WORD_BYTES + unit_bytes + NORM_BYTES)


def extraction(counts: RankCounts, hop: HopCounts, wire: WireWidths, *, held: NDArray[np.bool_]) -> Iterator[Exchange]:
    """Src vertices to the owners and edges back, or the rows where they are cheaper; nothing where they are held."""
    src, edges = src_sets(hop)[:, None], masked_edges(hop, wire)
    entries = hop.row_entries * wire.entry_bytes
    masked = ~held & (entries > src)
    k = counts.batches[:, None]
    asks = (WORD_BYTES + k * length_bytes(hop.most_sources) + np.where(masked, src, 0.0)).astype(np.float64)
    yield header(counts.shape, 2)
    yield request("extraction", counts.shape, asks)
    rows = whole_rows(hop, wire, edge_ids=True)
    cheaper = np.where(masked & (edges <= entries), edges, rows)
    yield reply("extraction", counts.shape, 1.0 + np.where(held, 0.0, cheaper))


def src_sets(hop: HopCounts) -> FloatArray:
    """(p,): the src vertices of a rank's batches, ascending, as distances."""
    return hop.sources * widths(hop.gaps)


def masked_edges(hop: HopCounts, wire: WireWidths) -> FloatArray:
    """Edges as places among the src vertices, and how many there are in each pair's row."""
    edge_bytes = length_bytes(hop.most_sources - 1) + wire.weight_bytes + wire.edge_id_bytes
    return hop.pairs * widths(hop.longest_edges) + hop.edges * edge_bytes


COLUMN_EXCHANGES: dict[DrawLaw, Callable[[RankCounts, HopCounts, int, WireWidths], Iterable[Exchange]]] = {
    "row": row_law,
    "entry": entry_law,
    "column": column_law,
    "graph": graph_law,
}
"""By the law that draws: the exchanges of a layer, from its counts, s and the wire format."""


def stages_exchanges(
    counts: RankCounts, hop: HopCounts, law: DrawLaw, wire: WireWidths, algorithm: Algorithm
) -> Iterator[Exchange]:
    """P = Q A stage by stage; what is put together over the row group; FastGCN's columns."""
    shape, again = counts.shape, wire.edge_id_bytes > 0 and law in ("entry", "column")
    first = replace(wire, edge_id_bytes=0) if again else wire
    fetch = broadcast_rows if algorithm == "oblivious" else requested_rows
    yield from fetch(counts, hop, first)
    if again:  # with edge ids for the extraction
        yield from fetch(counts, hop, wire)
    if shape.replication > 1:
        own = _REDUCTION[law](counts, hop, wire)
        yield row_gather(shape, own + np.where(again and law == "entry", masked(shape, hop, wire), 0.0))
        yield stages_header(shape, gathers(counts, law))
    if law == "graph":
        yield from group_columns(counts, hop, wire)


def requested_rows(counts: RankCounts, hop: HopCounts, wire: WireWidths) -> Iterator[Exchange]:
    """Ids of the distinct rows that a row group needs, and the rows."""
    shape = counts.shape
    rows = hop.group_rows * widths(grouped(shape, hop.longest, np.maximum)) + hop.group_entries * wire.entry_bytes
    yield stages_request("rows", shape, hop.group_rows * wire.id_bytes)
    yield stages_reply("rows", shape, rows)
    yield stages_header(shape, 2 * stages_of(shape))


def broadcast_rows(counts: RankCounts, hop: HopCounts, wire: WireWidths) -> Iterator[Exchange]:
    """Whole block rows of A to all."""
    blocks = counts.block_rows * widths(counts.block_longest) + counts.block_entries * wire.entry_bytes
    yield broadcasts("rows", counts.shape, blocks)
    yield stages_header(counts.shape, stages_of(counts.shape))


def gathers(counts: RankCounts, law: DrawLaw) -> int:
    """How often a row group puts something together in a layer, at least; one batch after the other as published."""
    if law in ("row", "entry"):
        return 1 + int(counts.shape.group_batches(int(counts.batches.sum())).max())
    return 3 if law == "column" else 1


def stages_of(shape: GridShape) -> int:
    """About p/c^2: of the column that has most."""
    return int(np.bincount(shape.stage_columns).max())


def in_columns(shape: GridShape, by_group: FloatArray, op: np.ufunc = np.add) -> FloatArray:
    """(p,): of rank (i, j) what row group i has in the block rows of column j, from (p/c, p/c).

    Examples
    --------
    >>> in_columns(GridShape(4, 2), np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    found = np.zeros((shape.replication, shape.num_blocks))
    op.at(found, shape.stage_columns, by_group.T)
    return found.T.reshape(shape.ranks)


def row_law_reduction(counts: RankCounts, hop: HopCounts, wire: WireWidths) -> FloatArray:
    """(p,): rows of P, once for each batch."""
    return row_lengths(counts.shape, hop) + hop.stage_entries * wire.entry_bytes


def row_lengths(shape: GridShape, hop: HopCounts) -> FloatArray:
    """(p,): how many entries each row of P has."""
    return hop.stage_rows * widths(_longest_in_stages(shape, hop.longest))


def entry_law_reduction(counts: RankCounts, hop: HopCounts, wire: WireWidths) -> FloatArray:
    """(p,): rows of P, without edge ids."""
    return row_law_reduction(counts, hop, replace(wire, edge_id_bytes=0))


def column_law_reduction(counts: RankCounts, hop: HopCounts, wire: WireWidths) -> FloatArray:
    """(p,): for each batch the entries of its frontier and the largest exponent; sums by column; extracted edges."""
    shape = counts.shape
    k = np.repeat(shape.group_batches(int(counts.batches.sum())), shape.replication)
    entries = in_columns(shape, hop.group_entries) / np.maximum(k, 1)
    heads = k * (widths(entries) + EXPONENT_BYTES + widths(hop.stage_entries / np.maximum(k, 1)))
    sums = hop.stage_entries * (wire.id_bytes + numerator_bytes(hop.stage_most_summed, wire))
    return heads + sums + graph_law_reduction(counts, hop, wire)


def graph_law_reduction(counts: RankCounts, hop: HopCounts, wire: WireWidths) -> FloatArray:
    """(p,): extracted edges, and the lengths of rows where they say what edges weigh."""
    lengths = wire.row_normalized * row_lengths(counts.shape, hop)
    return masked(counts.shape, hop, wire) + lengths


def masked(shape: GridShape, hop: HopCounts, wire: WireWidths) -> FloatArray:
    """(p,): edges into the src vertices as places among these, and how many there are in each row."""
    edge_bytes = length_bytes(hop.most_sources - 1) + wire.weight_bytes + wire.edge_id_bytes
    return hop.stage_rows * widths(_longest_in_stages(shape, hop.longest_edges)) + hop.stage_edges * edge_bytes


def _longest_in_stages(shape: GridShape, longest: FloatArray) -> FloatArray:
    """(p,): of rank (i, j) the largest of row group i in the block rows of column j, from (p, p/c)."""
    return in_columns(shape, grouped(shape, longest, np.maximum), np.maximum)


def group_columns(counts: RankCounts, hop: HopCounts, wire: WireWidths) -> Iterator[Exchange]:
    """As `graph_law`, but every rank of a row group asks for all draws of the group."""
    shape = counts.shape
    asked = (hop.positions, hop.sources_by_range)
    positions, sources = (np.repeat(grouped(shape, one), shape.replication, axis=0) for one in asked)
    for_group = replace(hop, positions=positions, sources_by_range=sources)
    for out, back in (drawn_columns(counts, for_group), (sources * wire.id_bytes, sources * NORM_BYTES)):
        yield request("columns", shape, out)
        yield reply("columns", shape, back)
        yield stages_header(shape, 2)


_REDUCTION: dict[DrawLaw, Callable[[RankCounts, HopCounts, WireWidths], FloatArray]] = {
    "row": row_law_reduction,
    "entry": entry_law_reduction,
    "column": column_law_reduction,
    "graph": graph_law_reduction,
}


def bulk_traffic(
    counts: RankCounts,
    sampler: Sampler,
    law: DrawLaw,
    wire: WireWidths,
    algorithm: Algorithm = "column",
    *,
    feature_bytes: int = 0,
    model_bytes: int = 0,
) -> list[Exchange]:
    """Every exchange that sampling a bulk and a training step on each of its batches takes.

    Parameters
    ----------
    counts : RankCounts
    sampler : Sampler
    law : str
        What `sampler.draw_law` tells of the graph; it decides what is exchanged.
    wire : WireWidths
    algorithm : str
        One of `spsample.distributed.algorithms.ALGORITHMS`.
    feature_bytes : int
        Bytes of a vertex's features; 0: no features are fetched.
    model_bytes : int
        Bytes of the gradients; 0: none are averaged.

    Returns
    -------
    list of Exchange

    Raises
    ------
    InputError
        If there is no such algorithm.
    """
    require_choice("algorithm", algorithm, tuple(ALGORITHMS))
    sampling: list[Exchange] = []
    if counts.shape.ranks > 1:
        if counts.shape.num_blocks > 1 or algorithm != "column":
            steps = zip(counts.hops, sampler.sizes, strict=True)
            sampling += [one for hop, s in steps for one in _layer(counts, hop, s, law, wire, algorithm)]
        sampling += status(counts.shape, algorithm, len(counts.hops) * rounds_of(law, algorithm))
    return sampling + list(_training(counts, wire, feature_bytes, model_bytes))


def _layer(
    counts: RankCounts, hop: HopCounts, s: int, law: DrawLaw, wire: WireWidths, algorithm: Algorithm
) -> Iterator[Exchange]:
    if algorithm == "column":
        yield from COLUMN_EXCHANGES[law](counts, hop, s, wire)
    else:
        yield from stages_exchanges(counts, hop, law, wire, algorithm)


def _training(counts: RankCounts, wire: WireWidths, feature_bytes: int, model_bytes: int) -> Iterator[Exchange]:
    steps = int(counts.batches.max())
    if feature_bytes and counts.shape.ranks > 1:
        yield from features(counts.shape, counts.inputs, wire, feature_bytes, steps)
    if model_bytes and counts.shape.ranks > 1:
        yield gradients(counts.shape, model_bytes, steps)


_ROUNDS: dict[DrawLaw, int] = {"row": 0, "entry": 2, "column": 0, "graph": 1}
"""How often the ranks ask each other in a layer whether one of them has to go on drawing, at least."""


def rounds_of(law: DrawLaw, algorithm: Algorithm) -> int:
    """How often ranks ask each other in a layer; where every rank has the rows of its batches, nobody is asked."""
    return 0 if law == "entry" and algorithm != "column" else _ROUNDS[law]


def status(shape: GridShape, algorithm: Algorithm, rounds: int = 0) -> Iterator[Exchange]:
    """Agreement of all ranks: the same arguments; `rounds` times whether a draw goes on; how the call ended."""
    yield all_gather("status", shape, HEADER_WORDS)  # the checks of one rank, then the comparison
    yield all_gather("status", shape, HEADER_WORDS)
    yield header(shape, 1 + rounds) if algorithm == "column" else stages_header(shape, 1 + rounds)
    yield all_gather("status", shape, HEADER_WORDS)


def features(
    shape: GridShape, inputs: FloatArray, wire: WireWidths, feature_bytes: int, steps: int
) -> Iterator[Exchange]:
    """Ids out and rows of features back, a batch at a time; a share 1 - c/p of them is on other ranks.

    All ranks tell each other before either exchange and twice at the end of a batch that none has failed.
    """
    exchanges = 2 if shape.num_blocks > 1 else 0
    if exchanges:
        yield _per_step(request("features", shape, inputs * wire.id_bytes), steps)
        yield _per_step(reply("features", shape, inputs * feature_bytes), steps)
    yield stages_header(shape, (exchanges + 2) * steps)


def _per_step(exchange: Exchange, steps: int) -> Exchange:
    """As many bytes in `steps` times as many messages."""
    return replace(exchange, messages=steps * exchange.messages)


def gradients(shape: GridShape, model_bytes: int, steps: int) -> Exchange:
    """The ring all-reduce of every step."""
    return ring_reduction("gradients", shape, model_bytes).scaled(steps)


# ------------------------------------------------------------------------------------------------------------ by phase


@dataclass(frozen=True)
class PhaseBytes:
    """Sums over all exchanges of a phase: bytes of a rank, in the mean and at most, and the most messages."""

    sent_mean: float
    sent_max: float
    received_mean: float
    received_max: float
    messages_max: float


def by_phase(traffic: Iterable[Exchange]) -> dict[Phase, PhaseBytes]:
    """Sums by phase, in the order of `PHASES`; phases without exchanges are left out.

    Examples
    --------
    >>> from spsample.planning.cluster.exchanges import ring_reduction
    >>> by_phase([ring_reduction("gradients", GridShape(4), 100)])["gradients"].sent_max
    150.0
    """
    listed = list(traffic)
    grouped = {phase: [one for one in listed if one.phase == phase] for phase in PHASES}
    return {phase: _summed(ones) for phase, ones in grouped.items() if ones}


def _summed(traffic: list[Exchange]) -> PhaseBytes:
    sent, received, messages = (
        np.sum([getattr(one, name) for one in traffic], axis=0) for name in ("sent", "received", "messages")
    )
    return PhaseBytes(
        float(sent.mean()), float(sent.max()), float(received.mean()), float(received.max()), float(messages.max())
    )


__all__ = ["PhaseBytes", "bulk_traffic", "by_phase"]
