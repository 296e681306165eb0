"""Extraction: rows restricted to the src columns of their batch (law, section 4)."""

from __future__ import annotations

import numpy as np

from spsample.backends.protocol import (
    Int64Array,
    IntArray,
    Matrix,
    StackedRows,
    StackedSelector,
)
from spsample.backends.reference.compaction import local_ids
from spsample.backends.reference.stacking import stack_rows


def extract(A: Matrix, Q: StackedSelector, src_ptr: Int64Array, src: IntArray, positions: bool = True) -> StackedRows:
    """Rows Q of A restricted to each batch's src columns, in A's order; positions always."""
    lengths, columns, places = [], [], []
    for i in range(len(Q.batch_ids)):
        members = src[src_ptr[i] : src_ptr[i + 1]]
        for vertex in Q.vertices[Q.batch_ptr[i] : Q.batch_ptr[i + 1]]:
            entries = np.arange(A.indptr[vertex], A.indptr[vertex + 1])
            entries = entries[np.isin(A.indices[entries], members)]
            lengths.append(len(entries))
            columns.append(local_ids(members, A.indices[entries]))
            places.append(entries)
    return stack_rows(
        Q.batch_ptr,
        np.array(lengths, np.int64),
        np.concatenate([*columns, A.indices[:0]]).astype(A.indices.dtype),
        np.concatenate([*places, np.zeros(0, np.int64)]).astype(np.int64),
    )
