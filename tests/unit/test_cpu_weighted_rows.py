"""The weighted row law row by row of A: equal to the reference on every instruction set and number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from covers import pairs

core = pytest.importorskip("spsample._core", reason="the compiled core is not built")

from spsample.backends import Draw, Matrix, StackedRows, StackedSelector  # noqa: E402
from spsample.backends.cpu import CpuBackend  # noqa: E402
from spsample.backends.protocol import UNKNOWN_RULE  # noqa: E402
from spsample.backends.reference import ReferenceBackend  # noqa: E402

CPU, REFERENCE = CpuBackend(), ReferenceBackend()
KEY = (0x243F6A88, 0x85A308D3)


@pytest.fixture(autouse=True)
def settings():
    """Leaves instruction set and number of threads as they were."""
    before = core.instruction_set(), core.get_num_threads()
    yield
    core.set_instruction_set(before[0])
    core.set_num_threads(before[1])


def pointers(lengths) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


WEIGHTS = {
    "ones": lambda rng, count: np.ones(count),
    "integers": lambda rng, count: rng.integers(1, 9, count).astype(float),
    "exponential": lambda rng, count: rng.exponential(size=count),
    "zeros": lambda rng, count: rng.exponential(size=count) * (rng.random(count) < 0.4),
    "magnitudes": lambda rng, count: 10.0 ** rng.uniform(-18, 18, count),
    "least": lambda rng, count: rng.integers(1, 9, count) * float(np.finfo(np.float32).smallest_subnormal),
    "largest": lambda rng, count: rng.uniform(0.1, 1, count) * float(np.finfo(np.float32).max),
    "two": lambda rng, count: np.where(rng.random(count) < 0.05, 1.0, 1e-12),
}


def graph(rng, lengths, weights, index=np.int32, value=np.float32) -> Matrix:
    count = int(np.sum(lengths))
    indices = rng.integers(0, len(lengths), count).astype(index)
    return Matrix(pointers(lengths), indices, WEIGHTS[weights](rng, count).astype(value))


def selector(batches, index=np.int32) -> StackedSelector:
    vertices = np.concatenate([*batches, []]).astype(index)
    return StackedSelector(pointers([len(b) for b in batches]), vertices, 2**32 - 3 + np.arange(len(batches)))


def assert_rows_equal(one: StackedRows, other: StackedRows) -> None:
    for field, a, b in zip(one._fields, one, other, strict=True):
        assert (a is None) == (b is None), field
        if a is not None:
            assert a.dtype == b.dtype, field
            np.testing.assert_array_equal(a, b, err_msg=field)


def unknown_rules(A) -> np.ndarray:
    return np.full(len(A.indptr) - 1, UNKNOWN_RULE, np.int16)


def check(A, Q, draw, positions=True, threads=()) -> None:
    """Compares with the reference, drawn once, on each instruction set and number of threads, rules known or not."""
    expected = REFERENCE.sample_rows_weighted(A, Q, draw, positions, weights=True)
    rules = unknown_rules(A)
    for name in ("portable", "avx2", "avx512"):
        if not core.set_instruction_set(name):
            continue
        for number in threads or (core.get_num_threads(),):
            core.set_num_threads(number)
            assert_rows_equal(CPU.sample_rows_weighted(A, Q, draw, positions, weights=True), expected)
            assert_rows_equal(CPU.sample_rows_weighted(A, Q, draw, positions), expected._replace(weights=None))
            assert_rows_equal(CPU.sample_rows_weighted(A, Q, draw, positions, True, rules), expected)


@pytest.mark.parametrize(("weights", "replace", "value"), pairs(WEIGHTS, [False, True], [np.float32, np.float64]))
def test_rows_of_all_lengths(weights, replace, value):
    """Trees of one to three levels, rows taken whole, empty rows; fanouts around a register, or too large for lanes."""
    rng = np.random.default_rng(1)
    lengths = [*range(36), 255, 256, 257, 300, 4096, 4097, 0, 5000, 17]
    for index in (np.int32, np.int64):
        A = graph(rng, lengths, weights, index, value)
        batches = [rng.permutation(len(lengths))[:size] for size in (45, 1, 0, 17, 16)]
        for size in (1, 2, 5, 15, 16, 17, 33, 64, 65, 300):
            check(A, selector(batches, index), Draw(KEY, 7, size, replace), positions=size % 2 == 1)


@pytest.mark.parametrize("weights", ["exponential", "zeros", "two"])
@pytest.mark.parametrize("replace", [False, True])
def test_many_parts(weights, replace):
    """Parts, rows longer than what is kept ready, batches in and out of order that share rows, repeated vertices."""
    rng = np.random.default_rng(2)
    lengths = rng.choice([0, 1, 3, 8, 40, 400], 3000)
    lengths[[0, 1234, 2999]] = [70_000, 100_000, 20_000]
    A = graph(rng, lengths, weights)
    hubs = np.array([0, 1234, 2999])
    batches = [np.sort(rng.permutation(3000)[:size]) for size in (900, 500, 150)]
    batches += [rng.permutation(3000)[:100], np.concatenate([hubs, batches[0][:200]]), np.repeat(hubs, 2), hubs[::-1]]
    check(A, selector(batches), Draw(KEY, 0, 5, replace), threads=(1, 2, 4))


@pytest.mark.parametrize("requests", [1, 2, 40])
def test_few_rows_of_many(requests):
    """Rows far apart: requests are sorted instead of rows marked."""
    rng = np.random.default_rng(3)
    A = graph(rng, np.full(50_000, 4), "exponential")
    A.indptr[:], lengths = 0, np.zeros(50_000, np.int64)
    lengths[rng.choice(49_999, 9_990, replace=False)] = 20
    lengths[-1] = 4 * 50_000 - lengths[:-1].sum()
    A.indptr[1:] = np.cumsum(lengths)
    batches = [rng.integers(0, 50_000, requests) for _ in range(3)]
    check(A, selector(batches), Draw(KEY, 1, 6))


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("size", [1, 4, 15])
def test_zeros_in_short_and_long_rows(size, replace):
    """A row of up to `size` entries with a weight of 0 alone, then a longer row of zeros besides."""
    rng = np.random.default_rng(7)
    lengths = rng.choice([0, 1, size, size + 1, 40], 400)
    A = graph(rng, lengths, "exponential")
    short = np.flatnonzero((lengths > 0) & (lengths <= size))
    A.data[A.indptr[short[::5]]] = 0
    check(A, selector([rng.permutation(400), short]), Draw(KEY, 0, size, replace))
    longer = np.flatnonzero(lengths == size + 1)[0]
    A.data[A.indptr[longer] : A.indptr[longer + 1]] = 0
    check(A, selector([rng.permutation(400), short]), Draw(KEY, 0, size, replace))


@pytest.mark.parametrize("replace", [False, True])
def test_undecided_draws(replace):
    """Most entries are too small for the high bits of the prefix sums to tell them apart."""
    rng = np.random.default_rng(4)
    weights = np.where(rng.random(30_000) < 0.5, 2.0**-34, 2.0**-30)
    weights[::3000] = 1.0
    A = Matrix(np.array([0, 30_000]), np.arange(30_000, dtype=np.int32), weights)
    check(A, selector([[0]] * 40), Draw(KEY, 2, 9, replace))


def test_extreme_exponents():
    """The largest and the smallest weights there are, where no power of two is a normal number."""
    rng = np.random.default_rng(5)
    for scale in (5e-324, 1e-310, 1e-290, 1e290, 1e307):
        A = Matrix(np.array([0, 30]), np.arange(30, dtype=np.int32), rng.integers(1, 15, 30) * scale)
        check(A, selector([[0]] * 5), Draw(KEY, 3, 4))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_whole_rows_cut_between_threads(threads):
    """Stretches of entries begin and end within rows, at their ends, and in batches without rows."""
    core.set_num_threads(threads)
    rng = np.random.default_rng(6)
    lengths = rng.choice([0, 1, 40, 4000], 500)
    lengths[[3, 77]] = [300_000, 1 << 16]
    A = graph(rng, lengths, "ones")._replace(data=None)
    batches = [rng.permutation(500), [], [3], [], [77, 77, 0], [3], np.flatnonzero(lengths == 0)[:5], []]
    for index, positions in ((np.int32, True), (np.int64, False)):
        B = A._replace(indices=A.indices.astype(index))
        expected = REFERENCE.take_rows(B, selector(batches, index), positions)
        assert_rows_equal(CPU.take_rows(B, selector(batches, index), positions), expected)


@pytest.mark.parametrize("count", [2, 16, 255, 256, 257, 512, 1024])
@pytest.mark.parametrize("value", [np.float32, np.float64])
def test_total_of_exactly_2_to_32(count, value):
    """Weights just below a power of two: rounded up, their sum does not fit the tree's 32 bits."""
    weights = np.concatenate([np.full(count, np.nextafter(value(1), value(0))), np.zeros(3), np.ones(4)]).astype(value)
    A = Matrix(pointers([count + 3, 4, 0]), np.zeros(count + 7, np.int32), weights)
    for replace in (False, True):
        check(A, selector([[0, 1], [0, 2, 1]]), Draw(KEY, 0, 3, replace))


