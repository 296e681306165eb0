"""What the parts of A give for the rows of Q that lie in them, added up: entry counts, and sums by column."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Backend, ColumnMatrix
from spsample.backends.on_host import pointers_of
from spsample.backends.protocol import NO_EXPONENT, Int64Array, UInt64Array
from spsample.comm import Received
from spsample.distributed.wire_format import segment_sums, unpack
from spsample.sparse.local import LocalFrontier
from spsample.sparse.probability import FrontierStatistics, Weighting


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
) -> ColumnMatrix:
    """Sums of those who sent them, `batches[q]` rows of rank q; `counts` says how many columns each row has."""
    lengths = unpack(counts, batches)
    values = unpack(numerators, segment_sums(lengths, batches)).view(np.uint64)
    return ColumnMatrix(pointers_of(lengths), columns, values, np.zeros(len(lengths), np.uint64))


def joined_sums(pieces: list[ColumnMatrix]) -> tuple[Int64Array, NDArray[np.signedinteger], UInt64Array]:
    """Lengths, columns and numerators of the rows of several matrices, one after the other."""
    if len(pieces) == 1:
        return np.diff(pieces[0].indptr), pieces[0].columns, pieces[0].numerators
    lengths = np.concatenate([np.diff(piece.indptr) for piece in pieces])
    columns = np.concatenate([piece.columns for piece in pieces])
    return lengths, columns, np.concatenate([piece.numerators for piece in pieces])


def added_sums(backend: Backend, pieces: list[ColumnMatrix], k: int, num_columns: int) -> ColumnMatrix:
    """Add up the rows of each of k batches: row r of every piece is of batch r mod k.

    It is the product of a sparse matrix of k rows, which selects the rows of each batch, with the pieces. The totals of
    the result are left at 0: `powered` forms them.

    Examples
    --------
    >>> from spsample.backends import get_backend
    >>> none = np.zeros(2, np.uint64)
    >>> piece = ColumnMatrix(np.array([0, 1, 3]), np.array([4, 2, 4]), np.array([7, 8, 9], np.uint64), none)
    >>> added_sums(get_backend("reference"), [piece, piece], 1, 5).numerators.tolist()
    [16, 32]
    """
    lengths, columns, numerators = joined_sums([piece for piece in pieces if len(piece.columns)] or pieces[:1])
    batch = np.arange(len(lengths)) % max(k, 1)
    order = np.argsort(batch, kind="stable").astype(columns.dtype)
    left = pointers_of(np.bincount(batch, minlength=k)), order, np.ones(len(order), np.uint64)
    indptr, merged, sums = backend.spgemm(left, (pointers_of(lengths), columns, numerators), num_columns)
    return ColumnMatrix(indptr, merged, sums.view(np.uint64), np.zeros(k, np.uint64))


def powered(P: ColumnMatrix, power: int) -> ColumnMatrix:
    """Numerators to a power, and their sums. P's own numerators are overwritten: no memory is taken for others.

    Examples
    --------
    >>> P = ColumnMatrix(np.array([0, 2, 2]), np.array([1, 4]), np.array([3, 5], np.uint64), np.zeros(2, np.uint64))
    >>> powered(P, 2).totals.tolist(), P.numerators.tolist()
    ([34, 0], [9, 25])
    """
    numerators = P.numerators
    if power != 1:
        numerators **= power  # in place
    totals = [numerators[begin:end].sum() for begin, end in pairwise(P.indptr.tolist())]
    return P._replace(totals=np.array(totals, np.uint64))


__all__ = [
    "added_statistics",
    "added_sums",
    "equal_exponents",
    "joined_sums",
    "partial_statistics",
    "powered",
    "received_sums",
]
