"""EXTRACT, values, layout and routing of the backend `cuda`: paths that the contract's small inputs do not reach."""

from __future__ import annotations

import numpy as np
import pytest
from backend_contract import assert_same, pointers
from emulated_device import EmulatedDevice
from equality import needs_cpu
from on_host import OnHost

from spsample.backends import ColumnSample, Compaction, Matrix, QuantisationRule, StackedRows, StackedSelector
from spsample.backends.cuda.backend import CudaKernels
from spsample.backends.protocol import NO_EXPONENT
from spsample.backends.reference import ReferenceBackend
from spsample.errors import CapacityError

pytestmark = pytest.mark.needs("c++")

REFERENCE = ReferenceBackend()


def emulated(**options):
    """(backend of NumPy arrays, its device)."""
    device = EmulatedDevice(**options)
    return OnHost(CudaKernels(device)), device


def hubs(rng, n, index=np.int32, value=None, row_normalized=False):
    """Most rows are short or empty, a few longer than many chunks; parallel edges; columns ascend."""
    lengths = rng.choice([0, 0, 1, 3, 8, 31, 32, 33], n)
    lengths[rng.choice(n, 3, replace=False)] = [255, 256, 3000]
    columns = np.concatenate([np.sort(rng.integers(0, n, length)) for length in lengths]).astype(index)
    data = None
    if value is not None:
        data = (rng.exponential(size=len(columns)) * 10.0 ** rng.integers(-9, 9, len(columns))).astype(value)
        data[rng.random(len(data)) < 0.1] = 0.0
    return Matrix(pointers(lengths), columns, data, row_normalized)


def stacked(rng, n, sizes, index=np.int32):
    """(pointers, distinct vertices of each batch)."""
    parts = [rng.permutation(n)[:size] for size in sizes]
    return pointers([len(part) for part in parts]), np.concatenate([*parts, []]).astype(index)


def question(rng, n, frontiers, sources, index=np.int32):
    """(Q, src_ptr, src): the longest rows are among those of every batch that has some."""
    ptr, vertices = stacked(rng, n, frontiers, index)
    src_ptr, src = stacked(rng, n, sources, index)
    return StackedSelector(ptr, vertices, np.arange(len(frontiers))), src_ptr, src


CASES = {
    "one batch": ([300], [50]),
    "all columns": ([300, 300], [300, 300]),
    "one column": ([300, 0, 300], [1, 1, 0]),
    "many batches": ([5, 0, 1, 40] * 20, [3, 7, 0, 100] * 20),
    "no src": ([300], [0]),
    "no batch": ([], []),
    "no rows": ([0, 0], [3, 4]),
}


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("case", CASES)
def test_extract(case, index):
    rng = np.random.default_rng(1)
    A = hubs(rng, 300, index)
    Q, src_ptr, src = question(rng, 300, *CASES[case], index)
    backend, device = emulated()
    expected = REFERENCE.extract(A, Q, src_ptr, src)
    assert_same(backend.extract(A, Q, src_ptr, src), expected)
    assert device.launches <= 8
    assert_same(backend.extract(A, Q, src_ptr, src, False), expected._replace(positions=None))


UNIT, TILE = 1 << 10, 1 << 15  # entries that are counted together, and that a block marks

LENGTHS = [
    [TILE + 7 * UNIT + 5, 0, 3, UNIT - 1, 1, 0, 31, 5000, 0, 0],
    [0, 0, UNIT - 40, 40, 2 * UNIT, 0, 0],
    [0],
    [3] * 400 + [0] * 40 + [1] * 300,
]
"""Of the rows of each batch: tiles and more; whole units, with empty rows behind them; nothing; short rows."""


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("sources", [[40] * 4, [600, 0, 5, 600], [3000] * 4])
def test_extract_from_many_units(index, sources):
    rng = np.random.default_rng(6)
    n = 3000
    lengths = np.concatenate(LENGTHS)
    columns = np.concatenate([np.sort(rng.integers(0, n, length)) for length in lengths]).astype(index)
    order = rng.permutation(len(lengths))  # where each row of the frontier is in A
    begins = pointers(lengths[np.argsort(order)])
    indices = np.empty(len(columns), index)
    for row, (begin, end) in zip(order, zip(pointers(lengths)[:-1], pointers(lengths)[1:], strict=True), strict=True):
        indices[begins[row] : begins[row + 1]] = columns[begin:end]
    A = Matrix(begins, indices, None, False, num_columns=n)
    Q = StackedSelector(pointers([len(some) for some in LENGTHS]), order.astype(index), np.arange(4))
    src_ptr, src = stacked(rng, n, sources, index)
    backend, _ = emulated()
    assert_same(backend.extract(A, Q, src_ptr, src), REFERENCE.extract(A, Q, src_ptr, src))


