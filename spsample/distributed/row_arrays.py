"""Rows of A as they travel (`RowArrays`) and are stacked again in the order of Q; their counts, and sums by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Backend, Matrix, PartialSums, StackedRows, StackedSelector
from spsample.backends.on_host import pointers_of
from spsample.backends.protocol import NO_EXPONENT, Int64Array, IntArray
from spsample.comm import Received, Sent
from spsample.distributed.wire_format import pack, segment_sums, unpack
from spsample.sparse import Entries, LocalOperand, row_lengths
from spsample.sparse.local import LocalFrontier
from spsample.sparse.operand import own_weights
from spsample.sparse.probability import FrontierStatistics, Weighting


class RowArrays(NamedTuple):
    """Entries of rows, one row after the other.

    Attributes
    ----------
    lengths : int array (rows,)
    columns : int array (entries,)
    weights : float array (entries,) or None
        None where A has none.
    edge_ids : int64 array (entries,) or None
        None where they are not asked for.
    """

    lengths: NDArray[Any]
    columns: NDArray[Any]
    weights: NDArray[Any] | None
    edge_ids: Int64Array | None

    @classmethod
    def taken(cls, block: LocalOperand, rows: IntArray, edge_ids: bool) -> RowArrays:
        """Copy whole rows of a block, which may be repeated.

        Examples
        --------
        >>> from spsample.backends import get_backend
        >>> A = LocalOperand(Matrix(np.array([0, 2, 3, 3]), np.array([1, 2, 0])), None, get_backend("reference"))
        >>> RowArrays.taken(A, np.array([1, 0, 1]), True)
        RowArrays(lengths=array([1, 2, 1]), columns=array([0, 1, 2, 0]), weights=None, edge_ids=array([2, 0, 1, 2]))
        """
        selector = StackedSelector(np.array([0, len(rows)], np.int64), rows, np.zeros(1, np.int64))
        data = block.matrix.data
        taken = block.backend.take_rows(block.matrix, selector, edge_ids or data is not None)
        positions = cast("Int64Array", taken.positions)  # None only where unused
        weights = None if data is None else data[positions]
        return cls(np.diff(taken.indptr), taken.columns, weights, block.edge_ids_at(positions) if edge_ids else None)

    @classmethod
    def of(cls, block: LocalOperand, entries: Entries) -> RowArrays:
        """Take entries that were drawn or extracted from a block."""
        weights = own_weights(block, entries) if block.weighting == "weighted" else None
        return cls(row_lengths(entries.rows), entries.rows.columns, weights, entries.edge_ids)

    @property
    def entries(self) -> list[NDArray[Any]]:
        """The arrays of the entries, those that there are."""
        return [array for array in self[1:] if array is not None]

    def sends(self, counts: Int64Array) -> list[Sent]:
        """`counts[q]` of the rows for rank q: their lengths, in as few bytes as they need, and their entries."""
        sizes = segment_sums(self.lengths, counts)
        return [pack(self.lengths, counts), *(Sent(array, sizes) for array in self.entries)]

    def received(self, received: Sequence[Received], counts: Int64Array) -> RowArrays:
        """Read rows of the same kind that others sent, `counts[q]` of them from rank q."""
        lengths, *entries = received
        return self.replaced(unpack(lengths, counts), [array.rows for array in entries])

    def first(self, rows: int) -> RowArrays:
        """The first rows."""
        end = int(self.lengths[:rows].sum())
        return self.replaced(self.lengths[:rows], [array[:end] for array in self.entries])

    def picked(self, like: LocalOperand, rows: IntArray) -> RowArrays:
        """Some of the rows, which are of the same A as the block `like`."""
        ids = np.zeros(len(self.lengths), like.index_dtype)  # unused: rows are only picked
        return RowArrays.taken(self.operand(like, ids), rows, self.edge_ids is not None)

    def replaced(self, lengths: NDArray[Any], entries: Sequence[NDArray[Any]]) -> RowArrays:
        """Rows with the same kinds of entries."""
        columns, *more = entries
        weights = None if self.weights is None else more.pop(0)
        return RowArrays(lengths, columns, weights, None if self.edge_ids is None else more.pop(0))

    def stacked(self, backend: Backend, batch_ptr: Int64Array, places: IntArray) -> tuple[StackedRows, RowArrays]:
        """The row at `places[r]` as the stacked row r of the batches; and the arrays in this order."""
        gathered = backend.gather_rows(batch_ptr, places, self.lengths, self.entries)
        rows = self.replaced(self.lengths, cast("tuple[Any, ...]", gathered.entries))
        columns = cast("Any", rows.columns)
        return StackedRows(batch_ptr, gathered.entry_ptr, gathered.indptr, columns, None, rows.weights), rows

    def operand(self, like: LocalOperand, ids: IntArray) -> LocalOperand:
        """The rows of the vertices `ids` as a matrix of its own, over the columns of a block of the same A."""
        A = like.matrix
        matrix = Matrix(pointers_of(self.lengths), self.columns, self.weights, A.row_normalized, ids, like.num_nodes)
        return LocalOperand(matrix, self.edge_ids, like.backend)


def joined(pieces: Sequence[RowArrays]) -> RowArrays:
    """Rows of the same kind, those of one piece after those of another; at least one piece.

    Examples
    --------
    >>> piece = RowArrays(np.array([2]), np.array([5, 7]), None, None)
    >>> joined([piece, piece]).columns.tolist()
    [5, 7, 5, 7]
    """
    if len(pieces) == 1:
        return pieces[0]
    entries = [np.concatenate(arrays) for arrays in zip(*(piece.entries for piece in pieces), strict=True)]
    return pieces[0].replaced(np.concatenate([piece.lengths for piece in pieces]), entries)


def received_entries(
    rows: StackedRows, batch_ids: Int64Array, edge_ids: Int64Array | None, degrees: Int64Array | None
) -> Entries:
    """Return received entries, with a matrix that gives their weights and row lengths as A would.

    Its row r is the stacked row r. Where weights came with the entries they are its data, and `positions` lead to them;
    `degrees` (m,) are the rows' lengths in a row-normalised A.
    """
    m, columns = len(rows.indptr) - len(batch_ids), rows.columns
    selector = StackedSelector(rows.batch_ptr, np.arange(m, dtype=columns.dtype), batch_ids)
    if degrees is not None:
        # Only lengths of rows are read: indices take no memory, since their pages are never touched.
        unread = np.empty(int(degrees.sum()), columns.dtype)
        return Entries(rows, Matrix(pointers_of(degrees), unread, None, True), selector, edge_ids)
    matrix = Matrix(pointers_of(row_lengths(rows)), columns, rows.weights)
    if rows.weights is not None:
        rows = rows._replace(positions=np.arange(len(columns), dtype=np.int64))
    return Entries(rows, matrix, selector, edge_ids)


def equal_exponents(counts: Int64Array, weighting: Weighting) -> NDArray[np.int32]:
    """Exponents of rows whose entries weigh 1, or one over their number.

    Examples
    --------
    >>> equal_exponents(np.array([1, 4, 0]), "row").tolist() == [1, -1, NO_EXPONENT]
    True
    """
    weights = 1.0 / np.maximum(counts, 1) if weighting == "row" else np.ones(len(counts))
    return np.where(counts > 0, np.frexp(weights)[1], NO_EXPONENT).astype(np.int32)


def partial_statistics(F: LocalFrontier) -> tuple[Int64Array, NDArray[np.int32]]:
    """Entry count and largest exponent of each batch's rows in a part of A."""
    counts, largest = F.A.backend.batch_statistics(F.Q.batch_ptr, *F.row_statistics)
    return counts, largest.astype(np.int32)


