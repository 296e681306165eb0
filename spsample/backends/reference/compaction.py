"""Compaction: the src vertices of each batch, and columns as places among them (law, section 4)."""

from __future__ import annotations

import numpy as np

from spsample.backends.protocol import Compaction, Int64Array, IntArray, StackedSelector


def source_order(dst: IntArray, columns: IntArray, include_targets: bool) -> IntArray:
    """dst first, then the other columns ascending; without targets all columns ascending.

    Examples
    --------
    >>> source_order(np.array([5, 2]), np.array([7, 2, 3, 7]), True).tolist()
    [5, 2, 3, 7]
    """
    if include_targets:
        return np.concatenate([dst, np.setdiff1d(columns, dst)]).astype(dst.dtype)
    return np.unique(columns).astype(dst.dtype)


def compact(
    Q: StackedSelector,
    entry_ptr: Int64Array,
    columns: IntArray,
    include_targets: bool,
    num_vertices: int | None = None,
) -> Compaction:
    """src vertices of each batch, and its columns as places among them; the columns are left as they are."""
    sources, local = [], []
    for i in range(len(Q.batch_ids)):
        found = columns[entry_ptr[i] : entry_ptr[i + 1]]
        src = source_order(Q.vertices[Q.batch_ptr[i] : Q.batch_ptr[i + 1]], found, include_targets)
        sources.append(src)
        local.append(local_ids(src, found))
    src_ptr, src = _stack(sources, Q.vertices)
    return Compaction(src_ptr, src, np.concatenate([*local, columns[:0]]).astype(columns.dtype))


def local_ids(src: IntArray, columns: IntArray) -> Int64Array:
    """Index of each column in src (all are in it)."""
    order = np.argsort(src, kind="stable")
    return order[np.searchsorted(src[order], columns)] if len(columns) else np.zeros(0, np.int64)


def _stack(parts: list[IntArray], like: IntArray) -> tuple[Int64Array, IntArray]:
    """Offsets and concatenation of the batches' arrays."""
    ptr = np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int64)
    return ptr, np.concatenate([*parts, like[:0]]).astype(like.dtype)
