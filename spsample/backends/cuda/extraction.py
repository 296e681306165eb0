"""EXTRACT of layer-wise samples: the entries of selected rows whose columns are in their batch's src."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from spsample.backends.cuda.device import CHUNK, SHARE_OF_FREE, WARP, Kernel, chunk_kernel, chunks_of
from spsample.backends.cuda.launcher import KernelLauncher, StackedPointers, index_variant
from spsample.backends.protocol import Int64Array, IntArray, Matrix, StackedRows, StackedSelector

INSERT = Kernel("extraction", "insert_sources")
MARK = chunk_kernel("extraction", "mark_members")
COUNT = Kernel("extraction", "count_kept")
WRITE = chunk_kernel("extraction", "write_members")

SLOTS_PER_COLUMN = 4
PLACE_BYTES = 4
ENTRIES_PER_BYTE = 5
"""A bit for each entry of the frontier, and two counts for each chunk of them."""


class Membership(NamedTuple):
    """What is asked: rows Q of A, restricted to the src columns of their batches."""

    A: Matrix
    Q: StackedSelector
    src_ptr: Int64Array
    src: IntArray

    def of_batches(self, first: int, last: int) -> Membership:
        """What is asked of batches first .. last - 1 alone."""
        batch_ptr, src_ptr = self.Q.batch_ptr[first : last + 1], self.src_ptr[first : last + 1]
        vertices = self.Q.vertices[int(batch_ptr[0]) : int(batch_ptr[-1])]
        Q = StackedSelector(batch_ptr - batch_ptr[0], vertices, self.Q.batch_ids[first:last])
        return Membership(self.A, Q, src_ptr - src_ptr[0], self.src[int(src_ptr[0]) : int(src_ptr[-1])])


class ExtractionKernels(KernelLauncher):
    """`extract`."""

    def extract(
        self, A: Matrix, Q: StackedSelector, src_ptr: Int64Array, src: IntArray, positions: bool = True
    ) -> StackedRows:
        """Rows Q of A restricted to each batch's src columns: local ids, A's order, positions where asked for.

        Waits twice, for the size of the frontier and for that of the result; for each group of batches, where the
        frontier is too large to be looked at at once.
        """
        return self._extracted(Membership(A, Q, src_ptr, src), positions)

    def _extracted(self, asked: Membership, positions: bool) -> StackedRows:
        A, Q = asked.A, asked.Q
        frontier = self.stacked_at(Q.batch_ptr, self.row_ends(A, Q, -1, False))
        per_source = SLOTS_PER_COLUMN * (A.indices.dtype.itemsize + PLACE_BYTES)
        needed = frontier.entry_ptr // ENTRIES_PER_BYTE + per_source * asked.src_ptr
        groups = fitting_groups(needed, self.device.free_bytes() // SHARE_OF_FREE)
        if len(groups) <= 1:
            return self._restricted(asked, frontier, positions)
        return self._joined(Q, [self._extracted(asked.of_batches(*group), positions) for group in groups])

    def _restricted(self, asked: Membership, frontier: StackedPointers, positions: bool) -> StackedRows:
        """The entries of one group of batches: marked, counted and written."""
        A, Q, variant = asked.A, asked.Q, index_variant(asked.A.indices)
        arguments = (*self.matrix(A), *self.selector(Q), *self._tables(asked), frontier.ends, frontier.total)
        chunks = chunks_of(frontier.total)
        bits = self.device.empty(chunks * (CHUNK // WARP), np.uint32)
        counts, chunk_ends = (self.device.empty(chunks, np.int64) for _ in range(2))
        self.run(MARK, chunks, *arguments, bits, counts, variant=variant)
        self.device.cumsum(counts, chunk_ends)
        m = len(Q.vertices)
        ends = self.device.empty(m + 1, np.int64)
        self.run(COUNT, m + 1, frontier.ends, m, bits, chunk_ends, ends, variant=variant)
        kept = self.stacked_at(Q.batch_ptr, ends)
        local = self.device.empty(kept.total, A.indices.dtype)
        where = self.device.empty(kept.total, np.int64) if positions else None
        work = chunks if kept.total else 0
        self.run(WRITE, work, *arguments, bits, chunk_ends, local, where, variant=variant)
        return StackedRows(Q.batch_ptr, kept.entry_ptr, kept.indptr, local, where)

    def _tables(self, asked: Membership) -> tuple[Any, ...]:
        """Parameters of the batches' src columns as hash tables, filled."""
        dtype = asked.A.indices.dtype
        src_ptr, slots = self.uploaded(asked.src_ptr), SLOTS_PER_COLUMN * len(asked.src)
        tables = (src_ptr, self.device.full(slots, -1, dtype), self.device.full(slots, 2**32 - 1, np.uint32))
        src = asked.src if asked.src.dtype == dtype else asked.src.astype(dtype)
        self.run(INSERT, len(src), *tables, len(asked.src_ptr) - 1, src, variant=index_variant(src))
        return tables

    def _joined(self, Q: StackedSelector, groups: list[StackedRows]) -> StackedRows:
        """The stacked rows of consecutive groups of the batches of Q."""
        ends = np.cumsum([0, *(int(group.entry_ptr[-1]) for group in groups)])
        entry_ptr = [group.entry_ptr[1:] + end for group, end in zip(groups, ends[:-1], strict=True)]
        where = [group.positions for group in groups if group.positions is not None]
        return StackedRows(
            Q.batch_ptr,
            np.concatenate([np.zeros(1, np.int64), *entry_ptr]),
            self.device.concatenate([group.indptr for group in groups]),
            self.device.concatenate([group.columns for group in groups]),
            self.device.concatenate(where) if where else None,
        )


def fitting_groups(needed: Int64Array, most: int) -> list[tuple[int, int]]:
    """Consecutive batches that need at most `most` together, or one that needs more; `needed` (k + 1,) are sums.

    Examples
    --------
    >>> fitting_groups(np.array([0, 3, 5, 12, 13]), 6)
    [(0, 2), (2, 3), (3, 4)]
    """
    groups, first, k = [], 0, len(needed) - 1
    while first < k:
        last = int(np.searchsorted(needed, needed[first] + most, side="right")) - 1
        last = max(min(last, k), first + 1)
        groups.append((first, last))
        first = last
    return groups
