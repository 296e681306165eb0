"""Protocol of a backend: the kernels of the sampling algebra over plain arrays.

A backend sees plain arrays only; it knows no graph class, no sampler and no rank. They are NumPy arrays, but where the
backend computes on a device: there arrays with an element per row, column or entry are device arrays, which `to_device`
makes, and only those with an element per batch (pointers, batch ids, totals) are NumPy's: `PerBatch` marks them. All
methods are pure functions (what `sample_rows_weighted` notes in `rules` changes no result), and all backends return
equal bits (`docs/law.md`).
Shapes: n vertices, k batches stacked, m stacked rows (the vertices of all k frontiers, batch by batch). Index type:
int32 or int64, that of `Matrix.indices`; pointers int64; numerators uint64.

An operation has one name, which is that of its file in `backends/reference/`, `backends/cuda/`, `kernels/cpu/` and
`kernels/cuda/`; a large one has more files there, whose names begin with it (`row_law_weighted.cpp`).

============  ===============================================================================  =============
Operation     Methods                                                                          Law, sections
============  ===============================================================================  =============
random        `philox`, `shuffle`                                                              1, 5
quantisation  `row_exponents`, `batch_statistics`, `row_numerators`                                2
row_law       `sample_rows_uniform`, `sample_rows_weighted`, `sample_rows_scaled`,             3
              `entry_ranks`, `take_rows`, `take_rows_numbered`, `sample_hops`
entry_law     `entry_counts`, `locate`, `draw_entries`                                           3
column_law    `column_totals`, `merge_columns`, `add_columns`, `draw_columns`, `draw_merged`,  2, 3
              `shared_guide`, `draw_shared`, `shared_numerators`
compaction    `compact`                                                                        4
extraction    `extract`, `extract_unbiased`                                                    4, 6
values        `extracted_numerators`, `des_raj_weights`, `replacement_weights`,                2, 6
              `reference_weights`, `own_weights`, `entry_values`, `unbiased_values`,
              `expansion_values`
stacking      `interleave`, `appended`, `interleave_pointers`, `edge_index`, `widened`, `coordinates`
routing       `route_rows`, `gather_rows`
spgemm        `spgemm`, `select_rows`
============  ===============================================================================  =============

What several operations share has a name of its own: on the host `numbering.h`, `match.h`, `copy_runs.h`, `simd.h`, on a
device `chunks.h`, `entry_tiles.h`, `teams.h`, in both `distinct_draws.h`. What is done to one row, on the host and on a
device, is in `kernels/include/spsample`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
IntArray = NDArray[np.signedinteger]
Int64Array = NDArray[np.int64]
UInt64Array = NDArray[np.uint64]
FloatArray = NDArray[np.floating]

PER_BATCH = "an element per batch"
PER_GRAPH = "belongs to a graph"

_T = TypeVar("_T")
PerBatch = Annotated[_T, PER_BATCH]
"""An array with an element per batch (or one more): NumPy's in every backend. Others are where the kernels are."""

PerGraph = Annotated[_T, PER_GRAPH]
"""An array that a graph keeps from call to call: what copies arrays to a device copies it once."""

NO_EXPONENT = -(2**31)
"""Row exponent of a row without positive entries."""

UNKNOWN_RULE = -(2**15)
"""In an array of row rules: none is known."""


class Matrix(NamedTuple):
    """A as CSR, or a block of its rows: row = target, columns = in-neighbours, entries in the law's order.

    `data` is None (every entry 1) or float32/float64 (n entries' weights, >= 0). With `row_normalized` (only where
    `data` is None) an entry of a row of d entries is `1.0 / d`.

    A block has any rows of A, whole and in any order, over all n columns. `ids` (rows,), of the type of `indices`, is
    then the vertex of each row, which keys its draws in the row law; None: row r is vertex r. `num_columns` is n; None:
    as many as rows. A kernel gives for rows of the block what it gives for the same rows of A, but for `positions`,
    which are the block's.

    `row_places` and `weight_places` (rows,) uint64 are for backends whose kernels read memory by address: where each
    row's columns and weights are, if not all of them lie in `indices` and `data` (hot rows of a graph that is larger
    than the device). None: they do.
    """

    indptr: PerGraph[Int64Array]
    indices: PerGraph[IntArray]
    data: PerGraph[FloatArray | None] = None
    row_normalized: bool = False
    ids: PerGraph[IntArray | None] = None
    num_columns: int | None = None
    row_places: PerGraph[UInt64Array | None] = None
    weight_places: PerGraph[UInt64Array | None] = None


