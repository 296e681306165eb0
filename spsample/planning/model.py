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
    row group: of every batch its rows, or (column law) its sums by column and later the extracted edges.
"stages-distinct"
    The same, where a row that several batches want is put together once for all of them.
"stages-split"
    The same without the all-reduce where that is redundant (node-wise, entry law): the rows of P stay split over the
    row group, and only what was drawn or extracted from them is gathered.
"oblivious"
    Whole block rows of A are broadcast instead, whatever is needed of them.

References
----------
Tripathy, Yelick, Buluc, "Distributed matrix-based sampling for graph neural network training", MLSys 2024, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from spsample.comm.headers import HEADER_WORDS
from spsample.errors import InputError
from spsample.planning.counts import HopCounts, RankCounts
from spsample.planning.exchanges import (
    PHASES,
    Phase,
    Traffic,
    broadcasts,
    header,
    reply,
    request,
    ring_reduction,
    row_gather,
    staged_header,
    staged_reply,
    staged_request,
    told,
)
from spsample.planning.shape import FloatArray, GridShape
from spsample.sampling import LADIES, GraphSAGE, Sampler

Algorithm = Literal["column", "stages", "stages-distinct", "stages-split", "oblivious"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
DrawLaw = Literal["row", "entry", "column", "graph"]
"""The row law is that of node-wise samplers; "graph" is the column law on one distribution for all (FastGCN)."""

WORD_BYTES = 8  # of a number that is not narrowed: counts, batch ids, wishes
GAP_BYTES = 2  # of a sampled column, about, where it is not known yet
EXPONENT_BYTES = 4
NORM_BYTES = 2  # of a squared column norm, about


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
    numerator_bytes : int
        Of a sum of numerators at least: of counts more where they are larger.
    row_normalized : bool
        Whether entries weigh one over the length of their row, which then travels too.
    """

    id_bytes: int = 4
    weight_bytes: int = 0
    edge_id_bytes: int = 0
    numerator_bytes: int = 1
    row_normalized: bool = False

    @property
    def entry_bytes(self) -> int:
        """Of an entry of a row of A."""
        return self.id_bytes + self.weight_bytes + self.edge_id_bytes

    @classmethod
    def of(cls, id_bytes: int, weight_bytes: int, weighting: str, *, edge_ids: bool = False) -> Wire:
        """For a graph."""
        return cls(id_bytes, weight_bytes, 8 * edge_ids, 1 if weighting == "unweighted" else 4, weighting == "row")


def widths(largest: NDArray[Any]) -> FloatArray:
    """Bytes of numbers up to `largest`: 1, 2, 4 or 8.

    Examples
    --------
    >>> widths(np.array([0, 255, 256, 2.0**32])).tolist()
    [1.0, 1.0, 2.0, 8.0]
    """
    found: FloatArray = np.array([1.0, 2.0, 4.0, 8.0])[np.searchsorted([255.0, 65535.0, 2.0**32 - 1], largest)]
    return found


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
    if counts.shape.num_blocks == 1 and (algorithm == "column" or counts.shape.ranks == 1):
        sampling: list[Traffic] = []
    else:
        steps = zip(counts.hops, sampler.sizes, strict=True)
        sampling = [one for hop, s in steps for one in _layer(counts, hop, s, law, wire, algorithm)]
        sampling += status(counts.shape, algorithm, len(counts.hops) * rounds_of(law, algorithm))
    return sampling + list(_training(counts, wire, feature_bytes, model_bytes))


def require_algorithm(name: str) -> Algorithm:
    """Return the name of an algorithm, or refuse it."""
    for algorithm in ALGORITHMS:
        if name == algorithm:
            return algorithm
    raise InputError(argument="algorithm", given=repr(name), expected="one of column, stages, oblivious")


def _layer(
    counts: RankCounts, hop: HopCounts, s: int, law: DrawLaw, wire: Wire, algorithm: Algorithm
) -> Iterator[Traffic]:
    if algorithm == "column":
        yield from _COLUMN[law](counts, hop, s, wire)
    else:
        yield from staged(counts, hop, law, wire, algorithm)


def _training(counts: RankCounts, wire: Wire, feature_bytes: int, model_bytes: int) -> Iterator[Traffic]:
    steps = int(counts.batches.max())
    if feature_bytes and counts.shape.num_blocks > 1:
        yield from features(counts.shape, counts.inputs, wire, feature_bytes, steps)
    if model_bytes and counts.shape.ranks > 1:
        yield gradients(counts.shape, model_bytes, steps)


# ------------------------------------------------------------------------------------------------ algorithm "column"


def node_wise(counts: RankCounts, hop: HopCounts, s: int, wire: Wire) -> Iterator[Traffic]:
    """The owners draw: vertices out, and s ids each back."""
    yield from _asked("rows", counts, asked_pairs(hop, counts.batches, wire), drawn_edges(hop, s, wire))


def _asked(phase: Phase, counts: RankCounts, out: FloatArray, back: FloatArray) -> Iterator[Traffic]:
    """A question to the owners and its answer, each with its header."""
    yield header(counts.shape, 2)
    yield request(phase, counts.shape, out)
    yield reply(phase, counts.shape, back)


def asked_pairs(hop: HopCounts, batches: NDArray[np.int64], wire: Wire) -> FloatArray:
    """A vertex for each pair; how many of each batch, and its id, for each owner."""
    return hop.pairs * wire.id_bytes + 2 * WORD_BYTES * batches[:, None]


def drawn_edges(hop: HopCounts, s: int, wire: Wire) -> FloatArray:
    """How many were drawn for each pair, and their ids; the length of the row where the graph is row-normalised."""
    pair_bytes = length_bytes(s) + WORD_BYTES * wire.row_normalized
    return hop.pairs * pair_bytes + hop.edges * wire.entry_bytes


def length_bytes(most: int) -> int:
    """Of a number up to `most`; -1: not known.

    Examples
    --------
    >>> length_bytes(255), length_bytes(256), length_bytes(-1)
    (1, 2, 4)
    """
    return 4 if most < 0 or most > 65535 else 1 + (most > 255)


def entry_law(counts: RankCounts, hop: HopCounts, s: int, wire: Wire) -> Iterator[Traffic]:
    """The frontier, row totals, positions, then the extraction."""
    nothing = np.zeros_like(hop.rows)
    yield from frontier(counts, hop, wire)
    yield from row_totals(counts, hop)
    yield from _asked("positions", counts, positions(hop), hop.positions * wire.id_bytes)
    yield from extraction(counts, hop, wire, held=nothing > 0)


def frontier(counts: RankCounts, hop: HopCounts, wire: Wire) -> Iterator[Traffic]:
    """The owners are told which rows are wanted, and tell how many entries these have."""
    yield from _asked(
        "frontier", counts, named_rows(hop, counts.batches, wire), np.full_like(hop.rows, float(WORD_BYTES))
    )


def named_rows(hop: HopCounts, batches: NDArray[np.int64], wire: Wire) -> FloatArray:
    """Each distinct row once, with a bit for each batch of the rank; and the batches' ids."""
    k = batches[:, None]
    return hop.rows * (wire.id_bytes + -(-k // 8)) + WORD_BYTES * k


def row_totals(counts: RankCounts, hop: HopCounts) -> Iterator[Traffic]:
    """How many entries each distinct row has."""
    yield from _asked("totals", counts, np.zeros_like(hop.rows), hop.rows * widths(hop.longest))


def positions(hop: HopCounts) -> FloatArray:
    """Of each draw the row among those of its owner, and the entry in it."""
    return hop.positions * (widths(hop.pairs - 1) + widths(hop.longest - 1)) + WORD_BYTES


def column_law(counts: RankCounts, hop: HopCounts, s: int, wire: Wire) -> Iterator[Traffic]:
    """Per block row its distinct rows or its owner's sums, as owners choose; then the extraction of what is missing."""
    k = np.broadcast_to(counts.batches[:, None], hop.rows.shape)
    sums = hop.sums * (wire.id_bytes + numerator_bytes(hop.most, wire))
    later = GAP_BYTES * (hop.pairs.sum(axis=1) + counts.batches * s)
    rows = whole_rows(hop, wire, edge_ids=False)
    as_rows = rows <= sums + later[:, None]
    yield from frontier(counts, hop, wire)
    yield from _asked("totals", counts, np.zeros_like(sums), batch_totals(hop, k))
    if wire.row_normalized:
        yield from row_totals(counts, hop)
    per_batch = np.where(as_rows, 1.0, widths(hop.sums / np.maximum(k, 1)))
    answer = (1.0 + per_batch * k + np.where(as_rows, rows, sums)).astype(np.float64)
    yield from _asked("sums", counts, np.full_like(sums, float(WORD_BYTES)) + WORD_BYTES * k, answer)
    yield from extraction(counts, hop, wire, held=as_rows & (wire.edge_id_bytes == 0))


def numerator_bytes(most: FloatArray, wire: Wire) -> FloatArray:
    """Of sums of up to so many entries."""
    return np.maximum(widths(most), wire.numerator_bytes)


def batch_totals(hop: HopCounts, batches: NDArray[Any]) -> FloatArray:
    """Of each batch the entries of its frontier, and the largest exponent."""
    return batches * (widths(hop.row_entries) + EXPONENT_BYTES)


def whole_rows(hop: HopCounts, wire: Wire, *, edge_ids: bool) -> FloatArray:
    """Distinct rows as they are."""
    entry_bytes = wire.entry_bytes if edge_ids else wire.id_bytes + wire.weight_bytes
    return hop.rows * widths(hop.longest) + hop.row_entries * entry_bytes


def graph_law(counts: RankCounts, hop: HopCounts, s: int, wire: Wire) -> Iterator[Traffic]:
    """Draws to the owners of ranges of columns; columns, their first units and numerators back; the extraction.

    Then the numerators of all src vertices, for the values.
    """
    yield from _asked("columns", counts, *drawn_columns(counts, hop))
    yield from frontier(counts, hop, wire)
    if wire.row_normalized:
        yield from row_totals(counts, hop)
    yield from extraction(counts, hop, wire, held=np.zeros_like(hop.rows, np.bool_))
    yield from _asked("columns", counts, hop.src * wire.id_bytes, hop.src * NORM_BYTES)


def drawn_columns(counts: RankCounts, hop: HopCounts) -> tuple[FloatArray, FloatArray]:
    """Units of the distribution out; columns, their first units and their numerators back."""
    unit_bytes = float(widths(counts.block_entries.max()))  # a unit an entry, about
    return hop.positions * unit_bytes + WORD_BYTES, hop.positions * (WORD_BYTES + unit_bytes + NORM_BYTES)


def extraction(counts: RankCounts, hop: HopCounts, wire: Wire, *, held: NDArray[np.bool_]) -> Iterator[Traffic]:
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


def masked_edges(hop: HopCounts, wire: Wire) -> FloatArray:
    """Edges as places among the src vertices, and how many there are in each pair's row."""
    edge_bytes = length_bytes(hop.most_sources - 1) + wire.weight_bytes + wire.edge_id_bytes
    return hop.pairs * widths(hop.longest_edges) + hop.edges * edge_bytes


_ROUNDS: dict[DrawLaw, int] = {"row": 0, "entry": 5, "column": 0, "graph": 3}
"""How often the ranks ask each other in a layer whether one of them has to go on drawing, at least."""


def rounds_of(law: DrawLaw, algorithm: Algorithm) -> int:
    """The same of an algorithm: where every rank has the rows of its batches, nobody is asked."""
    return 0 if law == "entry" and algorithm not in ("column", "stages-split") else _ROUNDS[law]


_COLUMN: dict[DrawLaw, Callable[[RankCounts, HopCounts, int, Wire], Iterable[Traffic]]] = {
    "row": node_wise,
    "entry": entry_law,
    "column": column_law,
    "graph": graph_law,
}

# ------------------------------------------------------------------------------- algorithm 2 of the paper, and its kin


def staged(counts: RankCounts, hop: HopCounts, law: DrawLaw, wire: Wire, algorithm: Algorithm) -> Iterator[Traffic]:
    """P = Q A stage by stage; what is put together over the row group; FastGCN's columns."""
    shape, again = counts.shape, wire.edge_id_bytes > 0 and law in ("entry", "column")
    first = replace(wire, edge_id_bytes=0) if again else wire
    fetch = broadcast_rows if algorithm == "oblivious" else staged_rows
    yield from fetch(counts, hop, first)
    if again:  # with edge ids for the extraction
        yield from fetch(counts, hop, wire)
    if shape.replication > 1:
        own = _REDUCTION[law](counts, hop, wire, algorithm)
        yield row_gather(shape, own + np.where(again and law == "entry", masked(shape, hop, wire), 0.0))
        yield staged_header(shape, gathers(counts, law, algorithm))
    if law == "graph":
        yield from group_columns(counts, hop, wire)


def staged_rows(counts: RankCounts, hop: HopCounts, wire: Wire) -> Iterator[Traffic]:
    """Ids of the distinct rows that a row group needs, and the rows."""
    shape = counts.shape
    rows = hop.group_rows * widths(grouped(shape, hop.longest, np.maximum)) + hop.group_entries * wire.entry_bytes
    yield staged_request("rows", shape, hop.group_rows * wire.id_bytes)
    yield staged_reply("rows", shape, rows)
    yield staged_header(shape, 2 * stages_of(shape))


def broadcast_rows(counts: RankCounts, hop: HopCounts, wire: Wire) -> Iterator[Traffic]:
    """Whole block rows of A to all."""
    blocks = counts.block_rows * widths(counts.block_longest) + counts.block_entries * wire.entry_bytes
    yield broadcasts("rows", counts.shape, blocks)
    yield staged_header(counts.shape, stages_of(counts.shape))


def gathers(counts: RankCounts, law: DrawLaw, algorithm: Algorithm) -> int:
    """How often a row group puts something together in a layer, at least; one batch after the other as published."""
    if law in ("row", "entry") and algorithm in ("stages", "oblivious"):
        return 1 + int(counts.shape.group_batches(int(counts.batches.sum())).max())
    return {"row": 1, "entry": 3 if algorithm == "stages-split" else 1, "column": 3, "graph": 1}[law]


def stages_of(shape: GridShape) -> int:
    """About p/c^2: of the column that has most."""
    return int(np.bincount(shape.stage_columns).max())


def grouped(shape: GridShape, by_rank: FloatArray, op: np.ufunc = np.add) -> FloatArray:
    """(p/c, ...): sums over the ranks of each row group, or another reduction, from (p, ...).

    Examples
    --------
    >>> grouped(GridShape(4, 2), np.array([1.0, 2.0, 3.0, 4.0])).tolist()
    [3.0, 7.0]
    """
    by_group = by_rank.reshape(shape.num_blocks, shape.replication, *by_rank.shape[1:])
    reduced: FloatArray = op.reduce(by_group, axis=1)
    return reduced


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


def row_law_reduction(counts: RankCounts, hop: HopCounts, wire: Wire, algorithm: Algorithm) -> FloatArray:
    """(p,): rows of P, as published once for each batch; or what was drawn from them."""
    if algorithm == "stages-split":
        drawn = hop.partial_rows * widths(_most(counts.shape, hop.longest_edges)) + hop.partial_edges * wire.entry_bytes
        return drawn + wire.row_normalized * row_lengths(counts.shape, hop)
    return rows_of_product(counts, hop, wire, algorithm)


def rows_of_product(counts: RankCounts, hop: HopCounts, wire: Wire, algorithm: Algorithm) -> FloatArray:
    """(p,): rows of P, once for each batch or once for all."""
    if algorithm != "stages-distinct":
        return row_lengths(counts.shape, hop) + hop.partials * wire.entry_bytes
    shape = counts.shape
    lengths = in_columns(shape, hop.group_rows) * widths(_most(shape, hop.longest))
    return lengths + in_columns(shape, hop.group_entries) * wire.entry_bytes


def row_lengths(shape: GridShape, hop: HopCounts) -> FloatArray:
    """(p,): how many entries each row of P has."""
    return hop.partial_rows * widths(_most(shape, hop.longest))


def entry_law_reduction(counts: RankCounts, hop: HopCounts, wire: Wire, algorithm: Algorithm) -> FloatArray:
    """(p,): rows of P; or lengths of rows, drawn columns and extracted edges."""
    shape = counts.shape
    if algorithm != "stages-split":
        return rows_of_product(counts, hop, replace(wire, edge_id_bytes=0), algorithm)
    drawn = in_columns(shape, grouped(shape, hop.positions)) * wire.id_bytes
    edges = masked(shape, hop, wire) if wire.edge_id_bytes == 0 else 0.0
    return row_lengths(shape, hop) + drawn + edges


def column_law_reduction(counts: RankCounts, hop: HopCounts, wire: Wire, algorithm: Algorithm) -> FloatArray:
    """(p,): of each batch the entries of its frontier and the largest exponent; sums by column; extracted edges."""
    shape = counts.shape
    k = np.repeat(shape.group_batches(int(counts.batches.sum())), shape.replication)
    entries = in_columns(shape, hop.group_entries) / np.maximum(k, 1)
    heads = k * (widths(entries) + EXPONENT_BYTES + widths(hop.partials / np.maximum(k, 1)))
    sums = hop.partials * (wire.id_bytes + numerator_bytes(hop.partial_most, wire))
    return heads + sums + graph_law_reduction(counts, hop, wire, algorithm)


def graph_law_reduction(counts: RankCounts, hop: HopCounts, wire: Wire, algorithm: Algorithm) -> FloatArray:
    """(p,): extracted edges, and the lengths of rows where they say what edges weigh."""
    lengths = wire.row_normalized * row_lengths(counts.shape, hop)
    return masked(counts.shape, hop, wire) + lengths


def masked(shape: GridShape, hop: HopCounts, wire: Wire) -> FloatArray:
    """(p,): edges into the src vertices as places among these, and how many there are in each row."""
    edge_bytes = length_bytes(hop.most_sources - 1) + wire.weight_bytes + wire.edge_id_bytes
    return hop.partial_rows * widths(_most(shape, hop.longest_edges)) + hop.partial_edges * edge_bytes


def _most(shape: GridShape, longest: FloatArray) -> FloatArray:
    """(p,): of rank (i, j) the largest of row group i in the block rows of column j, from (p, p/c)."""
    return in_columns(shape, grouped(shape, longest, np.maximum), np.maximum)


def group_columns(counts: RankCounts, hop: HopCounts, wire: Wire) -> Iterator[Traffic]:
    """As `graph_law`, but every rank of a row group asks for all draws of the group."""
    shape = counts.shape
    positions, src = (np.repeat(grouped(shape, one), shape.replication, axis=0) for one in (hop.positions, hop.src))
    for_group = replace(hop, positions=positions, src=src)
    for out, back in (drawn_columns(counts, for_group), (src * wire.id_bytes, src * NORM_BYTES)):
        yield request("columns", shape, out)
        yield reply("columns", shape, back)
        yield staged_header(shape, 2)


_REDUCTION: dict[DrawLaw, Callable[[RankCounts, HopCounts, Wire, Algorithm], FloatArray]] = {
    "row": row_law_reduction,
    "entry": entry_law_reduction,
    "column": column_law_reduction,
    "graph": graph_law_reduction,
}


# ----------------------------------------------------------------------------------------- status, features, gradients


def status(shape: GridShape, algorithm: Algorithm, rounds: int = 0) -> Iterator[Traffic]:
    """Whether all ranks have the same arguments; so many times whether a draw goes on; how the call ended."""
    yield told("status", shape, HEADER_WORDS)  # the checks of one rank, then the comparison
    yield told("status", shape, HEADER_WORDS)
    yield header(shape, 1 + rounds) if algorithm == "column" else staged_header(shape, 1 + rounds)
    yield told("status", shape, HEADER_WORDS)


def features(shape: GridShape, inputs: FloatArray, wire: Wire, feature_bytes: int, steps: int) -> Iterator[Traffic]:
    """Ids out and rows of features back, a batch at a time; a share 1 - c/p of them is on other ranks."""
    yield _per_step(request("features", shape, inputs * wire.id_bytes), steps)
    yield _per_step(reply("features", shape, inputs * feature_bytes), steps)
    yield header(shape, 2 * steps)


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
    >>> from spsample.planning.exchanges import ring_reduction
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
