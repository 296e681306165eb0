"""The weighted row law of the CUDA kernels, emulated, against the reference: what small rows do not reach."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_device import EmulatedDevice
from on_host import OnHost

from spsample.backends import Draw, Matrix, StackedSelector
from spsample.backends.cuda.backend import CudaKernels
from spsample.backends.cuda.row_law_weighted import chosen_room
from spsample.backends.cuda.row_law_weighted_sums import SUMS_EVERY, RowSums, row_sums_bytes
from spsample.backends.protocol import UNKNOWN_RULE
from spsample.backends.reference import ReferenceBackend

pytestmark = pytest.mark.needs("c++")

REFERENCE = ReferenceBackend()
KEY = (0x243F6A88, 0x85A308D3)
LONG_ROW = 8192

WEIGHTS = {
    "ones": lambda rng, count: np.ones(count),
    "exponential": lambda rng, count: rng.exponential(size=count),
    "zeros": lambda rng, count: rng.exponential(size=count) * (rng.random(count) < 0.4),
    "minus zeros": lambda rng, count: np.where(rng.random(count) < 0.5, rng.integers(1, 9, count), -0.0),
    "magnitudes": lambda rng, count: 10.0 ** rng.uniform(-18, 18, count),
    "least": lambda rng, count: rng.integers(1, 9, count) * float(np.finfo(np.float32).smallest_subnormal),
    "largest": lambda rng, count: rng.uniform(0.1, 1, count) * float(np.finfo(np.float32).max),
    "two": lambda rng, count: np.where(rng.random(count) < 0.05, 1.0, 1e-12),
}


def pointers(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def graph(rng, lengths, weights, index=np.int32, value=np.float32):
    count = int(np.sum(lengths))
    indices = rng.integers(0, len(lengths), count).astype(index)
    return Matrix(pointers(lengths), indices, WEIGHTS[weights](rng, count).astype(value))


def selector(batches, index=np.int32):
    vertices = np.concatenate([*batches, []]).astype(index)
    return StackedSelector(pointers([len(b) for b in batches]), vertices, 2**32 - 3 + np.arange(len(batches)))


def assert_rows_equal(one, other):
    for field, a, b in zip(one._fields, one, other, strict=True):
        assert (a is None) == (b is None), field
        if a is not None:
            assert a.dtype == b.dtype, field
            np.testing.assert_array_equal(a, b, err_msg=field)


def check(A, Q, draw, positions=True, weights=True):
    """Compares with the reference. Returns the device, which counted."""
    backend = CudaKernels(EmulatedDevice())
    actual = OnHost(backend).sample_rows_weighted(A, Q, draw, positions, weights)
    assert_rows_equal(actual, REFERENCE.sample_rows_weighted(A, Q, draw, positions, weights))
    assert {name for name in backend.device.kernels if "weighted" in name or "draw" in name} <= backend.device.prepared
    return backend.device


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_rows_of_all_lengths(weights, replace):
    """Rows of no, one and several sections; sizes below, at and above 32; more rows than warps."""
    rng = np.random.default_rng(1)
    lengths = rng.permutation([0, 1, 2, 5, 9, 31, 32, 33, 40, 100, 255, 256, 257, 300, 700, 3000] * 3)
    for size, index, value in ((1, np.int32, np.float32), (5, np.int64, np.float64), (32, np.int32, np.float64)):
        A = graph(rng, lengths, weights, index, value)
        check(A, selector([rng.permutation(48)[:20], [], rng.permutation(48)], index), Draw(KEY, 1, size, replace))
    for size in (33, 100):
        A = graph(rng, lengths, weights)
        check(A, selector([rng.permutation(48)]), Draw(KEY, 2, size, replace), positions=False)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("weights", ["exponential", "zeros", "two"])
def test_rows_for_blocks(weights, replace):
    """Rows at and above the length from which a block has a row, with sections of 256 entries and of more."""
    rng = np.random.default_rng(2)
    lengths = [LONG_ROW, LONG_ROW + 1, 3, 30_000, 300_000]
    A = graph(rng, lengths, weights, value=np.float64 if weights == "two" else np.float32)
    batches = [np.arange(5), [3, 1], [4]]
    for size in (4, 32, 50):
        check(A, selector(batches), Draw(KEY, 0, size, replace))


def test_long_rows_taken_whole():
    """With weights of 0 and without, at sizes for which warps need no memory for what was chosen."""
    rng = np.random.default_rng(3)
    A = graph(rng, [20_000, 9000, 9000, 12, 8193], "exponential")
    A.data[:29_000] *= rng.random(29_000) < 0.4
    for size in (9000, 30_000):
        check(A, selector([np.arange(5), [1, 0]]), Draw(KEY, 0, size))


def test_memory_for_what_was_chosen():
    device = EmulatedDevice()
    shapes = [(size, *chosen_room(device, size, 1000, 7)) for size in (33, LONG_ROW - 1, LONG_ROW, 1 << 22)]
    assert [(size, room.shape, warps, blocks) for size, room, warps, blocks in shapes] == [
        (33, (16, 128), 16, 7),
        (LONG_ROW - 1, (16, 2 * LONG_ROW), 16, 7),
        (LONG_ROW, (7, 2 * LONG_ROW), 1000, 7),
        (1 << 22, (4, 1 << 23), 1000, 4),
    ]


@pytest.mark.parametrize("scale", [1e3, 1e6, 1e9])
def test_redraws(scale):
    """Few entries more than the size, and entries that weigh nearly all: round follows round."""
    rng = np.random.default_rng(4)
    lengths = np.repeat([2, 6, 7, 11, 17, 40, 300], 4)
    A = graph(rng, lengths, "exponential", value=np.float64)
    A.data[A.indptr[:-1]] *= scale
    A.data[A.indptr[1:] - 1] *= scale * scale
    for size in (1, 5, 6, 16, 31, 39):
        check(A, selector([rng.permutation(28), rng.permutation(28)[:9]]), Draw(KEY, 2, size))


@pytest.mark.parametrize("size", [3, 20, 45])
def test_redraws_from_rows_of_several_sections(size):
    rng = np.random.default_rng(5)
    A = graph(rng, [1000, 9000], "exponential", value=np.float64)
    for begin, length in ((0, 1000), (1000, 9000)):
        heavy = begin + rng.choice(length, size - 1, replace=False)
        A.data[heavy] *= 1e12
        A.data[heavy[0]] *= 1e3
    check(A, selector([[0, 1], [1]]), Draw(KEY, 0, size))


def test_many_draws_with_redraws():
    rng = np.random.default_rng(6)
    A = graph(rng, [101, 130, 400], "magnitudes", value=np.float64)
    for size in (64, 99, 100):
        check(A, selector([[0, 1, 2], [2, 0]]), Draw(KEY, 1, size))


def test_extreme_exponents():
    """The largest and the smallest weights there are, where no power of two is a normal number."""
    rng = np.random.default_rng(7)
    for scale in (5e-324, 1e-310, 1e-290, 1e290, 1e307):
        A = Matrix(np.array([0, 30]), np.arange(30, dtype=np.int32), rng.integers(1, 15, 30) * scale)
        check(A, selector([[0]] * 5), Draw(KEY, 3, 4))
    spread = np.array([5e-324, 1e-300, 1e-20, 1.0, 1e20, 1e300, 1.7e308])
    A = Matrix(np.array([0, 7]), np.arange(7, dtype=np.int32), spread)
    check(A, selector([[0]] * 5), Draw(KEY, 3, 5))


@pytest.mark.parametrize("count", [2, 256, 257, 1024])
@pytest.mark.parametrize("value", [np.float32, np.float64])
def test_total_of_exactly_2_to_32(count, value):
    """Weights just below a power of two; the draws are narrow still."""
    weights = np.concatenate([np.full(count, np.nextafter(value(1), value(0))), np.zeros(3), np.ones(4)]).astype(value)
    A = Matrix(pointers([count + 3, 4, 0]), np.zeros(count + 7, np.int32), weights)
    for replace in (False, True):
        check(A, selector([[0, 1], [0, 2, 1]]), Draw(KEY, 0, 3, replace))


def test_launches_and_waits_do_not_grow_with_the_batches():
    rng = np.random.default_rng(8)
    A = graph(rng, rng.integers(0, 40, 60), "exponential")
    devices = [check(A, selector([rng.permutation(60)[:9]] * k), Draw(KEY, 0, 4)) for k in (1, 80)]
    assert len({device.launches for device in devices}) == 1
    copied_back = 4  # by the test itself: indptr, columns, positions and weights
    assert [device.waits for device in devices] == [1 + copied_back] * 2


# --- rules kept from call to call -------------------------------------------------------------------------------------


def on_device(device, A):
    return A._replace(**{f: device.to_device(getattr(A, f)) for f in ("indptr", "indices", "data")})


@pytest.mark.parametrize("replace", [False, True])
def test_rules_serve_later_calls(replace):
    """Rows without positive weights, with zeros, narrow and wide ones; short and long."""
    rng = np.random.default_rng(9)
    lengths = np.concatenate([rng.integers(0, 60, 90), [9000, 0, 400]])
    A = graph(rng, lengths, "magnitudes", value=np.float64)
    A.data[rng.random(len(A.data)) < 0.1] = 0
    A.data[A.indptr[4] : A.indptr[6]] = 0
    A.data[A.indptr[20] : A.indptr[30]] = 1
    backend = CudaKernels(EmulatedDevice())
    rules = backend.device.full(len(lengths), UNKNOWN_RULE, np.int16)
    B = on_device(backend.device, A)
    for size in (3, 25, 40, 3):
        batches = [rng.permutation(93)[:70], np.arange(93)]
        Q, draw = selector(batches), Draw(KEY, 1, size, replace)
        placed = Q._replace(vertices=backend.device.to_device(Q.vertices))
        rows = backend.sample_rows_weighted(B, placed, draw, True, True, rules)
        host = type(rows)(*(part.host if backend.device.owns(part) else part for part in rows))
        assert_rows_equal(host, REFERENCE.sample_rows_weighted(A, Q, draw, True, True))
    known = rules.host
    assert (known[lengths > 0] != UNKNOWN_RULE).all()
    assert (known[lengths == 0] == UNKNOWN_RULE).all()
    assert (known[20:30][lengths[20:30] > 0] % 2 == 0).all()


def test_rules_are_read_instead_of_weights():
    """A rule that claims the row to be without positive weights is believed."""
    backend = CudaKernels(EmulatedDevice())
    A = graph(np.random.default_rng(10), [5, 5], "ones")
    rules = np.array([UNKNOWN_RULE, UNKNOWN_RULE + 1], np.int16)
    rows = OnHost(backend).sample_rows_weighted(A, selector([[0, 1]]), Draw(KEY, 0, 2), True, False, rules)
    assert rows.indptr.tolist() == [0, 2, 2]


@pytest.mark.parametrize("rules", [np.zeros(3, np.int16), np.zeros(2, np.int32)])
def test_rules_of_another_length_or_type_are_refused(rules):
    A = graph(np.random.default_rng(11), [3, 4], "ones")
    with pytest.raises(ValueError, match="rules"):
        OnHost(CudaKernels(EmulatedDevice())).sample_rows_weighted(
            A, selector([[0]]), Draw(KEY, 0, 2), True, True, rules
        )


# --- sums kept from call to call --------------------------------------------------------------------------------------


def check_by_sums(A, Q, *draws):
    """Draws by sums that are made once for A, compared with the reference."""
    backend = CudaKernels(EmulatedDevice())
    device, B = backend.device, on_device(backend.device, A)
    sums = backend.kept_for_rows(B)
    assert isinstance(sums, RowSums)
    assert sums.nbytes == row_sums_bytes(len(A.indptr) - 1, len(A.indices))
    placed = Q._replace(vertices=device.to_device(Q.vertices))
    for draw in draws:
        rows = backend.sample_rows_weighted(B, placed, draw, True, True, sums)
        host = type(rows)(*(part.host if device.owns(part) else part for part in rows))
        assert_rows_equal(host, REFERENCE.sample_rows_weighted(A, Q, draw, True, True))
    assert "draw_few" not in device.kernels
    assert {name for name in device.kernels if "sum" in name} <= device.prepared
    return sums


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_draws_by_sums(weights, replace):
    """Rows of no, one and several sections, beginning anywhere in one; sizes for each number of lanes."""
    rng = np.random.default_rng(21)
    lengths = rng.permutation([0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 40, 100, 257, 700, 3000] * 3)
    for sizes, index, value in (((1, 2, 5), np.int32, np.float32), ((3, 15, 32), np.int64, np.float64)):
        A = graph(rng, lengths, weights, index, value)
        Q = selector([rng.permutation(54)[:20], [], rng.permutation(54)], index)
        check_by_sums(A, Q, *(Draw(KEY, 1, size, replace) for size in sizes))


@pytest.mark.parametrize("value", [np.float32, np.float64])
@pytest.mark.parametrize("weights", ["exponential", "zeros", "two", "ones"])
def test_draws_by_sums_from_long_rows(weights, value):
    """Rows at and above the length from which a block sums a row; more draws than lanes with replacement."""
    rng = np.random.default_rng(22)
    lengths = [3, LONG_ROW, LONG_ROW + 1, 0, 30_000, 4096, 100_001, 5]
    A = graph(rng, lengths, weights, value=value)
    draws = [Draw(KEY, 0, size, replace) for size, replace in ((4, False), (32, False), (5, True), (45, True))]
    check_by_sums(A, selector([np.arange(8), [6, 1], [4]]), *draws)


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6, 1e9])
def test_redraws_by_sums(scale):
    """Few entries more than the size, and entries that weigh nearly all: round follows round."""
    rng = np.random.default_rng(23)
    lengths = np.repeat([2, 6, 7, 11, 17, 33, 40, 300], 5)
    A = graph(rng, lengths, "exponential", value=np.float64)
    for place in (A.indptr[:-1], A.indptr[:-1] + lengths // 2, A.indptr[1:] - 1):
        A.data[place] *= scale
        scale *= scale
    Q = selector([rng.permutation(40), rng.permutation(40)[:9]])
    check_by_sums(A, Q, *(Draw(KEY, 2, size) for size in (1, 2, 3, 5, 6, 10, 16, 31, 32)))


@pytest.mark.parametrize("heavy", [1, 4, 14, 19])
def test_redraws_by_sums_of_neighbours(heavy):
    """Entries beside each other, and ones of weight 0 between them, are taken out."""
    rng = np.random.default_rng(24)
    A = graph(rng, [60, 9000, 61, 20], "exponential", value=np.float64)
    for begin, length in zip(A.indptr[:-1], np.diff(A.indptr), strict=True):
        first = begin + rng.integers(0, length - heavy + 1)
        A.data[first : first + heavy] *= 1e9
        A.data[first + heavy // 2 : first + heavy : 3] = 0
        A.data[first] *= 1e3
    check_by_sums(A, selector([[0, 1, 2, 3], [1, 3]]), *(Draw(KEY, 0, size) for size in (2, 5, 15, 19, 20)))


@pytest.mark.parametrize("count", [2, 256, 257, 1024])
@pytest.mark.parametrize("value", [np.float32, np.float64])
def test_sums_of_exactly_2_to_32(count, value):
    weights = np.concatenate([np.full(count, np.nextafter(value(1), value(0))), np.zeros(30), np.ones(4)]).astype(value)
    A = Matrix(pointers([count + 30, 4, 0]), np.zeros(count + 34, np.int32), weights)
    sums = check_by_sums(A, selector([[0, 1], [0, 2, 1]]), Draw(KEY, 0, 3), Draw(KEY, 0, 3, True))
    assert int(sums.totals.host[0]) == 2**32 or count != 1024


def test_draws_by_sums_at_extreme_exponents():
    rng = np.random.default_rng(25)
    spread = [5e-324, 1e-300, 1e-20, 1.0, 1e20, 1e300, 1.7e308]
    rows = [rng.integers(1, 15, 30) * scale for scale in (5e-324, 1e-310, 1e-290, 1e290, 1e307)]
    A = Matrix(pointers([30] * 5 + [7]), np.arange(157, dtype=np.int32) % 6, np.concatenate([*rows, spread]))
    check_by_sums(A, selector([np.arange(6)] * 3), Draw(KEY, 3, 4), Draw(KEY, 3, 5), Draw(KEY, 3, 6, True))


def test_many_draws_with_sums():
    """They take the rules of the sums."""
    rng = np.random.default_rng(26)
    A = graph(rng, [101, 130, 9000, 20], "zeros")
    check_by_sums(A, selector([[0, 1, 2, 3], [2, 0]]), Draw(KEY, 1, 33), Draw(KEY, 1, 100))


def test_sums_by_their_definition():
    """Each section's sum of the row that goes on into it."""
    rng = np.random.default_rng(27)
    lengths = np.array([5, 0, 30, 9000, 1, 16, 8])
    A = Matrix(pointers(lengths), np.zeros(9060, np.int32), rng.integers(0, 1000, 9060).astype(np.float64))
    sums = check_by_sums(A, selector([[0]]), Draw(KEY, 0, 2))
    for begin, end, rule, total in zip(A.indptr[:-1], A.indptr[1:], sums.rules.host, sums.totals.host, strict=True):
        numerators = A.data[begin:end].astype(np.uint64) << np.uint64(max(int(rule) >> 1, 0))
        assert int(total) == int(numerators.sum())
        for section in range(int(begin) // SUMS_EVERY + 1, (int(end) - 1) // SUMS_EVERY + 1):
            assert sums.sums.host[section] == numerators[: section * SUMS_EVERY - begin].sum(), section


def test_sums_are_kept_where_there_is_room():
    A = graph(np.random.default_rng(28), [50, 30], "exponential")
    needed = row_sums_bytes(2, 80)
    kept = {}
    for free in (4 * needed - 1, 4 * needed):
        backend = CudaKernels(EmulatedDevice(free_bytes=free))
        kept[free] = backend.kept_for_rows(on_device(backend.device, A))
    assert kept[4 * needed - 1].host.tolist() == [UNKNOWN_RULE] * 2
    assert kept[4 * needed].nbytes == needed


# --- rows that lie apart ----------------------------------------------------------------------------------------------


def test_rows_found_by_their_addresses():
    """Columns and weights of each row elsewhere than in `indices` and `data`, which hold nothing of use."""
    rng = np.random.default_rng(12)
    lengths = np.array([3, 40, 0, 300, 9000])
    A = graph(rng, lengths, "exponential")
    backend = CudaKernels(EmulatedDevice())
    device = backend.device
    columns, weights = (device.to_device(array[::-1].copy()[::-1].copy()) for array in (A.indices, A.data))
    places = [device.to_device((device.address(a) + 4 * A.indptr[:-1]).astype(np.uint64)) for a in (columns, weights)]
    empty = Matrix(A.indptr, np.zeros(0, np.int32), np.zeros(0, np.float32))
    apart = on_device(device, empty)._replace(row_places=places[0], weight_places=places[1])
    for size in (2, 35):
        Q, draw = selector([[4, 1, 0], [3, 2]]), Draw(KEY, 0, size)
        placed = Q._replace(vertices=device.to_device(Q.vertices))
        rows = backend.sample_rows_weighted(apart, placed, draw, True, True)
        host = type(rows)(*(part.host if device.owns(part) else part for part in rows))
        assert_rows_equal(host, REFERENCE.sample_rows_weighted(A, Q, draw, True, True))
