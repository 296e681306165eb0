"""The compiled kernels of quantisation, general products and row selection against plain Python."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

_core = pytest.importorskip("spsample._core", reason="the compiled core is not built")

from spsample.backends import (  # noqa: E402
    ColumnSample,
    ExtractedLayer,
    Matrix,
    QuantisationRule,
    StackedSelector,
    UnbiasedExtraction,
)
from spsample.backends.cpu import CpuBackend  # noqa: E402
from spsample.backends.protocol import NO_EXPONENT  # noqa: E402

SMALLEST = 5e-324
INDEX_TYPES = [np.int32, np.int64]
VALUE_TYPES = [np.float32, np.float64, np.int64, np.uint64]

positive_weights = st.floats(min_value=SMALLEST, max_value=1.7e308)


@pytest.fixture
def cpu():
    return CpuBackend()


# --- quantisation ------------------------------------------------------------------------------------


def power_of_two(exponent):
    return Fraction(2) ** exponent


def exact_numerator(weight, shift, power):
    """max(1, rint(m^a 2^(a e + K))), m^2 rounded once; `round` of a Fraction is half to even."""
    if weight == 0:
        return 0
    m, e = math.frexp(weight)
    return max(1, round(Fraction(m**power if power == 1 else m * m) * power_of_two(power * e + shift)))


def exact_row_shift(weights):
    """The row rule's K in exact arithmetic."""
    positive = [Fraction(w) for w in weights if w > 0]
    largest = max(math.frexp(w)[1] for w in weights if w > 0)
    base = largest + (len(positive) - 1).bit_length()
    scaled = [w * power_of_two(32 - base) for w in positive]
    narrow = all(w >= 2**11 for w in scaled) or all(w.denominator == 1 for w in scaled)
    return (32 if narrow else 62) - base


@given(positive_weights, st.integers(1, 2), st.integers(0, 62), st.integers(0, 80))
def test_quantize_is_exact(weight, power, headroom, below):
    shift = headroom - below - power * math.frexp(weight)[1]
    assert _core.quantize(weight, shift, power) == exact_numerator(weight, shift, power)


@pytest.mark.parametrize(
    ("weight", "shift", "power", "numerator"),
    [
        (0.0, 62, 1, 0),
        (1.0, 0, 1, 1),
        (0.5, 0, 1, 1),  # 1/2 ties to 0, raised to 1
        (1.5, 0, 1, 2),  # ties to even
        (2.5, 0, 1, 2),
        (3.5, 0, 1, 4),
        (math.nextafter(2.5, 3), 0, 1, 3),
        (math.nextafter(3.5, 3), 0, 1, 3),
        (2.0**62, 0, 1, 2**62),
        (1.0 - 2.0**-53, 62, 1, 2**62 - 2**9),
        (SMALLEST, 1074, 1, 1),
        (SMALLEST, 1074 + 62, 1, 2**62),
        (3 * SMALLEST, 1073, 1, 2),  # 3/2
        (5 * SMALLEST, 1073, 1, 2),  # 5/2
        (2.0**-1022, 1022 + 40, 1, 2**40),
        (1e308, 0 - 1024 + 62, 1, None),
        (1e308, 62 - 2 * 1024, 2, None),
        (SMALLEST, 62 + 2 * 1074 - 2, 2, 2**60),
        (1e-300, -1024, 1, 1),
        (1e-300, -(2**40), 2, 1),
    ],
)
def test_quantize_hard_cases(weight, shift, power, numerator):
    if numerator is None:
        numerator = exact_numerator(weight, shift, power)
    assert _core.quantize(weight, shift, power) == numerator


any_weights = st.one_of(st.just(0.0), positive_weights, st.integers(1, 2000).map(float))


@given(st.lists(any_weights, min_size=1, max_size=40))
def test_row_shift(weights):
    expected = exact_row_shift(weights) if any(weights) else 0
    assert _core.row_shift(np.array(weights)) == expected


def test_row_shift_is_narrow_where_the_law_says_so():
    assert _core.row_shift(np.array([1.0])) == 31
    assert _core.row_shift(np.array([1.0, 3.0])) == 29
    # 2^K w = 2^11 and the numbers about it: E = 0, D = 2, K = 31.
    smallest = 2.0**-20
    assert _core.row_shift(np.array([0.75, smallest])) == 31
    assert _core.row_shift(np.array([0.75, 0.5 * smallest])) == 31  # below 2^11, all integers
    assert _core.row_shift(np.array([0.75, math.nextafter(smallest, 0)])) == 61
    assert _core.row_shift(np.array([0.75, 2.0**-31])) == 31
    assert _core.row_shift(np.array([0.75, 2.0**-32])) == 61


