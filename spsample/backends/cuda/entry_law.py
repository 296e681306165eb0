"""The entry law, and the counts and entries of which it is composed where rows lie elsewhere."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.backends.cuda.device import BLOCK, DeviceArray, Kernel
from spsample.backends.cuda.distinct_draws import SHARE_OF_SCRATCH, DistinctDraws, Drawn, State
from spsample.backends.cuda.launcher import index_variant, num_columns
from spsample.backends.cuda.sources import Variant
from spsample.backends.protocol import ColumnSample, Draw, Int64Array, Matrix, StackedSelector

COUNT = Kernel("entry_law", "count_entries")
EXCLUDE = Kernel("entry_law", "exclude_columns")
MARK_LEFT = Kernel("entry_law", "mark_left", lanes=32)
COUNT_LEFT = Kernel("entry_law", "count_left")
LOCATE = Kernel("entry_law", "locate")
WEIGH = Kernel("entry_law", "weigh_rows")
BEGIN = Kernel("entry_law", "begin_entries", lanes=BLOCK)
ROUND = Kernel("entry_law", "draw_round", lanes=BLOCK)

OUTCOME_BYTES = 16


class _Left(NamedTuple):
    """The entries of the stacked rows that count, as kernels take them; all of them without masks."""

    ends: DeviceArray
    masks: DeviceArray | None = None
    ranks: DeviceArray | None = None


class _Excluded(NamedTuple):
    """Columns of k batches: `indptr` and `begins` (on the host) say how many each has and where they begin."""

    indptr: Int64Array
    begins: Int64Array
    columns: DeviceArray


class _Frontier(NamedTuple):
    """The rows, numerators and draw that the draws are made from."""

    A: Matrix
    Q: StackedSelector
    numerators: DeviceArray | None
    draw: Draw


class EntryLawKernels(DistinctDraws):
    """`entry_counts`, `locate` and `draw_entries`."""

    def entry_counts(self, A: Matrix, Q: StackedSelector, exclude: ColumnSample | None) -> DeviceArray:
        """(m,) number of entries of each selected row whose column its batch does not exclude. Waits once if any."""
        lengths = self._row_lengths(A, Q)
        if exclude is None:
            return lengths
        left = self._entries_left(A, Q, self._entry_ends(lengths), _of_sample(exclude))
        self.run(COUNT_LEFT, len(lengths), *left, len(lengths), lengths)
        return lengths

    def locate(
        self, A: Matrix, Q: StackedSelector, rows: DeviceArray, offsets: DeviceArray, exclude: ColumnSample | None
    ) -> DeviceArray:
        """Column of the `offsets[j]`-th entry that is not excluded of the stacked row `rows[j]`. Waits once if any."""
        left = _Left(self.device.empty(0, np.int64))
        if exclude is not None:
            left = self._entries_left(A, Q, self._entry_ends(self._row_lengths(A, Q)), _of_sample(exclude))
        columns = self.device.empty(len(rows), A.indices.dtype)
        arguments = (*self.matrix(A), *self.selector(Q), *left, len(rows), rows, offsets, columns)
        self.run(LOCATE, len(rows), *arguments, variant=index_variant(A.indices))
        return columns

    def draw_entries(self, A: Matrix, Q: StackedSelector, numerators: DeviceArray | None, draw: Draw) -> ColumnSample:
        """Entry law; `numerators` (m,) uint64 is q of each selected row, None for 1.

        Waits once, and once more for each round of redraws.
        """
        frontier = _Frontier(A, Q, numerators, draw)
        lengths = self._row_lengths(A, Q, numerators)
        ends = self._entry_ends(lengths)
        drawn = self.drawn_room(self._entry_room(frontier, lengths), draw.replace)
        prefix = self._frontier_prefix(frontier, _Left(ends))
        tables = self.drawn_tables(len(Q.batch_ids), int(np.diff(drawn.host_ptr).max(initial=0)))
        entries = (*self.matrix(A), *self.selector(Q))
        out = (*tables.parameters, drawn.ptr, drawn.outcomes, drawn.state)
        blocks = min(tables.blocks, len(Q.batch_ids))
        arguments = (*entries, draw.size, draw.replace, ends, prefix, *out)
        self.run(BEGIN, blocks, *arguments, variant=index_variant(A.indices))
        self._entry_round(frontier, (_Left(ends), prefix), 0, drawn)
        state = self.drawn_state(drawn)
        number = 0
        while not draw.replace and (unfinished := _unfinished(state, draw.size)).any():
            number += 1
            state = self._redraw_entries(frontier, unfinished, number, drawn, state)
        return self.drawn_sample(drawn, state, A.indices.dtype)

    def _redraw_entries(
        self, frontier: _Frontier, unfinished: NDArray[np.bool_], number: int, drawn: Drawn, state: State
    ) -> State:
        """One more round for the unfinished batches, from the entries whose columns they have not drawn."""
        A, Q, numerators, _ = frontier
        active = self.device.to_device(unfinished.astype(np.int64))
        ends = self._entry_ends(self._row_lengths(A, Q, numerators, active))
        found = np.where(unfinished, state.found, 0)
        chosen = _Excluded(_pointers(found), drawn.host_ptr, drawn.outcomes)
        left = self._entries_left(A, Q, ends, chosen, int(state.entries[unfinished].sum()))
        self._entry_round(frontier, (left, self._frontier_prefix(frontier, left)), number, drawn)
        return self.drawn_state(drawn)

    def _entry_round(self, frontier: _Frontier, rows: tuple[_Left, DeviceArray], number: int, drawn: Drawn) -> None:
        A, Q, numerators, draw = frontier
        left, prefix = rows
        tables = self.drawn_tables(len(Q.batch_ids), int(np.diff(drawn.host_ptr).max(initial=0)))
        entries = (*self.matrix(A), *self.selector(Q), *self.draw(draw), *left, numerators, prefix, number)
        out = (*tables.parameters, drawn.ptr, drawn.outcomes, drawn.counts, drawn.state)
        blocks = min(tables.blocks, len(Q.batch_ids))
        self.run(ROUND, blocks, *entries, *out, variant=index_variant(A.indices))

    def _entry_room(self, frontier: _Frontier, lengths: DeviceArray) -> Int64Array:
        """Most columns that each batch can draw: of all columns, or, if that takes much memory, of its entries."""
        A, Q, _, draw = frontier
        room = np.full(len(Q.batch_ids), min(draw.size, num_columns(A)), np.int64)
        if OUTCOME_BYTES * int(room.sum()) <= self.device.scratch_bytes() // SHARE_OF_SCRATCH:
            return room
        return np.minimum(room, np.diff(self.stacked(Q.batch_ptr, lengths).entry_ptr))

    def _row_lengths(
        self,
        A: Matrix,
        Q: StackedSelector,
        numerators: DeviceArray | None = None,
        active: DeviceArray | None = None,
    ) -> DeviceArray:
        """(m,) entries of each selected row: 0 where its numerator is 0 or its batch not active."""
        lengths = self.device.empty(len(Q.vertices), np.int64)
        arguments = (*self.matrix(A), *self.selector(Q), numerators, active, lengths)
        self.run(COUNT, len(lengths), *arguments, variant=index_variant(A.indices))
        return lengths

    def _entry_ends(self, lengths: DeviceArray) -> DeviceArray:
        """(m + 1,) where each row's entries begin among all."""
        ends = self.ends_of(lengths)
        return ends

    def _frontier_prefix(self, frontier: _Frontier, left: _Left) -> DeviceArray:
        """(m,) inclusive sums of the rows' totals, which wrap."""
        m = len(frontier.Q.vertices)
        totals, prefix = self.device.empty(m, np.uint64), self.device.empty(m, np.uint64)
        self.run(WEIGH, m, *left, m, frontier.numerators, totals)
        self.device.cumsum(totals, prefix)
        return prefix

    def _entries_left(
        self, A: Matrix, Q: StackedSelector, ends: DeviceArray, excluded: _Excluded, entries: int | None = None
    ) -> _Left:
        """The entries whose columns are not excluded. Waits where their number is not known."""
        if entries is None:
            entries = int(self.device.to_host(ends[len(ends) - 1 :])[0])
        sets = self._excluded_sets(excluded)
        words = -(-entries // 32)
        masks, counts = self.device.empty(words, np.uint32), self.device.empty(words, np.uint32)
        arguments = (*self.matrix(A), *self.selector(Q), ends, *sets, masks, counts)
        self.run(MARK_LEFT, -(-words // 8), *arguments, variant=index_variant(A.indices))
        ranks = self.device.empty(words, np.uint64)
        self.device.cumsum(counts, ranks)
        return _Left(ends, masks, ranks)

    def _excluded_sets(self, excluded: _Excluded) -> tuple[Any, ...]:
        """Hash tables of the excluded columns, one for each batch: (pointers, keys)."""
        counts = np.diff(excluded.indptr)
        slots = np.left_shift(np.int64(2), np.frexp(counts.astype(np.float64))[1].astype(np.int64))
        pointers = _pointers(slots)
        device_pointers = self.device.to_device(pointers)
        keys = self.device.full(int(pointers[-1]), -1, np.int64)
        indptr, begins = self.device.to_device(excluded.indptr), self.device.to_device(excluded.begins)
        arguments = (len(counts), indptr, begins, excluded.columns, device_pointers, keys)
        variant = Variant(excluded.columns.dtype.name)
        self.run(EXCLUDE, int(excluded.indptr[-1]), *arguments, variant=variant)
        return (device_pointers, keys)


def _of_sample(sample: ColumnSample) -> _Excluded:
    return _Excluded(sample.indptr, sample.indptr, sample.columns)


def _unfinished(state: State, size: int) -> NDArray[np.bool_]:
    """Batches that have more columns than they have drawn so far."""
    unfinished: NDArray[np.bool_] = ~state.whole & (state.totals > 0) & (state.found < size)
    return unfinished


def _pointers(lengths: Int64Array) -> Int64Array:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
