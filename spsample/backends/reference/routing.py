"""Rows of a partitioned A: sorted by the part that owns them, and stacked again when they come back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spsample.backends.protocol import Array, GatheredRows, Int64Array, IntArray, RoutedRows, StackedSelector
from spsample.backends.reference.stacking import stack_rows


def route_rows(Q: StackedSelector, bounds: Int64Array, position: IntArray | None = None) -> RoutedRows:
    """A stable sort of the stacked rows, which lie batch by batch, by part.

    Examples
    --------
    >>> Q = StackedSelector(np.array([0, 3, 5]), np.array([7, 1, 4, 5, 0]), np.array([0, 1]))
    >>> counts, vertices, places = route_rows(Q, np.array([0, 4, 8]))
    >>> counts.tolist(), vertices.tolist(), places.tolist()
    ([[1, 1], [2, 1]], [1, 0, 7, 4, 5], [2, 0, 3, 4, 1])
    """
    _require_bounds(bounds, position)
    _require(not len(Q.vertices) or 0 <= Q.vertices.min() <= Q.vertices.max() < bounds[-1], "vertices: not below n")
    positions = Q.vertices if position is None else position[Q.vertices]
    _require(not len(positions) or 0 <= positions.min() <= positions.max() < bounds[-1], "position: not below n")
    part = np.searchsorted(bounds, positions, side="right") - 1
    k = len(Q.batch_ptr) - 1
    batch = np.repeat(np.arange(k), np.diff(Q.batch_ptr))
    counts = np.zeros((len(bounds) - 1, k), np.int64)
    np.add.at(counts, (part, batch), 1)
    order = np.argsort(part, kind="stable")
    return RoutedRows(counts, Q.vertices[order], np.argsort(order).astype(Q.vertices.dtype))


def gather_rows(batch_ptr: Int64Array, places: IntArray, lengths: Array, entries: Sequence[Array]) -> GatheredRows:
    """Each stacked row's entries from where its place says they lie.

    Examples
    --------
    >>> columns = np.array([10, 11, 20, 30, 31])
    >>> rows = gather_rows(np.array([0, 2, 3]), np.array([2, 0, 1]), np.array([2, 1, 2]), [columns])
    >>> rows.entry_ptr.tolist(), rows.indptr.tolist(), rows.entries[0].tolist()
    ([0, 4, 5], [0, 2, 4, 0, 1], [30, 31, 10, 11, 20])
    """
    wide = np.asarray(lengths, dtype=np.int64)
    _require(len(wide) == len(places), "lengths: one element per row")
    _require((wide >= 0).all(), "lengths: not negative")
    _require(
        len(entries) > 0 and all(len(array) == wide.sum() for array in entries), "entries: as many as the lengths say"
    )
    _require(not len(places) or 0 <= places.min() <= places.max() < len(wide), "places: not below the number of rows")
    begin = np.cumsum(wide) - wide
    where = [np.arange(begin[place], begin[place] + wide[place]) for place in places]
    flat = np.concatenate([*where, np.zeros(0, np.int64)]).astype(np.int64)
    rows = stack_rows(batch_ptr, wide[places], flat, None)
    return GatheredRows(rows.entry_ptr, rows.indptr, tuple(array[flat] for array in entries))


def _require_bounds(bounds: Int64Array, position: IntArray | None) -> None:
    ascending = 2 <= len(bounds) <= 2**16 + 1 and bounds[0] == 0 and bool((np.diff(bounds) >= 0).all())
    _require(ascending, "bounds: ascending from 0, for 1 to 65536 parts")
    _require(position is None or len(position) == bounds[-1], "position: one element per vertex")


def _require(condition: bool | np.bool_, message: str) -> None:
    if not condition:
        raise ValueError(message)