class StackedSelector(NamedTuple):
    """Q of k stacked batches: batch i selects the rows `vertices[batch_ptr[i]:batch_ptr[i + 1]]` of A.

    They are row numbers, which in a block of rows (`Matrix.ids`) are not the vertices, and distinct within a batch.
    `batch_ids` (k,) int64 are the global batch ids that key the draws.
    """

    batch_ptr: PerBatch[Int64Array]
    vertices: IntArray
    batch_ids: PerBatch[Int64Array]


class Draw(NamedTuple):
    """Parameters of a draw: at most `size` per row; `key` (two 32-bit words) and `hop` enter the counter."""

    key: tuple[int, int]
    hop: int
    size: int
    replace: bool = False


class ColumnScale(NamedTuple):
    """The diagonal matrix D of A D: `factor` for the columns of a set, 1 for all others.

    Bit v % 64 of `members[v // 64]` (uint64) says whether column v is in the set; a column without a bit is not. There
    is one word at least. The bits are NumPy's in every backend, as arrays with an element per batch are.
    """

    members: PerBatch[UInt64Array]
    factor: float

    def factors(self, num_columns: int) -> NDArray[np.float64]:
        """(num_columns,) the diagonal.

        Examples
        --------
        >>> ColumnScale(np.array([0b101], np.uint64), 4.0).factors(4).tolist()
        [4.0, 1.0, 4.0, 1.0]
        """
        bits = np.unpackbits(self.members.view(np.uint8), count=num_columns, bitorder="little")
        return np.where(bits, self.factor, 1.0)

    def is_of_set(self, other: ColumnScale) -> bool:
        """Return whether both scale the same columns, by any factor.

        Examples
        --------
        >>> ColumnScale(np.array([1], np.uint64), 4.0).is_of_set(ColumnScale(np.array([1], np.uint64), 2.0))
        True
        """
        return self.members is other.members or np.array_equal(self.members, other.members)

    def has(self, columns: IntArray) -> NDArray[np.bool_]:
        """Return whether each of these columns is in the set; the shape is theirs.

        Examples
        --------
        >>> ColumnScale(np.array([0b101], np.uint64), 4.0).has(np.array([2, 1, 64])).tolist()
        [True, False, False]
        """
        words = np.concatenate([self.members, np.zeros(1, np.uint64)])  # of all columns beyond the last word
        found = words[np.minimum(columns >> 6, len(self.members))]
        is_member: NDArray[np.bool_] = found >> (columns & 63).astype(np.uint64) & np.uint64(1) != 0
        return is_member


class Expansion(NamedTuple):
    """The way rows were drawn from A D, for weights that make sums over them unbiased estimates for rows of A.

    `totals` (n, 2) float64 are sums of each vertex's row in A, over its entries outside of the set and in it: of
    their weights where rows were drawn by these (`by_own`), else of 1 for each.
    """

    scale: ColumnScale
    totals: PerGraph[NDArray[np.float64]]
    by_own: bool
    replace: bool


class QuantisationRule(NamedTuple):
    """From weights to integers: `max(1, rint(m^power 2^(power e + K)))`, summed by column, then `^column_power`.

    `shifts` (k,) int64 holds K, one per batch; it is None where every entry counts 1 (unweighted graphs).
    """

    shifts: PerBatch[Int64Array | None]
    power: int
    column_power: int


class StackedRows(NamedTuple):
    """k stacked sparse matrices, one per batch, m rows in all.

    Batch i owns rows `batch_ptr[i]:batch_ptr[i + 1]`, entries `entry_ptr[i]:entry_ptr[i + 1]` of `columns` and
    `[batch_ptr[i] + i : batch_ptr[i + 1] + i + 1]` of `indptr`, which starts at 0 for every batch. `positions` are the
    entries' positions in A (int64) and `weights` their weights, or None where they were not asked for.
    """

    batch_ptr: PerBatch[Int64Array]
    entry_ptr: PerBatch[Int64Array]
    indptr: Int64Array
    columns: IntArray
    positions: Int64Array | None
    weights: FloatArray | None = None