@pytest.mark.parametrize("span", [1.0, 12.0, 24.0])
def test_numerators_keep_to_the_bound(span):
    rng = np.random.default_rng(int(span))
    weights = 10.0 ** rng.uniform(-span, 0, 1000)
    shift = _core.row_shift(weights)
    numerators = [_core.quantize(float(w), shift, 1) for w in weights]
    assert min(numerators) >= 1
    wide_bits = (len(weights) - 1).bit_length() - 62
    for weight, numerator in zip(weights.tolist(), numerators, strict=True):
        exact = Fraction(weight) * power_of_two(shift)
        bound = Fraction(max(weights) / weight) * power_of_two(wide_bits) * 2
        if bound < Fraction(1, 2):
            assert abs(numerator - exact) <= max(bound, power_of_two(-12)) * exact
    assert sum(numerators) <= 2**62


def matrix(rows, dtype=np.float64, index=np.int64):
    """Matrix of dense rows; zeros are stored entries, None is no entry."""
    entries = [[(v, x) for v, x in enumerate(row) if x is not None] for row in rows]
    indptr = np.cumsum([0] + [len(row) for row in entries], dtype=np.int64)
    flat = [entry for row in entries for entry in row]
    indices = np.array([v for v, _ in flat], index)
    return Matrix(indptr, indices, np.array([x for _, x in flat], dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_row_exponents(cpu, dtype):
    A = matrix([[0.0, 3.0, None], [None, 0.0, 0.0], [None, None, None]], dtype)
    assert cpu.row_exponents(A).tolist() == [2, NO_EXPONENT, NO_EXPONENT]
    assert cpu.row_exponents(A._replace(data=None)).tolist() == [1, 1, NO_EXPONENT]
    assert cpu.row_exponents(A._replace(data=None, row_normalized=True)).tolist() == [0, 0, NO_EXPONENT]


def test_row_exponents_of_subnormal_numbers(cpu):
    A = matrix([[SMALLEST, None], [2.0**-1022, 1e308]])
    assert cpu.row_exponents(A).tolist() == [math.frexp(SMALLEST)[1], math.frexp(1e308)[1]]
    tiny = matrix([[1e-45, None], [None, None]], np.float32)
    assert cpu.row_exponents(tiny).tolist() == [-148, NO_EXPONENT]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("power", [1, 2])
def test_numerators_of_many_weights(cpu, dtype, power):
    """Those of one weight at a time: zeros, subnormal numbers, halves, numerators around 2^52 and beyond."""
    rng = np.random.default_rng(power)
    info = np.finfo(dtype)
    weights = [0.0, info.smallest_subnormal, 3 * info.smallest_subnormal, info.tiny, 0.5, 1.5, 2.5, 2.0**0.5, 1.0]
    weights += [2.0**-26, 2.0**26, 2.0**52 - 1, 2.0**52, *(10.0 ** rng.uniform(-30, 15, 300))]
    weights = np.array([*weights, *np.arange(0, 40, 0.5), *rng.exponential(size=556)], dtype)
    n = len(weights)
    for part in (1, 9, 13, n):
        A = Matrix(np.minimum(np.arange(n + 1), 1) * part, np.arange(part, dtype=np.int32), weights[:part])
        for shift in (-2000, -601, -600, -30, -1, 0, 1, 10, 51, 52, 600, 601, 1100):
            expected = [_core.quantize(float(w), shift, power) for w in weights[:part]] + [0] * (n - part)
            assert cpu.column_totals(A, QuantisationRule(np.array([shift]), power, 1)).tolist() == expected


# --- numerators by column ----------------------------------------------------------------------------


def selector(*batches, index=np.int64):
    ptr = np.cumsum([0] + [len(batch) for batch in batches], dtype=np.int64)
    vertices = np.array([v for batch in batches for v in batch], index)
    return StackedSelector(ptr, vertices, np.arange(len(batches), dtype=np.int64))


def column_sample(indptr, columns):
    """Columns drawn once each."""
    k = len(indptr) - 1
    counts, totals = np.ones(len(columns), np.int64), np.ones(k, np.uint64)
    return ColumnSample(np.array(indptr), columns, counts, totals, np.zeros(k, np.bool_))


@pytest.mark.parametrize("index", INDEX_TYPES)
def test_merge_columns(cpu, index):
    A = matrix([[1.0, 2.0, None], [None, 4.0, 0.0], [0.0, None, None]], index=index)
    Q = selector([0, 1], [], [2], [1, 2], index=index)
    shifts = np.array([0, 0, 0, 1], np.int64)
    P = cpu.merge_columns(A, Q, QuantisationRule(shifts, 1, 2))
    assert P.columns.dtype == index
    assert P.indptr.tolist() == [0, 2, 2, 2, 3]
    assert P.columns.tolist() == [0, 1, 1]
    assert P.numerators.tolist() == [1, 36, 64]
    assert P.totals.tolist() == [37, 0, 0, 64]
    counts = cpu.merge_columns(A, Q, QuantisationRule(None, 1, 1))
    assert counts.numerators.tolist() == [1, 2, 1, 1, 1, 1, 1]


def test_column_totals(cpu):
    A = matrix([[1.0, 2.0, None], [None, 4.0, 0.0], [0.0, None, None]])
    assert cpu.column_totals(A, QuantisationRule(np.array([3]), 2, 1)).tolist() == [8, 8 * 20, 0]
    assert cpu.column_totals(A, QuantisationRule(None, 2, 2)).tolist() == [4, 4, 1]


@pytest.mark.parametrize("index", INDEX_TYPES)
def test_compact_extract_and_values(cpu, index):
    A = matrix([[0.5, None, 3.0], [None, 2.0, 1.0], [7.0, None, None]], np.float32, index)
    Q = selector([2, 0], [1], index=index)
    merged = cpu.compact(Q, np.array([0, 2, 3]), np.array([1, 0, 2], index), True)
    assert merged.src_ptr.tolist() == [0, 3, 5]
    assert merged.src.tolist() == [2, 0, 1, 1, 2]
    assert merged.local.tolist() == [2, 1, 1]
    rows = cpu.extract(A, Q, merged.src_ptr, merged.src)
    assert rows.entry_ptr.tolist() == [0, 3, 5]
    assert rows.indptr.tolist() == [0, 1, 3, 0, 2]
    assert rows.columns.tolist() == [1, 1, 0, 0, 1]
    assert rows.positions.tolist() == [4, 0, 1, 2, 3]
    numerators = cpu.extracted_numerators(A, Q, rows, merged.src_ptr, QuantisationRule(np.array([1, 0]), 1, 2))
    assert numerators.tolist() == [36, 225, 0, 4, 1]
    values = cpu.entry_values(A, Q, rows, merged.src_ptr, np.array([2.0, 1.0, 9.0, 0.5, 3.0]), True)
    assert values.dtype == np.float32
    assert values.tolist() == [1.0, np.float32(0.5 / 6.5), np.float32(6.0 / 6.5), 0.25, 0.75]
    without = cpu.compact(Q, rows.entry_ptr, np.array([1, 0, 1, 2, 0], index), False)
    assert without.src.tolist() == [0, 1, 0, 2]
    assert without.local.tolist() == [1, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"rows": "columns"}, "columns: a local column"),
        ({"sources": "local"}, "local: a local column"),
        ({"sources": "src_ptr"}, "src_ptr"),
        ({"sample": "totals"}, "indptr: needs one element per batch"),
    ],
)
def test_unbiased_values_refuse_what_does_not_fit(cpu, wrong, match):
    A, Q = matrix([[1.0, 2.0], [4.0, None]]), selector([0, 1])
    merged = cpu.compact(Q, np.array([0, 1]), np.array([1], A.indices.dtype), False)
    rows, sample = cpu.extract(A, Q, merged.src_ptr, merged.src), column_sample([0, 1], np.array([1]))
    layer = ExtractedLayer(A, Q, rows, sample, merged, False)
    assert len(cpu.unbiased_values(layer, np.array([2], np.uint64), 0, False)) == 1
    ((part, array),) = wrong.items()
    value = getattr(layer, part)
    larger = np.append(getattr(value, array), getattr(value, array)[-1:]) if array in ("totals", "src_ptr") else None
    broken = getattr(value, array) + 1 if larger is None else larger
    with pytest.raises(ValueError, match=match):
        cpu.unbiased_values(
            layer._replace(**{part: value._replace(**{array: broken})}), np.array([2], np.uint64), 0, False
        )
    with pytest.raises(ValueError, match="numerators: needs one element per src column"):
        cpu.unbiased_values(layer, np.array([2, 2], np.uint64), 0, False)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"vertices": [0, 9]}, "vertices: a vertex is not a row"),
        ({"columns": [-1, 0]}, "columns: must not be negative"),
        ({"indptr": [0, 1]}, "indptr: must end at the number of elements"),
        ({"indptr": [0, 1, 2]}, "indptr: needs one element per batch"),
        ({"totals": [4, 4]}, "indptr: needs one element per batch"),
        ({"whole": [False, False]}, "whole: needs one element per batch"),
        ({"numerators": [2]}, "columns: a column is not one of the row's"),
        ({"positions": False}, "positions: are needed where A has weights"),
    ],
)
def test_extract_unbiased_refuses_what_does_not_fit(cpu, wrong, match):
    A = matrix([[1.0, 2.0], [4.0, None]])
    given = {"vertices": [0, 1], "columns": [1, 0], "indptr": [0, 2], "totals": [8], "whole": [False]}
    given |= {"numerators": [3, 8], "positions": True}

    def extract(vertices, columns, indptr, totals, whole, numerators, positions):
        sample = ColumnSample(
            np.array(indptr), np.array(columns), np.ones(2, int), np.array(totals, np.uint64), np.array(whole)
        )
        how = UnbiasedExtraction(0, False, positions, False)
        return cpu.extract_unbiased(A, selector(vertices), sample, np.array(numerators, np.uint64), how)

    src_ptr, src, rows, values = extract(**given)
    assert (src_ptr.tolist(), src.tolist(), rows.columns.tolist()) == ([0, 2], [0, 1], [0, 1, 0])
    # Des Raj: column 1 (N = 5) first, of T = 8: (8 / 5 + 1) / 2; then column 0 (N = 3): (3 / 3 + 0) / 2
    assert values.tolist() == [0.5, 2.6, 2.0]
    with pytest.raises(ValueError, match=match):
        extract(**given | wrong)


