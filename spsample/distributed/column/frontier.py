"""`RemoteFrontier`: the rows that a rank's batches need. Their owners get them once, answer requests, and send some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends import ColumnSample, Matrix, StackedSelector
from spsample.backends.on_host import pointers_of
from spsample.backends.protocol import Int64Array, IntArray
from spsample.comm import Received, Sent
from spsample.distributed.operand import PartitionedOperand
from spsample.distributed.row_arrays import RowArrays
from spsample.distributed.wire_format import pack, segment_sums, unpack
from spsample.sparse import LocalOperand

PHASE = "frontier"

SPARSE = 32
"""Ratio of possible ids to ids up to which ids are marked among all possible ones."""


class RowRequests(NamedTuple):
    """The rows that the ranks need of a part of A.

    Attributes
    ----------
    Q : StackedSelector
        The batches of all ranks, rank after rank. Its rows are those of the part, ascending in each batch.
    batches : int64 array (ranks,)
        Number of batches of each rank.
    pairs : int64 array (ranks,)
        Number of stacked rows of Q, which are pairs of a batch and a row, of each rank.
    rows : int array
        Each rank's distinct rows, ascending, rank after rank.
    row_counts : int64 array (ranks,)
        Number of `rows` of each rank.
    row_of : int64 array (m,)
        For each stacked row of Q its place in `rows`.
    """

    Q: StackedSelector
    batches: Int64Array
    pairs: Int64Array
    rows: IntArray
    row_counts: Int64Array
    row_of: Int64Array

    def entries(self, block: LocalOperand) -> Int64Array:
        """Entries of each rank's distinct rows."""
        return segment_sums(np.diff(block.matrix.indptr)[self.rows], self.row_counts)


class Answer(Protocol):
    """A function that makes answers of a block, of the rows needed of it, and of what came with the request."""

    def __call__(self, block: LocalOperand, requests: RowRequests, received: Sequence[Received], /) -> Sequence[Sent]:
        """Return what goes to each rank."""
        ...


class RemoteFrontier:
    """The rows of Q at their owners, who know a rank's distinct rows, and as bit masks the batches that need each.

    Attributes
    ----------
    Q : StackedSelector
    order : int64 array (m,)
        The stacked rows of Q as (part, batch, row) triples in this order.
    places : int64 array (m,)
        The place of each stacked row of Q among the triples.
    pairs : int64 array (parts,)
        Rows of all batches, of each part.
    row_of : int64 array (m,)
        For each of the triples its row among the distinct rows.
    rows : int64 array (parts,)
        Distinct rows of each part.
    entries : int64 array (parts,)
        Entries of these.
    answers : list of Received
        The owners' answers to `more`.
    """

    def __init__(self, A: PartitionedOperand, Q: StackedSelector, more: Answer | None = None) -> None:
        self.A, self.block, self.parts = A, A.held.block, A.num_parts
        self.Q = Q
        bounds, k = A.held.placement.bounds, len(Q.batch_ids)
        place = A.held.placement.places_of(Q.vertices).astype(np.int64)
        batch = np.repeat(np.arange(k), np.diff(Q.batch_ptr))
        part = np.searchsorted(bounds, place, side="right") - 1
        num_places = int(bounds[-1])
        distinct, row_of = distinct_ids(place, num_places)
        self.order = order_in_groups(part * k + batch, self.parts * k, place, num_places)
        self.places = np.empty(len(self.order), np.int64)
        self.places[self.order] = np.arange(len(self.order))
        self.pairs = np.bincount(part, minlength=self.parts).astype(np.int64)
        self.row_of: Int64Array = row_of[self.order]
        self.rows = np.diff(np.searchsorted(distinct, bounds)).astype(np.int64)
        local = distinct - np.repeat(bounds[:-1], self.rows)
        self._requests: dict[bool, RowRequests] = {}
        entries, *self.answers = self._register(local.astype(Q.vertices.dtype), batch, row_of, more)
        self.entries = entries.rows

    def _register(self, local: IntArray, batch: Int64Array, row_of: Int64Array, more: Answer | None) -> list[Received]:
        """Send the rows to their owners, who answer with the rows' numbers of entries and what `more` makes of them."""
        parts, k = self.parts, len(self.Q.batch_ids)
        is_needed = np.zeros((len(local), k), np.bool_)
        is_needed[row_of, batch] = True
        masks = np.packbits(is_needed, axis=1)
        ids = Sent(np.tile(self.Q.batch_ids, parts), np.full(parts, k, np.int64))
        sends = [Sent(local, self.rows), Sent(masks.ravel(), self.rows * masks.shape[1]), ids]

        def serve(block: LocalOperand, received: Sequence[Received]) -> list[Sent]:
            requests = _received_requests(*received)
            self._requests[block is self.A.held.hubs] = requests
            answers = [] if more is None else more(block, requests, [])
            return [Sent(requests.entries(block), np.ones(len(requests.batches), np.int64)), *answers]

        return self.A.ask(sends, serve, phase=PHASE)

    def ask(self, sends: Sequence[Sent], answer: Answer, *, phase: str) -> list[Received]:
        """Ask the owners, as `PartitionedOperand.ask`; they know the rows."""

        def serve(block: LocalOperand, received: Sequence[Received]) -> Sequence[Sent]:
            return answer(block, self._requests[block is self.A.held.hubs], received)

        return self.A.ask(sends, serve, phase=phase)

    def per_batch(self, values: Int64Array) -> Sent:
        """Send numbers of at least 0, one per batch, to every part."""
        parts = self.parts
        return pack(np.tile(values, parts), np.full(parts, len(values), np.int64))

    def excluded(self, exclude: ColumnSample) -> list[Sent]:
        """Send the excluded columns to every part."""
        parts = self.parts
        columns = Sent(np.tile(exclude.columns, parts), np.full(parts, len(exclude.columns), np.int64))
        return [self.per_batch(np.diff(exclude.indptr)), columns]


