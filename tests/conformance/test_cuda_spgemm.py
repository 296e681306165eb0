"""The general product and row selection of the CUDA kernels, emulated, against the reference, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_device import EmulatedDevice
from on_host import OnHost

from spsample.backends.cuda import spgemm_hashed
from spsample.backends.cuda.backend import CudaKernels
from spsample.backends.cuda.device import SHARE_OF_FREE
from spsample.backends.cuda.spgemm_expanded import BYTES_PER_PRODUCT, ExpandedProduct
from spsample.backends.reference import ReferenceBackend

pytestmark = pytest.mark.needs("c++")

VALUE_TYPES = [np.float32, np.float64, np.int64, np.uint64]
ALL = 1 << 20


def random_values(rng, count, dtype):
    """Of very different size, with both signs and zeros of both signs; whole numbers of all 64 bits."""
    if np.issubdtype(dtype, np.floating):
        values = (rng.standard_normal(count) * 10.0 ** rng.uniform(-6, 6, count)).astype(dtype)
        values[rng.random(count) < 0.2] = -0.0
        return values
    return rng.integers(0, 2**63 - 1, count).astype(dtype)


def matrix(rng, lengths, num_columns, dtype, index=np.int32, order="any"):
    """Rows of the given lengths, their columns in any order or sorted, both with repeats."""
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = rng.integers(0, num_columns, indptr[-1])
    if order == "sorted":
        indices = indices[np.lexsort((indices, np.repeat(np.arange(len(lengths)), lengths)))]
    return indptr, indices.astype(index), random_values(rng, indptr[-1], dtype)


class ExpandingKernels(CudaKernels):
    """Makes all rows as hubs are made."""

    def spgemm(self, A, B, num_columns):
        return ExpandedProduct(self.device, A, B, num_columns).result()


def check(A, B, num_columns, most_products=ALL, kernels=CudaKernels):
    """Compares with the reference, where memory suffices for so many products at a time. Returns the device."""
    backend = kernels(EmulatedDevice(free_bytes=int(most_products * BYTES_PER_PRODUCT) * SHARE_OF_FREE))
    with np.errstate(over="ignore"):
        expected = ReferenceBackend().spgemm(A, B, num_columns)
    for actual, wanted in zip(OnHost(backend).spgemm(A, B, num_columns), expected, strict=True):
        assert actual.dtype == wanted.dtype
        assert actual.tobytes() == wanted.tobytes()
    return backend.device


@pytest.mark.parametrize("kernels", [CudaKernels, ExpandingKernels])
@pytest.mark.parametrize("dtype", VALUE_TYPES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_shapes(dtype, index, kernels):
    """Empty, short and long rows; keys of 32 and of 64 bits."""
    rng = np.random.default_rng(1)
    for rows, inner, num_columns, order in (
        (25, 30, 1, "any"),
        (30, 20, 3, "sorted"),
        (20, 30, 40, "any"),
        (1, 5, 300, "any"),
        (9, 30, 2**31 - 1, "sorted"),
    ):
        A = matrix(rng, rng.choice([0, 1, 3, 12], rows), inner, dtype, index)
        check(
            A,
            matrix(rng, rng.choice([0, 0, 1, 20, 60], inner), num_columns, dtype, index, order),
            num_columns,
            kernels=kernels,
        )


@pytest.mark.parametrize("kernels", [CudaKernels, ExpandingKernels])
@pytest.mark.parametrize("dtype", VALUE_TYPES)
@pytest.mark.parametrize("most_products", [1, 7, 100, 3000])
def test_slices(dtype, most_products, kernels):
    """Whole rows that fit in memory together, and rows cut: the sums so far go before the products that follow."""
    rng = np.random.default_rng(2)
    lengths = [0, 3, 0, 1, 40, 2, 0, 0] if most_products > 1 else [0, 2, 0, 4, 0]
    A = matrix(rng, lengths, 20, dtype)
    B = matrix(rng, rng.choice([0, 1, 5, 30], 20), 12, dtype)
    check(A, B, 12, most_products, kernels=kernels)


@pytest.mark.parametrize("kernels", [CudaKernels, ExpandingKernels])
@pytest.mark.parametrize("dtype", [np.float32, np.uint64])
@pytest.mark.parametrize("most_products", [ALL, 1000])
def test_many_products_of_one_element(dtype, most_products, kernels):
    """Sums that a warp adds up: above 64 products, at and beside multiples of 32."""
    rng = np.random.default_rng(3)
    A = matrix(rng, [1, 64, 65, 66, 97, 500], 4, dtype)
    check(A, matrix(rng, [1, 1, 3, 2], 2, dtype), 2, most_products, kernels=kernels)


@pytest.mark.parametrize("kernels", [CudaKernels, ExpandingKernels])
@pytest.mark.parametrize("num_columns", [2**32, 2**40, 2**62])
def test_columns_that_need_64_bits(num_columns, kernels):
    """At last so many that two rows make keys of 64 bits, and further rows go into other slices."""
    rng = np.random.default_rng(4)
    B = matrix(rng, rng.integers(0, 9, 6), num_columns, np.float64, np.int64)
    B[1][:3] = [0, num_columns - 1, num_columns - 1]
    for lengths in ([4, 2, 0, 5, 1], [3]):
        check(matrix(rng, lengths, 6, np.float64, np.int64), B, num_columns, kernels=kernels)


@pytest.mark.parametrize("kernels", [CudaKernels, ExpandingKernels])
@pytest.mark.parametrize("dtype", VALUE_TYPES)
def test_values_left_out_are_ones(dtype, kernels):
    rng = np.random.default_rng(5)
    A = matrix(rng, rng.integers(0, 5, 20), 10, dtype)
    B = matrix(rng, rng.integers(0, 9, 10), 30, dtype)
    check((*A[:2], None), B, 30, kernels=kernels)
    check(A, (*B[:2], None), 30, kernels=kernels)
    check((*A[:2], None), (*B[:2], None), 30, 50, kernels=kernels)


@pytest.mark.parametrize("kernels", [CudaKernels, ExpandingKernels])
def test_no_columns(kernels):
    A = (np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.ones(3))
    check(A, (np.zeros(3, np.int64), np.zeros(0, np.int32), np.zeros(0)), 0, kernels=kernels)


@pytest.mark.parametrize("kernels", [CudaKernels, ExpandingKernels])
def test_sums_start_with_the_first_product(kernels):
    """No 0.0 before them: -0.0 stays, and so do sums whose bits depend on the order."""
    A = (np.array([0, 1, 4]), np.array([0, 0, 1, 2], np.int32), np.array([1.0, 1e16, 1.0, -1e16]))
    B = (np.array([0, 1, 2, 3]), np.array([0, 0, 0], np.int32), np.array([-0.0, 1.0, 1.0]))
    check(A, B, 1, kernels=kernels)
    check(A, B, 1, 1, kernels=kernels)


def test_waits_do_not_grow_with_the_rows():
    rng = np.random.default_rng(6)
    devices = []
    for rows in (3, 60):
        A, B = matrix(rng, np.full(rows, 4), 9, np.float32), matrix(rng, np.full(9, 3), 20, np.float32)
        devices.append(check(A, B, 20))
    copied_back = 3  # by the test itself
    assert [device.waits for device in devices] == [2 + copied_back] * 2
    assert devices[0].launches == devices[1].launches


def rows_of_columns(rng, lengths, num_columns, dtype, index=np.int32):
    """A and B whose product has as many columns in each row, each up to twice, and not in order."""
    inner = 2 * len(lengths)
    columns = [rng.choice(num_columns, length, replace=False) for length in lengths]
    again = [rng.permutation(some)[: len(some) // 2] for some in columns]
    rows = [part for pair in zip(columns, again, strict=True) for part in pair]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    B = indptr, np.concatenate(rows).astype(index), random_values(rng, indptr[-1], dtype)
    A = np.arange(0, inner + 1, 2, dtype=np.int64), np.arange(inner, dtype=index), random_values(rng, inner, dtype)
    return A, B


@pytest.mark.parametrize("dtype", VALUE_TYPES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_every_class_of_rows(monkeypatch, dtype, index):
    """Tables in shared and in global memory, at and beside the sizes at which the class changes; hubs."""
    monkeypatch.setattr(spgemm_hashed, "LONG_SIZE", 1300)
    monkeypatch.setattr(spgemm_hashed, "HUB_LEAST", 3000)
    rng = np.random.default_rng(8)
    lengths = [1, 0, 1025, 127, 1300, 128, 129, 0, 1301, 500, 1024, 1999, 2001]
    A, B = rows_of_columns(rng, lengths, 2500, dtype, index)
    device = check(A, B, 2500)
    assert {"count_short", "count_medium", "count_long"} <= device.kernels
    assert {"fill_short", "fill_medium", "fill_long", "place_sorted", "copy_rows"} <= device.kernels


def test_classes_by_products_and_by_columns():
    """Many products of few columns: for the first pass rows look long, in the second they are medium or short."""
    rng = np.random.default_rng(9)
    A = matrix(rng, [30, 1, 0, 400, 60, 8], 40, np.float32)
    for num_columns in (1, 90, 700, 5000):
        check(A, matrix(rng, rng.choice([0, 3, 64, 100], 40), num_columns, np.float32), num_columns)
    B = matrix(rng, np.full(40, 60), 1000, np.float32)
    check(A, (B[0], B[1] * 5000, B[2]), 5_000_000)


@pytest.mark.parametrize("dtype", VALUE_TYPES)
@pytest.mark.parametrize("products", [40, 600, 1500])
def test_columns_repeated_within_rows_of_B(dtype, products):
    """Up to 32 of a warp's 32 products are of one column, next to others and to those of the next entry of A."""
    rng = np.random.default_rng(10)
    columns = np.repeat(rng.integers(0, 1500, products), rng.choice([1, 1, 2, 5, 40], products))[:products]
    lengths = np.diff(np.concatenate([[0], np.sort(rng.integers(0, products, 9)), [products]]))
    B = np.concatenate([[0], np.cumsum(lengths)]), columns.astype(np.int32), random_values(rng, products, dtype)
    A = np.array([0, 10, 10, 14]), np.r_[np.arange(10), [3, 3, 9, 3]].astype(np.int32), random_values(rng, 14, dtype)
    check(A, B, 1500)