def test_entry_counts_and_locate_leave_out_excluded_columns(cpu):
    A = matrix([[1.0, 1.0, 1.0], [None, 1.0, 1.0], [None, None, None]])
    Q = selector([0, 2], [1, 0])
    exclude = column_sample([0, 1, 1], np.array([1]))
    assert cpu.entry_counts(A, Q, None).tolist() == [3, 0, 2, 3]
    assert cpu.entry_counts(A, Q, exclude).tolist() == [2, 0, 2, 3]
    rows = np.array([0, 0, 2, 3])
    assert cpu.locate(A, Q, rows, np.array([0, 1, 1, 1]), exclude).tolist() == [0, 2, 2, 1]
    with pytest.raises(ValueError, match="offsets"):
        cpu.locate(A, Q, np.array([0]), np.array([2]), exclude)


def test_many_columns_are_sorted_as_numpy_sorts_them(cpu):
    """More columns than the comparison sort takes, with ids beyond 2^33."""
    rng = np.random.default_rng(3)
    Q = selector([], [])
    for index, top in ((np.int32, 2**31), (np.int64, 2**47)):
        columns = rng.integers(0, top, 6000).astype(index)
        entry_ptr = np.array([0, 5000, 6000])
        compaction = cpu.compact(Q._replace(vertices=np.zeros(0, index)), entry_ptr, columns.copy(), False)
        for i in (0, 1):
            part = slice(entry_ptr[i], entry_ptr[i + 1])
            src = compaction.src[compaction.src_ptr[i] : compaction.src_ptr[i + 1]]
            expected, local = np.unique(columns[part], return_inverse=True)
            np.testing.assert_array_equal(src, expected)
            np.testing.assert_array_equal(compaction.local[part], local)


