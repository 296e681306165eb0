"""Many independent draws in one call: k batches with the same seeds, which only their batch ids tell apart."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from spsample import Graph
from spsample.backends import Backend, ColumnMatrix, ColumnSample, Draw, Matrix
from spsample.sparse import LocalOperand, RowSelector, derive_key, its_sample, normalize_rows, pattern
from spsample.sparse.keys import SAMPLING

KEY = derive_key(20_240_607, 0, SAMPLING)


def require(condition: bool, message: str) -> None:
    """Raise AssertionError where a sample has not even the right form."""
    if not condition:
        raise AssertionError(message)


def operand(graph: Graph, backend: Backend) -> LocalOperand:
    """The graph as the algebra sees it, worked on by any backend object (also one with a planted fault)."""
    local = graph.operand("reference")
    return LocalOperand(local.matrix, local.edge_ids, backend)


def hub(degree: int, weights: Sequence[float] | None = None) -> Graph:
    """Vertex 0 has in-neighbours 0 .. degree - 1, so that an entry's column is its position; nobody else has any."""
    n = max(degree, 1)
    data = None if weights is None else np.asarray(weights, np.float64)
    return Graph(np.array([0] + [degree] * n), np.arange(degree, dtype=np.int32), data)


def repeated(frontier: Sequence[int], draws: int, first_batch: int = 0) -> RowSelector:
    """Q of `draws` batches that all select the same rows."""
    size = len(frontier)
    vertices = np.tile(np.asarray(frontier, np.int32), draws)
    return RowSelector(
        np.arange(draws + 1, dtype=np.int64) * size, vertices, first_batch + np.arange(draws, dtype=np.int64)
    )


def row_draws(A: LocalOperand, Q: RowSelector, draw: Draw, uniform: bool = False) -> np.ndarray:
    """(m, s) positions within the row of each drawn entry of each stacked row (row law), which must be s each."""
    product = Q @ (pattern(A) if uniform else A)
    entries = its_sample(normalize_rows(product), draw, edge_ids=True)
    m = len(Q.vertices)
    require(entries.rows.entry_ptr[-1] % max(m, 1) == 0, "rows of unequal size were drawn")
    positions = entries.edge_ids.reshape(m, -1) - A.matrix.indptr[Q.vertices][:, None]
    require(positions.shape[1] == draw.size, f"{positions.shape[1]} entries were drawn from a row, not {draw.size}")
    require(np.array_equal(A.matrix.indices[entries.edge_ids], entries.rows.columns), "positions and columns differ")
    if not draw.replace:
        ordered = np.sort(positions, axis=1)
        require(bool((ordered[:, 1:] > ordered[:, :-1]).all()), "an entry was drawn twice without replacement")
    return positions


def column_draws(P: Any, draw: Draw) -> np.ndarray:
    """(k, s) columns drawn for each batch (entry or column law), repeats repeated, in order of first appearance."""
    return sample_rows_of(its_sample(normalize_rows(P), draw), draw)


def sample_rows_of(sample: ColumnSample, draw: Draw) -> np.ndarray:
    """A ColumnSample as one row of s columns per batch."""
    k = len(sample.totals)
    lengths = np.diff(np.concatenate([[0], np.cumsum(sample.counts)])[sample.indptr])
    require(bool((lengths == draw.size).all()), "a batch has not as many draws as were asked for")
    require(draw.replace or bool((sample.counts == 1).all()), "a column was drawn twice without replacement")
    columns = np.repeat(sample.columns, sample.counts).reshape(k, draw.size)
    if not draw.replace:
        ordered = np.sort(columns, axis=1)
        require(bool((ordered[:, 1:] > ordered[:, :-1]).all()), "a column was drawn twice without replacement")
    return columns


def numerator_draws(backend: Backend, numerators: Sequence[int], draws: int, draw: Draw) -> np.ndarray:
    """(draws, s) columns drawn from explicit numerators, in `draws` batches (column law)."""
    N = np.array(numerators, np.uint64)
    columns = np.flatnonzero(N).astype(np.int64)
    size = len(columns)
    P = ColumnMatrix(
        np.arange(draws + 1, dtype=np.int64) * size,
        np.tile(columns, draws),
        np.tile(N[columns], draws),
        np.full(draws, N.sum(dtype=np.uint64)),
    )
    return sample_rows_of(backend.draw_columns(P, np.arange(draws, dtype=np.int64), draw), draw)


def shared_draws(backend: Backend, numerators: Sequence[int], draws: int, draw: Draw) -> np.ndarray:
    """The same through `draw_shared`, whose row holds columns of numerator 0 too."""
    cumulative = np.cumsum(np.array(numerators, np.uint64), dtype=np.uint64)
    return sample_rows_of(backend.draw_shared(cumulative, np.arange(draws, dtype=np.int64), draw), draw)


def virtual_row(degree: int) -> Matrix:
    """A row of any length whose entries all lie in column 0: pages of zeros, never written, that take no memory."""
    no_reserve = 0x4000 if sys.platform == "linux" else 0  # MAP_NORESERVE: not counted against the memory there is
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    indices = np.frombuffer(mmap.mmap(-1, 4 * degree, flags=flags, prot=mmap.PROT_READ), np.int32)
    return Matrix(np.array([0, degree], np.int64), indices)