def test_extract_where_the_filter_lets_columns_pass():
    """Columns that share bits of the filter with others, which are members: the hash table tells them apart."""
    rng = np.random.default_rng(7)
    n = 80_000
    A = hubs(rng, 300)
    columns = np.arange(len(A.indices), dtype=np.int32) * 37 % n
    A = A._replace(indices=columns, num_columns=n)
    Q, _, _ = question(rng, 300, [300], [1])
    src = rng.permutation(n)[: n // 2].astype(np.int32)
    backend, _ = emulated()
    src_ptr = pointers([len(src)])
    assert_same(backend.extract(A, Q, src_ptr, src), REFERENCE.extract(A, Q, src_ptr, src))


def test_extract_waits_as_often_for_many_batches():
    rng = np.random.default_rng(2)
    A = hubs(rng, 300)
    seen = []
    for k in (1, 60):
        Q, src_ptr, src = question(rng, 300, [20] * k, [30] * k)
        kernels = CudaKernels(EmulatedDevice())
        upload = kernels.device.to_device
        on_device = A._replace(indptr=upload(A.indptr), indices=upload(A.indices))
        kernels.extract(on_device, Q._replace(vertices=upload(Q.vertices)), src_ptr, upload(src))
        seen.append((kernels.device.launches, kernels.device.waits))
    assert seen[0] == seen[1] == (7, 2)


@pytest.mark.parametrize("free_bytes", [1, 12_000, 20_000])
@pytest.mark.parametrize("positions", [False, True])
def test_extract_in_groups(free_bytes, positions):
    """Memory for a batch at a time, and for a few."""
    rng = np.random.default_rng(3)
    A = hubs(rng, 300)
    Q, src_ptr, src = question(rng, 300, [40, 0, 3, 60, 0, 0, 10], [30, 5, 0, 60, 0, 2, 300])
    backend, device = emulated(free_bytes=free_bytes)
    expected = REFERENCE.extract(A, Q, src_ptr, src)
    rows = backend.extract(A, Q, src_ptr, src, positions)
    assert_same(rows, expected if positions else expected._replace(positions=None))
    assert device.waits > 2 + 3  # the three are this test's


def test_extract_of_rows_in_other_memory():
    """`row_places` leads to the rows, and `weight_places` to their weights."""
    rng = np.random.default_rng(4)
    A = hubs(rng, 300, value=np.float32)
    Q, src_ptr, src = question(rng, 300, [300, 20], [100, 50])
    kernels = CudaKernels(EmulatedDevice())
    device = kernels.device
    columns, data = device.to_device(A.indices[::-1].copy()), device.to_device(A.data[::-1].copy())
    reversed_rows = [np.arange(lo, hi)[::-1] for lo, hi in zip(A.indptr[:-1], A.indptr[1:], strict=True)]
    order = np.concatenate(reversed_rows)[::-1]  # rows last to first, each in its order
    columns, data = device.to_device(A.indices[order]), device.to_device(A.data[order])
    begins = (A.indptr[-1] - A.indptr[1:]).astype(np.uint64)
    places = [device.to_device(device.address(a) + begins * a.itemsize) for a in (columns, data)]
    wrong = np.zeros(len(A.indices), np.int32), np.full(len(A.indices), np.nan, np.float32)
    apart = Matrix(device.to_device(A.indptr), *map(device.to_device, wrong), False, None, None, *places)
    placed = Q._replace(vertices=device.to_device(Q.vertices))
    rows = kernels.extract(apart, placed, src_ptr, device.to_device(src))
    expected = REFERENCE.extract(A, Q, src_ptr, src)
    returned = OnHost(kernels)._returned
    assert_same(returned(rows), expected)
    factors = rng.random(len(src))
    values = kernels.entry_values(apart, placed, rows, src_ptr, device.to_device(factors), True)
    assert_same(returned(values), REFERENCE.entry_values(A, Q, expected, src_ptr, factors, True))
    rule = QuantisationRule(np.array([-10, -30]), 2, 1)
    N = kernels.extracted_numerators(apart, placed, rows, src_ptr, rule)
    assert_same(returned(N), REFERENCE.extracted_numerators(A, Q, expected, src_ptr, rule))


KINDS = {
    "unweighted": (None, False),
    "row": (None, True),
    "float32": (np.float32, False),
    "float64": (np.float64, False),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_values(kind, index):
    """Long rows, and weights over many orders of magnitude; with positions and, where they may be left out, without."""
    rng = np.random.default_rng(5)
    A = hubs(rng, 300, index, *KINDS[kind])
    Q, src_ptr, src = question(rng, 300, [300, 0, 30], [300, 20, 70], index)
    backend, _ = emulated()
    rows = REFERENCE.extract(A, Q, src_ptr, src)
    factors = rng.exponential(size=len(src)) * 10.0 ** rng.integers(-5, 5, len(src))
    for given in (rows, rows._replace(positions=None))[: 1 if A.data is not None else 2]:
        for normalize in (False, True):
            expected = REFERENCE.entry_values(A, Q, rows, src_ptr, factors, normalize)
            values = backend.entry_values(A, Q, given, src_ptr, factors, normalize)
            assert values.tobytes() == expected.tobytes()
        for power, column_power in ((1, 1), (2, 1), (1, 2)):
            for shifts in (None, np.array([-10, -30, -60])):
                rule = QuantisationRule(shifts, power, column_power)
                N = backend.extracted_numerators(A, Q, given, src_ptr, rule)
                assert_same(N, REFERENCE.extracted_numerators(A, Q, rows, src_ptr, rule))


def test_values_keep_subnormal_numbers():
    A = Matrix(np.array([0, 3]), np.arange(3, dtype=np.int32), np.array([5e-324, 1e-310, 1e-300]))
    Q = StackedSelector(np.array([0, 1]), np.zeros(1, np.int32), np.zeros(1, np.int64))
    backend, _ = emulated()
    src_ptr, src = np.array([0, 2]), np.array([1, 0], np.int32)
    rows = REFERENCE.extract(A, Q, src_ptr, src)
    for normalize in (False, True):
        values = backend.entry_values(A, Q, rows, src_ptr, np.array([1.0, 3.0]), normalize)
        expected = REFERENCE.entry_values(A, Q, rows, src_ptr, np.array([1.0, 3.0]), normalize)
        assert values.tobytes() == expected.tobytes()
        assert (values > 0).all()
    rule = QuantisationRule(np.array([1050]), 1, 1)
    assert backend.extracted_numerators(A, Q, rows, src_ptr, rule).tolist() == (
        REFERENCE.extracted_numerators(A, Q, rows, src_ptr, rule).tolist()
    )


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("value", [np.float32, np.float64])
def test_values_that_are_not_finite(value, normalize):
    """The message names the first of them, as that of the reference does."""
    rng = np.random.default_rng(6)
    A = hubs(rng, 300, value=value)
    A.data[rng.integers(0, len(A.data), 40)] = np.finfo(value).max
    Q, src_ptr, src = question(rng, 300, [100, 300], [200, 250])
    rows = REFERENCE.extract(A, Q, src_ptr, src)
    factors = np.full(len(src), 1e300)
    backend, _ = emulated()
    messages = []
    for one in (REFERENCE, backend):
        with pytest.raises(CapacityError) as caught:
            one.entry_values(A, Q, rows, src_ptr, factors, normalize)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "from the weight" in messages[0]


def test_values_that_are_not_finite_without_weights():
    A = Matrix(np.array([0, 1]), np.zeros(1, np.int32))
    Q = StackedSelector(np.array([0, 1]), np.zeros(1, np.int32), np.zeros(1, np.int64))
    backend, _ = emulated()
    rows = StackedRows(Q.batch_ptr, np.array([0, 1]), np.array([0, 1]), np.zeros(1, np.int32), None)
    with pytest.raises(CapacityError, match="sampled entry 0"):
        backend.entry_values(A, Q, rows, np.array([0, 1]), np.array([1e300]), False)


def test_weights_need_positions():
    A = Matrix(np.array([0, 1]), np.zeros(1, np.int32), np.ones(1))
    Q = StackedSelector(np.array([0, 1]), np.zeros(1, np.int32), np.zeros(1, np.int64))
    backend, _ = emulated()
    rows = StackedRows(Q.batch_ptr, np.array([0, 1]), np.array([0, 1]), np.zeros(1, np.int32), None)
    with pytest.raises(ValueError, match="positions"):
        backend.entry_values(A, Q, rows, np.array([0, 1]), np.ones(1), False)
    with pytest.raises(ValueError, match="positions"):
        backend.extracted_numerators(A, Q, rows, np.array([0, 1]), QuantisationRule(np.zeros(1, np.int64), 1, 1))


@pytest.mark.parametrize("k", [0, 1, 40])
def test_source_weights(k):
    """Totals near 2^63, which sums over all batches pass by far; batches taken whole, and such as drew none."""
    rng = np.random.default_rng(7)
    drawn, extra = rng.choice([0, 1, 5, 300], k), rng.choice([0, 2, 50], k)
    N = [rng.integers(1, 2**53, count).astype(np.uint64) << np.uint64(1) for count in drawn + extra]
    src_ptr, indptr = pointers(drawn + extra), pointers(drawn)
    local = [rng.permutation(a + b)[:a] for a, b in zip(drawn, extra, strict=True)]
    totals = np.array([2**62 + int(n.sum(dtype=np.uint64)) for n in N], np.uint64)
    sample = ColumnSample(
        indptr,
        np.arange(indptr[-1]).astype(np.int32),
        rng.integers(1, 9, indptr[-1]),
        totals,
        rng.random(k) < 0.2,
    )
    sources = Compaction(
        src_ptr, np.arange(src_ptr[-1]).astype(np.int32), np.concatenate([*local, []]).astype(np.int32)
    )
    numerators = np.concatenate([*N, []]).astype(np.uint64)
    numerators_with_zeros = np.where(rng.random(len(numerators)) < 0.1, np.uint64(0), numerators)
    targets = np.minimum(rng.choice([0, 3], k), drawn + extra)
    backend, _ = emulated()
    one, other = (
        (
            b.des_raj_weights(sample, sources, targets, numerators),
            b.replacement_weights(sample, sources, targets, numerators, 300),
            b.reference_weights(sample, sources, numerators_with_zeros),
        )
        for b in (REFERENCE, backend)
    )
    for a, b in zip(one, other, strict=True):
        assert a.dtype == b.dtype == np.float64
        assert a.tobytes() == b.tobytes()


@needs_cpu
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.int64, np.float64, np.bool_])
def test_interleave(dtype):
    """Items of every size, many batches and hops."""
    rng = np.random.default_rng(8)
    sizes = rng.choice([0, 1, 7, 300], (4, 30))
    parts = [rng.integers(0, 100, of_hop.sum()).astype(dtype) for of_hop in sizes]
    ptr = [pointers(of_hop) for of_hop in sizes]
    backend, device = emulated()
    assert_same(backend.interleave(parts, ptr), REFERENCE.interleave(parts, ptr))
    assert (device.launches, device.waits) == (1, 1)  # the wait is this test's