# --- general sparse algebra --------------------------------------------------------------------------


def naive_product(A, B):
    """C = A B row by row, in the order that the protocol states and the arithmetic of the dtype."""
    rows = []
    for i in range(len(A[0]) - 1):
        sums = {}
        for p in range(A[0][i], A[0][i + 1]):
            j = A[1][p]
            for q in range(B[0][j], B[0][j + 1]):
                product = A[2][p] * B[2][q]
                column = int(B[1][q])
                sums[column] = sums[column] + product if column in sums else product
        rows.append(sorted(sums.items()))
    return rows


def csr_of(rows, dtype, index):
    indptr = np.cumsum([0] + [len(row) for row in rows], dtype=np.int64)
    flat = [entry for row in rows for entry in row]
    return indptr, np.array([v for v, _ in flat], index), np.array([x for _, x in flat], dtype)


def random_csr(rng, num_rows, num_columns, dtype, index):
    """Columns in any order, duplicates, empty rows; values of very different size, both signs, and zeros."""
    lengths = rng.integers(0, 8, num_rows) if num_columns else np.zeros(num_rows, np.int64)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = rng.integers(0, max(num_columns, 1), indptr[-1]).astype(index)
    if np.issubdtype(dtype, np.floating):
        data = (rng.standard_normal(indptr[-1]) * 10.0 ** rng.uniform(-6, 6, indptr[-1])).astype(dtype)
        data[rng.random(len(data)) < 0.2] = -0.0
    else:
        data = rng.integers(0, 2**63 - 1, indptr[-1]).astype(dtype)
    return indptr, indices, data


