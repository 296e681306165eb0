"""Results of the parts of A for the rows of Q in them: entry counts, which are added up, and sums by column."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends import PartialSums
from spsample.backends.on_host import pointers_of
from spsample.backends.protocol import NO_EXPONENT, Int64Array
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
