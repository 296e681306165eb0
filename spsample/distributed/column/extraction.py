"""EXTRACT on a partitioned A: owners get the sampled columns and send back only the edges into them, or rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.backends import StackedRows, StackedSelector
from spsample.backends.on_host import pointers_of
from spsample.backends.protocol import Int64Array, IntArray
from spsample.comm import Received, Sent
from spsample.distributed.column.frontier import (
    FetchedBlockRows,
    RemoteFrontier,
    RowRequests,
    bytes_per_entry,
    fetched,
    order_in_groups,
    rows_for,
)
from spsample.distributed.row_arrays import RowArrays, joined
from spsample.distributed.wire_format import either, keep_from, pack, packed, segment_sums, unpack, width_of
from spsample.sparse import Entries, LocalOperand, row_lengths, split
from spsample.sparse.operand import own_weights

NOTHING, EDGES, ROWS = 0, 1, 2
"""Requests to a part: for nothing, since the rows are here; for edges between rows and columns; for the rows."""


class Columns(NamedTuple):
    """src of k batches, ascending in each as `sorted`; `local` are their places in their batch's `src`.

    An owner, to whom they are sent, has `ptr` and `sorted` only.
    """

    ptr: Int64Array
    sorted: IntArray
    src: IntArray
    local: IntArray

    @classmethod
    def of(cls, src_ptr: Int64Array, src: IntArray, num_nodes: int) -> Columns:
        """The columns that a bulk's src name."""
        batch = np.repeat(np.arange(len(src_ptr) - 1), np.diff(src_ptr))
        order = order_in_groups(batch, len(src_ptr) - 1, src, num_nodes)
        return cls(src_ptr, src[order], src, (order - src_ptr[batch]).astype(src.dtype))

    def gaps(self) -> Int64Array:
        """Return the first column of each batch, and then differences: smaller numbers than ids."""
        columns = self.sorted.astype(np.int64)
        gaps = columns.copy()
        gaps[1:] -= columns[:-1]
        first = self.ptr[:-1][np.diff(self.ptr) > 0]
        gaps[first] = self.sorted[first]
        return gaps

    @classmethod
    def from_gaps(cls, lengths: Int64Array, gaps: Int64Array, dtype: np.dtype[Any]) -> Columns:
        """Return the columns again, without the order that they had in the bulk."""
        ptr = pointers_of(lengths)
        sums = np.concatenate([[0], np.cumsum(gaps)])
        columns, unknown = sums[1:] - np.repeat(sums[ptr[:-1]], lengths), np.zeros(0, dtype)
        return cls(ptr, columns.astype(dtype), unknown, unknown)


class Edges(NamedTuple):
    """Extracted entries of those of Q's stacked rows that `kept` names; columns count among a batch's sorted src."""

    kept: Int64Array
    rows: RowArrays


def extract(
    frontier: RemoteFrontier, rows: FetchedBlockRows | None, src: Columns, edge_ids: bool
) -> tuple[StackedRows, Int64Array | None]:
    """Rows Q of A restricted to each batch's src (with weights, where A has them), and edge ids where asked for.

    `rows` are some that were fetched before; they do not have edge ids.
    """
    parts = frontier.parts
    held = np.zeros(parts, np.bool_) if rows is None or edge_ids else rows.parts
    edges, fetched_now = _ask_parts(frontier, _kinds_to_ask_for(frontier, held, src, edge_ids), src, edge_ids)
    fetched_rows = [fetched_now] if rows is None or not held.any() else [fetched_now, rows]
    for block_rows in fetched_rows:
        if block_rows.parts.all():
            stacked, weights, ids = _extracted(frontier, block_rows, src.ptr, src.src)
            return stacked._replace(positions=None, weights=weights), ids
    pieces = [edges, *(_edges_of(frontier, block_rows, src) for block_rows in fetched_rows if block_rows.parts.any())]
    return _stacked(frontier, [piece for piece in pieces if len(piece.kept)] or pieces[:1], src)


def _kinds_to_ask_for(frontier: RemoteFrontier, held: NDArray[np.bool_], src: Columns, edge_ids: bool) -> Int64Array:
    """Choose each part's request: NOTHING where its rows are here, ROWS where they take fewer bytes than src, or EDGES.

    A request for edges comes with src.
    """
    gaps = src.gaps()
    src_bytes = len(gaps) * width_of(int(gaps.max(initial=0)))
    rows_bytes = frontier.entries * bytes_per_entry(frontier.block, edge_ids)
    return np.where(held, NOTHING, np.where(rows_bytes <= src_bytes, ROWS, EDGES)).astype(np.int64)


def _ask_parts(
    frontier: RemoteFrontier, wanted: Int64Array, src: Columns, edge_ids: bool
) -> tuple[Edges, FetchedBlockRows]:
    """Send the requests in `wanted`: some parts answer with edges, others with rows, the rest with nothing.

    An owner that is asked for edges sends the rows instead where those are fewer bytes.
    """
    gaps, sent = src.gaps(), wanted == EDGES
    message = packed(gaps)
    columns = Sent(np.tile(message, int(sent.sum())), np.where(sent, len(message), 0))
    sends = [Sent(wanted, np.ones(len(wanted), np.int64)), frontier.per_batch(np.diff(src.ptr)), columns]
    kinds, *answers = frontier.ask(sends, _EdgesOrRows(edge_ids), phase="extraction")
    is_edges, is_rows = kinds.rows == EDGES, kinds.rows == ROWS
    counts, numbers, _, *more = (keep_from(answer, is_edges) for answer in answers)
    pairs = np.where(is_edges, frontier.pairs, 0)
    lengths = unpack(counts, pairs)
    weights = more.pop(0).rows if frontier.block.weighting == "weighted" else None
    ids = more.pop(0).rows if edge_ids else None
    arrays = RowArrays(lengths, unpack(numbers, segment_sums(lengths, pairs), src.local.dtype), weights, ids)
    counts, _, *entries = (keep_from(answer, is_rows) for answer in answers)
    kept = frontier.order[np.repeat(is_edges, frontier.pairs)]
    return Edges(kept, arrays), fetched(frontier, is_rows, counts, entries, edge_ids)