def test_rows_that_repeat_most_draws():
    """Few entries more than the fanout, or one that weighs nearly all: draws go on in lanes, then by themselves."""
    rng = np.random.default_rng(11)
    lengths = np.repeat([6, 7, 11, 17, 40], 60)
    A = graph(rng, lengths, "exponential")
    A.data[A.indptr[:-1]] *= np.tile([1, 1, 1e3, 1e6, 1e9], 60)
    batches = [rng.permutation(300) for _ in range(5)]
    for size in (5, 6, 10, 16, 39, 64):
        check(A, selector(batches), Draw(KEY, 2, size, False))


# --- row rules kept from call to call ------------------------------------------------------------------------------


def test_rules_are_noted_for_rows_without_zeros_that_are_drawn_from():
    """Row 0 is narrow (K = 32 - 1 - 2), row 1 wide (K = 62 - 1 - 2); row 2 holds a 0, row 3 is taken whole."""
    rows = [[1.0, 1.0, 1.0], [1.0, 1.0, 1e-9], [1.0, 1.0, 0.0, 1.0], [1.0], [1.0, 1.0, 1.0]]
    A = Matrix(pointers([len(r) for r in rows]), np.zeros(14, np.int32), np.concatenate(rows))
    rules = unknown_rules(A)
    CPU.sample_rows_weighted(A, selector([[0, 1], [2, 3]]), Draw(KEY, 0, 2), False, False, rules)
    assert rules.tolist() == [2 * 29, 2 * 59 + 1, UNKNOWN_RULE, UNKNOWN_RULE, UNKNOWN_RULE]


