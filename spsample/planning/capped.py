"""Sampling that stops before a bulk has more entries than it may."""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Draw
from spsample.backends.protocol import Int64Array
from spsample.sparse import Frontier, GraphOperand
from spsample.sparse.operand import EntryLimit
from spsample.sparse.probability import Weighting
from spsample.store.base_graph import BaseGraph


class TooManyEntriesError(Exception):
    """A bulk would have more entries than it may: sample it in parts."""


class CappedGraph(BaseGraph):
    """A graph from which a call draws at most `most_entries` entries; for one call."""

    def __init__(self, graph: BaseGraph, most_entries: int) -> None:
        self.inner = graph
        self._most_entries = most_entries

    @property
    def num_nodes(self) -> int:
        """Number of vertices."""
        return int(self.inner.num_nodes)

    @property
    def num_edges(self) -> int:
        """Number of entries of A."""
        return int(self.inner.num_edges)

    @property
    def weighting(self) -> Weighting:
        """What the values of A are."""
        return self.inner.weighting

    @property
    def index_dtype(self) -> np.dtype[np.signedinteger]:
        """Type of vertex ids."""
        return self.inner.index_dtype

    def row_sums(self) -> NDArray[np.float32]:
        """Sums of the rows."""
        return self.inner.row_sums()

    def operand(self, backend: str | None = None) -> GraphOperand:
        """A, with a limit."""
        A: GraphOperand = copy.copy(self.inner.operand(backend))
        A.limit = MostEntries(self._most_entries)
        return A


class MostEntries(EntryLimit):
    """Counts down, and stops a bulk that would make more entries than are left.

    Entries drawn from rows are counted before they are drawn: at most the size of the draw for each row, or exactly
    where that bound would pass. Those of an extraction are counted once they are made.
    """

    def __init__(self, most_entries: int) -> None:
        self._left = most_entries

    def check(self, frontier: Frontier, draw: Draw) -> None:
        """Refuse a draw that would make more entries than are left."""
        surely_fits = draw.size >= 0 and len(frontier.Q.vertices) * draw.size <= self._left
        if not surely_fits and _count(frontier, draw) > self._left:
            raise TooManyEntriesError

    def count(self, entries: int) -> None:
        """Refuse entries that are more than are left."""
        if entries > self._left:
            raise TooManyEntriesError
        self._left -= entries


def _count(frontier: Frontier, draw: Draw) -> int:
    """Entries that a draw makes (of weighted rows: at most)."""
    counts: Int64Array = frontier.row_totals.counts
    if draw.size >= 0:
        counts = draw.size * np.minimum(counts, 1) if draw.replace else np.minimum(counts, draw.size)
    of_batches, _ = frontier.A.backend.batch_totals(frontier.Q.batch_ptr, counts, frontier.row_totals.exponents)
    return int(of_batches.sum())
