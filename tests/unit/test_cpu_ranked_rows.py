"""Rows of A D drawn by the ranks of their entries: equal to the reference, and to what is drawn by weights."""

from __future__ import annotations

import numpy as np
import pytest
from covers import pairs

core = pytest.importorskip("spsample._core", reason="the compiled core is not built")

from spsample.backends import ColumnScale, Compaction, Draw, Matrix, StackedRows, StackedSelector  # noqa: E402
from spsample.backends.cpu import CpuBackend  # noqa: E402
from spsample.backends.protocol import Expansion  # noqa: E402
from spsample.backends.reference import ReferenceBackend  # noqa: E402

CPU, REFERENCE = CpuBackend(), ReferenceBackend()
KEY = (0x243F6A88, 0x85A308D3)
LENGTHS = [0, 1, 2, 5, 6, 11, 16, 31, 32, 33, 0, 63, 64, 65, 100, 511, 512, 513, 530, 1000, 1024, 3000, 9000, 7]
MEMBERS = {
    "none": lambda rng, n: np.zeros(n, bool),
    "all": lambda rng, n: np.ones(n, bool),
    "some": lambda rng, n: rng.random(n) < 0.2,
    "first": lambda rng, n: np.arange(n) < n // 3,
}
# Below 1, above, of no power of 2, numerators that add up to 2^32, wide rows, a product that is rounded to 0.
FACTORS = [0.25, 4.0, 3.7, 1 - 2.0**-24, 1e9, 2.0**64, 1e-46]


def graph(rng, index) -> Matrix:
    """Rows that begin anywhere within a word; columns ascend, so that a set can be one stretch of a row."""
    indptr = np.concatenate([[0], np.cumsum(LENGTHS)]).astype(np.int64)
    rows = [np.sort(rng.integers(0, len(LENGTHS) * 40, length)) for length in LENGTHS]
    return Matrix(indptr, np.concatenate(rows).astype(index), num_columns=len(LENGTHS) * 40)


def scale_of(rng, kind, factor) -> ColumnScale:
    bits = np.zeros(len(LENGTHS) * 40 // 64 * 64, bool)  # the last columns have no bit
    bits[:] = MEMBERS[kind](rng, len(bits))
    return ColumnScale(np.packbits(bits, bitorder="little").view(np.uint64), factor)


def selector(rng, index) -> StackedSelector:
    batches = [rng.permutation(len(LENGTHS)), np.arange(len(LENGTHS)), np.zeros(0, int), [21, 3, 19, 22]]
    ends = np.cumsum([0, *map(len, batches)])
    return StackedSelector(ends, np.concatenate(batches).astype(index), 2**32 - 3 + np.arange(len(batches)))


def assert_rows_equal(one: StackedRows, other: StackedRows) -> None:
    for field, a, b in zip(one._fields, one, other, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=field)
        assert a is None or a.dtype == b.dtype, field


@pytest.mark.parametrize(
    ("kind", "factor", "size", "replace", "index"),
    pairs(list(MEMBERS), FACTORS, [1, 5, 10, 15, 30, 64, 70], [False, True], [np.int32, np.int64]),
)
def test_draws_are_those_of_the_weights(instruction_set, kind, factor, size, replace, index):
    rng = np.random.default_rng(size)
    A, scale, Q = graph(rng, index), scale_of(rng, kind, factor), selector(rng, index)
    ranks, draw = CPU.entry_ranks(A, scale), Draw(KEY, 3, size, replace)
    expected = CPU.sample_rows_scaled(A, Q, draw, scale, True)
    assert_rows_equal(CPU.sample_rows_scaled(A, Q, draw, scale, True, ranks), expected)
    block = A._replace(ids=(np.arange(len(LENGTHS)) * 7 + 2**20).astype(index))
    assert_rows_equal(
        CPU.sample_rows_scaled(block, Q, draw, scale, False, ranks),
        CPU.sample_rows_scaled(block, Q, draw, scale, False),
    )


@pytest.mark.parametrize(("kind", "factor", "replace"), pairs(list(MEMBERS), FACTORS, [False, True]))
def test_draws_are_those_of_the_reference(kind, factor, replace):
    rng = np.random.default_rng(3)
    A, scale, Q = graph(rng, np.int32), scale_of(rng, kind, factor), selector(rng, np.int32)
    ranks, draw = CPU.entry_ranks(A, scale), Draw(KEY, 1, 6, replace)
    expected = REFERENCE.sample_rows_scaled(A, Q, draw, scale, True, ranks)
    assert_rows_equal(CPU.sample_rows_scaled(A, Q, draw, scale, True, ranks), expected)


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 64, 300_000])
def test_ranks_are_those_of_the_reference(count):
    rng = np.random.default_rng(count)
    A = Matrix(np.array([0, count]), rng.integers(0, len(LENGTHS) * 40, count).astype(np.int32))
    scale = scale_of(rng, "some", 2.0)
    ranks = CPU.entry_ranks(A, scale)
    np.testing.assert_array_equal(ranks, REFERENCE.entry_ranks(A, scale))
    assert ranks.dtype == np.uint32


