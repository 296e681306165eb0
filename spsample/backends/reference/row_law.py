"""The row law: the entries of single rows (law, section 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from spsample.backends.arithmetic import scale_error
from spsample.backends.protocol import (
    ColumnScale,
    Compaction,
    Draw,
    FloatArray,
    Int64Array,
    Matrix,
    StackedRows,
    StackedSelector,
    UInt64Array,
)
from spsample.backends.reference.compaction import compact
from spsample.backends.reference.quantisation import row_rule_numerators
from spsample.backends.reference.random import NARROW_LIMIT, ROUND_DRAWS, Stream
from spsample.backends.reference.stacking import stack_rows


def sample_rows_uniform(A: Matrix, Q: StackedSelector, draw: Draw, positions: bool) -> StackedRows:
    """Row law, uniform: Floyd's algorithm, or independent draws with replacement."""
    stream, degrees = _row_streams(A, Q, draw)
    if draw.replace:
        offsets = [_uniform_with_replacement(stream(r), int(d), draw.size) for r, d in enumerate(degrees)]
    else:
        offsets = [floyd(stream(r), int(d), draw.size) for r, d in enumerate(degrees)]
    return _gather(A, Q, offsets, positions)


def sample_rows_weighted(
    A: Matrix,
    Q: StackedSelector,
    draw: Draw,
    positions: bool,
    weights: bool = False,
    rules: NDArray[np.int16] | None = None,
) -> StackedRows:
    """Row law, weighted: ITS over the row's entries. `rules` is left alone."""
    data = cast("FloatArray", A.data)
    stream, _ = _row_streams(A, Q, draw)
    offsets = []
    for r, vertex in enumerate(Q.vertices):
        numerators = row_rule_numerators(data[A.indptr[vertex] : A.indptr[vertex + 1]])
        if draw.replace:
            offsets.append(its_with_replacement(stream(r), numerators, draw.size))
        else:
            offsets.append(first_distinct(stream(r), numerators, draw.size))
    rows = _gather(A, Q, offsets, True)
    return rows._replace(
        positions=rows.positions if positions else None, weights=data[rows.positions] if weights else None
    )


def sample_rows_scaled(
    A: Matrix,
    Q: StackedSelector,
    draw: Draw,
    scale: ColumnScale,
    positions: bool,
    ranks: NDArray[np.uint32] | None = None,
) -> StackedRows:
    """Row law, weighted by A D. `ranks` is left alone."""
    data = np.ones(len(A.indices), np.float32) if A.data is None else A.data
    num_columns = len(A.indptr) - 1 if A.num_columns is None else A.num_columns
    with np.errstate(over="ignore"):
        scaled = (data * scale.factors(num_columns)[A.indices]).astype(data.dtype)
    if any(not np.isfinite(scaled[A.indptr[v] : A.indptr[v + 1]]).all() for v in np.unique(Q.vertices)):
        raise scale_error(scale.factor)
    return sample_rows_weighted(A._replace(data=scaled, row_normalized=False), Q, draw, positions)


def entry_ranks(A: Matrix, scale: ColumnScale) -> NDArray[np.uint32]:
    """A bit for each entry, 32 in a number, and how many of those before each number are set."""
    groups = len(A.indices) // 32 + 16
    is_scaled = np.zeros(32 * groups, np.bool_)
    is_scaled[: len(A.indices)] = scale.has(A.indices)
    before = np.cumsum(is_scaled, dtype=np.uint32)[::32] - is_scaled[::32]
    bits = np.packbits(is_scaled, bitorder="little").view("<u4")
    return np.concatenate([bits, before]).astype(np.uint32)


def take_rows(A: Matrix, Q: StackedSelector, positions: bool) -> StackedRows:
    """Whole rows."""
    return _gather(A, Q, [np.arange(A.indptr[v + 1] - A.indptr[v]) for v in Q.vertices], positions)


