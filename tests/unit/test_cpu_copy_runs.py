"""Whole rows copied in runs of every length and alignment, small and large results, by every instruction set."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

core = pytest.importorskip("spsample._core", reason="the compiled core is not built")

LENGTHS = np.concatenate([np.arange(70), [127, 128, 129, 255, 256, 257, 300, 511, 1024, 5000]])


@contextmanager
def instruction_set(name):
    before = core.instruction_set()
    if not core.set_instruction_set(name):
        pytest.skip(f"this processor has no {name}")
    try:
        yield
    finally:
        core.set_instruction_set(before)


def matrix(index, item_size):
    """Rows of all lengths, each beginning somewhere else in a cache line."""
    rng = np.random.default_rng(0)
    degrees = rng.permutation(np.tile(LENGTHS, 3))
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    data = rng.integers(0, 256, indptr[-1] * item_size, np.uint8)
    return indptr, rng.integers(0, len(degrees), indptr[-1]).astype(index), data


def expected(indptr, array, rows):
    return np.concatenate([array[indptr[row] : indptr[row + 1]] for row in rows])


@pytest.mark.parametrize("times", [1, 80], ids=["small", "past-the-caches"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("name", ["portable", "avx2", "avx512"])
class TestEveryRun:
    @pytest.mark.parametrize("item_size", [1, 2, 4, 8, 12])
    def test_selected(self, name, index, item_size, times):
        indptr, indices, data = matrix(index, item_size)
        rows = np.random.default_rng(1).permutation(np.tile(np.arange(len(indptr) - 1), times))
        with instruction_set(name):
            pointers, columns, values = core.select_rows(indptr, indices, data, item_size, rows)
        np.testing.assert_array_equal(np.diff(pointers), np.diff(indptr)[rows])
        np.testing.assert_array_equal(columns, expected(indptr, indices, rows))
        items = expected(indptr, data.reshape(-1, item_size), rows)
        np.testing.assert_array_equal(values.reshape(-1, item_size), items)

    def test_taken_for_batches(self, name, index, times):
        indptr, indices, _ = matrix(index, 1)
        n = len(indptr) - 1
        batches = [np.random.default_rng(seed).permutation(n).astype(index) for seed in range(times)]
        vertices = np.concatenate(batches)
        with instruction_set(name):
            taken = core.take_rows(indptr, indices, np.arange(times + 1) * n, vertices, np.arange(times), True)
        _, _, columns, positions = taken
        np.testing.assert_array_equal(columns, expected(indptr, indices, vertices))
        np.testing.assert_array_equal(positions, expected(indptr, np.arange(len(indices)), vertices))
