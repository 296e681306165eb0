"""Exchanges of a layer with ``algorithm="column"``: every rank asks the owners in its column group, who draw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.distributed.column.operand import GAP_BYTES
from spsample.planning.cluster.exchanges import Exchange, Phase, header, reply, request
from spsample.planning.cluster.grid_shape import FloatArray
from spsample.planning.cluster.rank_counts import HopCounts, RankCounts
from spsample.planning.cluster.wire_widths import (
    EXPONENT_BYTES,
    NORM_BYTES,
    WORD_BYTES,
    WireWidths,
    length_bytes,
    numerator_bytes,
    widths,
)
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


__all__ = [
    "COLUMN_EXCHANGES",
    "asked_pairs",
    "column_law",
    "drawn_columns",
    "drawn_edges",
    "entry_law",
    "extraction",
    "graph_law",
    "masked_edges",
    "named_rows",
    "positions",
    "row_law",
    "src_sets",
]