def test_interleave_refuses_items_of_other_sizes():
    backend, _ = emulated()
    with pytest.raises(ValueError, match="16 bytes"):
        backend.interleave([np.zeros(3, np.complex128)], [np.array([0, 3])])


@pytest.mark.parametrize("k", [0, 1, 30])
def test_interleave_pointers_and_appended(k):
    rng = np.random.default_rng(9)
    sizes = rng.choice([0, 1, 7, 50], (3, k))
    rows = [[rng.choice([0, 1, 9], size) for size in of_hop] for of_hop in sizes]
    parts = [np.concatenate([*(pointers(batch) for batch in of_hop), []]).astype(np.int64) for of_hop in rows]
    ptr = [pointers(of_hop) for of_hop in sizes]
    backend, _ = emulated()
    assert_same(backend.interleave_pointers(parts, ptr), REFERENCE.interleave_pointers(parts, ptr))
    known = rng.integers(0, 1000, sizes.sum())
    arguments = (pointers(sizes[0]), pointers(sizes.sum(axis=0)), known)
    assert_same(backend.appended(*arguments), REFERENCE.appended(*arguments))


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_edge_index_of_long_rows(index):
    lengths = np.array([0, 0, 1000, 0, 1, 255, 257, 0])
    indices = np.arange(lengths.sum()).astype(index)
    backend, _ = emulated()
    assert_same(backend.edge_index(pointers(lengths), indices), REFERENCE.edge_index(pointers(lengths), indices))