@pytest.mark.parametrize("length", [700, 1200])
@pytest.mark.parametrize("shift", [61, 55])
def test_columns_whose_hashes_are_near(length, shift):
    """One warp of the block gets all products; slots in a row of the table are taken."""
    rng = np.random.default_rng(11)
    candidates = np.arange(1 << 20, dtype=np.uint64)
    near = np.flatnonzero(candidates * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(shift) == 5)[:length]
    assert len(near) == length
    A = matrix(rng, [4], 4, np.float32)
    B = (
        np.array([0, 1, length // 2, length, length]),
        rng.permutation(near).astype(np.int32),
        random_values(rng, length, np.float32),
    )
    A[1][:] = [2, 1, 2, 0]
    check(A, B, 1 << 20)


def test_sums_of_long_rows_start_with_the_first_product():
    rng = np.random.default_rng(12)
    for length in (300, 1500):
        columns = np.concatenate([rng.permutation(length) for _ in range(4)]).astype(np.int32)
        data = np.repeat([-0.0, -0.0, 0.0, 1.0], length)
        data[rng.random(len(data)) < 0.5] = -0.0
        A = (
            np.array([0, 3, 6, 7]),
            np.array([0, 1, 3, 3, 2, 1, 0], np.int32),
            np.array([1.0, 1e16, -1e16, 1.0, 1, 1, 1]),
        )
        check(A, (length * np.arange(5), columns, data), length)


@pytest.mark.parametrize("elements", [100, 700, 1500, 4000])
def test_long_rows_in_several_groups(elements):
    """Tables that do not fit make hubs of rows; those that fit are sorted as many at a time as memory holds."""
    rng = np.random.default_rng(13)
    A, B = rows_of_columns(rng, [1100, 3, 1030, 2000, 1029, 1500], 4000, np.float32)
    device = check(A, B, 4000, elements * spgemm_hashed.BYTES_PER_ELEMENT / BYTES_PER_PRODUCT)
    assert ("fill_long" in device.kernels) == (elements > 100)
    assert ("copy_rows" in device.kernels) == (elements < 1000)


def test_long_rows_whose_keys_need_64_bits():
    rng = np.random.default_rng(14)
    for num_columns in (2**31 - 1, 2**62):
        index = np.int32 if num_columns < 2**31 else np.int64
        B = matrix(rng, [1100, 200, 1300], num_columns, np.float64, index)
        check(matrix(rng, [3, 4, 1, 3], 3, np.float64, index), B, num_columns)


def test_hubs_by_their_share_of_all_products(monkeypatch):
    """Where all rows are alike, none is."""
    monkeypatch.setattr(spgemm_hashed, "HUB_LEAST", 10)
    rng = np.random.default_rng(15)
    B = matrix(rng, np.full(9, 20), 30, np.float32)
    assert "copy_rows" not in check(matrix(rng, np.full(130, 2), 9, np.float32), B, 30).kernels
    device = check(matrix(rng, np.r_[np.full(129, 1), 5, 0], 9, np.float32), B, 30)
    assert {"copy_rows", "fill_short"} <= device.kernels


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.complex64, np.complex128, "V3", "V12", "V24"])
def test_selected_rows_of_any_item_size(dtype):
    rng = np.random.default_rng(7)
    lengths = np.array([0, 700, 3, 0, 40, 0])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    size = np.dtype(dtype).itemsize
    data = np.frombuffer(rng.bytes(size * indptr[-1]), dtype)
    A = (indptr, rng.integers(0, 9, indptr[-1]), data)
    rows = rng.integers(0, 6, 12).astype(np.int32)
    expected = ReferenceBackend().select_rows(A, rows)
    for actual, wanted in zip(OnHost(CudaKernels(EmulatedDevice())).select_rows(A, rows), expected, strict=True):
        assert actual.dtype == wanted.dtype
        assert actual.tobytes() == wanted.tobytes()