class Compaction(NamedTuple):
    """src vertices of k batches, stacked, and for each entry (`local`) the index of its column in its batch's src."""

    src_ptr: PerBatch[Int64Array]
    src: IntArray
    local: IntArray


class UnitedHops(NamedTuple):
    """The rows of h hops as one CSR matrix per batch, each vertex's row at the hop that found it.

    Batch i knows `known[known_ptr[-1][i]:known_ptr[-1][i + 1]]`, the seeds first. `known_ptr` (h + 1 of k + 1) point to
    the vertices known before each hop, and after the last; `entry_ptr` (h of k + 1) to the entries of the first hops.
    The rows of batch i are the vertices known before the last hop. `indptr`, from 0 in each batch, `columns` (indices
    into the batch's part of `known`) and `positions` (in A, int64, or None) are as of `StackedRows`.
    """

    known_ptr: PerBatch[Sequence[Int64Array]]
    entry_ptr: PerBatch[Sequence[Int64Array]]
    known: IntArray
    indptr: Int64Array
    columns: IntArray
    positions: Int64Array | None


class ColumnMatrix(NamedTuple):
    """P as k rows of integer probabilities: `columns` ascend in each row, `numerators` > 0, `totals` (k,) the sums."""

    indptr: PerBatch[Int64Array]
    columns: IntArray
    numerators: UInt64Array
    totals: PerBatch[UInt64Array]


class PartialSums(NamedTuple):
    """Sums by column of k batches over a part of A: `columns` ascend in each row, `numerators` > 0 are unsigned."""

    indptr: PerBatch[Int64Array]
    columns: IntArray
    numerators: Array


class ColumnSample(NamedTuple):
    """Columns drawn for k batches.

    `columns[indptr[i]:indptr[i + 1]]` are distinct, in the order first drawn, or ascending where `whole[i]`: without
    replacement, a support that was taken whole (an empty one too). `counts` says how often each was drawn (1 without
    replacement); `totals` (k,) is T before any redraw.
    """

    indptr: PerBatch[Int64Array]
    columns: IntArray
    counts: Int64Array
    totals: PerBatch[UInt64Array]
    whole: PerBatch[NDArray[np.bool_]]


class ExtractedLayer(NamedTuple):
    """The extraction of a layer-wise sample: `rows` are rows Q of A, restricted to the src columns of their batches.

    `sources` is what `compact` made of the columns of `sample`. With `include_targets` the first src columns of each
    batch are its rows' vertices.
    """

    A: Matrix
    Q: StackedSelector
    rows: StackedRows
    sample: ColumnSample
    sources: Compaction
    include_targets: bool

    @property
    def num_targets(self) -> Int64Array:
        """(k,) how many src columns of each batch are targets."""
        rows: Int64Array = np.diff(self.rows.batch_ptr)
        return rows if self.include_targets else np.zeros_like(rows)


class UnbiasedExtraction(NamedTuple):
    """Options of `extract_unbiased`: for a draw with replacement of that `size`, or without (0).

    With `include_targets` the first src columns of a batch are its rows' vertices; `positions` of the entries are given
    where asked for, and must be where A has weights; with `normalize` the rows' values sum to 1.
    """

    size: int
    include_targets: bool
    positions: bool
    normalize: bool


class RoutedRows(NamedTuple):
    """Stacked rows sorted by (part, batch, order in Q): what each part of a partitioned A is asked for.

    Part p is asked for `counts[p, i]` rows of batch i; `counts` (parts, k) is int64. `vertices` (m,) are the rows in
    that order; the stacked row r of Q is `vertices[places[r]]`. `places` (m,) is of the type of `vertices`.
    """

    counts: PerBatch[Int64Array]
    vertices: IntArray
    places: IntArray


class GatheredRows(NamedTuple):
    """Rows that were gathered into the order of a selector: `entry_ptr` and `indptr` are those of `StackedRows`.

    `entries` are the arrays of their entries (columns, and what belongs to each), of the types that were given.
    """

    entry_ptr: PerBatch[Int64Array]
    indptr: Int64Array
    entries: tuple[Array, ...]


