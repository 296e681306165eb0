"""The cpu backend: known answers of its random bits; its draw laws equal the reference bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

core = pytest.importorskip("spsample._core", reason="the compiled core is not built")

from spsample.backends import ColumnMatrix, Draw, Matrix, StackedSelector  # noqa: E402
from spsample.backends.cpu import CpuBackend  # noqa: E402
from spsample.backends.reference import ReferenceBackend  # noqa: E402

CPU, REFERENCE = CpuBackend(), ReferenceBackend()

# Random123's kat_vectors, philox4x32 with 10 rounds: counter, key, answer
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.fixture(params=[1, 2, 4])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = core.get_num_threads()
    core.set_num_threads(request.param)
    yield request.param
    core.set_num_threads(before)


def assert_equal(cpu: tuple[Any, ...], reference: tuple[Any, ...]) -> None:
    """Same type of tuple, and equal arrays of equal dtypes."""
    assert type(cpu) is type(reference)
    for field, a, b in zip(cpu._fields, cpu, reference, strict=True):  # type: ignore[attr-defined]
        if b is None:
            assert a is None, field
            continue
        assert a.dtype == b.dtype, field
        np.testing.assert_array_equal(a, b, err_msg=field)


# --- random bits ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_known_answers(counter: str, key: str, answer: str) -> None:
    counters = np.array([words(counter)] * 3, dtype=np.uint32)
    key0, key1 = words(key)
    assert CPU.philox(counters, (key0, key1)).tolist() == [words(answer)] * 3


def test_philox_of_no_counters() -> None:
    assert CPU.philox(np.zeros((0, 4), np.uint32), (1, 2)).shape == (0, 4)


@pytest.mark.parametrize("count", [0, 1, 2, 1000, 5000, 70_001])
def test_shuffle_equals_reference(count: int, threads: int) -> None:
    order = CPU.shuffle(count, (7, 2**32 - 1))
    assert order.dtype == np.int64
    np.testing.assert_array_equal(order, REFERENCE.shuffle(count, (7, 2**32 - 1)))


def test_shuffle_refuses_a_negative_count() -> None:
    with pytest.raises(ValueError, match="count"):
        core.shuffle(-1, 0, 0)


# --- inputs ---------------------------------------------------------------------------------------


def random_graph(rng: np.random.Generator, n: int, weighted: bool, index: type) -> Matrix:
    """Rows of very different lengths, some empty; repeats; zero weights and weights of all magnitudes."""
    degrees = rng.choice([0, 1, 2, 5, 30, 100], size=n)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    sources = max(1, int(rng.integers(1, n + 1)))  # few sources: many repeats
    rows = [np.sort(rng.integers(0, sources, size=d)) for d in degrees]
    indices = np.concatenate([*rows, np.zeros(0, np.int64)]).astype(index)
    data = None
    if weighted:
        kind = rng.integers(0, 3)
        magnitude = (
            10.0 ** rng.uniform(-9, 9, size=indices.size) if kind == 0 else rng.integers(1, 4, size=indices.size)
        )
        data = np.where(rng.random(indices.size) < 0.2, 0.0, magnitude).astype(np.float32 if kind == 2 else np.float64)
    return Matrix(indptr, indices, data)


def random_selector(rng: np.random.Generator, n: int, k: int, index: type) -> StackedSelector:
    batches = [rng.permutation(n)[: rng.integers(0, n + 1)] for _ in range(k)]
    batch_ptr = np.concatenate([[0], np.cumsum([len(b) for b in batches])]).astype(np.int64)
    vertices = np.concatenate([*batches, np.zeros(0, np.int64)]).astype(index)
    first = int(rng.choice([0, 2**32 - k - 1]))
    return StackedSelector(batch_ptr, vertices, first + np.arange(k, dtype=np.int64))


def random_draw(rng: np.random.Generator, replace: bool) -> Draw:
    key = (int(rng.integers(2**32)), int(rng.integers(2**32)))
    return Draw(key, int(rng.choice([0, 1, 255])), int(rng.choice([1, 2, 3, 10, 40, 90, 1000])), replace)


seeds = st.integers(0, 2**32 - 1)


# --- row law --------------------------------------------------------------------------------------


@given(seed=seeds, replace=st.booleans(), positions=st.booleans(), index=st.sampled_from([np.int32, np.int64]))
@settings(max_examples=60, deadline=None)
def test_uniform_rows_equal_reference(seed: int, replace: bool, positions: bool, index: type) -> None:
    rng = np.random.default_rng(seed)
    A, Q = random_graph(rng, 25, False, index), random_selector(rng, 25, int(rng.integers(0, 4)), index)
    draw = random_draw(rng, replace)
    assert_equal(CPU.sample_rows_uniform(A, Q, draw, positions), REFERENCE.sample_rows_uniform(A, Q, draw, positions))
    assert_equal(CPU.take_rows(A, Q, positions), REFERENCE.take_rows(A, Q, positions))


@given(seed=seeds, replace=st.booleans(), positions=st.booleans(), index=st.sampled_from([np.int32, np.int64]))
@settings(max_examples=60, deadline=None)
def test_weighted_rows_equal_reference(seed: int, replace: bool, positions: bool, index: type) -> None:
    rng = np.random.default_rng(seed)
    A, Q = random_graph(rng, 25, True, index), random_selector(rng, 25, int(rng.integers(0, 4)), index)
    draw = random_draw(rng, replace)
    assert_equal(CPU.sample_rows_weighted(A, Q, draw, positions), REFERENCE.sample_rows_weighted(A, Q, draw, positions))


def test_a_row_of_a_million_entries(threads: int) -> None:
    degree, rng = 1_000_000, np.random.default_rng(5)
    A = Matrix(np.array([0, degree], np.int64), np.arange(degree, dtype=np.int32), rng.random(degree))
    Q = StackedSelector(np.array([0, 1], np.int64), np.zeros(1, np.int32), np.zeros(1, np.int64))
    draw = Draw((3, 4), 0, 500)
    assert_equal(CPU.sample_rows_uniform(A, Q, draw, True), REFERENCE.sample_rows_uniform(A, Q, draw, True))
    assert_equal(CPU.sample_rows_weighted(A, Q, draw, True), REFERENCE.sample_rows_weighted(A, Q, draw, True))


def test_threads_do_not_change_rows(threads: int) -> None:
    rng = np.random.default_rng(11)
    A, Q = random_graph(rng, 100, True, np.int32), random_selector(rng, 100, 12, np.int32)
    for draw in (random_draw(rng, False), random_draw(rng, True)):
        assert_equal(CPU.sample_rows_uniform(A, Q, draw, True), REFERENCE.sample_rows_uniform(A, Q, draw, True))
        assert_equal(CPU.sample_rows_weighted(A, Q, draw, False), REFERENCE.sample_rows_weighted(A, Q, draw, False))


# --- column law -----------------------------------------------------------------------------------

SCALES = [1, 3, 2**16, 2**29 + 1, 2**30, 2**45, 2**56 + 3]


def random_numerators(rng: np.random.Generator, count: int, zeros: bool) -> np.ndarray:
    """Totals on both sides of 2^32; near powers of two, where a quarter or more of the words is rejected."""
    scale = int(rng.choice(SCALES))
    values = rng.integers(1, 4, size=count).astype(np.uint64) * np.uint64(scale)
    if rng.random() < 0.3 and count > 2:  # a few columns hold nearly all: later rounds
        values[rng.permutation(count)[:2]] *= np.uint64(50 if scale < 2**56 else 10)  # the sum stays below 2^64
        values[rng.random(count) < 0.7] = 1
    if zeros:
        values[rng.random(count) < 0.3] = 0
    return values


@given(seed=seeds, replace=st.booleans(), index=st.sampled_from([np.int32, np.int64]))
@settings(max_examples=100, deadline=None)
def test_columns_equal_reference(seed: int, replace: bool, index: type) -> None:
    rng = np.random.default_rng(seed)
    k = int(rng.integers(0, 4))
    lengths = rng.choice([0, 1, 3, 4, 12, 60], size=k)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    columns = [np.sort(rng.permutation(100)[:length]) for length in lengths]
    numerators = [random_numerators(rng, int(length), False) for length in lengths]
    totals = np.array([row.sum() for row in numerators], np.uint64)
    P = ColumnMatrix(
        indptr,
        np.concatenate([*columns, np.zeros(0, np.int64)]).astype(index),
        np.concatenate([*numerators, np.zeros(0, np.uint64)]),
        totals,
    )
    batch_ids, draw = np.arange(5, 5 + k, dtype=np.int64), random_draw(rng, replace)
    assert_equal(CPU.draw_columns(P, batch_ids, draw), REFERENCE.draw_columns(P, batch_ids, draw))


@given(seed=seeds, replace=st.booleans())
@settings(max_examples=100, deadline=None)
def test_shared_columns_equal_reference(seed: int, replace: bool) -> None:
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(random_numerators(rng, int(rng.choice([0, 1, 5, 11, 60])), True), dtype=np.uint64)
    batch_ids, draw = np.arange(int(rng.integers(0, 5)), dtype=np.int64), random_draw(rng, replace)
    assert_equal(CPU.draw_shared(cumulative, batch_ids, draw), REFERENCE.draw_shared(cumulative, batch_ids, draw))


def test_rejected_words_are_drawn_again() -> None:
    """Totals of 3 2^30 and 3 2^61 reject a quarter of all 32-bit and of all 64-bit words."""
    for unit in (2**30, 2**61):
        cumulative = np.cumsum(np.array([unit, unit, unit], np.uint64), dtype=np.uint64)
        draw = Draw((1, 2), 3, 2000, replace=True)
        sample = CPU.draw_shared(cumulative, np.arange(2, dtype=np.int64), draw)
        assert_equal(sample, REFERENCE.draw_shared(cumulative, np.arange(2, dtype=np.int64), draw))
        assert sample.counts.min() > 500


# --- entry law ------------------------------------------------------------------------------------


@given(seed=seeds, replace=st.booleans(), index=st.sampled_from([np.int32, np.int64]), equal=st.booleans())
@settings(max_examples=150, deadline=None)
def test_entries_equal_reference(seed: int, replace: bool, index: type, equal: bool) -> None:
    rng = np.random.default_rng(seed)
    A, Q = random_graph(rng, 60, False, index), random_selector(rng, 60, int(rng.integers(0, 4)), index)
    scale = np.uint64(rng.choice([1, 2**20, 2**36]))  # T stays below 2^63
    skew = 2.0 ** rng.uniform(0, 12, size=len(Q.vertices))
    numerators = None if equal else skew.astype(np.uint64) * scale
    draw = random_draw(rng, replace)
    assert_equal(CPU.draw_entries(A, Q, numerators, draw), REFERENCE.draw_entries(A, Q, numerators, draw))


def test_entry_law_in_later_rounds(threads: int) -> None:
    """Three columns hold nearly all entries and seven are wanted: many rounds."""
    rows = [[0] * 500 + [1] * 500 + [2] * 500, [3, 4, 5, 6, 7, 8], [0, 1, 2, 9]]
    indptr = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    A = Matrix(np.concatenate([indptr, np.full(7, indptr[-1])]), np.concatenate(rows).astype(np.int32))
    k = 30
    Q = StackedSelector(np.arange(k + 1) * 3, np.tile(np.array([2, 0, 1], np.int32), k), np.arange(k))
    numerators = np.tile(np.array([5, 1, 2], np.uint64), k)
    for size in (3, 4, 7, 9, 10):
        draw = Draw((9, 9), 1, size)
        assert_equal(CPU.draw_entries(A, Q, None, draw), REFERENCE.draw_entries(A, Q, None, draw))
        assert_equal(CPU.draw_entries(A, Q, numerators, draw), REFERENCE.draw_entries(A, Q, numerators, draw))


# --- bad calls ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vertices": np.array([0, 3], np.int64)}, "vertices"),
        ({"vertices": np.array([0, -1], np.int64)}, "vertices"),
        ({"batch_ptr": np.array([0, 1], np.int64)}, "batch_ptr"),
        ({"batch_ptr": np.array([1, 2], np.int64)}, "batch_ptr"),
        ({"batch_ids": np.array([0, 1], np.int64)}, "batch_ids"),
    ],
)
def test_wrong_selectors_are_refused(change: dict[str, Any], message: str) -> None:
    A = Matrix(np.array([0, 1, 2, 3], np.int64), np.array([0, 1, 2], np.int64))
    Q = StackedSelector(np.array([0, 2], np.int64), np.array([0, 1], np.int64), np.array([0], np.int64))
    with pytest.raises(ValueError, match=message):
        CPU.sample_rows_uniform(A, Q._replace(**change), Draw((0, 0), 0, 2), False)


def test_wrong_draws_are_refused() -> None:
    cumulative, batch_ids = np.array([1, 2], np.uint64), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="size"):
        CPU.draw_shared(cumulative, batch_ids, Draw((0, 0), 0, -1))
    with pytest.raises(ValueError, match="hop"):
        CPU.draw_shared(cumulative, batch_ids, Draw((0, 0), 256, 1))


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_numerators_of_a_shared_row(index):
    numerators = np.array([3, 0, 2**62, 1, 0], np.uint64)
    cumulative = np.cumsum(numerators, dtype=np.uint64)
    for columns in ([], [0], [4, 0, 2, 2, 3, 1]):
        given = np.array(columns, index)
        found = CPU.shared_numerators(cumulative, given)
        assert found.dtype == np.uint64
        assert found.tolist() == REFERENCE.shared_numerators(cumulative, given).tolist() == numerators[given].tolist()
    for bad in (-1, 5):
        with pytest.raises(ValueError, match="columns: a column is not one of the row's"):
            CPU.shared_numerators(cumulative, np.array([0, bad], index))
