"""The general product and row selection of the CUDA kernels, emulated, against the reference, bit for bit."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from emulated_device import EmulatedDevice
from on_host import OnHost

from spsample.backends.cuda.backend import CudaKernels
from spsample.backends.cuda.spgemm import BYTES_PER_PRODUCT, SHARE_OF_FREE
from spsample.backends.reference import ReferenceBackend

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile the CUDA sources for the host")

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


def check(A, B, num_columns, most_products=ALL):
    """Compares with the reference, where memory suffices for so many products at a time. Returns the device."""
    backend = CudaKernels(EmulatedDevice(free_bytes=most_products * BYTES_PER_PRODUCT * SHARE_OF_FREE))
    with np.errstate(over="ignore"):
        expected = ReferenceBackend().spgemm(A, B, num_columns)
    for actual, wanted in zip(OnHost(backend).spgemm(A, B, num_columns), expected, strict=True):
        assert actual.dtype == wanted.dtype
        assert actual.tobytes() == wanted.tobytes()
    return backend.device


@pytest.mark.parametrize("dtype", VALUE_TYPES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_shapes(dtype, index):
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
        check(A, matrix(rng, rng.choice([0, 0, 1, 20, 60], inner), num_columns, dtype, index, order), num_columns)


@pytest.mark.parametrize("dtype", VALUE_TYPES)
@pytest.mark.parametrize("most_products", [1, 7, 100, 3000])
def test_slices(dtype, most_products):
    """Whole rows that fit in memory together, and rows cut: the sums so far go before the products that follow."""
    rng = np.random.default_rng(2)
    lengths = [0, 3, 0, 1, 40, 2, 0, 0] if most_products > 1 else [0, 2, 0, 4, 0]
    A = matrix(rng, lengths, 20, dtype)
    B = matrix(rng, rng.choice([0, 1, 5, 30], 20), 12, dtype)
    check(A, B, 12, most_products)


@pytest.mark.parametrize("dtype", [np.float32, np.uint64])
@pytest.mark.parametrize("most_products", [ALL, 1000])
def test_many_products_of_one_element(dtype, most_products):
    """Sums that a warp adds up: above 64 products, at and beside multiples of 32."""
    rng = np.random.default_rng(3)
    A = matrix(rng, [1, 64, 65, 66, 97, 500], 4, dtype)
    check(A, matrix(rng, [1, 1, 3, 2], 2, dtype), 2, most_products)


@pytest.mark.parametrize("num_columns", [2**32, 2**40, 2**62])
def test_columns_that_need_64_bits(num_columns):
    """At last so many that two rows make keys of 64 bits, and further rows go into other slices."""
    rng = np.random.default_rng(4)
    B = matrix(rng, rng.integers(0, 9, 6), num_columns, np.float64, np.int64)
    B[1][:3] = [0, num_columns - 1, num_columns - 1]
    for lengths in ([4, 2, 0, 5, 1], [3]):
        check(matrix(rng, lengths, 6, np.float64, np.int64), B, num_columns)


@pytest.mark.parametrize("dtype", VALUE_TYPES)
def test_values_left_out_are_ones(dtype):
    rng = np.random.default_rng(5)
    A = matrix(rng, rng.integers(0, 5, 20), 10, dtype)
    B = matrix(rng, rng.integers(0, 9, 10), 30, dtype)
    check((*A[:2], None), B, 30)
    check(A, (*B[:2], None), 30)
    check((*A[:2], None), (*B[:2], None), 30, 50)


def test_no_columns():
    A = (np.array([0, 2, 3]), np.array([0, 1, 1], np.int32), np.ones(3))
    check(A, (np.zeros(3, np.int64), np.zeros(0, np.int32), np.zeros(0)), 0)


def test_sums_start_with_the_first_product():
    """No 0.0 before them: -0.0 stays, and so do sums whose bits depend on the order."""
    A = (np.array([0, 1, 4]), np.array([0, 0, 1, 2], np.int32), np.array([1.0, 1e16, 1.0, -1e16]))
    B = (np.array([0, 1, 2, 3]), np.array([0, 0, 0], np.int32), np.array([-0.0, 1.0, 1.0]))
    check(A, B, 1)
    check(A, B, 1, 1)


def test_waits_do_not_grow_with_the_rows():
    rng = np.random.default_rng(6)
    devices = []
    for rows in (3, 60):
        A, B = matrix(rng, np.full(rows, 4), 9, np.float32), matrix(rng, np.full(9, 3), 20, np.float32)
        devices.append(check(A, B, 20))
    copied_back = 3  # by the test itself
    assert [device.waits for device in devices] == [2 + copied_back] * 2
    assert devices[0].launches == devices[1].launches


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