def received_exclusion(requests: RowRequests, counts: Received, columns: Received) -> ColumnSample:
    """Read the columns that `RemoteFrontier.excluded` sent, for the stacked batches of all ranks."""
    lengths = unpack(counts, requests.batches)
    k = len(lengths)
    empty = np.zeros(k, np.uint64)
    return ColumnSample(pointers_of(lengths), columns.rows, np.ones(len(columns.rows), np.int64), empty, empty > 0)


def _received_requests(rows: Received, masks: Received, batch_ids: Received) -> RowRequests:
    """Read the rows that all ranks need, from their distinct rows and masks."""
    vertices, row_of, batch_counts = [rows.rows[:0]], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    pairs = np.zeros(len(rows.counts), np.int64)
    ends, mask_ends, before = np.cumsum(rows.counts), np.cumsum(masks.counts), 0
    for q, (count, k) in enumerate(zip(rows.counts.tolist(), batch_ids.counts.tolist(), strict=True)):
        mine = rows.rows[ends[q] - count : ends[q]]
        bits = masks.rows[mask_ends[q] - masks.counts[q] : mask_ends[q]].reshape(count, -(-k // 8))
        batch, row = np.nonzero(np.ascontiguousarray(np.unpackbits(bits, axis=1, count=k).T).view(np.bool_))
        vertices.append(mine[row])
        row_of.append(row + before)
        batch_counts.append(np.bincount(batch, minlength=k))
        pairs[q] = len(row)
        before += count
    ptr = pointers_of(np.concatenate(batch_counts))
    Q = StackedSelector(ptr, np.concatenate(vertices), batch_ids.rows)
    return RowRequests(Q, batch_ids.counts, pairs, rows.rows, rows.counts, np.concatenate(row_of))


def order_in_groups(group: IntArray, num_groups: int, ids: IntArray, num_ids: int) -> Int64Array:
    """The order by group, and by id within each: as of ``np.lexsort((ids, group))``.

    Runs that ascend are merged, so that it takes little more than a pass where there are few of them.

    Examples
    --------
    >>> order_in_groups(np.array([1, 0, 1]), 2, np.array([5, 7, 3]), 8).tolist()
    [1, 2, 0]
    """
    if num_groups * num_ids > np.iinfo(np.int64).max:
        return np.lexsort((ids, group))
    key = group.astype(np.int64)
    key *= num_ids
    key += ids
    return np.argsort(key, kind="stable")


def distinct_ids(ids: IntArray, num_ids: int) -> tuple[IntArray, NDArray[Any]]:
    """Ascending distinct ids, and of each id its place among them: as of `np.unique` with its inverse.

    Examples
    --------
    >>> [array.tolist() for array in distinct_ids(np.array([4, 1, 4]), 6)]
    [[1, 4], [1, 0, 1]]
    """
    if num_ids > SPARSE * len(ids):
        distinct, place = np.unique(ids, return_inverse=True)
        return distinct, place
    is_there = np.zeros(num_ids, np.bool_)
    is_there[ids] = True
    distinct = np.flatnonzero(is_there)
    places = np.empty(num_ids, np.int64)
    places[distinct] = np.arange(len(distinct))
    return distinct.astype(ids.dtype, copy=False), places[ids]


class SentRows(NamedTuple):
    """Distinct rows as an owner sends them: lengths, columns, and weights and edge ids where there are any."""

    lengths: Sent
    columns: Sent
    weights: Sent | None
    edge_ids: Sent | None


def bytes_per_entry(block: LocalOperand, edge_ids: bool) -> int:
    """Bytes of an entry of a fetched row."""
    A = block.matrix
    return A.indices.itemsize + (0 if A.data is None else A.data.itemsize) + 8 * edge_ids


def rows_for(block: LocalOperand, requests: RowRequests, ranks: NDArray[np.bool_], edge_ids: bool) -> SentRows:
    """The distinct rows of those ranks that get rows."""
    chosen = np.repeat(ranks, requests.row_counts)
    rows = requests.rows[chosen]
    counts = np.where(ranks, requests.row_counts, 0)
    taken = RowArrays.taken(block, rows, edge_ids)
    sizes = segment_sums(cast("Int64Array", taken.lengths), counts)
    return SentRows(
        pack(taken.lengths, counts),
        Sent(taken.columns, sizes),
        None if taken.weights is None else Sent(taken.weights, sizes),
        None if taken.edge_ids is None else Sent(taken.edge_ids, sizes),
    )


class FetchedBlockRows(NamedTuple):
    """Rows of some parts as a matrix; row r of it is the r-th distinct row of these parts.

    `parts` (parts,) is true for these parts; `edge_ids` are those of the entries, or None.
    """

    matrix: Matrix
    parts: NDArray[np.bool_]
    edge_ids: Int64Array | None

    def kept(self, frontier: RemoteFrontier) -> Int64Array:
        """Return the places of Q's stacked rows that lie in these parts."""
        kept: Int64Array = np.flatnonzero(np.repeat(self.parts, frontier.pairs)[frontier.places])
        return kept

    def selector(self, frontier: RemoteFrontier) -> StackedSelector:
        """Q over these rows, without its other stacked rows."""
        Q, kept = frontier.Q, self.kept(frontier)
        left_out = np.repeat(np.cumsum(np.where(self.parts, 0, frontier.rows)), frontier.pairs)
        rows = (frontier.row_of - left_out)[frontier.places[kept]]
        return StackedSelector(np.searchsorted(kept, Q.batch_ptr), rows.astype(self.matrix.indices.dtype), Q.batch_ids)


def fetched(
    frontier: RemoteFrontier,
    parts: NDArray[np.bool_],
    lengths: Received,
    entries: Sequence[Received],
    edge_ids: bool = False,
) -> FetchedBlockRows:
    """Make a matrix of the rows of some parts, as `rows_for` sent them: `entries` are columns, weights, edge ids."""
    indptr = pointers_of(unpack(lengths, np.where(parts, frontier.rows, 0)))
    block = frontier.block
    data = entries[1].rows if block.weighting == "weighted" else None
    matrix = Matrix(indptr, entries[0].rows, data, block.matrix.row_normalized, None, block.num_nodes)
    return FetchedBlockRows(matrix, parts, entries[-1].rows if edge_ids else None)