class Backend(Protocol):
    """The kernels: `docs/law.md` says what each draws, `spsample.backends.reference` shows it in plain NumPy."""

    @property
    def name(self) -> str:
        """Name by which users choose the backend."""
        ...

    # --- where arrays are --------------------------------------------------------------------------------------------
    def session(self) -> AbstractContextManager[Any]:
        """Around the calls of one bulk: a device takes them in the caller's stream."""
        ...

    def to_device(self, array: Any) -> Any:
        """The array where the kernels read it: itself, or a copy on the device."""
        ...

    def on_host(self, array: Any) -> Any:
        """The array as NumPy's: itself, or a copy; waits for a device."""
        ...

    def copied(self, array: Any) -> Any:
        """A copy of the array, where it is."""
        ...

    # --- random ------------------------------------------------------------------------------------------------------
    def philox(self, counters: NDArray[np.uint32], key: tuple[int, int]) -> NDArray[np.uint32]:
        """Philox4x32-10 of each row of `counters` (r, 4) -> (r, 4)."""
        ...

    def shuffle(self, count: int, key: tuple[int, int]) -> Int64Array:
        """Positions 0 .. count-1 sorted by their 64-bit word (law, section 5)."""
        ...

    # --- quantisation ------------------------------------------------------------------------------------------------
    def row_exponents(self, A: Matrix) -> NDArray[np.int32]:
        """Per row of A the largest binary exponent (`frexp`) of its positive entries; `NO_EXPONENT` without any.

        0 entries count as absent; an unweighted entry is 1 (exponent 1), a row-normalised one `1.0 / d`.
        """
        ...

    def batch_statistics(
        self, batch_ptr: PerBatch[Int64Array], counts: Int64Array, exponents: NDArray[np.int32]
    ) -> tuple[Int64Array, Int64Array]:
        """(k,) int64 each, on the host: the sum of each batch's `counts`, and the largest of its `exponents`.

        `counts` (m,) int64 and `exponents` (m,) int32 are of the stacked rows of the batches that `batch_ptr` (k + 1,)
        bounds. `NO_EXPONENT` where no row of a batch has a positive entry.
        """
        ...

    def row_numerators(
        self, batch_ptr: PerBatch[Int64Array], counts: Int64Array, rule: QuantisationRule
    ) -> UInt64Array:
        """(m,) uint64 numerator of `(1/d)^power` under its batch's K for each stacked row of d = `counts` entries.

        0 for an empty row; `rule.shifts` is not None.
        """
        ...

    # --- row_law -----------------------------------------------------------------------------------------------------
    def sample_rows_uniform(self, A: Matrix, Q: StackedSelector, draw: Draw, positions: bool) -> StackedRows:
        """Row law, uniform: the drawn entries' columns (global ids) for each selected row, positions where asked."""
        ...

    def sample_rows_weighted(
        self,
        A: Matrix,
        Q: StackedSelector,
        draw: Draw,
        positions: bool,
        weights: bool = False,
        rules: PerGraph[NDArray[np.int16] | None] = None,
    ) -> StackedRows:
        """Row law, weighted by `A.data` (not None) under the row rule; positions and weights where asked.

        `rules` (rows of A,) is the caller's to keep with A, `UNKNOWN_RULE` everywhere at first: a backend may note
        there what it finds out about rows, in its own way, and read it in the next call. It changes no result. A graph
        on a device gives what `kept_for_rows` of the backend `cuda` makes.
        """
        ...

    def sample_rows_scaled(
        self,
        A: Matrix,
        Q: StackedSelector,
        draw: Draw,
        scale: ColumnScale,
        positions: bool,
        ranks: PerGraph[NDArray[np.uint32] | None] = None,
    ) -> StackedRows:
        """Row law on A D: weighted by `A.data` (where None: 1), times the factor of each entry's column.

        A product is made in binary64 and rounded once to the type of the weights (None: float32). CapacityError where
        one that is looked at is not finite. `ranks`, for A without weights: what `entry_ranks` made of A and the scale;
        they change no result.
        """
        ...

    def entry_ranks(self, A: Matrix, scale: ColumnScale) -> PerGraph[NDArray[np.uint32] | None]:
        """Ranks that spare `sample_rows_scaled` a pass over each row, where every entry is 1; None where it has no use.

        Two halves of entries // 32 + 16 numbers: bit e % 32 of number e // 32 of the first says whether the column of
        entry e is scaled; number i of the second how many of the first 32 i entries are, mod 2^32. Rows of A must have
        fewer than 2^31 entries.
        """
        ...

    def take_rows(self, A: Matrix, Q: StackedSelector, positions: bool) -> StackedRows:
        """Whole rows, all entries, in A's order (fanout -1)."""
        ...

    def take_rows_numbered(
        self, A: Matrix, Q: StackedSelector, known: StackedSelector, positions: bool, include_targets: bool
    ) -> tuple[StackedRows, Compaction]:
        """`take_rows`, then `compact` with the targets `known`, which are vertices, also where A is a block of rows.

        Of the rows that come back use everything but the columns: they may be those of the compaction. A column that is
        not one of A's is refused or served.
        """
        ...

    def sample_hops(self, A: Matrix, Q: StackedSelector, draws: Sequence[Draw], positions: bool) -> UnitedHops:
        """`sample_rows_uniform` and `compact` for each draw: the first from Q, each other from what the last one found.

        Found are the vertices that were not known before. A has a row for each vertex (no `ids`); sizes are at least 1.
        """
        ...

    # --- entry_law ---------------------------------------------------------------------------------------------------
    def entry_counts(self, A: Matrix, Q: StackedSelector, exclude: ColumnSample | None) -> Int64Array:
        """(m,) number of entries of each selected row whose column is not among its batch's `exclude` columns."""
        ...

    def locate(
        self, A: Matrix, Q: StackedSelector, rows: Int64Array, offsets: Int64Array, exclude: ColumnSample | None
    ) -> IntArray:
        """Column of the `offsets[j]`-th entry (not counting those in excluded columns) of the stacked row `rows[j]`."""
        ...

    def draw_entries(self, A: Matrix, Q: StackedSelector, numerators: UInt64Array | None, draw: Draw) -> ColumnSample:
        """Entry law; `numerators` (m,) uint64 is q of each selected row, None for 1."""
        ...

    # --- column_law --------------------------------------------------------------------------------------------------
    def column_totals(self, A: Matrix, rule: QuantisationRule) -> UInt64Array:
        """(n,) column sums over all rows of A under the graph rule; `rule.shifts` has one element or is None.

        n is the number of columns: over a block of rows, the block's part of the sums, each raised to `column_power`.
        """
        ...

    def merge_columns(self, A: Matrix, Q: StackedSelector, rule: QuantisationRule) -> ColumnMatrix:
        """Q A with one row per batch: numerators merged by column, ascending, to `column_power`; zeros left out.

        A's rows ascend; a column that is not one of A's is refused or served, but never read out of bounds.
        """
        ...

    def add_columns(self, pieces: Sequence[PartialSums], num_columns: int, column_power: int) -> ColumnMatrix:
        """The result of `merge_columns` for all rows of A, from the sums of its parts.

        There is at least one part; all have one type of columns. Sums stay below 2^64. Columns of a row ascend below
        `num_columns`; others are refused or served, but never read or written out of bounds.
        """
        ...

    def draw_columns(self, P: ColumnMatrix, batch_ids: PerBatch[Int64Array], draw: Draw) -> ColumnSample:
        """Column law on the k rows of P."""
        ...

    def draw_merged(self, A: Matrix, Q: StackedSelector, rule: QuantisationRule, draw: Draw) -> ColumnSample:
        """Column law on Q A: `draw_columns` on what `merge_columns` returns, which need not be written out.

        A's rows ascend; a column that is not one of A's is refused or served, but never read out of bounds.
        """
        ...

    def shared_guide(self, cumulative: PerGraph[UInt64Array]) -> IntArray:
        """Guide table of prefix sums (n,) of total T: the position of each slice's first unit, and of unit T-1.

        Slices have 2^b units, b the smallest that makes at most max(n, 1) of them; none where T is 0. int32 where
        n < 2^31, else int64: at most 4 (n + 1) or 8 (n + 1) bytes.
        """
        ...

    def draw_shared(
        self,
        cumulative: PerGraph[UInt64Array],
        batch_ids: PerBatch[Int64Array],
        draw: Draw,
        guide: PerGraph[IntArray | None] = None,
    ) -> ColumnSample:
        """Column law where every batch draws from one row over all n columns, given its inclusive prefix sums (n,).

        `guide` is `shared_guide(cumulative)`; None makes it anew. `columns` are int64.
        """
        ...

    def shared_numerators(self, cumulative: PerGraph[UInt64Array], columns: IntArray) -> UInt64Array:
        """N of these columns of that row, by its inclusive prefix sums (n,)."""
        ...

    # --- compaction --------------------------------------------------------------------------------------------------
    def compact(
        self,
        Q: StackedSelector,
        entry_ptr: PerBatch[Int64Array],
        columns: IntArray,
        include_targets: bool,
        num_vertices: int | None = None,
    ) -> Compaction:
        """src of each batch: its Q vertices first (`include_targets`), then its other columns ascending.

        Batch i has `columns[entry_ptr[i]:entry_ptr[i + 1]]`, of the type of `Q.vertices`: the columns of its rows'
        entries, or those that were drawn for it. The caller gives them up: `local` may be their memory, written over.
        All ids are below `num_vertices`; a backend that needs to know it looks for the largest id where it is None.
        """
        ...

    # --- extraction --------------------------------------------------------------------------------------------------
    def extract(
        self, A: Matrix, Q: StackedSelector, src_ptr: PerBatch[Int64Array], src: IntArray, positions: bool = True
    ) -> StackedRows:
        """Rows Q of A, restricted to each batch's src columns: local ids, entries in A's order.

        Without `positions` a backend may leave them out: the caller has no use for them, and its other kernels need
        them only where A has weights.
        """
        ...

    def extract_unbiased(
        self,
        A: Matrix,
        Q: StackedSelector,
        sample: ColumnSample,
        numerators: UInt64Array | QuantisationRule,
        how: UnbiasedExtraction,
    ) -> tuple[PerBatch[Int64Array], IntArray, StackedRows, FloatArray]:
        """`compact` of the sample's columns, `extract` and `unbiased_values` in one: src_ptr, src, rows and values.

        The sample stays as it is.

        `numerators` is the rule of `extracted_numerators`, or the inclusive prefix sums (n,) that `draw_shared` drew
        by. Rows and columns of A are the same vertices: it has no `ids`.
        """
        ...

    # --- values ------------------------------------------------------------------------------------------------------
    def extracted_numerators(
        self, A: Matrix, Q: StackedSelector, rows: StackedRows, src_ptr: PerBatch[Int64Array], rule: QuantisationRule
    ) -> UInt64Array:
        """N_v of every src column, read off the extraction `rows`: column sums of its entries' numerators."""
        ...

    def des_raj_weights(
        self, sample: ColumnSample, sources: Compaction, num_targets: PerBatch[Int64Array], numerators: UInt64Array
    ) -> NDArray[np.float64]:
        """(len(src),) c of every src column for a draw without replacement (law, section 6).

        `sources` is what `compact` made of the columns of `sample`; the first `num_targets` (k,) src columns of each
        batch are targets, whose c is 1. `numerators` (len(src),) uint64 is N of each.
        """
        ...

    def replacement_weights(
        self,
        sample: ColumnSample,
        sources: Compaction,
        num_targets: PerBatch[Int64Array],
        numerators: UInt64Array,
        size: int,
    ) -> NDArray[np.float64]:
        """(len(src),) c of every src column for `size` draws with replacement (law, section 6)."""
        ...

    def reference_weights(
        self, sample: ColumnSample, sources: Compaction, numerators: UInt64Array
    ) -> NDArray[np.float64]:
        """(len(src),) `T / (s' N)` of every src column, 0 where N is 0 or nothing was drawn."""
        ...

    def own_weights(self, A: Matrix, Q: StackedSelector, rows: StackedRows) -> FloatArray:
        """A_iv of drawn entries: the weights at `rows.positions`, or `1/d` in float32 where A is row-normalised."""
        ...

    def expansion_values(
        self, Q: StackedSelector, rows: StackedRows, sources: Compaction, own: FloatArray | None, how: Expansion
    ) -> FloatArray:
        """Values of `Biased` with importance weights (law, section 6): of a sum over the whole row of A.

        `sources` is what `compact` made of the rows, `own` the weights of their entries, or None: float32 then.
        """
        ...

    def entry_values(
        self,
        A: Matrix,
        Q: StackedSelector,
        rows: StackedRows,
        src_ptr: PerBatch[Int64Array],
        weights: FloatArray,
        normalize: bool,
    ) -> FloatArray:
        """`A_iv weights[v]` per extracted entry, in binary64, row-normalised where asked, then rounded once.

        See section 6 of the law.

        `weights` (len(src),) float64; the result is float32, or float64 where `A.data` is.
        """
        ...

    def unbiased_values(
        self, layer: ExtractedLayer, numerators: UInt64Array | QuantisationRule, size: int, normalize: bool
    ) -> FloatArray:
        """`entry_values` with `replacement_weights` (`size` > 0) or `des_raj_weights` (0), in one.

        `numerators` is N of every src column, or the rule of `extracted_numerators`.
        """
        ...

    # --- stacking ----------------------------------------------------------------------------------------------------
    def interleave(self, parts: Sequence[Array], pointers: PerBatch[Sequence[Int64Array]]) -> Array:
        """One array of the stacked arrays of several hops, each batch's parts side by side, hop after hop.

        Batch i owns `parts[h][pointers[h][i]:pointers[h][i + 1]]`; one dtype.
        """
        ...

    def appended(
        self, found_ptr: PerBatch[Int64Array], known_ptr: PerBatch[Int64Array], known: IntArray
    ) -> tuple[Int64Array, IntArray]:
        """(k + 1,) pointers and ids of what stands behind the first ones in each batch's `known` ids.

        Batch i owns `known[known_ptr[i]:known_ptr[i + 1]]`; its first `found_ptr[i + 1] - found_ptr[i]` are left out.
        """
        ...

    def interleave_pointers(self, parts: Sequence[Int64Array], pointers: PerBatch[Sequence[Int64Array]]) -> Int64Array:
        """Row pointers over the rows of all hops that start at 0 in every batch.

        `parts[h]` is the `indptr` of hop h's `StackedRows`, `pointers[h]` its `batch_ptr`.
        """
        ...

    def edge_index(self, indptr: Int64Array, indices: IntArray) -> Int64Array:
        """(2, entries) column and row of each entry of a CSR matrix: PyG's (source, target)."""
        ...

    def widened(self, ids: IntArray) -> Int64Array:
        """The ids as int64, in memory of their own."""
        ...

    def coordinates(
        self, matrices: Sequence[tuple[Int64Array, IntArray]], ids: IntArray
    ) -> tuple[list[Int64Array], Int64Array]:
        """`edge_index` of each of several CSR matrices (`indptr`, `indices`), and `widened` of the ids, in one.

        All indices and ids are of one type.
        """
        ...

    # --- routing -----------------------------------------------------------------------------------------------------
    def route_rows(
        self, Q: StackedSelector, bounds: PerBatch[Int64Array], position: IntArray | None = None
    ) -> RoutedRows:
        """The rows of Q sorted by the part that owns them, each part's batch by batch and in Q's order.

        Vertex v stands at `position[v]` of the partitioned order (None: at v), and part p owns the positions
        `bounds[p]:bounds[p + 1]`. `bounds` (parts + 1,) int64 ascend from 0 to n; a part may be empty, and there are at
        most 65536. `position` (n,) is of the type of `Q.vertices`. ValueError where a vertex is not below n.
        """
        ...

    def gather_rows(
        self, batch_ptr: PerBatch[Int64Array], places: IntArray, lengths: Array, entries: Sequence[Array]
    ) -> GatheredRows:
        """The way back: rows that lie in the order of `RoutedRows`, stacked in the order of Q.

        The row at `places[r]` becomes the stacked row r of the batches that `batch_ptr` (k + 1,) bounds; `places` (m,)
        is int32 or int64. `lengths` (m,) uint8, uint16, int32 or int64 says how many entries each of the rows that lie
        there has; each array of `entries` holds those of all rows, one after the other. A row's keep their order.
        ValueError where places, lengths and entries do not fit each other.
        """
        ...

    # --- spgemm ------------------------------------------------------------------------------------------------------
    def spgemm(
        self,
        A: tuple[Int64Array, IntArray, Array | None],
        B: tuple[Int64Array, IntArray, Array | None],
        num_columns: int,
    ) -> tuple[Int64Array, IntArray, Array]:
        """C = A B: columns ascending, zeros kept.

        CSR triples; data float32, float64, int64 or uint64, the same in both. Data that are None are ones, of the other
        matrix's type, or float32 where both are None.

        Sums run in the order of A's row entries, starting from the first product.
        """
        ...

    def select_rows(
        self, A: tuple[Int64Array, IntArray, Array | None], rows: IntArray
    ) -> tuple[Int64Array, IntArray, Array | None]:
        """A[rows] as a CSR triple, entries in A's order."""
        ...
