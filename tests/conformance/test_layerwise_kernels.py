"""The kernels of layer-wise sampling where they take other paths for long rows, many entries or few batches."""

from __future__ import annotations

import numpy as np
import pytest
from covers import pairs
from equality import threads
from test_instruction_sets import CPU, KEY, REFERENCE, SETS, assert_equal, each_set, instruction_set, pointers

from spsample.backends import Draw, Matrix, PartialSums, QuantisationRule, StackedSelector
from spsample.sparse import Frontier, LocalOperand

pytestmark = pytest.mark.sanitize

N = 5000
HUB, DENSE, PARALLEL, EMPTY = 0, 1, 2, 3
"""Rows of `hubs`: 4800 columns; all columns; many entries in few columns; none."""


def hubs(rng, index=np.int32, data=None, row_normalized=False):
    """Ascending rows: those named above, and short ones with an edge twice here and there."""
    rows = [rng.choice(N, 4800, replace=False), np.arange(N), rng.choice([5, 70, 4999, 6], 9000), np.zeros(0, np.int64)]
    rows += [rng.integers(0, N, d) for d in rng.integers(0, 30, N - len(rows))]
    indices = np.concatenate([np.sort(row) for row in rows]).astype(index)
    weights = (
        None if data is None else rng.exponential(size=len(indices)).astype(data) * (rng.random(len(indices)) > 0.1)
    )
    return Matrix(pointers([len(row) for row in rows]), indices, weights, row_normalized)


def frontiers(rng, k, index=np.int32):
    """Every batch has the named rows among its own."""
    parts = [rng.permutation(np.append(rng.choice(np.arange(4, N), 40 + i, replace=False), range(4))) for i in range(k)]
    parts[-1] = parts[-1][:0]
    return StackedSelector(pointers([len(p) for p in parts]), np.concatenate(parts).astype(index), 7 + np.arange(k))


