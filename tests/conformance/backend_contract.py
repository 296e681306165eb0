"""What every backend must do, method by method; `test_reference.py` and `test_cpu.py` inherit it, as later ones will.

Expected results are computed here with plain Python on a small graph, or are properties that the law states. What
exactly is drawn is the matter of tests/golden, and equality between backends that of test_equality.py.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
import pytest
from covers import pairs
from routing_contract import RoutingContract

from spsample.backends import (
    ColumnMatrix,
    ColumnSample,
    ColumnScale,
    Compaction,
    Draw,
    ExtractedLayer,
    Matrix,
    PartialSums,
    QuantisationRule,
    StackedRows,
    StackedSelector,
    UnbiasedExtraction,
)
from spsample.backends.protocol import NO_EXPONENT, UNKNOWN_RULE
from spsample.backends.reference import ReferenceBackend
from spsample.errors import CapacityError

KEY = (11, 22)
REFERENCE = ReferenceBackend()

# 7 vertices: row 2 is empty, row 4 has parallel edges and a self loop, row 5 one entry, row 6 weights of 0 only.
ROWS = [[1, 2, 5], [0, 1, 3, 6], [], [0, 2, 4, 5, 6], [1, 1, 1, 4], [0], [2, 3]]
WEIGHTS = [[0.5, 3.0, 1e-9], [1.0, 0.0, 2.0, 0.25], [], [1.0] * 5, [2.0, 0.0, 1e6, 0.125], [7.0], [0.0, 0.0]]

FRONTIERS = [[4, 0, 2], [], [3], [6, 5, 1, 2], []]
"""Vertices of five batches; two are empty."""


def pointers(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def concatenated(parts, dtype):
    return np.array([x for part in parts for x in part], dtype)


def matrix(index=np.int32, value=None, row_normalized=False):
    data = None if value is None else concatenated(WEIGHTS, value)
    return Matrix(pointers([len(r) for r in ROWS]), concatenated(ROWS, index), data, row_normalized)


def selector(frontiers=FRONTIERS, index=np.int32, first=3):
    ids = first + 2 * np.arange(len(frontiers), dtype=np.int64)
    return StackedSelector(pointers([len(f) for f in frontiers]), concatenated(frontiers, index), ids)


def sample_of(columns, dtype=np.int32, whole=False):
    """A ColumnSample of the given columns for each batch."""
    k = len(columns)
    flat = concatenated(columns, dtype)
    ones = np.ones(len(flat), np.int64)
    totals = np.full(k, 100, np.uint64)
    return ColumnSample(pointers([len(c) for c in columns]), flat, ones, totals, np.full(k, whole))


def unstacked(rows):
    """Lists of columns, and of positions, batch by batch and row by row; checks the stacking on the way."""
    columns, positions = [], []
    k = len(rows.batch_ptr) - 1
    assert len(rows.indptr) == rows.batch_ptr[-1] + k
    assert rows.entry_ptr[0] == 0
    assert rows.entry_ptr[-1] == len(rows.columns)
    for i in range(k):
        indptr = rows.indptr[rows.batch_ptr[i] + i : rows.batch_ptr[i + 1] + i + 1]
        begin, end = rows.entry_ptr[i], rows.entry_ptr[i + 1]
        assert indptr[0] == 0
        assert indptr[-1] == end - begin
        bounds = list(zip(indptr[:-1] + begin, indptr[1:] + begin, strict=True))
        columns.append([rows.columns[lo:hi].tolist() for lo, hi in bounds])
        if rows.positions is not None:
            positions.append([rows.positions[lo:hi].tolist() for lo, hi in bounds])
    return columns, positions


def compacted(backend, Q, rows, include_targets):
    """The columns of rows as places in src; those of `rows` are left as they are."""
    return backend.compact(Q, rows.entry_ptr, rows.columns.copy(), include_targets)


def united(hops):
    """Of each batch: the vertices it knows, in their order; each row's columns; the positions of all entries."""
    known = parts(hops.known, hops.known_ptr[-1])
    rows, places = [], []
    rows_ptr, entry_ptr = hops.known_ptr[-2], hops.entry_ptr[-1]
    for i in range(len(known)):
        indptr = hops.indptr[rows_ptr[i] + i : rows_ptr[i + 1] + i + 1]
        assert indptr[0] == 0
        assert indptr[-1] == entry_ptr[i + 1] - entry_ptr[i]
        rows.append([hops.columns[lo:hi].tolist() for lo, hi in pairwise(indptr + entry_ptr[i])])
        places.append([] if hops.positions is None else hops.positions[entry_ptr[i] : entry_ptr[i + 1]].tolist())
    assert len(hops.known_ptr) == len(hops.entry_ptr) + 1
    return known, rows, places


def hops_in_python(A, seeds, batch_id, draws):
    """What `sample_hops` gives for one batch, and how many vertices are known after each hop."""
    known, fresh, rows, places, sizes = list(seeds), list(seeds), [], [], []
    for draw in draws:
        Q = StackedSelector(np.array([0, len(fresh)]), np.array(fresh, A.indices.dtype), batch_id)
        drawn = REFERENCE.sample_rows_uniform(A, Q, draw, True)
        fresh = sorted(set(drawn.columns.tolist()) - set(known))
        known += fresh
        rows += [[known.index(v) for v in drawn.columns[lo:hi].tolist()] for lo, hi in pairwise(drawn.indptr)]
        places += drawn.positions.tolist()
        sizes.append(len(known))
    return known, rows, places, sizes


def check_types(rows, index, with_positions):
    for array in (rows.batch_ptr, rows.entry_ptr, rows.indptr):
        assert array.dtype == np.int64
    assert rows.columns.dtype == index
    assert (rows.positions is not None) is with_positions
    assert rows.positions is None or rows.positions.dtype == np.int64


def check_sample(sample, index, k):
    assert [sample.indptr.dtype, sample.columns.dtype, sample.counts.dtype] == [np.int64, index, np.int64]
    assert [sample.totals.dtype, sample.whole.dtype] == [np.uint64, np.bool_]
    assert len(sample.indptr) == k + 1
    assert len(sample.totals) == len(sample.whole) == k
    assert sample.indptr[-1] == len(sample.columns) == len(sample.counts)
    for lo, hi in zip(sample.indptr[:-1], sample.indptr[1:], strict=True):
        assert len(set(sample.columns[lo:hi].tolist())) == hi - lo


def parts(array, ptr):
    return [array[lo:hi].tolist() for lo, hi in pairwise(ptr)]


class Block(NamedTuple):
    """Rows of A by themselves: `rows[r]` is the vertex of row r, `where` the position in A of each of its entries.

    `Q` selects some as rows of the block, `selected` the same as rows of A.
    """

    A: Matrix
    matrix: Matrix
    rows: Any
    where: Any
    Q: StackedSelector
    selected: StackedSelector

    def in_whole(self, rows):
        """Stacked rows of the block, as of A: their positions are others."""
        return rows if rows.positions is None else rows._replace(positions=self.where[rows.positions])


def random_matrix(rng, kind, index):
    """Empty rows, short and long ones, parallel edges; columns ascend."""
    n = int(rng.integers(1, 50))
    rows = [np.sort(rng.integers(0, n, rng.choice([0, 1, 4, 9, 70]))) for _ in range(n)]
    weights = rng.exponential(size=sum(map(len, rows))) * 10.0 ** rng.integers(-6, 1)
    weights[rng.random(len(weights)) < rng.choice([0.0, 0.3])] = 0.0
    data = weights.astype(kind) if kind in (np.float32, np.float64) else None
    return Matrix(pointers([len(r) for r in rows]), concatenated(rows, index), data, kind == "row")


def block_of(A, rows, rng):
    """The block of the given rows of A, and four batches of some of them."""
    index = A.indices.dtype
    where = np.concatenate([*(np.arange(A.indptr[v], A.indptr[v + 1]) for v in rows), []]).astype(np.int64)
    indptr = pointers(np.diff(A.indptr)[rows].tolist())
    data = None if A.data is None else A.data[where]
    ids = np.array(rows, index)
    matrix = Matrix(indptr, A.indices[where], data, A.row_normalized, ids, len(A.indptr) - 1)
    chosen = [rng.permutation(len(rows))[: rng.integers(0, len(rows) + 1)] for _ in range(4)]
    Q = selector(chosen, index)
    return Block(A, matrix, ids, where, Q, Q._replace(vertices=ids[Q.vertices]))