def added_statistics(counts: Int64Array, exponents: NDArray[np.int32]) -> FrontierStatistics:
    """Statistics of k batches, from what `partial_statistics` gives of each part: both (parts, k).

    Examples
    --------
    >>> added_statistics(np.array([[3, 1], [2, 0]]), np.array([[-2, 5], [1, NO_EXPONENT]]))
    FrontierStatistics(counts=array([5, 1]), exponents=array([1, 5]))
    """
    maxima = exponents.max(axis=0).astype(np.int64)
    return FrontierStatistics(counts.sum(axis=0), np.where(maxima == NO_EXPONENT, 0, maxima))


def received_sums(
    counts: Received, columns: NDArray[np.signedinteger], numerators: Received, batches: Int64Array
) -> list[PartialSums]:
    """Read sums from each rank that sent some, `batches[q]` rows of rank q; `counts` are the columns of each row.

    The numerators of each are as wide as they came.

    Examples
    --------
    >>> counts, columns = Received(np.array([1, 2], np.uint8), np.array([1, 1])), np.array([4, 2, 4])
    >>> numerators = Received(np.array([7, 8, 9], np.uint8), np.array([1, 2]))
    >>> [piece.numerators.tolist() for piece in received_sums(counts, columns, numerators, np.array([1, 1]))]
    [[7], [8, 9]]
    """
    lengths = unpack(counts, batches)
    sizes = segment_sums(lengths, batches).tolist()
    ends = zip(
        np.cumsum(batches).tolist(), np.cumsum(sizes).tolist(), np.cumsum(numerators.counts).tolist(), strict=True
    )
    pieces = []
    for k, size, width, (row, column, byte) in zip(
        batches.tolist(), sizes, numerators.counts.tolist(), ends, strict=True
    ):
        values = numerators.rows[byte - width : byte].view(f"u{width // size if size else 8}")
        pieces.append(PartialSums(pointers_of(lengths[row - k : row]), columns[column - size : column], values))
    return pieces