def take_rows_numbered(
    A: Matrix, Q: StackedSelector, known: StackedSelector, positions: bool, include_targets: bool
) -> tuple[StackedRows, Compaction]:
    """Whole rows, and their columns numbered after the `known` vertices."""
    rows = take_rows(A, Q, positions)
    return rows, compact(known, rows.entry_ptr, rows.columns, include_targets)


def floyd(stream: Stream, degree: int, size: int) -> Int64Array:
    """Floyd's choice of `size` of `degree` positions, in the order drawn; all of them where size >= degree."""
    if degree <= size:
        return np.arange(degree, dtype=np.int64)
    j = np.arange(size)
    last = degree - size + j
    drawn = stream.integers(j, last + 1, degree > NARROW_LIMIT).tolist()
    chosen: list[int] = []
    for t, top in zip(drawn, last.tolist(), strict=True):
        chosen.append(top if t in chosen else t)
    return np.array(chosen, np.int64)


def _uniform_with_replacement(stream: Stream, degree: int, size: int) -> Int64Array:
    if degree == 0:
        return np.zeros(0, np.int64)
    return stream.integers(np.arange(size), degree, degree > NARROW_LIMIT).astype(np.int64)


def its(numerators: UInt64Array, x: UInt64Array) -> Int64Array:
    """Inverse transform sampling: the first outcome whose inclusive prefix sum exceeds x.

    Examples
    --------
    >>> its(np.array([2, 0, 1], np.uint64), np.array([0, 1, 2], np.uint64)).tolist()
    [0, 0, 2]
    """
    return np.searchsorted(np.cumsum(numerators, dtype=np.uint64), x, side="right").astype(np.int64)


def its_with_replacement(stream: Stream, numerators: UInt64Array, size: int) -> Int64Array:
    """`size` independent draws; none where the total is 0."""
    total = int(numerators.sum(dtype=np.uint64))
    if total == 0:
        return np.zeros(0, np.int64)
    return its(numerators, stream.integers(np.arange(size), total, total > NARROW_LIMIT))


def first_distinct(stream: Stream, numerators: UInt64Array, size: int) -> Int64Array:
    """The first `size` distinct outcomes of draws 0, 1, 2, ..., in rounds; the support where it is no larger."""
    support = np.flatnonzero(numerators)
    if len(support) <= size:
        return support.astype(np.int64)
    wide = int(numerators.sum(dtype=np.uint64)) > NARROW_LIMIT
    remaining = numerators.copy()
    chosen: dict[int, None] = {}
    first = 0
    while len(chosen) < size:
        j = np.arange(first, first + ROUND_DRAWS * size)
        x = stream.integers(j, int(remaining.sum(dtype=np.uint64)), wide)
        chosen.update(dict.fromkeys(its(remaining, x).tolist()))
        remaining[list(chosen)] = 0
        first += ROUND_DRAWS * size
    return np.array(list(chosen)[:size], np.int64)


def _row_streams(A: Matrix, Q: StackedSelector, draw: Draw) -> tuple[Callable[[int], Stream], Int64Array]:
    """The stream of each stacked row, and the rows' numbers of entries."""
    batch = np.repeat(Q.batch_ids, np.diff(Q.batch_ptr))
    vertices = Q.vertices if A.ids is None else A.ids[Q.vertices]
    degrees = A.indptr[Q.vertices.astype(np.int64) + 1] - A.indptr[Q.vertices]

    def stream(r: int) -> Stream:
        return Stream(draw.key, int(vertices[r]), draw.hop, int(batch[r]))

    return stream, degrees


def _gather(A: Matrix, Q: StackedSelector, offsets: list[Int64Array], positions: bool) -> StackedRows:
    """Stack the rows whose drawn entries have the given offsets within the row."""
    where = [A.indptr[v] + o for v, o in zip(Q.vertices, offsets, strict=True)]
    flat = np.concatenate([*where, np.zeros(0, np.int64)]).astype(np.int64)
    return stack_rows(
        Q.batch_ptr, np.array([len(o) for o in offsets], np.int64), A.indices[flat], flat if positions else None
    )