def blocks(kind, index, seed):
    """Ranges of rows and others, all rows in another order, and none."""
    rng = np.random.default_rng(seed)
    for _ in range(3):
        A = random_matrix(rng, kind, index)
        order = rng.permutation(len(A.indptr) - 1)
        first, last = sorted(rng.integers(0, len(order) + 1, 2))
        for rows in (np.arange(first, last), order[first:last], order, order[:0]):
            yield block_of(A, rows, rng)


def assert_same(one, other):
    """Equal arrays, or tuples of arrays, to the type and the bit."""
    if one is None or isinstance(one, tuple):
        assert (one is None) == (other is None)
        for a, b in zip(one or (), other or (), strict=True):
            assert_same(a, b)
    else:
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


INDEX, VALUES, FLAGS = (np.int32, np.int64), (np.float32, np.float64), (False, True)
KINDS = ("unweighted", "row", *VALUES)

kinds = pytest.mark.parametrize("kind", KINDS)
weighted_kinds = pytest.mark.parametrize("kind", VALUES)

index_types = pytest.mark.parametrize("index", INDEX)
value_types = pytest.mark.parametrize("value", VALUES)
either = pytest.mark.parametrize("replace", FLAGS)
unbiased = pytest.mark.parametrize(("kind", "index", "replace", "include_targets"), pairs(KINDS, INDEX, FLAGS, FLAGS))

NO_BATCHES: list[list[int]] = []
EMPTY_BATCHES: list[list[int]] = [[], [], []]
empties = pytest.mark.parametrize(
    "frontiers", [NO_BATCHES, EMPTY_BATCHES, [[2], [2]]], ids=["k=0", "m=0", "no entries"]
)