@pytest.mark.parametrize("parts", [1, 2, 256, 257, 65536])
def test_route_rows(parts):
    """Keys of one byte and of two."""
    rng = np.random.default_rng(parts)
    n = 70_000
    bounds = np.sort(np.concatenate([[0, n], rng.integers(0, n, parts - 1)]))
    Q = StackedSelector(pointers([700, 0, 33]), rng.integers(0, n, 733).astype(np.int32), np.arange(3))
    backend, device = emulated()
    for position in (None, rng.permutation(n).astype(np.int32)):
        assert_same(backend.route_rows(Q, bounds, position), REFERENCE.route_rows(Q, bounds, position))
    assert device.waits == 2 * 3  # two of the three are this test's


def test_gather_rows_longer_than_chunks():
    rng = np.random.default_rng(10)
    sizes, lengths = [30, 0, 3], rng.choice([0, 2, 256, 1000], 33).astype(np.uint16)
    places = rng.permutation(33).astype(np.int32)
    total = int(lengths.sum())
    entries = [rng.random(total), np.arange(total).astype(np.int32), rng.random(total) < 0.5]
    backend, _ = emulated()
    arguments = (pointers(sizes), places, lengths, entries)
    assert_same(backend.gather_rows(*arguments), REFERENCE.gather_rows(*arguments))
    with pytest.raises(ValueError, match="places"):
        backend.gather_rows(pointers([30]), *arguments[1:])
    with pytest.raises(ValueError, match="lengths"):
        backend.gather_rows(pointers(sizes), places, lengths.astype(np.float32), entries)


def test_batch_totals_of_many_batches():
    """Chunks that touch one batch, and such as touch many; sums beyond 32 bits."""
    rng = np.random.default_rng(11)
    backend, device = emulated()
    for sizes in ([5000], [1] * 600, rng.choice([0, 3, 64, 900], 40)):
        m = int(np.sum(sizes))
        counts = rng.integers(0, 2**45, m)
        exponents = rng.choice([NO_EXPONENT, -1073, 5, 1024], m).astype(np.int32)
        arguments = (pointers(sizes), counts, exponents)
        assert_same(backend.batch_statistics(*arguments), REFERENCE.batch_statistics(*arguments))
    assert device.launches == device.waits == 3


def test_random_bits():
    rng = np.random.default_rng(12)
    backend, _ = emulated()
    counters = rng.integers(0, 2**32, (1000, 4), dtype=np.uint64).astype(np.uint32)
    key = (2**32 - 1, 12345)
    assert_same(backend.philox(counters, key), REFERENCE.philox(counters, key))
    assert_same(backend.shuffle(3000, key), REFERENCE.shuffle(3000, key))