def test_ranks_that_are_off_by_one_are_seen():
    """What the tests above compare depends on each of them."""
    rng = np.random.default_rng(0)
    A, scale, Q = graph(rng, np.int32), scale_of(rng, "some", 16.0), selector(rng, np.int32)
    ranks, draw = CPU.entry_ranks(A, scale), Draw(KEY, 1, 15)
    wrong = ranks.copy()
    wrong[len(ranks) // 2 + 1 :] += np.uint32(1)
    drawn = [CPU.sample_rows_scaled(A, Q, draw, scale, True, of).columns for of in (ranks, wrong)]
    assert not np.array_equal(*drawn)


def test_ranks_of_another_matrix_are_refused():
    rng = np.random.default_rng(0)
    A, scale, Q = graph(rng, np.int32), scale_of(rng, "some", 16.0), selector(rng, np.int32)
    with pytest.raises(ValueError, match="ranks"):
        CPU.sample_rows_scaled(A, Q, Draw(KEY, 1, 2), scale, True, np.zeros(4, np.uint32))


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_draw_the_same(threads):
    rng = np.random.default_rng(7)
    n = 2000
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 90, n))])
    A = Matrix(indptr, rng.integers(0, n, indptr[-1]).astype(np.int32))
    scale = ColumnScale(rng.integers(0, 2**63, 30).astype(np.uint64), 4.0)
    vertices = np.concatenate([np.arange(n), rng.permutation(n)] * 4).astype(np.int32)
    Q = StackedSelector(np.arange(9) * n, vertices, np.arange(8))
    before = core.get_num_threads()
    core.set_num_threads(threads)
    rows = CPU.sample_rows_scaled(A, Q, Draw(KEY, 0, 10), scale, True, CPU.entry_ranks(A, scale))
    core.set_num_threads(before)
    assert_rows_equal(rows, CPU.sample_rows_scaled(A, Q, Draw(KEY, 0, 10), scale, True))


@pytest.mark.parametrize(
    ("value", "by_own", "replace", "factor", "index"),
    pairs([None, np.float32, np.float64], [False, True], [False, True], FACTORS[:6], [np.int32, np.int64]),
)
def test_expansion_values_are_those_of_the_reference(value, by_own, replace, factor, index):
    rng = np.random.default_rng(1)
    A, scale, Q = graph(rng, index), scale_of(rng, "some", factor), selector(rng, index)
    rows = CPU.sample_rows_scaled(A, Q, Draw(KEY, 1, 6, replace), scale, True)
    src, local = np.unique(rows.columns, return_inverse=True)
    sources = Compaction(np.arange(5) * len(src), np.tile(src, 4), local.astype(index))
    own = None if value is None else rng.random(len(rows.columns)).astype(value)
    totals = rng.random((len(LENGTHS), 2)) * 50
    totals[:7] = 0  # as if all were drawn
    how = Expansion(scale, totals, by_own and own is not None, replace)
    found, expected = (one.expansion_values(Q, rows, sources, own, how) for one in (CPU, REFERENCE))
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