class BackendContract(RoutingContract):
    """Inherit, and give a fixture `backend`."""

    @pytest.fixture
    def backend(self):
        raise NotImplementedError

    # --- random bits ------------------------------------------------------------------------------------------------
    def test_name(self, backend):
        assert isinstance(backend.name, str)

    def test_philox(self, backend):
        counters = np.arange(40, dtype=np.uint32).reshape(10, 4)
        words = backend.philox(counters, KEY)
        assert (words.shape, words.dtype) == ((10, 4), np.uint32)
        one_by_one = [backend.philox(counters[i : i + 1], KEY)[0] for i in range(10)]
        np.testing.assert_array_equal(words, one_by_one)
        assert (backend.philox(counters, (11, 23)) != words).any()
        assert backend.philox(counters[:0], KEY).shape == (0, 4)
        np.testing.assert_array_equal(backend.philox(np.asfortranarray(counters), KEY), words)

    @pytest.mark.parametrize("count", [0, 1, 2, 1000])
    def test_shuffle(self, backend, count):
        order = backend.shuffle(count, KEY)
        assert order.dtype == np.int64
        assert sorted(order.tolist()) == list(range(count))
        words = backend.philox(np.array([[i, 0, 0, 0] for i in range(count)], np.uint32).reshape(-1, 4), KEY)
        values = words[:, 0].astype(np.uint64) | words[:, 1].astype(np.uint64) << np.uint64(32)
        assert (values[order][1:] >= values[order][:-1]).all()

    # --- integer probabilities --------------------------------------------------------------------------------------
    @index_types
    @value_types
    def test_row_exponents(self, backend, index, value):
        exponents = backend.row_exponents(matrix(index, value))
        assert exponents.dtype == np.int32
        assert exponents.tolist() == [2, 2, NO_EXPONENT, 1, 20, 3, NO_EXPONENT]

    @index_types
    def test_row_exponents_without_weights(self, backend, index):
        empty = NO_EXPONENT
        assert backend.row_exponents(matrix(index)).tolist() == [1, 1, empty, 1, 1, 1, 1]
        normalized = backend.row_exponents(matrix(index, row_normalized=True)).tolist()
        assert normalized == [-1, -1, empty, -2, -1, 1, 0]  # 1/3, 1/4, -, 1/5, 1/4, 1, 1/2

    def test_row_exponents_of_an_empty_matrix(self, backend):
        A = Matrix(np.zeros(4, np.int64), np.zeros(0, np.int32), np.zeros(0))
        assert backend.row_exponents(A).tolist() == [NO_EXPONENT] * 3

    @pytest.mark.parametrize("column_power", [1, 2])
    @index_types
    def test_column_totals_unweighted(self, backend, index, column_power):
        totals = backend.column_totals(matrix(index), QuantisationRule(None, 1, column_power))
        counts = [sum(row.count(v) for row in ROWS) ** column_power for v in range(7)]
        assert (totals.dtype, totals.tolist()) == (np.uint64, counts)

    @value_types
    def test_column_totals_weighted(self, backend, value):
        totals = backend.column_totals(matrix(value=value), QuantisationRule(np.array([4]), 1, 1))
        expected = [0] * 7
        for row, weights in zip(ROWS, WEIGHTS, strict=True):
            for v, w in zip(row, weights, strict=True):
                expected[v] += max(1, round(w * 16)) if w else 0
        assert totals.tolist() == expected

    def test_column_totals_of_an_empty_matrix(self, backend):
        A = Matrix(np.zeros(4, np.int64), np.zeros(0, np.int32))
        assert backend.column_totals(A, QuantisationRule(None, 2, 1)).tolist() == [0, 0, 0]

    @index_types
    def test_merge_columns_unweighted(self, backend, index):
        P = backend.merge_columns(matrix(index), selector(index=index), QuantisationRule(None, 1, 2))
        assert P.columns.dtype == index
        assert (P.indptr.dtype, P.numerators.dtype, P.totals.dtype) == (np.int64, np.uint64, np.uint64)
        for i, frontier in enumerate(FRONTIERS):
            entries = [v for r in frontier for v in ROWS[r]]
            expected = {v: entries.count(v) ** 2 for v in sorted(set(entries))}
            assert parts(P.columns, P.indptr)[i] == list(expected)
            assert parts(P.numerators, P.indptr)[i] == list(expected.values())
            assert P.totals[i] == sum(expected.values())

    @pytest.mark.parametrize("power", [1, 2])
    @index_types
    def test_add_columns(self, backend, index, power):
        """Dense rows, rows of few columns among many, empty ones; numerators of each width, also between words."""
        rng = np.random.default_rng(3)
        for n, shares in (
            (70_000, (0.9, 0.3, 1e-4, 0)),
            (300_000, (1e-3, 0)),
            (31, (0.5, 1)),
            (33, (1,)),
            (0, (0,)),
            (5, ()),
        ):
            pieces, sums = [], np.zeros((len(shares), n), np.uint64)
            for width in (1, 2, 4, 8):
                rows = [np.flatnonzero(rng.random(n) < share) for share in shares]
                ptr = pointers([len(row) for row in rows])
                values = rng.integers(1, 200, ptr[-1]).astype(f"u{width}")
                for row, total, (lo, hi) in zip(rows, sums, pairwise(ptr.tolist()), strict=True):
                    total[row] += values[lo:hi].astype(np.uint64)
                between = np.zeros(values.nbytes + 1, np.uint8)[1:].view(values.dtype) if width == 2 else values
                between[...] = values
                columns = np.concatenate([*rows, np.zeros(0)]).astype(index)
                pieces.append(PartialSums(ptr, columns, between))
            P = backend.add_columns(pieces, n, power)
            assert (P.columns.dtype, P.numerators.dtype) == (index, np.uint64)
            assert P.indptr.tolist() == pointers([int((row > 0).sum()) for row in sums]).tolist()
            np.testing.assert_array_equal(P.columns, np.nonzero(sums)[1])
            np.testing.assert_array_equal(P.numerators, sums[sums > 0] ** power)
            np.testing.assert_array_equal(P.totals, (sums**power).sum(axis=1))

    def test_add_columns_is_merge_columns_of_parts(self, backend):
        rng, n, m = np.random.default_rng(4), 300_000, 3_000
        rows = [np.unique(rng.integers(0, n, m)) for _ in range(40)]
        A = Matrix(pointers([len(row) for row in rows]), np.concatenate(rows).astype(np.int32), num_columns=n)
        plain, squared = QuantisationRule(None, 1, 1), QuantisationRule(None, 1, 2)
        for k in (1, 5):
            frontiers = [list(range(i, 40, 3)) for i in range(k)]
            parts_of = [selector([[v for v in one if v % 2 == odd] for one in frontiers]) for odd in (0, 1)]
            pieces = [PartialSums(*backend.merge_columns(A, Q, plain)[:3]) for Q in parts_of]
            assert_same(backend.add_columns(pieces, n, 2), backend.merge_columns(A, selector(frontiers), squared))

    @value_types
    def test_merge_columns_leaves_zeros_out(self, backend, value):
        rule = QuantisationRule(np.full(5, 8), 1, 1)
        P = backend.merge_columns(matrix(value=value), selector(), rule)
        assert parts(P.columns, P.indptr)[2] == ROWS[3]
        assert parts(P.columns, P.indptr)[3] == [0, 3, 6]  # rows 6 (zeros), 5, 1 (column 1 weighs 0), 2
        assert parts(P.numerators, P.indptr)[3] == [8 * 256, 2 * 256, 64]

    def test_merge_columns_takes_the_shift_of_the_batch(self, backend):
        P = backend.merge_columns(
            matrix(value=np.float64), selector([[5], [5]]), QuantisationRule(np.array([0, 3]), 2, 1)
        )
        assert P.numerators.tolist() == [49, 49 * 8]

    @empties
    def test_merge_columns_empty(self, backend, frontiers):
        P = backend.merge_columns(matrix(), selector(frontiers), QuantisationRule(None, 1, 1))
        assert P.indptr.tolist() == [0] * (len(frontiers) + 1)
        assert P.totals.tolist() == [0] * len(frontiers)
        assert (len(P.columns), P.columns.dtype) == (0, np.int32)

    @pytest.mark.parametrize("sizes", [[], [0], [0, 0], [5], [1, 0, 3, 2], [0, 300, 20, 0, 700, 1]])
    def test_batch_totals(self, backend, sizes):
        rng = np.random.default_rng(sum(sizes))
        counts = rng.choice([0, 1, 7, 2**40], sum(sizes))
        exponents = rng.choice([NO_EXPONENT, -1074, -3, 0, 1, 1024], sum(sizes)).astype(np.int32)
        sums, largest = backend.batch_statistics(pointers(sizes), counts, exponents)
        assert isinstance(sums, np.ndarray)
        assert isinstance(largest, np.ndarray)
        assert sums.dtype == largest.dtype == np.int64
        bounds = list(pairwise(pointers(sizes)))
        assert sums.tolist() == [sum(counts[lo:hi].tolist()) for lo, hi in bounds]
        assert largest.tolist() == [max(exponents[lo:hi].tolist(), default=NO_EXPONENT) for lo, hi in bounds]

    def test_batch_totals_without_positive_entries(self, backend):
        counts, exponents = np.zeros(600, np.int64), np.full(600, NO_EXPONENT, np.int32)
        for sizes in ([600], [100, 0, 500]):
            sums, largest = backend.batch_statistics(pointers(sizes), counts, exponents)
            assert sums.tolist() == [0] * len(sizes)
            assert largest.tolist() == [NO_EXPONENT] * len(sizes)

    @pytest.mark.parametrize("power", [1, 2])
    def test_row_numerators(self, backend, power):
        """Exact by fractions of Python; shifts from those that leave 1 to those of the law."""
        counts = np.array([1, 2, 3, 0, 5, 7, 10**6, 1, 0, 3, 2**31 + 1])
        sizes, shifts = [3, 0, 5, 3], np.array([62, 5, 0, 30])
        numerators = backend.row_numerators(pointers(sizes), counts, QuantisationRule(shifts, power, 1))
        expected = []
        for count, shift in zip(counts.tolist(), np.repeat(shifts, sizes).tolist(), strict=True):
            m, e = np.frexp(1.0 / max(count, 1))
            scaled = Fraction(float(m if power == 1 else m * m)) * Fraction(2) ** int(power * e + shift)
            expected.append(max(1, round(scaled)) if count else 0)
        assert (numerators.dtype, numerators.tolist()) == (np.uint64, expected)
        none = backend.row_numerators(pointers([]), counts[:0], QuantisationRule(shifts[:0], power, 1))
        assert (none.dtype, len(none)) == (np.uint64, 0)

    # --- row law ----------------------------------------------------------------------------------------------------
    @pytest.mark.parametrize("positions", [False, True])
    @index_types
    def test_take_rows(self, backend, index, positions):
        A = matrix(index)
        rows = backend.take_rows(A, selector(index=index), positions)
        check_types(rows, index, positions)
        columns, where = unstacked(rows)
        assert columns == [[ROWS[v] for v in frontier] for frontier in FRONTIERS]
        if positions:
            expected = [[list(range(A.indptr[v], A.indptr[v + 1])) for v in frontier] for frontier in FRONTIERS]
            assert where == expected

    @pytest.mark.parametrize("positions", [False, True])
    @either
    @index_types
    def test_sample_rows_uniform(self, backend, index, replace, positions):
        A = matrix(index)
        for size in (1, 2, 3, 9):
            rows = backend.sample_rows_uniform(A, selector(index=index), Draw(KEY, 1, size, replace), positions)
            check_types(rows, index, positions)
            columns, where = unstacked(rows)
            self.check_rows(A, columns, where, size, replace, [len(r) for r in ROWS])

    @pytest.mark.parametrize(("index", "value", "replace", "positions"), pairs(INDEX, VALUES, FLAGS, FLAGS))
    def test_sample_rows_weighted(self, backend, index, value, replace, positions):
        A = matrix(index, value)
        support = [sum(w > 0 for w in row) for row in WEIGHTS]
        for size in (1, 2, 3, 9):
            rows = backend.sample_rows_weighted(A, selector(index=index), Draw(KEY, 1, size, replace), positions)
            check_types(rows, index, positions)
            columns, where = unstacked(rows)
            self.check_rows(A, columns, where, size, replace, support)
            if positions:
                assert all(A.data[p] > 0 for batch in where for row in batch for p in row)

    @pytest.mark.parametrize(("value", "index", "replace", "positions"), pairs([None, *VALUES], INDEX, FLAGS, FLAGS))
    def test_sample_rows_scaled(self, backend, index, value, replace, positions):
        """Rows of A D are rows of a matrix with its weights."""
        A, scale = matrix(index, value), ColumnScale(np.array([0b0100110], np.uint64), 3.7)
        data = np.ones(len(A.indices), np.float32) if value is None else A.data
        weights = (data * np.where(np.isin(A.indices, [1, 2, 5]), 3.7, 1.0)).astype(data.dtype)
        for size in (1, 2, 3, 9, 70):
            draw = Draw(KEY, 1, size, replace)
            expected = REFERENCE.sample_rows_weighted(A._replace(data=weights), selector(index=index), draw, positions)
            for ranks in (None, None if value else backend.entry_ranks(A, scale)):
                rows = backend.sample_rows_scaled(A, selector(index=index), draw, scale, positions, ranks)
                check_types(rows, index, positions)
                assert unstacked(rows) == unstacked(expected)

    def test_sample_rows_scaled_of_a_block(self, backend):
        """A block's rows draw as the same rows of A; a row-normalised A as one without weights."""
        A, scale = matrix(row_normalized=True), ColumnScale(np.array([0b0100110], np.uint64), 0.3)
        whole = backend.sample_rows_scaled(
            A._replace(row_normalized=False), selector([[4, 1]]), Draw(KEY, 1, 2), scale, True
        )
        block = Matrix(
            np.array([0, 4, 8]),
            np.array(ROWS[1] + ROWS[4], np.int32),
            None,
            True,
            np.array([1, 4], np.int32),
            len(ROWS),
        )
        rows = backend.sample_rows_scaled(block, selector([[1, 0]]), Draw(KEY, 1, 2), scale, True)
        assert unstacked(rows)[0] == unstacked(whole)[0]
        assert unstacked(rows)[1][0] == [
            [p - 12 + 4 for p in unstacked(whole)[1][0][0]],
            [p - 3 for p in unstacked(whole)[1][0][1]],
        ]

    def test_sample_rows_scaled_refuses_what_is_not_finite(self, backend):
        A = matrix(value=np.float32)
        A = A._replace(data=np.where(A.indices == 2, np.float32(3e38), A.data))
        scale = ColumnScale(np.array([0b0000100], np.uint64), 4.0)
        with pytest.raises(CapacityError, match="factor"):
            backend.sample_rows_scaled(A, selector([[3, 0]]), Draw(KEY, 1, 2), scale, True)
        rows = backend.sample_rows_scaled(A, selector([[1, 5]]), Draw(KEY, 1, 2), scale, True)
        assert len(rows.columns) == 3

    def check_rows(self, A, columns, positions, size, replace, support):
        """Each row has the number of entries that the law says, of its own row, distinct without replacement."""
        for i, frontier in enumerate(FRONTIERS):
            for r, v in enumerate(frontier):
                expected = (size if support[v] else 0) if replace else min(size, support[v])
                assert len(columns[i][r]) == expected
                assert set(columns[i][r]) <= set(ROWS[v])
                if positions:
                    where = positions[i][r]
                    assert all(A.indptr[v] <= p < A.indptr[v + 1] for p in where)
                    assert columns[i][r] == A.indices[where].tolist()
                    assert replace or len(set(where)) == len(where)
                    assert replace or size < support[v] or where == sorted(where)

    def test_sample_rows_depends_on_key_hop_vertex_and_batch_only(self, backend):
        A = matrix(value=np.float64)
        for name in ("sample_rows_uniform", "sample_rows_weighted"):
            sample_rows = getattr(backend, name)
            draw = Draw(KEY, 2, 2, True)
            together = unstacked(sample_rows(A, selector(FRONTIERS), draw, True))[1]
            reordered = unstacked(sample_rows(A, selector([f[::-1] for f in FRONTIERS]), draw, True))[1]
            assert [batch[::-1] for batch in reordered] == together
            for i, frontier in enumerate(FRONTIERS):
                alone = unstacked(sample_rows(A, selector([frontier], first=3 + 2 * i), draw, True))[1]
                assert alone == together[i : i + 1]
            many = draw._replace(size=20)
            base = unstacked(sample_rows(A, selector([[3]]), many, True))[1]
            for changed in (many._replace(hop=3), many._replace(key=(11, 23))):
                assert unstacked(sample_rows(A, selector([[3]]), changed, True))[1] != base
            assert unstacked(sample_rows(A, selector([[3]], first=4), many, True))[1] != base

    @empties
    @either
    def test_row_law_empty(self, backend, frontiers, replace):
        A, Q, draw = matrix(value=np.float64), selector(frontiers), Draw(KEY, 0, 3, replace)
        for rows in (
            backend.take_rows(A, Q, True),
            backend.sample_rows_uniform(A, Q, draw, True),
            backend.sample_rows_weighted(A, Q, draw, True),
        ):
            check_types(rows, np.int32, True)
            assert unstacked(rows)[0] == [[[] for _ in frontier] for frontier in frontiers]

    def test_row_law_on_a_matrix_without_entries(self, backend):
        A = Matrix(np.zeros(4, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
        Q = selector([[1, 0], [2]], np.int64)
        for sample_rows in (backend.sample_rows_uniform, backend.sample_rows_weighted):
            rows = sample_rows(A, Q, Draw(KEY, 0, 2, True), True)
            assert rows.columns.dtype == np.int64
            assert unstacked(rows)[0] == [[[], []], [[]]]

    # --- entry law and column law -----------------------------------------------------------------------------------
    @index_types
    def test_entry_counts(self, backend, index):
        A, Q = matrix(index), selector(index=index)
        totals = backend.entry_counts(A, Q, None)
        assert totals.dtype == np.int64
        assert totals.tolist() == [len(ROWS[v]) for f in FRONTIERS for v in f]
        excluded = [[1, 5], [0], [], [0, 3], [4]]
        counts = [sum(u not in excluded[i] for u in ROWS[v]) for i, f in enumerate(FRONTIERS) for v in f]
        assert backend.entry_counts(A, Q, sample_of(excluded, index)).tolist() == counts

    @index_types
    def test_locate(self, backend, index):
        A, Q = matrix(index), selector(index=index)
        excluded = [[1, 5], [0], [], [0, 3], [4]]
        for exclude in ([[]] * 5, excluded):
            wanted = []
            stacked = [(i, v) for i, frontier in enumerate(FRONTIERS) for v in frontier]
            for r, (i, v) in enumerate(stacked):
                left = [u for u in ROWS[v] if u not in exclude[i]]
                wanted += [(r, offset, u) for offset, u in enumerate(left)]
            rows, offsets, columns = np.array(wanted[::-1], np.int64).T
            found = backend.locate(A, Q, rows, offsets, sample_of(exclude, index))
            assert (found.dtype, found.tolist()) == (index, columns.tolist())
            if exclude is not excluded:
                assert backend.locate(A, Q, rows, offsets, None).tolist() == columns.tolist()

    @empties
    def test_entry_counts_and_locate_empty(self, backend, frontiers):
        A, Q, none = matrix(), selector(frontiers), np.zeros(0, np.int64)
        exclude = sample_of([[1]] * len(frontiers))
        for excluded in (None, exclude):
            assert backend.entry_counts(A, Q, excluded).tolist() == [0] * len(Q.vertices)
            found = backend.locate(A, Q, none, none, excluded)
            assert (len(found), found.dtype) == (0, np.int32)

    @pytest.mark.parametrize("q", [None, 5, 2**40], ids=["unweighted", "narrow", "wide"])
    @either
    @index_types
    def test_draw_entries(self, backend, index, replace, q):
        numerators = None if q is None else np.full(sum(map(len, FRONTIERS)), q, np.uint64)
        for size in (1, 2, 4, 20):
            draw = Draw(KEY, 1, size, replace)
            sample = backend.draw_entries(matrix(index), selector(index=index), numerators, draw)
            check_sample(sample, index, len(FRONTIERS))
            supports = [sorted({u for v in f for u in ROWS[v]}) for f in FRONTIERS]
            totals = [(q or 1) * sum(len(ROWS[v]) for v in f) for f in FRONTIERS]
            self.check_columns(sample, supports, totals, size, replace)

    def check_columns(self, sample, supports, totals, size, replace):
        assert sample.totals.tolist() == totals
        for i, support in enumerate(supports):
            columns = parts(sample.columns, sample.indptr)[i]
            counts = parts(sample.counts, sample.indptr)[i]
            assert set(columns) <= set(support)
            if replace:
                assert sum(counts) == (size if support else 0)
                assert not sample.whole[i]
            else:
                assert counts == [1] * min(size, len(support))
                assert sample.whole[i] == (len(support) <= size)
                assert not sample.whole[i] or columns == support

    @empties
    @either
    def test_draw_entries_empty(self, backend, frontiers, replace):
        sample = backend.draw_entries(matrix(), selector(frontiers), None, Draw(KEY, 0, 2, replace))
        check_sample(sample, np.int32, len(frontiers))
        assert len(sample.columns) == 0
        assert sample.totals.tolist() == [0] * len(frontiers)
        assert sample.whole.tolist() == [not replace] * len(frontiers)

    @either
    @index_types
    def test_draw_columns(self, backend, index, replace):
        rows = [{2: 5, 3: 1, 9: 7}, {}, {4: 2**61, 5: 2**61, 6: 1}, {8: 3}]
        P = ColumnMatrix(
            pointers([len(r) for r in rows]),
            concatenated(rows, index),
            concatenated([r.values() for r in rows], np.uint64),
            np.array([sum(r.values()) for r in rows], np.uint64),
        )
        for size in (1, 2, 3, 30):
            sample = backend.draw_columns(P, np.array([5, 6, 2**32 - 1, 0]), Draw(KEY, 1, size, replace))
            check_sample(sample, index, 4)
            totals = [sum(r.values()) for r in rows]
            self.check_columns(sample, [sorted(r) for r in rows], totals, size, replace)

    @pytest.mark.parametrize("k", [0, 3])
    @either
    def test_draw_columns_empty(self, backend, k, replace):
        none = np.zeros(0, np.uint64)
        P = ColumnMatrix(np.zeros(k + 1, np.int64), np.zeros(0, np.int32), none, np.zeros(k, np.uint64))
        sample = backend.draw_columns(P, np.arange(k), Draw(KEY, 1, 2, replace))
        check_sample(sample, np.int32, k)
        assert len(sample.columns) == 0

    @either
    def test_draw_shared(self, backend, replace):
        numerators = [0, 4, 0, 0, 2**35, 1, 9, 0]
        cumulative = np.cumsum(numerators).astype(np.uint64)
        for size in (1, 2, 4, 50):
            draw = Draw(KEY, 1, size, replace)
            sample = backend.draw_shared(cumulative, np.array([0, 7, 2**32 - 1]), draw)
            check_sample(sample, np.int64, 3)
            self.check_columns(sample, [[1, 4, 5, 6]] * 3, [sum(numerators)] * 3, size, replace)
            single = backend.draw_shared(cumulative, np.array([7]), draw)
            assert single.columns.tolist() == parts(sample.columns, sample.indptr)[1]

    @pytest.mark.parametrize(
        "numerators", [[0, 4, 0, 0, 2**35, 1, 9, 0], [1] * 300, [3], [0, 2**61, 0, 2**61], [0, 0], []]
    )
    def test_shared_guide(self, backend, numerators):
        cumulative = np.cumsum(np.array(numerators, np.uint64), dtype=np.uint64)
        total, n = sum(numerators), len(numerators)
        width = 1
        while total > width * max(n, 1):
            width *= 2
        units = [*range(0, total, width), total - 1] if total else []
        guide = backend.shared_guide(cumulative)
        assert guide.dtype == np.int32
        assert len(guide) <= n + 1 or total == 0
        assert guide.tolist() == (np.searchsorted(cumulative, np.array(units, np.uint64), side="right").tolist() or [0])

    @either
    def test_draw_shared_by_its_guide(self, backend, replace):
        numerators = (np.arange(500, dtype=np.uint64) * 7919 % 101) ** 3
        cumulative = np.cumsum(numerators, dtype=np.uint64)
        guide = backend.shared_guide(cumulative)
        for size in (1, 7, 70, 480, 499):
            draw, batches = Draw(KEY, 1, size, replace), np.array([0, 7])
            guided = backend.draw_shared(cumulative, batches, draw, guide)
            expected = backend.draw_columns(
                ColumnMatrix(
                    np.array([0, 500, 1000]), np.tile(np.arange(500), 2), np.tile(numerators, 2), np.zeros(2, np.uint64)
                ),
                batches,
                draw,
            )
            for field, other in zip(guided, expected, strict=True):
                np.testing.assert_array_equal(field, other)

    @pytest.mark.parametrize("total", ["no batches", "all zero"])
    @either
    def test_draw_shared_empty(self, backend, total, replace):
        k = 0 if total == "no batches" else 2
        cumulative = np.zeros(4, np.uint64) if k else np.array([1, 2], np.uint64)
        sample = backend.draw_shared(cumulative, np.arange(k), Draw(KEY, 0, 1, replace))
        check_sample(sample, np.int64, k)
        assert len(sample.columns) == 0

    # --- extraction -------------------------------------------------------------------------------------------------
    @pytest.mark.parametrize("include_targets", [False, True])
    @index_types
    def test_compact(self, backend, index, include_targets):
        Q = selector(index=index)
        rows = backend.take_rows(matrix(index), Q, False)
        compaction = compacted(backend, Q, rows, include_targets)
        assert (compaction.src_ptr.dtype, compaction.src.dtype) == (np.int64, index)
        sources = parts(compaction.src, compaction.src_ptr)
        for i, frontier in enumerate(FRONTIERS):
            columns = [u for v in frontier for u in ROWS[v]]
            dst = frontier if include_targets else []
            assert sources[i] == dst + sorted(set(columns) - set(dst))
            local = compaction.local[rows.entry_ptr[i] : rows.entry_ptr[i + 1]]
            assert [sources[i][c] for c in local] == columns
        assert compaction.local.dtype == index

    def test_compact_with_known_vertices(self, backend):
        """The subgraph layout: the rows are those of the new vertices, src grows from all known ones."""
        known = selector([[5, 0, 3], [1]])
        rows = backend.take_rows(matrix(), selector([[3], []]), False)
        compaction = compacted(backend, known, rows, True)
        assert parts(compaction.src, compaction.src_ptr) == [[5, 0, 3, 2, 4, 6], [1]]
        assert compaction.local.tolist() == [1, 3, 4, 0, 5]

    @pytest.mark.parametrize("include_targets", [False, True])
    @index_types
    def test_compact_in_place(self, backend, index, include_targets):
        Q = selector(index=index)
        rows = backend.take_rows(matrix(index), Q, False)
        expected = compacted(backend, Q, rows, include_targets)
        for given in (rows.columns.copy(), rows.columns):
            compaction = backend.compact(Q, rows.entry_ptr, given, include_targets)
            for got, want in zip(compaction, expected, strict=True):
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got, want)

    @pytest.mark.parametrize("include_targets", [False, True])
    @pytest.mark.parametrize("positions", [False, True])
    @index_types
    def test_take_rows_numbered(self, backend, index, positions, include_targets):
        """Few batches and many, targets that are the rows' vertices and others."""
        A = matrix(index)
        for frontiers, others in (
            (FRONTIERS, FRONTIERS),
            (FRONTIERS, [[4, *(v for v in f if v != 4)] for f in FRONTIERS]),
            (FRONTIERS * 40, FRONTIERS * 40),
            ([], []),
            ([[]], [[3]]),
        ):
            Q, known = selector(frontiers, index), selector(others, index)
            rows, compaction = backend.take_rows_numbered(A, Q, known, positions, include_targets)
            taken = backend.take_rows(A, Q, positions)
            check_types(rows, index, positions)
            for name in ("batch_ptr", "entry_ptr", "indptr", *(["positions"] if positions else [])):
                np.testing.assert_array_equal(getattr(rows, name), getattr(taken, name))
            for got, want in zip(compaction, compacted(backend, known, taken, include_targets), strict=True):
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got, want)

    @pytest.mark.parametrize("replace", [False, True])
    @pytest.mark.parametrize("positions", [False, True])
    @index_types
    def test_sample_hops(self, backend, index, positions, replace):
        """One hop and several, few batches and many, also without vertices."""
        A = matrix(index)
        few = (([[3]], [1]), ([], [2, 2]), ([[]], [2, 2]))
        for frontiers, sizes in ((FRONTIERS, [2, 1, 3]), (FRONTIERS * 40, [3, 2]), *few):
            Q = selector(frontiers, index)
            draws = [Draw(KEY, hop, size, replace) for hop, size in enumerate(sizes)]
            hops = backend.sample_hops(A, Q, draws, positions)
            known, rows, places = united(hops)
            for i, seeds in enumerate(frontiers):
                expected = hops_in_python(A, seeds, Q.batch_ids[i : i + 1], draws)
                assert (known[i], rows[i]) == expected[:2]
                assert places[i] == (expected[2] if positions else [])
                assert [ptr[i + 1] - ptr[i] for ptr in hops.known_ptr] == [len(seeds), *expected[3]]
            assert hops.known.dtype == hops.columns.dtype == index

    def test_compact_of_what_must_not_be_written(self, backend):
        Q = selector()
        rows = backend.take_rows(matrix(), Q, False)
        columns = rows.columns.copy()
        rows.columns.flags.writeable = False
        compaction = backend.compact(Q, rows.entry_ptr, rows.columns, True)
        np.testing.assert_array_equal(rows.columns, columns)
        np.testing.assert_array_equal(compaction.local, compacted(backend, Q, rows, True).local)

    def test_compact_of_columns_between_the_words_of_memory(self, backend):
        Q = selector()
        rows = backend.take_rows(matrix(), Q, False)
        off = np.ndarray(rows.columns.shape, rows.columns.dtype, np.zeros(rows.columns.nbytes + 1, np.uint8), offset=1)
        off[...] = rows.columns
        compaction = backend.compact(Q, rows.entry_ptr, off, True)
        np.testing.assert_array_equal(compaction.local, compacted(backend, Q, rows, True).local)

    # --- other forms ------------------------------------------------------------------------------------------------
    @index_types
    def test_edge_index(self, backend, index):
        """Rows shorter and longer than what is written at once, and empty ones; long enough for several threads."""
        rng = np.random.default_rng(0)
        for count in (0, 1, 5, 30_000):
            lengths = rng.choice([0, 1, 5, 8, 9, 30], count)
            indices = rng.integers(0, 100, lengths.sum()).astype(index)
            edges = backend.edge_index(pointers(lengths.tolist()), indices)
            assert (edges.dtype, edges.shape) == (np.int64, (2, len(indices)))
            np.testing.assert_array_equal(edges[0], indices)
            np.testing.assert_array_equal(edges[1], np.repeat(np.arange(count), lengths))

    @index_types
    def test_widened(self, backend, index):
        ids = np.arange(70_000, dtype=index)[::7]
        wide = backend.widened(ids)
        assert wide.dtype == np.int64
        assert not np.shares_memory(wide, ids)
        np.testing.assert_array_equal(wide, ids)

    @index_types
    def test_coordinates_are_edge_indices_and_wide_ids(self, backend, index):
        """Of matrices that are small, long enough for several threads, and without rows; ids likewise."""
        rng = np.random.default_rng(1)
        for counts, num_ids in (((0, 3, 30_000), 70_000), ((1, 40), 0), ((50_000,), 5)):
            lengths = [rng.choice([0, 1, 5, 9], count) for count in counts]
            matrices = [(pointers(one.tolist()), rng.integers(0, 99, one.sum()).astype(index)) for one in lengths]
            ids = rng.integers(0, 2**31 - 1, num_ids).astype(index)
            edges, wide = backend.coordinates(matrices, ids)
            none, as_wide = backend.coordinates([], ids)
            assert none == []
            np.testing.assert_array_equal(as_wide, wide)
            assert len(edges) == len(matrices)
            for one, (indptr, indices) in zip(edges, matrices, strict=True):
                np.testing.assert_array_equal(one, backend.edge_index(indptr, indices))
                assert (one.dtype, one.shape) == (np.int64, (2, len(indices)))
            assert wide.dtype == np.int64
            assert not np.shares_memory(wide, ids)
            np.testing.assert_array_equal(wide, ids)

    @pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64])
    def test_interleave(self, backend, dtype):
        hops = [[[1, 2], [], [3]], [[], [4], [5, 6]], [[7], [8, 9], []]]
        stacked = [np.array([x for batch in hop for x in batch], dtype) for hop in hops]
        ptr = [pointers([len(batch) for batch in hop]) for hop in hops]
        out = backend.interleave(stacked, ptr)
        assert out.dtype == dtype
        assert out.tolist() == [1, 2, 7, 4, 8, 9, 3, 5, 6]
        assert len(backend.interleave([stacked[0][:0]], [np.zeros(1, np.int64)])) == 0

    @index_types
    def test_appended(self, backend, index):
        known = np.array([5, 9, 2, 7, 4, 0, 1], index)
        ptr, new = backend.appended(pointers([1, 0, 2, 1]), pointers([3, 0, 2, 2]), known)
        assert ptr.tolist() == [0, 2, 2, 2, 3]
        assert new.dtype == index
        assert new.tolist() == [9, 2, 1]
        ptr, new = backend.appended(pointers([]), pointers([]), known[:0])
        assert (ptr.tolist(), new.tolist()) == ([0], [])

    def test_interleave_pointers(self, backend):
        rows = [[[2, 0], [1], []], [[3], [], []]]  # entries of each row, by hop and batch
        parts_of = [np.concatenate([pointers(batch) for batch in hop]) for hop in rows]
        out = backend.interleave_pointers(parts_of, [pointers([len(batch) for batch in hop]) for hop in rows])
        assert out.dtype == np.int64
        assert out.tolist() == [0, 2, 2, 5, 0, 1, 0]
        assert len(backend.interleave_pointers([np.zeros(0, np.int64)], [np.zeros(1, np.int64)])) == 0

    # --- extraction, layer-wise -------------------------------------------------------------------------------------
    @pytest.mark.parametrize("include_targets", [False, True])
    @index_types
    def test_compact_drawn_columns(self, backend, index, include_targets):
        drawn = [[6, 0, 2], [3, 1], [3], [], []]
        sample = sample_of(drawn, index)
        compaction = backend.compact(selector(index=index), sample.indptr, sample.columns, include_targets)
        sources = parts(compaction.src, compaction.src_ptr)
        assert compaction.src.dtype == index
        for i, frontier in enumerate(FRONTIERS):
            dst = frontier if include_targets else []
            assert sources[i] == dst + sorted(set(drawn[i]) - set(dst))
        where = pointers([len(d) for d in drawn])
        local = parts(compaction.local, where)
        assert [[sources[i][c] for c in local[i]] for i in range(5)] == drawn

    @empties
    @pytest.mark.parametrize("include_targets", [False, True])
    def test_compaction_empty(self, backend, frontiers, include_targets):
        Q = selector(frontiers)
        rows = backend.take_rows(matrix(), Q, False)
        sample = sample_of([[] for _ in frontiers])
        for compaction in (
            compacted(backend, Q, rows, include_targets),
            backend.compact(Q, sample.indptr, sample.columns.copy(), include_targets),
        ):
            assert parts(compaction.src, compaction.src_ptr) == [f if include_targets else [] for f in frontiers]
            assert len(compaction.local) == 0
            assert compaction.src.dtype == np.int32

    SOURCES = ([1, 4, 0], [2], [6, 2, 5], [0, 2], [])

    @index_types
    def test_extract(self, backend, index):
        A, Q = matrix(index), selector(index=index)
        src_ptr, src = pointers([len(s) for s in self.SOURCES]), concatenated(self.SOURCES, index)
        rows = backend.extract(A, Q, src_ptr, src)
        check_types(rows, index, True)
        columns, positions = unstacked(rows)
        for i, frontier in enumerate(FRONTIERS):
            for r, v in enumerate(frontier):
                kept = [p for p, u in enumerate(ROWS[v]) if u in self.SOURCES[i]]
                assert positions[i][r] == [A.indptr[v] + p for p in kept]
                assert [self.SOURCES[i][c] for c in columns[i][r]] == [ROWS[v][p] for p in kept]

    @empties
    def test_extract_empty(self, backend, frontiers):
        A, Q = matrix(value=np.float64), selector(frontiers)
        for sources in ([[] for _ in frontiers], [[1, 2] for _ in frontiers]):
            src_ptr, src = pointers([len(s) for s in sources]), concatenated(sources, np.int32)
            rows = backend.extract(A, Q, src_ptr, src)
            check_types(rows, np.int32, True)
            assert len(rows.columns) == 0
            rule = QuantisationRule(np.zeros(len(frontiers), np.int64), 1, 1)
            N = backend.extracted_numerators(A, Q, rows, src_ptr, rule)
            assert (N.dtype, N.tolist()) == (np.uint64, [0] * len(src))
            values = backend.entry_values(A, Q, rows, src_ptr, np.ones(len(src)), True)
            assert len(values) == 0

    @pytest.mark.parametrize("column_power", [1, 2])
    @index_types
    def test_extracted_numerators_equal_merged_columns(self, backend, index, column_power):
        """N_v read off the extraction is N_v of the whole frontier, as all entries of a column are extracted."""
        for A in (matrix(index), matrix(index, np.float32), matrix(index, np.float64), matrix(index, None, True)):
            Q = selector(index=index)
            shifts = None if A.data is None and not A.row_normalized else np.arange(4, 9)
            rule = QuantisationRule(shifts, 3 - column_power, column_power)
            P = backend.merge_columns(A, Q, rule)
            sources = [[6, 0, 5, 1, 4, 2, 3]] * len(FRONTIERS)
            src_ptr, src = pointers([7] * len(FRONTIERS)), concatenated(sources, index)
            rows = backend.extract(A, Q, src_ptr, src)
            N = parts(backend.extracted_numerators(A, Q, rows, src_ptr, rule), src_ptr)
            for i in range(len(FRONTIERS)):
                columns, numerators = parts(P.columns, P.indptr)[i], parts(P.numerators, P.indptr)[i]
                merged = dict(zip(columns, numerators, strict=True))
                assert N[i] == [merged.get(v, 0) for v in sources[i]]

    @pytest.mark.parametrize("normalize", [False, True])
    @value_types
    @index_types
    def test_entry_values(self, backend, index, value, normalize):
        A, Q = matrix(index, value), selector(index=index)
        weights = [[float(value(w)) for w in row] for row in WEIGHTS]
        self.check_values(backend, A, Q, weights, value, normalize)

    @index_types
    def test_source_weights(self, backend, index):
        """By exact integers: a batch with a drawn target, one taken whole, one without columns."""
        sample = ColumnSample(
            pointers([3, 1, 0]),
            np.array([6, 0, 2, 3], index),
            np.array([2, 1, 4, 1]),
            np.array([2**61 + 1, 5, 0], np.uint64),
            np.array([False, True, True]),
        )
        src = np.array([0, 1, 2, 6, 3, 8], index)  # targets: 0 and 1; none; 8
        sources = Compaction(pointers([4, 1, 1]), src, np.array([3, 0, 2, 0], index))
        targets, N = np.array([2, 0, 1]), np.array([2**60 + 3, 9, 7, 11, 5, 0], np.uint64)
        T, s = float(2**61 + 1), 3
        drawn = backend.des_raj_weights(sample, sources, targets, N)
        first, third = (T / 11 + 2.0) / s, (float(2**61 + 1 - 11 - (2**60 + 3)) / 7 + 0.0) / s
        assert drawn.tolist() == [1.0, 1.0, third, first, 1.0, 1.0]
        repeated = backend.replacement_weights(sample, sources, targets, N, 7)
        assert repeated.tolist() == [1.0, 1.0, (4 * T) / (7.0 * 7), (2 * T) / (7.0 * 11), 5.0 / (7.0 * 5), 1.0]
        reference = backend.reference_weights(sample, sources, N)
        assert reference.tolist() == [*(T / (3.0 * float(n)) for n in (2**60 + 3, 9, 7, 11)), 1.0, 0.0]
        for weights in (drawn, repeated, reference):
            assert weights.dtype == np.float64

    @pytest.mark.parametrize("normalize", [False, True])
    @pytest.mark.parametrize("row_normalized", [False, True])
    def test_entry_values_without_weights(self, backend, row_normalized, normalize):
        A, Q = matrix(row_normalized=row_normalized), selector()
        values = [[1.0 / max(len(r), 1) if row_normalized else 1.0] * len(r) for r in ROWS]
        self.check_values(backend, A, Q, values, np.float32, normalize)

    @unbiased
    def test_unbiased_values(self, backend, index, kind, replace, include_targets):
        """As the reference does by its parts, with numerators that are given or read; of a block of rows, too."""
        for block in blocks(kind, index, 7):
            rule = QuantisationRule(None if kind == "unweighted" else np.full(4, 20), 1, 2)
            draw = Draw(KEY, 1, 5, replace)
            for A, Q in ((block.matrix, block.Q), (block.A, block.selected)):
                sample = REFERENCE.draw_merged(A, Q, rule, draw)
                columns = sample.columns.astype(index)
                sources = REFERENCE.compact(block.selected, sample.indptr, columns, include_targets)
                rows = REFERENCE.extract(A, Q, sources.src_ptr, sources.src)
                layer = ExtractedLayer(A, Q, rows, sample, sources, include_targets)
                N = REFERENCE.extracted_numerators(A, Q, rows, sources.src_ptr, rule)
                for numerators, normalize in product((rule, N), (False, True)):
                    given = numerators, 5 if replace else 0, normalize
                    assert_same(backend.unbiased_values(layer, *given), REFERENCE.unbiased_values(layer, *given))

    @unbiased
    def test_extract_unbiased(self, backend, index, kind, replace, include_targets):
        """As the reference does step by step: numerators read by a rule, or the prefix sums that were drawn by."""
        rng, draw = np.random.default_rng(8), Draw(KEY, 1, 5, replace)
        weighted, size = kind in (np.float32, np.float64), 5 if replace else 0
        for _ in range(4):
            A = random_matrix(rng, kind, index)
            block = block_of(A, np.arange(len(A.indptr) - 1), rng)
            Q = block.selected
            rule = QuantisationRule(None if kind == "unweighted" else np.full(len(Q.batch_ids), 20), 1, 2)
            whole = QuantisationRule(None if kind == "unweighted" else np.array([20]), 2, 1)
            sums = np.cumsum(REFERENCE.column_totals(A, whole), dtype=np.uint64)
            drawn = REFERENCE.draw_merged(A, Q, rule, draw), REFERENCE.draw_shared(sums, Q.batch_ids, draw)
            for sample, numerators in zip(drawn, (rule, sums), strict=True):
                kept = [np.copy(array) for array in sample]
                for positions, normalize in product((True,) if weighted else (False, True), (False, True)):
                    how = UnbiasedExtraction(size, include_targets, positions, normalize)
                    found, expected = (
                        one.extract_unbiased(A, Q, sample, numerators, how) for one in (backend, REFERENCE)
                    )
                    if not positions:
                        found, expected = (
                            (*src, rows._replace(positions=None), c) for *src, rows, c in (found, expected)
                        )
                    assert_same(found, expected)
                assert all(np.array_equal(*pair) for pair in zip(sample, kept, strict=True))

    def test_extract_unbiased_whose_values_are_not_finite(self, backend):
        A = Matrix(pointers([2, 0]), np.array([0, 1], np.int32), np.array([3e38, 3e38], np.float32))
        sample = sample_of([[1]])._replace(totals=np.array([2**40], np.uint64))
        given = A, selector([[0]]), sample, np.array([0, 1], np.uint64)
        *_, values = backend.extract_unbiased(*given, UnbiasedExtraction(0, False, True, True))
        assert values.tolist() == [1.0]
        with pytest.raises(CapacityError, match=r"data: got the value inf at sampled entry 0 from the weight 3e\+38"):
            backend.extract_unbiased(*given, UnbiasedExtraction(0, False, True, False))

    @pytest.mark.parametrize("normalize", [False, True])
    def test_unbiased_values_that_are_not_finite(self, backend, normalize):
        """A column of the least weight, drawn where another has nearly all: its value is too large for float32."""
        A = Matrix(pointers([2]), np.array([0, 1], np.int32), np.array([3e38, 3e38], np.float32), num_columns=2)
        Q = selector([[0]])
        sample = sample_of([[1]])._replace(totals=np.array([2**40], np.uint64))
        sources = Compaction(pointers([1]), np.array([1], np.int32), np.array([0], np.int32))
        layer = ExtractedLayer(A, Q, REFERENCE.extract(A, Q, *sources[:2]), sample, sources, False)
        N = np.array([1], np.uint64)
        if normalize:
            assert backend.unbiased_values(layer, N, 0, True).tolist() == [1.0]
            return
        with pytest.raises(CapacityError, match=r"data: got the value inf at sampled entry 0 from the weight 3e\+38"):
            backend.unbiased_values(layer, N, 0, False)

    def check_values(self, backend, A, Q, weights, value, normalize):
        src_ptr = pointers([len(s) for s in self.SOURCES])
        src = concatenated(self.SOURCES, A.indices.dtype)
        factors = np.linspace(0.1, 3.7, len(src))
        rows = backend.extract(A, Q, src_ptr, src)
        values = backend.entry_values(A, Q, rows, src_ptr, factors, normalize)
        assert values.dtype == value
        expected = []
        for i, frontier in enumerate(FRONTIERS):
            c = dict(zip(self.SOURCES[i], factors[src_ptr[i] : src_ptr[i + 1]].tolist(), strict=True))
            for v in frontier:
                row = [w * c[u] for u, w in zip(ROWS[v], weights[v], strict=True) if u in c]
                total = 0.0
                for x in row:
                    total += x
                expected += [x / total for x in row] if normalize and total else row
        assert values.tolist() == np.array(expected, value).tolist()

    # --- blocks of rows ---------------------------------------------------------------------------------------------
    @kinds
    @index_types
    def test_block_row_law(self, backend, kind, index):
        for block in blocks(kind, index, 1):
            for size in (1, 3, 10, 80):
                for replace in (False, True):
                    draw = Draw(KEY, 2, size, replace)
                    rows = backend.sample_rows_uniform(block.matrix, block.Q, draw, True)
                    whole = backend.sample_rows_uniform(block.A, block.selected, draw, True)
                    assert_same(block.in_whole(rows), whole)
                    alone = backend.sample_rows_uniform(block.matrix, block.Q, draw, False)
                    assert_same(alone, whole._replace(positions=None))
            rows = backend.take_rows(block.matrix, block.Q, True)
            assert_same(block.in_whole(rows), backend.take_rows(block.A, block.selected, True))

    @weighted_kinds
    @index_types
    def test_block_row_law_weighted(self, backend, kind, index):
        for block in blocks(kind, index, 2):
            rules = np.full(len(block.rows), UNKNOWN_RULE, np.int16)
            for size in (1, 3, 10, 80):
                for replace in (False, True):
                    draw = Draw(KEY, 2, size, replace)
                    whole = backend.sample_rows_weighted(block.A, block.selected, draw, True, True)
                    for kept in (None, rules, rules):
                        rows = backend.sample_rows_weighted(block.matrix, block.Q, draw, True, True, kept)
                        assert_same(block.in_whole(rows), whole)

    @kinds
    @index_types
    def test_block_probability(self, backend, kind, index):
        for block in blocks(kind, index, 3):
            assert_same(backend.row_exponents(block.matrix), backend.row_exponents(block.A)[block.rows])
            rest = np.isin(np.arange(len(block.A.indptr) - 1), block.rows, invert=True)
            lengths = np.where(rest, 0, np.diff(block.A.indptr))
            kept = np.sort(block.where)
            data = None if block.A.data is None else block.A.data[kept]
            emptied = Matrix(pointers(lengths.tolist()), block.A.indices[kept], data, block.A.row_normalized)
            for power, column_power in ((2, 1), (1, 2)):
                rule = QuantisationRule(np.full(4, 20) if kind != "unweighted" else None, power, column_power)
                graph_rule = rule._replace(shifts=None if rule.shifts is None else rule.shifts[:1])
                totals = backend.column_totals(block.matrix, graph_rule)
                assert_same(totals, backend.column_totals(emptied, graph_rule))
                merged = backend.merge_columns(block.matrix, block.Q, rule)
                assert_same(merged, backend.merge_columns(block.A, block.selected, rule))

    @kinds
    @index_types
    def test_block_entry_and_column_law(self, backend, kind, index):
        for block in blocks(kind, index, 4):
            exclude = backend.draw_entries(block.A, block.selected, None, Draw(KEY, 1, 2))
            for excluded in (None, exclude):
                totals = backend.entry_counts(block.matrix, block.Q, excluded)
                assert_same(totals, backend.entry_counts(block.A, block.selected, excluded))
                rows = np.flatnonzero(totals)
                found = backend.locate(block.matrix, block.Q, rows, totals[rows] - 1, excluded)
                assert_same(found, backend.locate(block.A, block.selected, rows, totals[rows] - 1, excluded))
            q = np.arange(1, len(block.Q.vertices) + 1, dtype=np.uint64)
            for size in (1, 4, 30):
                for replace in (False, True):
                    draw = Draw(KEY, 1, size, replace)
                    sample = backend.draw_entries(block.matrix, block.Q, q, draw)
                    assert_same(sample, backend.draw_entries(block.A, block.selected, q, draw))
                    rule = QuantisationRule(np.full(4, 20) if kind != "unweighted" else None, 1, 2)
                    sample = backend.draw_merged(block.matrix, block.Q, rule, draw)
                    assert_same(sample, backend.draw_merged(block.A, block.selected, rule, draw))

    @kinds
    @index_types
    def test_block_extraction(self, backend, kind, index):
        rng = np.random.default_rng(5)
        for block in blocks(kind, index, 5):
            n = block.matrix.num_columns
            sources = [rng.permutation(n)[: rng.integers(0, n + 1)] for _ in range(4)]
            src_ptr, src = pointers([len(s) for s in sources]), concatenated(sources, index)
            rows = backend.extract(block.matrix, block.Q, src_ptr, src)
            whole = backend.extract(block.A, block.selected, src_ptr, src)
            assert_same(block.in_whole(rows), whole)
            rule = QuantisationRule(np.full(4, 20) if kind != "unweighted" else None, 2, 1)
            N = backend.extracted_numerators(block.matrix, block.Q, rows, src_ptr, rule)
            assert_same(N, backend.extracted_numerators(block.A, block.selected, whole, src_ptr, rule))
            factors = rng.random(len(src))
            for normalize in (False, True):
                values = backend.entry_values(block.matrix, block.Q, rows, src_ptr, factors, normalize)
                assert_same(values, backend.entry_values(block.A, block.selected, whole, src_ptr, factors, normalize))

    @index_types
    def test_block_take_rows_numbered(self, backend, index):
        for block in blocks("unweighted", index, 6):
            for include_targets in (False, True):
                known = block.selected
                rows, sources = backend.take_rows_numbered(block.matrix, block.Q, known, True, include_targets)
                taken = backend.take_rows(block.A, block.selected, True)
                assert_same(block.in_whole(rows._replace(columns=taken.columns)), taken)
                assert_same(sources, compacted(backend, known, taken, include_targets))

    # --- general sparse algebra -------------------------------------------------------------------------------------
    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint64])
    @index_types
    def test_spgemm(self, backend, index, dtype):
        A = (pointers([3, 0, 2]), np.array([2, 0, 2, 1, 3], index), np.array([2, 3, 5, 7, 11], dtype))
        B = (pointers([2, 1, 3, 0]), np.array([4, 1, 0, 3, 1, 4], index), np.array([1, 2, 3, 4, 5, 6], dtype))
        indptr, indices, data = backend.spgemm(A, B, 5)
        assert (indptr.dtype, indices.dtype, data.dtype) == (np.int64, index, dtype)
        assert indptr.tolist() == [0, 3, 3, 4]
        assert indices.tolist() == [1, 3, 4, 0]
        assert data.tolist() == [2 * 5 + 3 * 2 + 5 * 5, (2 + 5) * 4, 2 * 6 + 3 * 1 + 5 * 6, 7 * 3]

    def test_spgemm_keeps_zeros(self, backend):
        A = (pointers([2]), np.array([0, 1], np.int32), np.array([1.0, -1.0]))
        B = (pointers([1, 1]), np.array([3, 3], np.int32), np.array([2.0, 2.0]))
        indptr, indices, data = backend.spgemm(A, B, 4)
        assert (indptr.tolist(), indices.tolist(), data.tolist()) == ([0, 1], [3], [0.0])

    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint64])
    def test_spgemm_empty(self, backend, dtype):
        none, no_data = np.zeros(0, np.int32), np.zeros(0, dtype)
        for rows, inner in ((0, 0), (0, 3), (2, 3), (2, 0)):
            A = (np.zeros(rows + 1, np.int64), none, no_data)
            B = (np.zeros(inner + 1, np.int64), none, no_data)
            indptr, indices, data = backend.spgemm(A, B, 4)
            assert indptr.tolist() == [0] * (rows + 1)
            assert (len(indices), indices.dtype, len(data), data.dtype) == (0, np.int32, 0, dtype)

    @pytest.mark.parametrize("dtype", [None, np.float32, np.float64, np.int64, np.uint8, np.bool_])
    @index_types
    def test_select_rows(self, backend, index, dtype):
        A = matrix(index)
        data = None if dtype is None else (np.arange(len(A.indices)) % 5).astype(dtype)
        chosen = [4, 2, 0, 4, 6]
        triple = (A.indptr, A.indices, data)
        indptr, indices, selected = backend.select_rows(triple, np.array(chosen, index))
        assert (indptr.dtype, indices.dtype) == (np.int64, index)
        assert parts(indices, indptr) == [ROWS[v] for v in chosen]
        if data is None:
            assert selected is None
        else:
            where = np.concatenate([np.arange(A.indptr[v], A.indptr[v + 1]) for v in chosen])
            assert selected.dtype == data.dtype
            assert selected.tolist() == data[where].tolist()

    def test_select_no_rows(self, backend):
        A = matrix(value=np.float32)
        indptr, indices, data = backend.select_rows((A.indptr, A.indices, A.data), np.zeros(0, np.int64))
        assert (indptr.tolist(), len(indices), len(data)) == ([0], 0, 0)
        assert (indices.dtype, data.dtype) == (np.int32, np.float32)

    # --- inputs stay as they are ------------------------------------------------------------------------------------
    def test_read_only_and_strided_arrays(self, backend):
        """Arrays that cannot be written to, and such as are not contiguous, give the same; nothing is changed."""
        A, Q = matrix(value=np.float64), selector()
        plain = backend.sample_rows_weighted(A, Q, Draw(KEY, 0, 2), True)
        frozen = Matrix(*(np.copy(a) for a in A[:3]))
        for array in frozen[:3]:
            array.flags.writeable = False
        strided = Matrix(*(np.repeat(a, 2)[::2] for a in A[:3]))
        strided_Q = StackedSelector(*(np.repeat(a, 2)[::2] for a in Q))
        for B, R in ((frozen, Q), (strided, strided_Q)):
            again = backend.sample_rows_weighted(B, R, Draw(KEY, 0, 2), True)
            np.testing.assert_array_equal(again.positions, plain.positions)
            assert StackedRows(*again)._fields == plain._fields
