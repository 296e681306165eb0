"""Uniform draws of the backend `cuda`: words that are rejected, and rows that a warp looks up together."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest
from backend_contract import assert_same, pointers
from emulated_device import EmulatedDevice
from needs import COMPILER
from on_host import OnHost

from spsample.backends import Draw, Matrix, StackedSelector
from spsample.backends.cuda.backend import CudaKernels
from spsample.backends.cuda.sources import kernel_folder
from spsample.backends.reference import ReferenceBackend

pytestmark = pytest.mark.needs("c++")

REFERENCE = ReferenceBackend()
KEY = (123, 456)

ONE_AND_MANY = r"""
#include "spsample/philox.h"
using namespace spsample;
// How many of the draws 0 .. count - 1 differ.
extern "C" void compare(uint64_t initial, uint64_t t, int64_t count, int64_t* differing) {
    DrawStream many({1, 2}, 77, 3, 9, initial);
    const DrawStream one({1, 2}, 77, 3, 9, initial);
    for (int64_t draw = 0; draw < count; ++draw) *differing += one.one_below(draw, t) != many.below(draw, t);
}
"""


@pytest.fixture(scope="module")
def compare(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one_and_many")
    (folder / "draws.cpp").write_text(ONE_AND_MANY)
    command = [COMPILER, "-std=c++17", "-O1", "-shared", "-fPIC", f"-I{kernel_folder() / 'include'}"]
    subprocess.run([*command, str(folder / "draws.cpp"), "-o", str(folder / "draws.so")], check=True)
    function = ctypes.CDLL(str(folder / "draws.so")).compare
    function.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64)]
    return function


@pytest.mark.parametrize("initial", [1, 7, 3 * 2**30, 2**32 - 1, 2**32, 2**32 + 1, 3 * 2**61, 2**64 - 1])
def test_one_draw_is_that_of_the_stream(compare, initial):
    """Totals of 3 2^30 and 3 2^61 reject a quarter of the words; t may be less than the stream's total."""
    for t in {initial, max(initial // 3, 1), max(initial - 5, 1)}:
        differing = ctypes.c_int64(0)
        compare(initial, t, 2000, ctypes.byref(differing))
        assert differing.value == 0


def drawn_alike(A, Q, draw, positions=True):
    rows = OnHost(CudaKernels(EmulatedDevice())).sample_rows_uniform(A, Q, draw, positions)
    assert_same(rows, REFERENCE.sample_rows_uniform(A, Q, draw, positions))


@pytest.mark.parametrize("replace", [False, True])
def test_rejected_words(replace):
    """Of a row of 3 000 000 entries a word is rejected with probability 1 in 1600."""
    degree, k = 3_000_000, 400
    A = Matrix(np.array([0, 5, 5 + degree]), np.arange(5 + degree, dtype=np.int32))
    Q = StackedSelector(np.arange(k + 1), np.ones(k, np.int32), np.arange(k))
    drawn_alike(A, Q, Draw(KEY, 2, 15, replace))


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 20, 32])
def test_many_rows_of_many_batches(size, index):
    """Warps look 32 rows up at a time, the last one fewer, of batches of which some are empty."""
    rng = np.random.default_rng(size)
    lengths = rng.choice([0, 1, size, size + 1, 60], 700)
    A = Matrix(pointers(lengths), rng.integers(0, 700, lengths.sum()).astype(index))
    sizes = rng.choice([0, 1, 5, 90], 60)
    Q = StackedSelector(pointers(sizes), rng.integers(0, 700, sizes.sum()).astype(index), np.arange(60) + 2**32 - 60)
    drawn_alike(A, Q, Draw(KEY, 1, size))
    drawn_alike(A, Q, Draw(KEY, 1, size, True), False)
