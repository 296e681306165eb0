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

import numpy as np
from numpy.typing import NDArray

from spsample.comm.headers import HEADER_WORDS
from spsample.common.checks import require_choice
from spsample.distributed.algorithms import ALGORITHMS
from spsample.distributed.column.operand import GAP_BYTES
from spsample.planning.cluster import exchanges
from spsample.planning.cluster.counting import HopCounts, RankCounts
from spsample.planning.cluster.exchanges import (
    PHASES,
    WORD_BYTES,
    Algorithm,
    ExchangeCost,
    FloatArray,
    GridShape,
    Phase,
    WireWidths,
    grouped,
    in_columns,
    widths,
)
from spsample.sampling import Sampler
from spsample.sampling.sampler import DrawLaw


def row_law(counts: RankCounts, hop: HopCounts, s: int, wire: WireWidths) -> Iterator[ExchangeCost]:
    """The owners draw: vertices out, and s ids each back."""
    yield from _asked("rows", counts, asked_pairs(hop, counts.batches, wire), drawn_edges(hop, s, wire))


def _asked(phase: Phase, counts: RankCounts, out: FloatArray, back: FloatArray) -> Iterator[ExchangeCost]:
    """A question to the owners and its answer, each with its header."""
    yield exchanges.header(counts.shape, 2)
    yield exchanges.request(phase, counts.shape, out)
    yield exchanges.reply(phase, counts.shape, back)


def asked_pairs(hop: HopCounts, batches: NDArray[np.int64], wire: WireWidths) -> FloatArray:
    """A vertex for each pair; how many of each batch, and its id, for each owner."""
    return hop.pairs * wire.id_bytes + 2 * WORD_BYTES * batches[:, None]


def drawn_edges(hop: HopCounts, s: int, wire: WireWidths) -> FloatArray:
    """The count and the ids drawn for each pair; the length of the row where the graph is row-normalised."""
    pair_bytes = exchanges.length_bytes(s) + WORD_BYTES * wire.row_normalized
    return hop.pairs * pair_bytes + hop.edges * wire.entry_bytes


def entry_law(counts: RankCounts, hop: HopCounts, s: int, wire: WireWidths) -> Iterator[ExchangeCost]:
    """The frontier, row totals, positions, then the extraction."""
    yield from frontier(counts, hop, wire, row_totals(hop))
    yield from _asked("positions", counts, positions(hop), hop.positions * wire.id_bytes)
    yield from extraction(counts, hop, wire, held=np.zeros_like(hop.rows, np.bool_))


def frontier(
    counts: RankCounts, hop: HopCounts, wire: WireWidths, more: FloatArray | float = 0.0
) -> Iterator[ExchangeCost]:
    """Names of the wanted rows to the owners; the numbers of their entries back, and `more` bytes."""
    lengths = np.full_like(hop.rows, float(WORD_BYTES)) + more
    yield from _asked("frontier", counts, named_rows(hop, counts.batches, wire), lengths)


