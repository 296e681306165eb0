"""The `cpu` backend: the compiled kernels of `spsample._core` (C++17, threads) behind the backend protocol.

The core takes the protocol's tuples; the methods only pack what it returns. It brings pointers, vertices and numbers of
another type or layout into the form that it works on. What is drawn is said in `docs/law.md`; the kernels' source,
under `kernels/`, states sizes, order and complexity above each one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample import _core
from spsample.backends.arithmetic import draw_limit_error, overflow_error, scale_error
from spsample.backends.on_host import OnHost
from spsample.backends.protocol import (
    Array,
    ColumnMatrix,
    ColumnSample,
    ColumnScale,
    Compaction,
    Draw,
    Expansion,
    ExtractedLayer,
    FloatArray,
    GatheredRows,
    Int64Array,
    IntArray,
    Matrix,
    PartialSums,
    QuantisationRule,
    RoutedRows,
    StackedRows,
    StackedSelector,
    UInt64Array,
    UnbiasedExtraction,
    UnitedHops,
)
from spsample.backends.reference import quantisation, values


def _drawn(kernel: Callable[..., tuple[Any, ...]], *arguments: Any) -> tuple[Any, ...]:
    """The kernel's result; its message that the draw numbers ran out becomes the error of the law's section 1."""
    try:
        return kernel(*arguments)
    except _core.DrawLimitReached as error:
        raise draw_limit_error() from error


class CpuBackend(OnHost):
    """Compiled kernels on the CPU; every method is as in `spsample.backends.protocol.Backend`.

    The number of threads is ``OMP_NUM_THREADS`` (or, for calls from the thread that calls it,
    `spsample._core.set_num_threads`); no result depends on it. It is 1 in a process made by ``os.fork``, which
    threads do not survive.

    Examples
    --------
    >>> import numpy as np
    >>> from spsample.backends.cpu import CpuBackend
    >>> words = CpuBackend().philox(np.zeros((1, 4), dtype=np.uint32), (0, 0))
    >>> [hex(word) for word in words[0].tolist()]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """

    @property
    def name(self) -> str:
        """Name by which users choose the backend."""
        return "cpu"

    # --- random ------------------------------------------------------------------------------------------------------
    def philox(self, counters: NDArray[np.uint32], key: tuple[int, int]) -> NDArray[np.uint32]:
        """Philox4x32-10 of each row of `counters` (r, 4) -> (r, 4)."""
        words: NDArray[np.uint32] = _core.philox(counters, *key)
        return words

    def shuffle(self, count: int, key: tuple[int, int]) -> Int64Array:
        """Positions 0 .. count-1 sorted by their 64-bit word (law, section 5)."""
        order: Int64Array = _core.shuffle(count, *key)
        return order

    # --- quantisation ------------------------------------------------------------------------------------------------
    def row_exponents(self, A: Matrix) -> NDArray[np.int32]:
        """Per row the largest binary exponent (`frexp`) of its positive entries, or `NO_EXPONENT`."""
        exponents: NDArray[np.int32] = _core.row_exponents(A.indptr, A.data, bool(A.row_normalized))
        return exponents

    batch_statistics = staticmethod(quantisation.batch_statistics)

    row_numerators = staticmethod(quantisation.row_numerators)

    # --- row_law -----------------------------------------------------------------------------------------------------
    def sample_rows_uniform(self, A: Matrix, Q: StackedSelector, draw: Draw, positions: bool) -> StackedRows:
        """Row law, uniform: the drawn entries' columns (global ids) of each selected row."""
        return StackedRows(Q.batch_ptr, *_core.sample_rows_uniform(A, Q, draw, bool(positions)))

    def sample_rows_weighted(
        self,
        A: Matrix,
        Q: StackedSelector,
        draw: Draw,
        positions: bool,
        weights: bool = False,
        rules: NDArray[np.int16] | None = None,
    ) -> StackedRows:
        """Row law, weighted by `A.data` (not None) under the row rule."""
        return StackedRows(
            Q.batch_ptr, *_drawn(_core.sample_rows_weighted, A, Q, draw, bool(positions), bool(weights), rules)
        )

    def sample_rows_scaled(
        self,
        A: Matrix,
        Q: StackedSelector,
        draw: Draw,
        scale: ColumnScale,
        positions: bool,
        ranks: NDArray[np.uint32] | None = None,
    ) -> StackedRows:
        """Row law on A D: by ranks, or by scaled weights that are made as a row is made ready."""
        arguments = (A, Q, draw, bool(positions), scale.members, float(scale.factor))
        try:
            if A.data is None:
                drawn = _drawn(_core.sample_rows_scaled_pattern, *arguments, ranks)
            else:
                drawn = _drawn(_core.sample_rows_scaled, *arguments)
        except OverflowError as error:
            raise scale_error(scale.factor) from error
        return StackedRows(Q.batch_ptr, *drawn)

    def entry_ranks(self, A: Matrix, scale: ColumnScale) -> NDArray[np.uint32]:
        """A bit for each entry, 32 in a number, and how many of those before each number are set."""
        ranks: NDArray[np.uint32] = _core.entry_ranks(A.indices, scale.members)
        return ranks

    def take_rows(self, A: Matrix, Q: StackedSelector, positions: bool) -> StackedRows:
        """Whole rows, all entries, in A's order (fanout -1)."""
        return StackedRows(Q.batch_ptr, *_core.take_rows(A.indptr, A.indices, *Q, bool(positions)))

    def take_rows_numbered(
        self, A: Matrix, Q: StackedSelector, known: StackedSelector, positions: bool, include_targets: bool
    ) -> tuple[StackedRows, Compaction]:
        """`take_rows` and `compact` in one: the columns are never written out as vertices."""
        taken, src_ptr, src = _core.take_rows_numbered(
            A, Q, known.batch_ptr, known.vertices, positions, include_targets
        )
        rows = StackedRows(Q.batch_ptr, *taken)
        return rows, Compaction(src_ptr, src, rows.columns)

    def sample_hops(self, A: Matrix, Q: StackedSelector, draws: Sequence[Draw], positions: bool) -> UnitedHops:
        """`sample_rows_uniform` and `compact` for each draw, from the vertices that the one before found."""
        return UnitedHops(*_core.sample_hops(A, Q, list(draws), positions))

    # --- entry_law ---------------------------------------------------------------------------------------------------
    def entry_counts(self, A: Matrix, Q: StackedSelector, exclude: ColumnSample | None) -> Int64Array:
        """(m,) number of entries of each selected row whose column is not in its batch's `exclude`."""
        totals: Int64Array = _core.entry_counts(A, Q, exclude)
        return totals

    def locate(
        self,
        A: Matrix,
        Q: StackedSelector,
        rows: Int64Array,
        offsets: Int64Array,
        exclude: ColumnSample | None,
    ) -> IntArray:
        """Column of the `offsets[j]`-th entry outside the excluded columns of the stacked row `rows[j]`."""
        columns: IntArray = _core.locate(A, Q, rows, offsets, exclude)
        return columns

    def draw_entries(self, A: Matrix, Q: StackedSelector, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
        """Entry law; `numerators` (m,) uint64 is q of each selected row, None for 1."""
        return ColumnSample(*_drawn(_core.draw_entries, A, Q, numerators, draw))

    # --- column_law --------------------------------------------------------------------------------------------------
    def column_totals(self, A: Matrix, rule: QuantisationRule) -> UInt64Array:
        """(n,) numerators of the graph rule: column sums over all rows of A."""
        totals: UInt64Array = _core.column_totals(A, rule)
        return totals

    def merge_columns(self, A: Matrix, Q: StackedSelector, rule: QuantisationRule) -> ColumnMatrix:
        """Q A with one row per batch: numerators summed by column, to `column_power`; zeros left out."""
        return ColumnMatrix(*_core.merge_columns(A, Q, rule))

    def add_columns(self, pieces: Sequence[PartialSums], num_columns: int, column_power: int) -> ColumnMatrix:
        """The result of `merge_columns` for all rows of A, from the sums of its parts."""
        return ColumnMatrix(*_core.add_columns(pieces, num_columns, column_power))

    def draw_columns(self, P: ColumnMatrix, batch_ids: Int64Array, draw: Draw) -> ColumnSample:
        """Column law on the k rows of P."""
        return ColumnSample(*_drawn(_core.draw_columns, P, batch_ids, draw))

    def draw_merged(self, A: Matrix, Q: StackedSelector, rule: QuantisationRule, draw: Draw) -> ColumnSample:
        """Column law on Q A, merged and drawn from batch by batch."""
        return ColumnSample(*_drawn(_core.draw_merged, A, Q, rule, draw))

    def shared_guide(self, cumulative: UInt64Array) -> IntArray:
        """Guide table of inclusive prefix sums."""
        guide: IntArray = _core.shared_guide(cumulative)
        return guide

    def draw_shared(
        self, cumulative: UInt64Array, batch_ids: Int64Array, draw: Draw, guide: IntArray | None = None
    ) -> ColumnSample:
        """Column law where every batch draws from one row over all n columns, given its prefix sums."""
        table = self.shared_guide(cumulative) if guide is None else guide
        return ColumnSample(*_drawn(_core.draw_shared, cumulative, table, batch_ids, *draw.key, *draw[1:]))

    def shared_numerators(self, cumulative: UInt64Array, columns: IntArray) -> UInt64Array:
        """N of these columns of that row."""
        numerators: UInt64Array = _core.shared_numerators(cumulative, columns)
        return numerators

    # --- compaction --------------------------------------------------------------------------------------------------
    def compact(
        self,
        Q: StackedSelector,
        entry_ptr: Int64Array,
        columns: IntArray,
        include_targets: bool,
        num_vertices: int | None = None,
    ) -> Compaction:
        """src of each batch: its Q vertices first (`include_targets`), then its other columns ascending."""
        local = columns if columns.flags.carray else columns.copy()
        src_ptr, src = _core.compact(Q.batch_ptr, Q.vertices, entry_ptr, local, bool(include_targets))
        return Compaction(src_ptr, src, local)

    # --- extraction --------------------------------------------------------------------------------------------------
    def extract(
        self, A: Matrix, Q: StackedSelector, src_ptr: Int64Array, src: IntArray, positions: bool = True
    ) -> StackedRows:
        """Rows Q of A restricted to each batch's src columns: local ids, A's order, positions where asked for."""
        return StackedRows(Q.batch_ptr, *_core.extract(A, Q, src_ptr, src, bool(positions)))

    def extract_unbiased(
        self,
        A: Matrix,
        Q: StackedSelector,
        sample: ColumnSample,
        numerators: UInt64Array | QuantisationRule,
        how: UnbiasedExtraction,
    ) -> tuple[Int64Array, IntArray, StackedRows, FloatArray]:
        """`compact`, `extract` and `unbiased_values` in one kernel."""
        found = _core.extract_unbiased(A, Q, sample, numerators, how)
        src_ptr, src, entry_ptr, indptr, columns, positions, values, overflowed = found
        rows = StackedRows(Q.batch_ptr, entry_ptr, indptr, columns, positions)
        if overflowed >= 0:
            raise overflow_error(A, rows, values, overflowed)
        return src_ptr, src, rows, values

    # --- values ------------------------------------------------------------------------------------------------------
    def extracted_numerators(
        self, A: Matrix, Q: StackedSelector, rows: StackedRows, src_ptr: Int64Array, rule: QuantisationRule
    ) -> UInt64Array:
        """N_v of every src column: column sums of the extracted entries' numerators, to `column_power`."""
        numerators: UInt64Array = _core.extracted_numerators(A, Q, rows, src_ptr, rule)
        return numerators

    def des_raj_weights(
        self, sample: ColumnSample, sources: Compaction, num_targets: Int64Array, numerators: UInt64Array
    ) -> NDArray[np.float64]:
        """(len(src),) c of every src column for a draw without replacement."""
        weights: NDArray[np.float64] = _core.des_raj_weights(sample, sources, num_targets, numerators)
        return weights

    def replacement_weights(
        self, sample: ColumnSample, sources: Compaction, num_targets: Int64Array, numerators: UInt64Array, size: int
    ) -> NDArray[np.float64]:
        """(len(src),) c of every src column for `size` draws with replacement."""
        weights: NDArray[np.float64] = _core.replacement_weights(sample, sources, num_targets, numerators, size)
        return weights

    def reference_weights(
        self, sample: ColumnSample, sources: Compaction, numerators: UInt64Array
    ) -> NDArray[np.float64]:
        """(len(src),) `T / (s' N)` of every src column, 0 where N is 0 or nothing was drawn."""
        weights: NDArray[np.float64] = _core.reference_weights(sample, sources, numerators)
        return weights

    own_weights = staticmethod(values.own_weights)

    def expansion_values(
        self, Q: StackedSelector, rows: StackedRows, sources: Compaction, own: FloatArray | None, how: Expansion
    ) -> FloatArray:
        """Weights of a sum over the rows of A, from a draw by the rows of A D."""
        scale, totals, by_own, replace = how
        of_scale = (scale.members, float(scale.factor), bool(replace))
        values: FloatArray = _core.expansion_values(
            Q, rows, sources, sources.src, totals.ravel(), own, bool(by_own), *of_scale
        )
        return values

    def entry_values(
        self,
        A: Matrix,
        Q: StackedSelector,
        rows: StackedRows,
        src_ptr: Int64Array,
        weights: FloatArray,
        normalize: bool,
    ) -> FloatArray:
        """`A_iv weights[v]` per extracted entry: binary64, optionally row-normalised, then rounded once."""
        values: FloatArray
        values, overflowed = _core.entry_values(A, Q, rows, src_ptr, weights, bool(normalize))
        if overflowed >= 0:
            raise overflow_error(A, rows, values, overflowed)
        return values

    def unbiased_values(
        self, layer: ExtractedLayer, numerators: UInt64Array | QuantisationRule, size: int, normalize: bool
    ) -> FloatArray:
        """`entry_values` with the weights of an unbiased estimate, in one kernel."""
        values: FloatArray
        values, overflowed = _core.unbiased_values(layer, numerators, size, bool(normalize))
        if overflowed >= 0:
            raise overflow_error(layer.A, layer.rows, values, overflowed)
        return values

    # --- stacking ----------------------------------------------------------------------------------------------------
    def interleave(self, parts: Sequence[Array], pointers: Sequence[Int64Array]) -> Array:
        """One array of several hops' stacked arrays, each batch's parts side by side."""
        out: Array = _core.interleave(list(parts), list(pointers))
        return out

    def appended(self, found_ptr: Int64Array, known_ptr: Int64Array, known: IntArray) -> tuple[Int64Array, IntArray]:
        """Pointers and ids of what stands behind the first `found` ones in each batch's `known` ids."""
        ptr, ids = _core.appended(found_ptr, known_ptr, known)
        return ptr, ids

    def interleave_pointers(self, parts: Sequence[Int64Array], pointers: Sequence[Int64Array]) -> Int64Array:
        """Row pointers over the rows of all hops that start at 0 in every batch."""
        out: Int64Array = _core.interleave_pointers(list(parts), list(pointers))
        return out

    def edge_index(self, indptr: Int64Array, indices: IntArray) -> Int64Array:
        """(2, entries) column and row of each entry of a CSR matrix."""
        edges: Int64Array = _core.edge_index(indptr, indices)
        return edges

    def widened(self, ids: IntArray) -> Int64Array:
        """The ids as int64, in memory of their own."""
        wide: Int64Array = _core.widened(ids)
        return wide

    def coordinates(
        self, matrices: Sequence[tuple[Int64Array, IntArray]], ids: IntArray
    ) -> tuple[list[Int64Array], Int64Array]:
        """`edge_index` of each of several CSR matrices, and `widened` of the ids, in one loop."""
        indptrs, indices = zip(*matrices, strict=True) if matrices else ((), ())
        edges, wide = _core.coordinates(indptrs, indices, ids)
        return edges, wide

    # --- routing -----------------------------------------------------------------------------------------------------
    def route_rows(self, Q: StackedSelector, bounds: Int64Array, position: IntArray | None = None) -> RoutedRows:
        """The rows of Q sorted by the part that owns them, each part's batch by batch and in Q's order."""
        return RoutedRows(*_core.route_rows(Q.batch_ptr, Q.vertices, bounds, position))

    def gather_rows(
        self, batch_ptr: Int64Array, places: IntArray, lengths: Array, entries: Sequence[Array]
    ) -> GatheredRows:
        """The way back: rows that lie in the order of `RoutedRows`, stacked in the order of Q."""
        entry_ptr, indptr, gathered = _core.gather_rows(batch_ptr, places, lengths, list(entries))
        return GatheredRows(entry_ptr, indptr, tuple(gathered))

    # --- spgemm ------------------------------------------------------------------------------------------------------
    def spgemm(
        self,
        A: tuple[Int64Array, IntArray, Array | None],
        B: tuple[Int64Array, IntArray, Array | None],
        num_columns: int,
    ) -> tuple[Int64Array, IntArray, Array]:
        """C = A B (CSR triples; the same dtype in both, None for ones): columns ascending, zeros kept."""
        index = np.result_type(A[1], B[1])
        left, right = ((indptr, np.asarray(indices, dtype=index), _unsigned(data)) for indptr, indices, data in (A, B))
        C_indptr, C_indices, C_data = _core.spgemm(*left, *right, num_columns)
        signed = any(data is not None and data.dtype == np.int64 for _, _, data in (A, B))
        return C_indptr, C_indices.astype(B[1].dtype, copy=False), C_data.view(np.int64) if signed else C_data

    def select_rows(
        self, A: tuple[Int64Array, IntArray, Array | None], rows: IntArray
    ) -> tuple[Int64Array, IntArray, Array | None]:
        """A[rows] as a CSR triple, entries in A's order."""
        data = None if A[2] is None else np.ascontiguousarray(A[2])
        data_bytes = None if data is None else data.view(np.uint8)
        item_size = 0 if data is None else data.dtype.itemsize
        indptr, indices, selected = _core.select_rows(A[0], A[1], data_bytes, item_size, rows)
        return indptr, indices, None if data is None else selected.view(data.dtype)


def _unsigned(data: Array | None) -> Array | None:
    """int64 as uint64, whose products and sums have the same bits: both wrap around. Else unchanged."""
    return data.view(np.uint64) if data is not None and data.dtype == np.int64 else data