class _EdgesOrRows(NamedTuple):
    """An owner's `Answer`: EDGES, ROWS or NOTHING, row lengths, edges' columns among src, columns of rows.

    After them weights where A has them, and edge ids where they are asked for.
    """

    edge_ids: bool

    def __call__(self, block: LocalOperand, requests: RowRequests, received: Sequence[Received], /) -> list[Sent]:
        requested, counts, gaps = received
        of_edges = requested.rows == EDGES
        lengths = np.where(np.repeat(of_edges, requests.batches), unpack(counts, requests.batches), 0)
        sizes = segment_sums(lengths, requests.batches)
        src = Columns.from_gaps(lengths, unpack(gaps, sizes), block.index_dtype)
        extracted = block.frontier(_only(requests, of_edges)).extract(src.ptr, src.sorted, self.edge_ids)
        entries = segment_sums(np.diff(extracted.rows.entry_ptr), requests.batches)
        entry_bytes = bytes_per_entry(block, self.edge_ids)
        edge_bytes = entry_bytes - block.matrix.indices.itemsize + width_of(int(lengths.max(initial=1)) - 1)
        dearer = of_edges & (entries * edge_bytes + requests.pairs > requests.entries(block) * entry_bytes)
        return self._sends(block, requests, extracted, np.where(dearer, ROWS, requested.rows))

    def _sends(self, block: LocalOperand, requests: RowRequests, edges: Entries, kinds: Int64Array) -> list[Sent]:
        """Return extracted edges for some of the ranks, rows for others."""
        is_rows = kinds == ROWS
        rows = rows_for(block, requests, is_rows, self.edge_ids)
        of_batch = np.repeat(kinds == EDGES, requests.batches)
        keep = slice(None) if of_batch.all() else np.repeat(of_batch, np.diff(edges.rows.entry_ptr))
        sizes = segment_sums(np.where(of_batch, np.diff(edges.rows.entry_ptr), 0), requests.batches)
        pairs = np.where(kinds == EDGES, requests.pairs, 0)
        edge_pairs = np.repeat(of_batch, np.diff(edges.rows.batch_ptr))
        lengths = pack(row_lengths(edges.rows)[edge_pairs], pairs)
        answers = [
            Sent(kinds.astype(np.int8), np.ones(len(kinds), np.int64)),
            either(is_rows, lengths, rows.lengths),
            pack(edges.rows.columns[keep], sizes),
            rows.columns,
        ]
        if rows.weights is not None:
            weights = np.asarray(own_weights(block, edges))
            answers.append(either(is_rows, Sent(weights[keep], sizes), rows.weights))
        if rows.edge_ids is not None and edges.edge_ids is not None:
            answers.append(either(is_rows, Sent(edges.edge_ids[keep], sizes), rows.edge_ids))
        return answers


def _only(requests: RowRequests, ranks: NDArray[np.bool_]) -> StackedSelector:
    """The stacked batches, with rows for some of the ranks only."""
    counts = np.diff(requests.Q.batch_ptr)
    of_batch = np.repeat(ranks, requests.batches)
    rows = requests.Q.vertices[np.repeat(of_batch, counts)]
    return StackedSelector(pointers_of(np.where(of_batch, counts, 0)), rows, requests.Q.batch_ids)


def _extracted(
    frontier: RemoteFrontier, rows: FetchedBlockRows, src_ptr: Int64Array, src: IntArray
) -> tuple[StackedRows, NDArray[Any] | None, Int64Array | None]:
    """Edges of fetched rows, in the order of Q; their weights, where A has them, and ids, where they were fetched."""
    A, ids = rows.matrix, rows.edge_ids
    has_more = A.data is not None or ids is not None
    edges = frontier.block.backend.extract(A, rows.selector(frontier), src_ptr, src, has_more)
    if edges.positions is None:
        return edges, None, None
    at = edges.positions
    return edges, None if A.data is None else A.data[at], None if ids is None else ids[at]


def _edges_of(frontier: RemoteFrontier, rows: FetchedBlockRows, src: Columns) -> Edges:
    """Edges of fetched rows."""
    edges, weights, ids = _extracted(frontier, rows, src.ptr, src.sorted)
    return Edges(rows.kept(frontier), RowArrays(row_lengths(edges), edges.columns, weights, ids))


def _stacked(frontier: RemoteFrontier, pieces: list[Edges], src: Columns) -> tuple[StackedRows, Int64Array | None]:
    """Edges of all of Q's stacked rows, in their order."""
    edges = joined([piece.rows for piece in pieces])
    kept = np.concatenate([piece.kept for piece in pieces])
    places = np.empty(len(kept), np.int64)
    places[kept] = np.arange(len(kept))
    rows, edges = edges.stacked(frontier.block.backend, frontier.Q.batch_ptr, places)
    for mine, here in zip(split(rows.columns, rows.entry_ptr), split(src.local, src.ptr), strict=True):
        mine[:] = here.take(mine)
    return rows, edges.edge_ids
