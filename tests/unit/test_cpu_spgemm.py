"""The compiled general product against the reference backend, bit for bit: every way to add up a row, 1 to 4 threads.

How a row is added up follows from its shape, so each way is asked for by one: rows with a single entry of A (copies),
few products (ranks, merging), many over few columns (sums for all columns), many over many columns (hash table), and
so many that the row is cut into ranges of columns.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

_core = pytest.importorskip("spsample._core", reason="the compiled core is not built")

from spsample.backends.cpu import CpuBackend  # noqa: E402
from spsample.backends.reference import ReferenceBackend  # noqa: E402

VALUE_TYPES = [np.float32, np.float64, np.int64, np.uint64]
FAR = 2**30
"""So many columns that sums for all of them do not pay."""


@pytest.fixture(autouse=True)
def _threads_as_before():
    before = _core.get_num_threads()
    yield
    _core.set_num_threads(before)


def on_threads():
    """1, 2 and 4, each set."""
    for threads in (1, 2, 4):
        _core.set_num_threads(threads)
        yield threads


def random_values(rng, count, dtype):
    """Of very different size, with both signs and zeros of both signs; whole numbers of all 64 bits."""
    if np.issubdtype(dtype, np.floating):
        values = (rng.standard_normal(count) * 10.0 ** rng.uniform(-6, 6, count)).astype(dtype)
        values[rng.random(count) < 0.2] = -0.0
        return values
    return rng.integers(0, 2**63 - 1, count).astype(dtype)


def matrix(rng, lengths, num_columns, dtype, index=np.int32, order="any"):
    """Rows of the given lengths; columns in "any" order or "sorted", both with repeats, or ascending and "distinct"."""
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    if order == "distinct":
        rows = [np.sort(rng.choice(num_columns, length, replace=False)) for length in lengths]
        indices = np.concatenate([*rows, np.zeros(0, np.int64)])
    else:
        indices = rng.integers(0, num_columns, indptr[-1])
        if order == "sorted":
            indices = indices[np.lexsort((indices, np.repeat(np.arange(len(lengths)), lengths)))]
    return indptr, indices.astype(index), random_values(rng, indptr[-1], dtype)


def check(A, B, num_columns):
    with np.errstate(over="ignore", invalid="ignore"):
        expected = ReferenceBackend().spgemm(A, B, num_columns)
    for threads in on_threads():
        for actual, wanted in zip(CpuBackend().spgemm(A, B, num_columns), expected, strict=True):
            assert actual.dtype == wanted.dtype
            assert actual.tobytes() == wanted.tobytes(), threads


@settings(deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(VALUE_TYPES),
    st.sampled_from([np.int32, np.int64]),
    st.sampled_from(["any", "sorted", "distinct"]),
    st.sampled_from([1, 3, 40, 300, 20_000]),
)
def test_random_shapes(seed, dtype, index, order, num_columns):
    rng = np.random.default_rng(seed)
    rows, inner = rng.integers(0, 30, 2)
    A = matrix(rng, rng.integers(0, 12, rows) if inner else np.zeros(rows, np.int64), max(inner, 1), dtype, index)
    lengths = rng.integers(0, min(60, num_columns) + 1, max(inner, 1))
    lengths[rng.random(len(lengths)) < 0.3] = 0
    check(A, matrix(rng, lengths, num_columns, dtype, index, order), num_columns)


@pytest.mark.parametrize("dtype", VALUE_TYPES)
@pytest.mark.parametrize("order", ["any", "sorted", "distinct"])
def test_selectors(dtype, order):
    """A with at most one entry a row, and B's rows short, long and empty."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 20, 500)
    lengths[[3, 77]] = 900
    B = matrix(rng, lengths, 1000, dtype, order=order)
    check(matrix(rng, (rng.random(2000) < 0.9).astype(np.int64), 500, dtype), B, 1000)