PRODUCT_SHAPES = [(0, 0, 0), (1, 1, 1), (200, 30, 10), (30, 200, 1000), (5, 0, 3), (70, 5, 2)]


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("dtype", VALUE_TYPES)
@pytest.mark.parametrize("index", INDEX_TYPES)
def test_spgemm_equals_the_loop(cpu, dtype, index, threads):
    before = _core.get_num_threads()
    _core.set_num_threads(threads)
    try:
        for seed, (m, p, n) in enumerate(PRODUCT_SHAPES):
            rng = np.random.default_rng(seed)
            A = random_csr(rng, m, p, dtype, index)
            B = random_csr(rng, p, n, dtype, index)
            with np.errstate(over="ignore"):
                expected = csr_of(naive_product(A, B), dtype, index)
            for actual, wanted in zip(cpu.spgemm(A, B, n), expected, strict=True):
                assert actual.dtype == wanted.dtype
                assert actual.tobytes() == wanted.tobytes()
    finally:
        _core.set_num_threads(before)


def test_spgemm_of_long_rows(cpu):
    """A row of C with thousands of columns: the accumulator grows, the long sort is used."""
    rng = np.random.default_rng(0)
    columns = np.concatenate([rng.permutation(5000), rng.permutation(5000)])
    A = (np.array([0, 2]), np.array([1, 0]), np.array([2, 3]))
    B = (np.array([0, 5000, 10000]), columns, np.arange(10000))
    indptr, indices, data = cpu.spgemm(A, B, 5000)
    dense = np.zeros(5000, np.int64)
    np.add.at(dense, columns, np.arange(10000) * np.repeat([3, 2], 5000))
    assert indptr.tolist() == [0, 5000]
    np.testing.assert_array_equal(indices, np.arange(5000))
    np.testing.assert_array_equal(data, dense)


def test_spgemm_refuses_what_it_cannot_read(cpu):
    one = (np.array([0, 1]), np.array([0]), np.array([1.0]))
    with pytest.raises(ValueError, match="A: a column"):
        cpu.spgemm((one[0], np.array([1]), one[2]), one, 1)
    with pytest.raises(ValueError, match="B: a column"):
        cpu.spgemm(one, (one[0], np.array([-1]), one[2]), 1)
    with pytest.raises(ValueError, match="B"):
        cpu.spgemm(one, (np.array([0, 2]), one[1], one[2]), 1)
    with pytest.raises(ValueError, match="value per entry"):
        cpu.spgemm(one, (*one[:2], np.zeros(0)), 1)


@given(
    st.integers(0, 2**32 - 1),
    hnp.arrays(np.int32, st.integers(0, 20), elements=st.integers(0, 9)),
    st.sampled_from([*VALUE_TYPES, np.bool_, np.complex128, None]),
)
def test_select_rows(seed, rows, dtype):
    indptr, indices, _ = random_csr(np.random.default_rng(seed), 10, 7, np.float64, np.int32)
    data = None if dtype is None else np.arange(len(indices)).astype(dtype)
    picked = [np.arange(indptr[r], indptr[r + 1]) for r in rows]
    where = np.concatenate([*picked, np.zeros(0, np.int64)]).astype(np.int64)
    actual = CpuBackend().select_rows((indptr, indices, data), rows)
    assert actual[0].tolist() == np.cumsum([0] + [len(p) for p in picked]).tolist()
    np.testing.assert_array_equal(actual[1], indices[where])
    assert actual[1].dtype == indices.dtype
    if data is None:
        assert actual[2] is None
    else:
        np.testing.assert_array_equal(actual[2], data[where])
        assert actual[2].dtype == data.dtype


def test_select_rows_refuses_rows_outside(cpu):
    A = (np.array([0, 1]), np.array([0]), None)
    for row in (-1, 1):
        with pytest.raises(ValueError, match="rows"):
            cpu.select_rows(A, np.array([row]))
