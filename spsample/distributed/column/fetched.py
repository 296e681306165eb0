"""Rows of A that were fetched from their owners, once for all batches of a rank."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Matrix, StackedSelector
from spsample.backends.on_host import pointers_of
from spsample.backends.protocol import Int64Array
from spsample.comm import Received, Sent
from spsample.distributed.column.frontier import RemoteFrontier, RowRequests
from spsample.distributed.row_arrays import RowArrays
from spsample.distributed.wire_format import pack, segment_sums, unpack
from spsample.sparse import LocalOperand


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
    columns: Received,
    weights: Received | None = None,
    edge_ids: Received | None = None,
) -> FetchedBlockRows:
    """Make a matrix of the rows of some parts, as `rows_for` sent them."""
    indptr = pointers_of(unpack(lengths, np.where(parts, frontier.rows, 0)))
    block = frontier.owners.block
    data: Any = None if weights is None else weights.rows
    matrix = Matrix(indptr, columns.rows, data, block.matrix.row_normalized, None, block.num_nodes)
    return FetchedBlockRows(matrix, parts, None if edge_ids is None else edge_ids.rows)