def sources(rng, k, index):
    """src sets from 1 to 300 columns: ascending, with unordered targets first, with columns beyond the hub's."""
    parts = [rng.choice(N, size, replace=False) for size in (1, 2, 15, 16, 17, 31, 33, 200, 257, 300)[:k]]
    parts = [
        np.append(p[: len(p) // 3], np.sort(p[len(p) // 3 :])) if i % 2 else np.sort(p) for i, p in enumerate(parts)
    ]
    parts[2] = np.unique([5, 70, 4999, 0])
    return pointers([len(p) for p in parts]), np.concatenate(parts).astype(index)


@each_set
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_extract_long_rows(name, count, index):
    """Rows many times as long as src are searched, others filtered; parallel entries are all kept."""
    rng = np.random.default_rng(count)
    A, Q = hubs(rng, index), frontiers(rng, 10, index)
    src_ptr, src = sources(rng, 10, index)
    with threads(count), instruction_set(name):
        assert_equal(CPU.extract(A, Q, src_ptr, src), REFERENCE.extract(A, Q, src_ptr, src))


@each_set
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_extract_rows_of_several_pieces(name, index):
    """Rows searched piece by piece: equal entries on both sides of a border; columns outside of a piece."""
    rng, n = np.random.default_rng(8), 300_000
    rows = [rng.choice([5, 70, n - 1, 6], 150_000), rng.integers(0, n, 2**17 + 1), np.arange(2**16, 3 * 2**16)]
    indptr = pointers([len(row) for row in rows] + [0] * (n - 3))
    A = Matrix(indptr, np.concatenate([np.sort(row) for row in rows]).astype(index))
    parts = [np.array([5, 6, 70, n - 1]), np.array([2**16 - 1, 2**16, 2**17 - 1, 2**17, 3 * 2**16]), np.array([299])]
    parts += [np.unique(rng.integers(0, n, 2000))]
    src_ptr, src = pointers([len(part) for part in parts]), np.concatenate(parts).astype(index)
    Q = StackedSelector(np.arange(0, 15, 3), np.tile(np.arange(3), 4).astype(index), np.arange(4))
    with instruction_set(name):
        assert_equal(CPU.extract(A, Q, src_ptr, src), REFERENCE.extract(A, Q, src_ptr, src))


def common_rows(rng, k, index, most_columns):
    """k batches that select the same few rows, the first some of them twice; up to `most_columns` src columns each.

    The rows have so many entries that each is read once for all batches of a group.
    """
    rows = [np.arange(4), np.arange(4, 30)]
    parts = [rng.permutation(np.append(rows[0], rng.choice(rows[1], 20, replace=False))) for _ in range(k)]
    parts[0] = np.append(parts[0], [HUB, PARALLEL, HUB, EMPTY])
    parts[k // 2] = parts[k // 2][:0]
    columns = [rng.choice(N, size, replace=False) for size in rng.integers(most_columns // 2, most_columns, k)]
    columns[k // 3] = columns[k // 3][:0]
    Q = StackedSelector(pointers([len(p) for p in parts]), np.concatenate(parts).astype(index), np.arange(k))
    return Q, pointers([len(c) for c in columns]), np.concatenate(columns).astype(index)


@each_set
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("k", [1, 64])
def test_extract_refuses_a_column_twice_in_a_batch(name, k, index):
    """A batch whose long row is searched, and batches that share rows."""
    A, columns = hubs(np.random.default_rng(1), index), np.arange(2000 if k > 1 else 20)
    Q = StackedSelector(np.arange(0, 4 * k + 1, 4), np.tile(np.arange(4), k).astype(index), np.arange(k))
    src = np.tile(columns, k).astype(index)
    src[:3] = 5
    with instruction_set(name), threads(2), pytest.raises(ValueError, match="src: a column is twice in a batch"):
        CPU.extract(A, Q, pointers([len(columns)] * k), src)


def test_extract_columns_beyond_all_tables():
    """The largest number of an index type as a column, of batches that share rows."""
    A, k = hubs(np.random.default_rng(1), np.int64), 40
    Q, _, _ = common_rows(np.random.default_rng(2), k, np.int64, 10)
    columns = np.append(np.arange(0, N, 2), np.iinfo(np.int64).max)
    src_ptr, src = pointers([len(columns)] * k), np.tile(columns, k)
    assert_equal(CPU.extract(A, Q, src_ptr, src), REFERENCE.extract(A, Q, src_ptr, src))


@pytest.mark.parametrize(("k", "name", "index"), pairs([30, 64, 65, 130], SETS, [np.int32, np.int64]))
def test_extract_rows_common_to_many_batches(name, k, index):
    """Rows are read once for up to 64 batches, over several pieces of a long row, on one thread and on several."""
    rng = np.random.default_rng(k)
    A = hubs(rng, index)
    for most_columns in (300, 4000):
        Q, src_ptr, src = common_rows(rng, k, index, most_columns)
        expected = REFERENCE.extract(A, Q, src_ptr, src)
        for count in (1, 3):
            with threads(count), instruction_set(name):
                assert_equal(CPU.extract(A, Q, src_ptr, src), expected)
                assert_equal(CPU.extract(A, Q, src_ptr, src, positions=False), expected._replace(positions=None))


@each_set
def test_extract_rows_common_to_batches_of_small_columns(name):
    """A row's entries may be larger than every column, and there may be no column at all."""
    rng = np.random.default_rng(5)
    A, k = hubs(rng), 40
    Q, _, _ = common_rows(rng, k, np.int32, 10)
    for columns in (np.arange(40), np.array([0]), np.zeros(0, int)):
        src_ptr, src = pointers([len(columns)] * k), np.tile(columns, k).astype(np.int32)
        with threads(2), instruction_set(name):
            assert_equal(CPU.extract(A, Q, src_ptr, src), REFERENCE.extract(A, Q, src_ptr, src))


@each_set
@pytest.mark.parametrize("size", [1, 3, 40, 200])
@pytest.mark.parametrize("row_normalized", [False, True])
def test_draw_entries_later_rounds(name, size, row_normalized):
    """A few columns hold nearly all entries: most draws repeat, and the chosen are taken out several times."""
    rng = np.random.default_rng(size)
    A = hubs(rng)
    vertices = np.array([EMPTY, PARALLEL, 9, PARALLEL, *range(10, 49)], np.int32)
    Q = StackedSelector(np.array([0, 3, 3, 43]), vertices, np.arange(3))
    degrees = np.diff(A.indptr)[Q.vertices]
    q = np.where(degrees > 0, 2**20 // np.maximum(degrees, 1), 0).astype(np.uint64) if row_normalized else None
    with instruction_set(name):
        for replace in (False, True):
            draw = Draw(KEY, 2, size, replace)
            assert_equal(CPU.draw_entries(A, Q, q, draw), REFERENCE.draw_entries(A, Q, q, draw))


RULES = {
    "counts": (None, False, None, 2),
    "plain counts": (None, False, None, 1),
    "row": (None, True, 20, 2),
    "float32": (np.float32, False, 12, 2),
    "float64, squared entries": (np.float64, False, 40, 1),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_draw_merged(rule, count, index):
    """Dense sums, for many batches and for fewer than threads; supports taken whole; repeats."""
    data, row_normalized, shift, column_power = RULES[rule]
    rng = np.random.default_rng(11)
    A = hubs(rng, index, data, row_normalized)
    for k in (1, 2, 6):
        Q = frontiers(rng, k + 1, index)
        Q = StackedSelector(Q.batch_ptr[: k + 1], Q.vertices[: Q.batch_ptr[k]], Q.batch_ids[:k])
        shifts = None if shift is None else np.full(k, shift)
        numerators = QuantisationRule(shifts, 3 - column_power, column_power)
        for draw in (Draw(KEY, 0, 70), Draw(KEY, 1, 50, True), Draw(KEY, 2, N)):
            with threads(count):
                sample = CPU.draw_merged(A, Q, numerators, draw)
            assert_equal(sample, REFERENCE.draw_merged(A, Q, numerators, draw))


@pytest.mark.parametrize("count", [1, 4])
def test_draw_merged_over_several_ranges_of_columns(count):
    """More columns than a slice and a range have; rows that end in the middle of one; columns at their borders."""
    rng, n = np.random.default_rng(5), 400_000
    border = [0, 255, 256, 2**15 - 1, 2**15, 2**17 - 1, 2**17, 2**18, n - 1]
    rows = [np.append(rng.choice(n, d), border) for d in (20_000, 9_000, 300)] + [rng.choice(2**16, 700)]
    indptr = np.concatenate([pointers([len(r) for r in rows]), np.full(n - len(rows), sum(map(len, rows)))])
    for row_normalized in (False, True):
        A = Matrix(indptr, np.concatenate([np.sort(r) for r in rows]).astype(np.int32), None, row_normalized)
        Q = StackedSelector(np.array([0, 4, 6]), np.array([2, 0, 3, 1, 1, 9], np.int32), np.array([3, 9]))
        numerators = QuantisationRule(np.array([30, 31]) if row_normalized else None, 1, 2)
        with threads(count):
            sample = CPU.draw_merged(A, Q, numerators, Draw(KEY, 0, 400))
        assert_equal(sample, REFERENCE.draw_merged(A, Q, numerators, Draw(KEY, 0, 400)))


def test_draw_merged_counts_beyond_16_bits():
    """A column with 2^16 + 3 parallel entries: sums of 16 bits are noticed to be too small."""
    columns = np.repeat([1, 5, 6], [2**16 + 3, 4, 2**16])
    A = Matrix(np.array([0, len(columns), *[len(columns)] * 7]), columns.astype(np.int32))
    Q = StackedSelector(np.array([0, 2]), np.array([0, 3], np.int32), np.array([0]))
    for size in (1, 2, 3):
        arguments = (A, Q, QuantisationRule(None, 1, 2), Draw(KEY, 0, size))
        assert_equal(CPU.draw_merged(*arguments), REFERENCE.draw_merged(*arguments))


@pytest.mark.parametrize("count", [2047, 2048, 4000, 4096])
def test_draw_merged_squares_of_whole_blocks(count):
    """256 columns in each of `count` rows: squares that need more than 32 bits together."""
    indptr = np.minimum(np.arange(2 * count + 1), count) * 256
    A = Matrix(indptr, np.tile(np.arange(256, dtype=np.int32), count))
    Q = StackedSelector(np.array([0, count]), np.arange(count, dtype=np.int32), np.array([0]))
    arguments = (A, Q, QuantisationRule(None, 1, 2), Draw(KEY, 0, 16))
    assert_equal(CPU.draw_merged(*arguments), REFERENCE.draw_merged(*arguments))


def test_draw_merged_refuses_columns_outside():
    A = Matrix(np.array([0, 3, 6]), np.array([1, 500_000, 900_000, 5, 6, 800_000], np.int32))
    Q = StackedSelector(np.array([0, 2]), np.array([0, 1], np.int32), np.array([0]))
    with pytest.raises(ValueError, match="indices: a column is not below the number of columns"):
        CPU.draw_merged(A, Q, QuantisationRule(None, 1, 2), Draw(KEY, 0, 3))


@pytest.mark.parametrize("backend", [CPU, REFERENCE], ids=["cpu", "reference"])
def test_draw_merged_of_nothing(backend):
    """No batches, batches without rows, rows without entries, entries of weight 0."""
    A = Matrix(np.array([0, 0, 2, 2]), np.array([0, 2], np.int32), np.zeros(2, np.float32))
    for vertices, batch_ptr in (([], [0]), ([], [0, 0]), ([0, 2], [0, 2]), ([1], [0, 1])):
        k = len(batch_ptr) - 1
        Q = StackedSelector(np.array(batch_ptr), np.array(vertices, np.int32), np.arange(k))
        for replace in (False, True):
            sample = backend.draw_merged(A, Q, QuantisationRule(np.zeros(k, np.int64), 1, 2), Draw(KEY, 0, 3, replace))
            assert sample.indptr.tolist() == [0] * (k + 1)
            assert sample.columns.dtype == np.int32
            assert sample.totals.tolist() == [0] * k
            assert sample.whole.tolist() == [not replace] * k


def test_draw_merged_is_composed_by_default():
    """Where a graph has no fused kernel, `merge_columns` and `draw_columns` give the same sample."""
    rng = np.random.default_rng(2)
    frontier = LocalOperand(hubs(rng), None, CPU).frontier(frontiers(rng, 3))
    arguments = (QuantisationRule(None, 1, 2), Draw(KEY, 0, 30))
    assert_equal(Frontier.draw_merged(frontier, *arguments), frontier.draw_merged(*arguments))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_merge_columns(rule, count, index):
    """Dense sums, for many batches and for fewer than threads; a batch without rows."""
    data, row_normalized, shift, column_power = RULES[rule]
    rng = np.random.default_rng(12)
    A = hubs(rng, index, data, row_normalized)
    for k in (1, 2, 3, 7):
        Q = frontiers(rng, k, index)
        numerators = QuantisationRule(None if shift is None else shift - np.arange(k), 3 - column_power, column_power)
        with threads(count):
            P = CPU.merge_columns(A, Q, numerators)
        assert_equal(P, REFERENCE.merge_columns(A, Q, numerators))


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("data", [None, np.float32])
def test_merge_columns_dense_and_by_hash_table(count, data):
    """64 columns for each entry or one more: batches of both kinds side by side, and zeros in both."""
    rng, n = np.random.default_rng(6), 64 * 100
    indptr = np.minimum(np.arange(n + 1), 300)
    weights = None if data is None else (rng.random(300) * (rng.random(300) < 0.7)).astype(data)
    A = Matrix(indptr, rng.integers(0, n, 300).astype(np.int32), weights)
    sizes = [99, 100, 0, 101, 98, 300]
    vertices = np.concatenate([rng.permutation(300)[:size] for size in sizes]).astype(np.int32)
    Q = StackedSelector(pointers(sizes), vertices, np.arange(len(sizes)))
    for numerators in (QuantisationRule(None, 1, 2), QuantisationRule(np.full(len(sizes), 20), 1, 2)):
        with threads(count):
            P = CPU.merge_columns(A, Q, numerators)
        assert_equal(P, REFERENCE.merge_columns(A, Q, numerators))


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("data", [None, np.float64])
def test_merge_columns_over_several_ranges(count, data):
    """More columns than a range has, in a matrix of few rows; columns at the borders; threads share the batches."""
    rng, n = np.random.default_rng(5), 700_001
    border = [0, 255, 256, 2**15, 2**17 - 1, 2**17, 2**18 - 1, 2**18, n - 1]
    rows = [np.append(rng.choice(n, d), border) for d in (20_000, 9_000, 300)] + [rng.choice(2**16, 11_000)]
    columns = np.concatenate([np.sort(r) for r in rows]).astype(np.int32)
    weights = None if data is None else rng.random(len(columns)) * (rng.random(len(columns)) < 0.8)
    A = Matrix(pointers([len(r) for r in rows]), columns, weights, num_columns=n)
    Q = StackedSelector(np.array([0, 4, 5]), np.array([2, 0, 3, 1, 3], np.int32), np.array([3, 9]))
    numerators = QuantisationRule(None if data is None else np.array([30, 31]), 1, 2)
    with threads(count):
        P = CPU.merge_columns(A, Q, numerators)
    assert_equal(P, REFERENCE.merge_columns(A, Q, numerators))


@pytest.mark.parametrize("count", [1, 4])
def test_merge_columns_counts_beyond_16_bits(count):
    """The second batch needs sums of 64 bits, and those before and after it do not."""
    columns = np.concatenate([np.repeat([1, 5, 6], [2**16 + 3, 4, 2**16]), [0, 0, 7]]).astype(np.int32)
    A = Matrix(pointers([len(columns) - 3, 3]), columns, num_columns=300_000)
    Q = StackedSelector(np.array([0, 1, 3, 4]), np.array([1, 0, 1, 1], np.int32), np.arange(3))
    with threads(count):
        P = CPU.merge_columns(A, Q, QuantisationRule(None, 1, 2))
    assert_equal(P, REFERENCE.merge_columns(A, Q, QuantisationRule(None, 1, 2)))


@pytest.mark.parametrize("count", [1, 4])
def test_merge_columns_refuses_columns_outside(count):
    A = Matrix(np.array([0, 3, 6]), np.array([1, 500_000, 900_000, 5, 6, 800_000], np.int32))
    Q = StackedSelector(np.array([0, 2]), np.array([0, 1], np.int32), np.array([0]))
    with threads(count), pytest.raises(ValueError, match="indices: a column is not below the number of columns"):
        CPU.merge_columns(A, Q, QuantisationRule(None, 1, 2))


def test_merge_columns_refuses_sums_of_more_than_64_bits():
    """K is not of the frontier rule: the two 2^63 add up to 0, where a column was counted."""
    A = Matrix(np.array([0, 2, 2]), np.array([1, 1], np.int32), np.ones(2))
    Q = StackedSelector(np.array([0, 1]), np.array([0], np.int32), np.array([0]))
    with pytest.raises(ValueError, match="a sum passes 64 bits"):
        CPU.merge_columns(A, Q, QuantisationRule(np.array([63]), 1, 1))


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("pieces", [1, 2, 9])
@pytest.mark.parametrize("share", [1, 0.2, 1 / 500])
def test_sums_are_added_up_in_ranges_of_columns(count, k, pieces, share):
    """Full rows, dense ones, and few sums: merged or by a hash table; with more threads than batches."""
    rng, n = np.random.default_rng(pieces), 2**19 + 33
    parts = []
    for _ in range(pieces):
        rows = [np.flatnonzero(rng.random(n) < share * (i != 2)) for i in range(k)]
        ptr = pointers([len(row) for row in rows])
        parts.append(
            PartialSums(ptr, np.concatenate(rows).astype(np.int32), rng.integers(1, 2**12, ptr[-1], np.uint16))
        )
    with threads(count):
        assert_equal(CPU.add_columns(parts, n, 2), REFERENCE.add_columns(parts, n, 2))
