"""Exchanges of a layer with algorithm 2 of the paper, and with its sparsity-oblivious baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from spsample.planning.cluster.column_traffic import drawn_columns
from spsample.planning.cluster.exchanges import (
    Algorithm,
    Exchange,
    broadcasts,
    reply,
    request,
    row_gather,
    stages_header,
    stages_reply,
    stages_request,
)
from spsample.planning.cluster.grid_shape import FloatArray, GridShape, grouped
from spsample.planning.cluster.rank_counts import HopCounts, RankCounts
from spsample.planning.cluster.wire_widths import (
    EXPONENT_BYTES,
    NORM_BYTES,
    WireWidths,
    length_bytes,
    numerator_bytes,
    widths,
)
from spsample.sampling.sampler import DrawLaw


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


__all__ = [
    "column_law_reduction",
    "entry_law_reduction",
    "in_columns",
    "row_law_reduction",
    "stages_exchanges",
]
