"""Minibatches in other libraries' terms."""

from __future__ import annotations

import numpy as np

from spsample.backends.protocol import Int64Array, IntArray


def edge_index(indptr: Int64Array, indices: IntArray) -> Int64Array:
    """(2, entries) column and row of each entry."""
    return np.stack([indices.astype(np.int64), np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))])


def widened(ids: IntArray) -> Int64Array:
    """The ids as int64."""
    return ids.astype(np.int64)