@pytest.mark.parametrize("dtype", [np.float64, np.uint64])
@pytest.mark.parametrize("num_columns", [500, 100_000, FAR])
@pytest.mark.parametrize("order", ["any", "sorted"])
def test_rows_of_all_sizes(dtype, num_columns, order):
    """Merged, dense and hashed rows side by side, and selectors among them."""
    rng = np.random.default_rng(2)
    B = matrix(rng, rng.integers(0, 300, 200), num_columns, dtype, order=order)
    A = matrix(rng, rng.choice([0, 1, 1, 2, 5, 60], 150), 200, dtype)
    check(A, B, num_columns)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("order", ["any", "sorted", "distinct"])
def test_a_row_cut_into_ranges_of_columns(dtype, order):
    rng = np.random.default_rng(3)
    B = matrix(rng, np.full(600, 1000), 40_000, dtype, order=order)
    check(matrix(rng, np.array([2, 700, 0, 1]), 600, dtype), B, 40_000)


def test_a_row_cut_where_all_products_fall_on_few_columns():
    """Ranges of columns that would be too narrow are not made."""
    rng = np.random.default_rng(4)
    B = matrix(rng, np.full(600, 1000), 3, np.float32, order="sorted")
    check(matrix(rng, np.array([1500]), 600, np.float32), B, 100_000)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_not_a_number_and_infinity(index):
    A = (np.array([0, 2, 3]), np.array([0, 1, 1], index), np.array([np.inf, 0.0, -1.0]))
    B = (np.array([0, 2, 3]), np.array([0, 1, 1], index), np.array([0.0, 1.0, np.inf]))
    with np.errstate(invalid="ignore"):
        check(A, B, 2)


@pytest.mark.parametrize("dtype", VALUE_TYPES)
def test_values_left_out_are_ones(dtype):
    rng = np.random.default_rng(5)
    A = matrix(rng, rng.integers(0, 5, 50), 40, dtype)
    B = matrix(rng, rng.integers(0, 30, 40), 60, dtype)
    check((*A[:2], None), B, 60)
    check(A, (*B[:2], None), 60)
    check((*A[:2], None), (*B[:2], None), 60)
    assert CpuBackend().spgemm((*A[:2], None), (*B[:2], None), 60)[2].dtype == np.float32


@pytest.mark.parametrize("entries", [1, 2, 100, 6000])
@pytest.mark.parametrize("bad", [-1, 5])
def test_columns_outside_are_refused_however_a_row_is_added_up(entries, bad):
    _core.set_num_threads(2)
    one, columns = np.ones(entries), np.tile(np.arange(5), 20)
    A = (np.array([0, entries]), np.zeros(entries, np.int64), one)
    columns[-1] = bad
    with pytest.raises(ValueError, match="B: a column is outside the matrix"):
        CpuBackend().spgemm(A, (np.array([0, 100]), np.sort(columns), np.ones(100)), 5)
    with pytest.raises(ValueError, match="B: a column is outside the matrix"):
        CpuBackend().spgemm(A, (np.array([0, 100]), columns, np.ones(100)), 5)
    with pytest.raises(ValueError, match="A: a column is outside the matrix"):
        CpuBackend().spgemm((A[0], np.full(entries, bad), one), (np.array([0, 100]), columns, np.ones(100)), 5)


def test_pointers_of_rows_that_are_read_are_checked():
    A = (np.array([0, 1]), np.array([1]), np.ones(1))
    for pointers in ([0, 3, 2, 2], [0, -1, 2, 2]):
        with pytest.raises(ValueError, match="B: must not descend"):
            CpuBackend().spgemm(A, (np.array(pointers), np.array([0, 1]), np.ones(2)), 2)
        with pytest.raises(ValueError, match="A: must not descend"):
            CpuBackend().select_rows((np.array(pointers), np.array([0, 1]), None), np.array([1]))


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.complex128])
def test_selected_rows_longer_than_a_chunk(dtype):
    rng = np.random.default_rng(6)
    lengths = np.array([0, 100_000, 3, 0, 40_000, 0])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    A = (indptr, rng.integers(0, 9, indptr[-1]), rng.integers(0, 200, indptr[-1]).astype(dtype))
    rows = rng.integers(0, 6, 40)
    expected = ReferenceBackend().select_rows(A, rows)
    for _ in on_threads():
        for actual, wanted in zip(CpuBackend().select_rows(A, rows), expected, strict=True):
            assert actual.dtype == wanted.dtype
            np.testing.assert_array_equal(actual, wanted)
