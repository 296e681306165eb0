"""The entry law composed of `row_totals` and `locate`: the way it runs where rows lie on other ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.backends import ColumnSample, Draw, StackedSelector
from spsample.backends.protocol import UInt64Array
from spsample.backends.reference.random import NARROW_LIMIT, Stream
from spsample.sparse.operand import GraphOperand

Counts = list[dict[int, int]]
"""Per batch: each column drawn so far, in the order first drawn, and how often."""


def draw_entries(A: GraphOperand, Q: StackedSelector, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
    """Draw columns by the entry law from the frontiers Q, every batch in the same few exchanges.

    Parameters
    ----------
    numerators : uint64 array (m,) or None
        q of each selected row; None for 1.
    draw : Draw
        Size, replacement and the counter's key and hop.

    Returns
    -------
    ColumnSample
        Bit for bit what a backend's fused `draw_entries` returns.
    """
    q = np.ones(len(Q.vertices), np.uint64) if numerators is None else numerators
    totals = _per_batch(q * A.row_totals(Q).counts.astype(np.uint64), Q)
    initial = np.array([t.sum(dtype=np.uint64) for t in totals], np.uint64)
    chosen: Counts = [{} for _ in totals]
    if draw.replace:
        for i, columns in _round(A, Q, q, totals, initial, draw._replace(size=draw.size), 0, draw.size, None):
            for column in columns:
                chosen[i][column] = chosen[i].get(column, 0) + 1
        return _stack(chosen, A, initial, np.zeros(len(totals), np.bool_))
    first, exclude, pending = 0, None, True
    while pending:
        wanted = [t if len(c) < draw.size else t[:0] for t, c in zip(totals, chosen, strict=True)]
        for i, columns in _round(A, Q, q, wanted, initial, draw, first, 4 * draw.size, exclude):
            fresh = dict.fromkeys([*chosen[i], *columns], 1)
            chosen[i] = dict(list(fresh.items())[: draw.size])
        first += 4 * draw.size
        exclude = _stack(chosen, A, initial, np.zeros(len(totals), np.bool_))
        totals = _per_batch(q * A.row_totals(Q, exclude).counts.astype(np.uint64), Q)
        pending = any(len(c) < draw.size and t.any() for c, t in zip(chosen, totals, strict=True))
    return _stack(chosen, A, initial, np.array([not t.any() for t in totals], np.bool_))


def _round(
    A: GraphOperand,
    Q: StackedSelector,
    q: UInt64Array,
    totals: list[UInt64Array],
    initial: UInt64Array,
    draw: Draw,
    first: int,
    count: int,
    exclude: ColumnSample | None,
) -> list[tuple[int, list[int]]]:
    """(batch, columns of its draws first .. first + count - 1) of every batch with a total; one `locate` for all."""
    batches, rows, offsets = [], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for i, row_totals in enumerate(totals):
        if not row_totals.any():
            continue
        cumulative = np.cumsum(row_totals, dtype=np.uint64)
        stream = Stream(draw.key, 0, draw.hop, int(Q.batch_ids[i]))
        x = stream.integers(np.arange(first, first + count), cumulative[-1], initial[i] > NARROW_LIMIT)
        row = np.searchsorted(cumulative, x, side="right")
        stacked = row + Q.batch_ptr[i]
        offsets.append(((x - (cumulative - row_totals)[row]) // q[stacked]).astype(np.int64))
        rows.append(stacked.astype(np.int64))
        batches.append(i)
    columns = A.locate(Q, np.concatenate(rows), np.concatenate(offsets), exclude)
    return [(i, columns[r * count : (r + 1) * count].tolist()) for r, i in enumerate(batches)]


def _per_batch(values: UInt64Array, Q: StackedSelector) -> list[UInt64Array]:
    return [values[lo:hi] for lo, hi in zip(Q.batch_ptr[:-1], Q.batch_ptr[1:], strict=True)]


def _stack(chosen: Counts, A: GraphOperand, totals: UInt64Array, whole: NDArray[np.bool_]) -> ColumnSample:
    """Stacked; the columns of batches taken whole ascend."""
    ordered = [sorted(c) if w else list(c) for c, w in zip(chosen, whole, strict=True)]
    return ColumnSample(
        np.concatenate([[0], np.cumsum([len(c) for c in ordered])]).astype(np.int64),
        np.array([v for c in ordered for v in c], A.index_dtype),
        np.array([c[v] for c, o in zip(chosen, ordered, strict=True) for v in o], np.int64),
        totals,
        whole,
    )
