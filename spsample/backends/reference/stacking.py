"""Arrays of several rows, batches or hops as one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import (
    Array,
    Int64Array,
    IntArray,
    StackedRows,
)


def stack_rows(
    batch_ptr: Int64Array, lengths: Int64Array, columns: NDArray[np.signedinteger], positions: Int64Array | None
) -> StackedRows:
    """`StackedRows` from the rows' lengths."""
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indptr = [ends[lo : hi + 1] - ends[lo] for lo, hi in pairwise(batch_ptr)]
    return StackedRows(batch_ptr, ends[batch_ptr], np.concatenate([*indptr, np.zeros(0, np.int64)]), columns, positions)


def stacked_batches(rows: StackedRows) -> list[tuple[int, int, NDArray[np.int64]]]:
    """(batch, first entry, batch-local indptr) of each batch."""
    return [
        (i, int(rows.entry_ptr[i]), rows.indptr[rows.batch_ptr[i] + i : rows.batch_ptr[i + 1] + i + 1])
        for i in range(len(rows.batch_ptr) - 1)
    ]


def interleave(parts: Sequence[Array], pointers: Sequence[Int64Array]) -> Array:
    """Each batch's parts side by side, hop after hop."""
    by_hop = [[part[lo:hi] for lo, hi in pairwise(p)] for part, p in zip(parts, pointers, strict=True)]
    return np.concatenate([part for batch in zip(*by_hop, strict=True) for part in batch] or [parts[0][:0]])


def appended(found_ptr: Int64Array, known_ptr: Int64Array, known: IntArray) -> tuple[Int64Array, IntArray]:
    """Each batch's known ids behind the first ones, as many as were found before."""
    found = np.diff(found_ptr)
    parts = [known[lo + skip : hi] for (lo, hi), skip in zip(pairwise(known_ptr), found, strict=True)]
    ptr = np.concatenate([[0], np.cumsum(np.diff(known_ptr) - found)]).astype(np.int64)
    return ptr, np.concatenate([*parts, known[:0]])


def interleave_pointers(parts: Sequence[Int64Array], pointers: Sequence[Int64Array]) -> Int64Array:
    """Row pointers over the rows of all hops that start at 0 in every batch."""
    lengths = []
    for i in range(len(pointers[0]) - 1):
        rows = [part[p[i] + i : p[i + 1] + i + 1] for part, p in zip(parts, pointers, strict=True)]
        lengths.append(np.cumsum(np.concatenate([[0], *(np.diff(row) for row in rows)])))
    return np.concatenate([*lengths, np.zeros(0)]).astype(np.int64)


def edge_index(indptr: Int64Array, indices: IntArray) -> Int64Array:
    """(2, entries) column and row of each entry."""
    return np.stack([indices.astype(np.int64), np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))])


def widened(ids: IntArray) -> Int64Array:
    """The ids as int64."""
    return ids.astype(np.int64)