@pytest.mark.parametrize("replace", [False, True])
def test_rules_serve_other_fanouts(replace):
    """Rules noted while many entries were drawn, or few, serve the other fanout."""
    rng = np.random.default_rng(5)
    A = graph(rng, rng.integers(0, 60, 200), "magnitudes", value=np.float64)
    Q = selector([rng.permutation(200)[:150], np.arange(200)])
    for sizes in ((25, 3), (3, 25)):
        rules = unknown_rules(A)
        for size in sizes:
            draw = Draw(KEY, 1, size, replace)
            expected = REFERENCE.sample_rows_weighted(A, Q, draw, True, True)
            assert_rows_equal(CPU.sample_rows_weighted(A, Q, draw, True, True, rules), expected)
        assert (rules != UNKNOWN_RULE).any()


def test_rules_of_another_length_or_type_are_refused():
    A = graph(np.random.default_rng(6), [3, 4], "ones")
    for rules in (np.zeros(3, np.int16), np.zeros(1, np.int16)):
        with pytest.raises(ValueError, match="rules"):
            CPU.sample_rows_weighted(A, selector([[0]]), Draw(KEY, 0, 2), True, True, rules)
    for rules in (np.zeros(2, np.int32), np.zeros(4, np.int16)[::2]):
        with pytest.raises(TypeError):
            CPU.sample_rows_weighted(A, selector([[0]]), Draw(KEY, 0, 2), True, True, rules)