def named_rows(hop: HopCounts, batches: NDArray[np.int64], wire: WireWidths) -> FloatArray:
    """Each distinct row once, with a bit for each batch of the rank; and the batches' ids."""
    k = batches[:, None]
    return hop.rows * (wire.id_bytes + -(-k // 8)) + WORD_BYTES * k


def row_totals(hop: HopCounts) -> FloatArray:
    """Numbers of entries of distinct rows."""
    return hop.rows * widths(hop.longest)


def positions(hop: HopCounts) -> FloatArray:
    """For each draw the row among those of its owner, and the entry in it."""
    return hop.positions * (widths(hop.pairs - 1) + widths(hop.longest - 1)) + WORD_BYTES


def column_law(counts: RankCounts, hop: HopCounts, s: int, wire: WireWidths) -> Iterator[ExchangeCost]:
    """Per block row its distinct rows or its owner's sums, as owners choose; then the extraction of what is missing."""
    k = np.broadcast_to(counts.batches[:, None], hop.rows.shape)
    sums = hop.sums * (wire.id_bytes + exchanges.numerator_bytes(hop.most_summed, wire))
    later = GAP_BYTES * (hop.pairs.sum(axis=1) + counts.batches * s)
    rows = whole_rows(hop, wire, edge_ids=False)
    as_rows = rows <= sums + later[:, None]
    yield from frontier(counts, hop, wire)
    totals = k * (widths(hop.row_entries) + exchanges.EXPONENT_BYTES)  # of each batch, and the largest exponent
    yield from _asked("totals", counts, np.zeros_like(sums), totals)
    if wire.row_normalized:
        yield from _asked("totals", counts, np.zeros_like(hop.rows), row_totals(hop))
    per_batch = np.where(as_rows, 1.0, widths(hop.sums / np.maximum(k, 1)))
    answer = (1.0 + per_batch * k + np.where(as_rows, rows, sums)).astype(np.float64)
    yield from _asked("sums", counts, np.full_like(sums, float(WORD_BYTES)) + WORD_BYTES * k, answer)
    yield from extraction(counts, hop, wire, held=as_rows & (wire.edge_id_bytes == 0))


def whole_rows(hop: HopCounts, wire: WireWidths, *, edge_ids: bool) -> FloatArray:
    """Distinct rows as they are."""
    entry_bytes = wire.entry_bytes if edge_ids else wire.id_bytes + wire.weight_bytes
    return hop.rows * widths(hop.longest) + hop.row_entries * entry_bytes


def graph_law(counts: RankCounts, hop: HopCounts, s: int, wire: WireWidths) -> Iterator[ExchangeCost]:
    """Draws to the owners of ranges of columns; columns, their first units and numerators back; the extraction.

    Then the numerators of all src vertices, for the values.
    """
    yield from _asked("columns", counts, *drawn_columns(counts, hop))
    yield from frontier(counts, hop, wire, row_totals(hop) if wire.row_normalized else 0.0)
    yield from extraction(counts, hop, wire, held=np.zeros_like(hop.rows, np.bool_))
    yield from _asked(
        "columns", counts, hop.sources_by_range * wire.id_bytes, hop.sources_by_range * exchanges.NORM_BYTES
    )


def drawn_columns(counts: RankCounts, hop: HopCounts) -> tuple[FloatArray, FloatArray]:
    """Units of the distribution out; columns, their first units and their numerators back."""
    unit_bytes = float(widths(counts.block_entries.max()))  # about one unit an entry
    return hop.positions * unit_bytes + WORD_BYTES, hop.positions * (WORD_BYTES + unit_bytes + exchanges.NORM_BYTES)


def extraction(
    counts: RankCounts, hop: HopCounts, wire: WireWidths, *, held: NDArray[np.bool_]
) -> Iterator[ExchangeCost]:
    """Src vertices to the owners and edges back, or the rows where they are cheaper; nothing where they are held."""
    src, edges = src_sets(hop)[:, None], masked_edges(hop, wire)
    entries = hop.row_entries * wire.entry_bytes
    masked = ~held & (entries > src)
    k = counts.batches[:, None]
    asks = (WORD_BYTES + k * exchanges.length_bytes(hop.most_sources) + np.where(masked, src, 0.0)).astype(np.float64)
    yield exchanges.header(counts.shape, 2)
    yield exchanges.request("extraction", counts.shape, asks)
    rows = whole_rows(hop, wire, edge_ids=True)
    cheaper = np.where(masked & (edges <= entries), edges, rows)
    yield exchanges.reply("extraction", counts.shape, 1.0 + np.where(held, 0.0, cheaper))


def src_sets(hop: HopCounts) -> FloatArray:
    """(p,): the src vertices of a rank's batches, ascending, as distances."""
    return hop.sources * widths(hop.gaps)


def masked_edges(hop: HopCounts, wire: WireWidths) -> FloatArray:
    """Edges as places among the src vertices, and how many there are in each pair's row."""
    return hop.pairs * widths(hop.longest_edges) + hop.edges * _edge_bytes(hop, wire)


def _edge_bytes(hop: HopCounts, wire: WireWidths) -> int:
    return exchanges.length_bytes(hop.most_sources - 1) + wire.weight_bytes + wire.edge_id_bytes


COLUMN_EXCHANGES: dict[DrawLaw, Callable[[RankCounts, HopCounts, int, WireWidths], Iterable[ExchangeCost]]] = {
    "row": row_law,
    "entry": entry_law,
    "column": column_law,
    "graph": graph_law,
}
"""By the law that draws: the exchanges of a layer, from its counts, s and the wire format."""


def stages_exchanges(
    counts: RankCounts, hop: HopCounts, law: DrawLaw, wire: WireWidths, algorithm: Algorithm
) -> Iterator[ExchangeCost]:
    """P = Q A stage by stage; what is put together over the row group; FastGCN's columns."""
    shape, again = counts.shape, wire.edge_id_bytes > 0 and law in ("entry", "column")
    first = replace(wire, edge_id_bytes=0) if again else wire
    fetch = broadcast_rows if algorithm == "oblivious" else requested_rows
    yield from fetch(counts, hop, first)
    if again:  # again, with edge ids for the extraction
        yield from fetch(counts, hop, wire)
    if shape.replication > 1:
        own = _REDUCTION[law](counts, hop, wire)
        yield exchanges.row_gather(shape, own + np.where(again and law == "entry", masked(shape, hop, wire), 0.0))
        yield exchanges.stages_header(shape, gathers(counts, law))
    if law == "graph":
        yield from group_columns(counts, hop, wire)


def requested_rows(counts: RankCounts, hop: HopCounts, wire: WireWidths) -> Iterator[ExchangeCost]:
    """Ids of the distinct rows that a row group needs, and the rows."""
    shape = counts.shape
    rows = hop.group_rows * widths(grouped(shape, hop.longest, np.maximum)) + hop.group_entries * wire.entry_bytes
    yield exchanges.stages_request("rows", shape, hop.group_rows * wire.id_bytes)
    yield exchanges.stages_reply("rows", shape, rows)
    yield exchanges.stages_header(shape, 2 * stages_of(shape))


def broadcast_rows(counts: RankCounts, hop: HopCounts, wire: WireWidths) -> Iterator[ExchangeCost]:
    """Whole block rows of A to all."""
    blocks = counts.block_rows * widths(counts.block_longest) + counts.block_entries * wire.entry_bytes
    yield exchanges.broadcasts("rows", counts.shape, blocks)
    yield exchanges.stages_header(counts.shape, stages_of(counts.shape))


def gathers(counts: RankCounts, law: DrawLaw) -> int:
    """Gathers of a row group in a layer, at least; one batch after the other as published."""
    if law in ("row", "entry"):
        return 1 + int(counts.shape.group_batches(int(counts.batches.sum())).max())
    return 3 if law == "column" else 1


def stages_of(shape: GridShape) -> int:
    """About p/c^2: of the column that has most."""
    return int(np.bincount(shape.stage_columns).max())


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
    heads = k * (widths(entries) + exchanges.EXPONENT_BYTES + widths(hop.stage_entries / np.maximum(k, 1)))
    sums = hop.stage_entries * (wire.id_bytes + exchanges.numerator_bytes(hop.stage_most_summed, wire))
    return heads + sums + graph_law_reduction(counts, hop, wire)


def graph_law_reduction(counts: RankCounts, hop: HopCounts, wire: WireWidths) -> FloatArray:
    """(p,): extracted edges, and the lengths of rows where they say what edges weigh."""
    lengths = wire.row_normalized * row_lengths(counts.shape, hop)
    return masked(counts.shape, hop, wire) + lengths


def masked(shape: GridShape, hop: HopCounts, wire: WireWidths) -> FloatArray:
    """(p,): edges into the src vertices as places among these, and how many there are in each row."""
    lengths = hop.stage_rows * widths(_longest_in_stages(shape, hop.longest_edges))
    return lengths + hop.stage_edges * _edge_bytes(hop, wire)


def _longest_in_stages(shape: GridShape, longest: FloatArray) -> FloatArray:
    """(p,): of rank (i, j) the largest of row group i in the block rows of column j, from (p, p/c)."""
    return in_columns(shape, grouped(shape, longest, np.maximum), np.maximum)


def group_columns(counts: RankCounts, hop: HopCounts, wire: WireWidths) -> Iterator[ExchangeCost]:
    """As `graph_law`, but every rank of a row group asks for all draws of the group."""
    shape = counts.shape
    asked = (hop.positions, hop.sources_by_range)
    positions, sources = (np.repeat(grouped(shape, needs), shape.replication, axis=0) for needs in asked)
    for_group = replace(hop, positions=positions, sources_by_range=sources)
    for out, back in (drawn_columns(counts, for_group), (sources * wire.id_bytes, sources * exchanges.NORM_BYTES)):
        yield exchanges.request("columns", shape, out)
        yield exchanges.reply("columns", shape, back)
        yield exchanges.stages_header(shape, 2)


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
) -> list[ExchangeCost]:
    """Every exchange that sampling a bulk and a training step on each of its batches takes.

    Parameters
    ----------
    counts : RankCounts
    sampler : Sampler
    law : str
        The law `sampler.draw_law` of the graph; it decides what is exchanged.
    wire : WireWidths
    algorithm : str
        One of `spsample.distributed.algorithms.ALGORITHMS`.
    feature_bytes : int
        Bytes of a vertex's features; 0: no features are fetched.
    model_bytes : int
        Bytes of the gradients; 0: none are averaged.

    Returns
    -------
    list of ExchangeCost

    Raises
    ------
    InputError
        If there is no such algorithm.
    """
    require_choice("algorithm", algorithm, tuple(ALGORITHMS))
    traffic: list[ExchangeCost] = []
    if counts.shape.ranks > 1:
        if counts.shape.num_blocks > 1 or algorithm != "column":
            for hop, s in zip(counts.hops, sampler.sizes, strict=True):
                if algorithm == "column":
                    traffic += COLUMN_EXCHANGES[law](counts, hop, s, wire)
                else:
                    traffic += stages_exchanges(counts, hop, law, wire, algorithm)
        # none where every rank has the rows of its batches
        rounds = 0 if law == "entry" and algorithm != "column" else _ROUNDS[law]
        traffic += status(counts.shape, algorithm, len(counts.hops) * rounds)
        steps = int(counts.batches.max())
        if feature_bytes:
            traffic += features(counts.shape, counts.inputs, wire, feature_bytes, steps)
        if model_bytes:
            traffic.append(gradients(counts.shape, model_bytes, steps))
    return traffic


_ROUNDS: dict[DrawLaw, int] = {"row": 0, "entry": 2, "column": 0, "graph": 1}
"""Rounds in a layer, at least, in which the ranks ask each other whether one of them has to go on drawing."""


def status(shape: GridShape, algorithm: Algorithm, rounds: int = 0) -> Iterator[ExchangeCost]:
    """Agreement of all ranks: the same arguments; `rounds` times whether a draw goes on; how the call ended."""
    yield exchanges.all_gather("status", shape, HEADER_WORDS)  # the checks of one rank, then the comparison
    yield exchanges.all_gather("status", shape, HEADER_WORDS)
    yield exchanges.header(shape, 1 + rounds) if algorithm == "column" else exchanges.stages_header(shape, 1 + rounds)
    yield exchanges.all_gather("status", shape, HEADER_WORDS)


def features(
    shape: GridShape, inputs: FloatArray, wire: WireWidths, feature_bytes: int, steps: int
) -> Iterator[ExchangeCost]:
    """Ids out and rows of features back, a batch at a time; a share 1 - c/p of them is on other ranks.

    All ranks exchange their status before either exchange and twice at the end of a batch that none has failed.
    """
    per_step = 2 if shape.num_blocks > 1 else 0
    if per_step:
        yield _per_step(exchanges.request("features", shape, inputs * wire.id_bytes), steps)
        yield _per_step(exchanges.reply("features", shape, inputs * feature_bytes), steps)
    yield exchanges.stages_header(shape, (per_step + 2) * steps)


def _per_step(exchange: ExchangeCost, steps: int) -> ExchangeCost:
    """As many bytes in `steps` times as many messages."""
    return replace(exchange, messages=steps * exchange.messages)


def gradients(shape: GridShape, model_bytes: int, steps: int) -> ExchangeCost:
    """The ring all-reduce of every step."""
    return exchanges.ring_reduction("gradients", shape, model_bytes).scaled(steps)


# ------------------------------------------------------------------------------------------------------------ by phase


@dataclass(frozen=True)
class PhaseBytes:
    """Sums over all exchanges of a phase: bytes of a rank, in the mean and at most, and the most messages."""

    sent_mean: float
    sent_max: float
    received_mean: float
    received_max: float
    messages_max: float


def by_phase(traffic: Iterable[ExchangeCost]) -> dict[Phase, PhaseBytes]:
    """Sums by phase, in the order of `PHASES`; phases without exchanges are left out.

    Examples
    --------
    >>> from spsample.planning.cluster.exchanges import ring_reduction
    >>> by_phase([exchanges.ring_reduction("gradients", GridShape(4), 100)])["gradients"].sent_max
    150.0
    """
    listed = list(traffic)
    phases: dict[Phase, PhaseBytes] = {}
    for phase in PHASES:
        ones = [exchange for exchange in listed if exchange.phase == phase]
        if ones:
            names = ("sent", "received", "messages")
            sent, received, messages = (np.sum([getattr(one, name) for one in ones], axis=0) for name in names)
            sizes = (sent.mean(), sent.max(), received.mean(), received.max(), messages.max())
            phases[phase] = PhaseBytes(*map(float, sizes))
    return phases
