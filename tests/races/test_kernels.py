"""Kernels on work for several blocks, where the contract and small bulks give them work for one."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_backend import emulated
from emulated_device import EmulatedDevice
from on_host import OnHost
from test_cuda_spgemm import ExpandingKernels, matrix
from test_cuda_spgemm import check as check_product
from test_cuda_weighted import check_by_sums
from test_instruction_sets import KEY, REFERENCE, assert_equal, pointers
from test_layerwise_kernels import RULES, N, hubs

import spsample as sp
from spsample.backends import ColumnSample, Draw, Matrix, QuantisationRule, StackedSelector
from spsample.backends.cuda.backend import CudaKernels
from spsample.backends.cuda.spgemm_hashed import HashedProduct
from spsample.backends.protocol import UNKNOWN_RULE
from spsample.features.formats import format_for

__all__ = ["emulated"]


@pytest.fixture
def backend():
    return OnHost(CudaKernels(EmulatedDevice()))


def selector(rng, batches, rows, index=np.int32):
    """So many batches of a few rows each, the first four rows among those of each."""
    vertices = [np.append(rng.permutation(rows - 4)[:5] + 4, range(4)) for _ in range(batches)]
    return StackedSelector(pointers([9] * batches), np.concatenate(vertices).astype(index), np.arange(batches))


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_entries_that_are_not_excluded(backend, index):
    rng = np.random.default_rng(1)
    A, Q = hubs(rng, index), selector(rng, 60, N, index)
    columns = np.concatenate([rng.choice(N, 12, replace=False) for _ in range(60)]).astype(index)
    sample = ColumnSample(
        pointers([12] * 60), columns, np.ones(720, np.int64), np.full(60, N, np.uint64), np.zeros(60, bool)
    )
    totals = backend.entry_counts(A, Q, sample)
    np.testing.assert_array_equal(totals, REFERENCE.entry_counts(A, Q, sample))
    rows = np.repeat(np.flatnonzero(totals), 3)
    offsets = rng.integers(0, totals[rows].astype(np.int64))
    np.testing.assert_array_equal(
        backend.locate(A, Q, rows, offsets, sample), REFERENCE.locate(A, Q, rows, offsets, sample)
    )


@pytest.mark.parametrize("weights", ["equal", "skewed"])
def test_redraws(backend, weights):
    """Entries of a few heavy columns: rounds follow each other."""
    rng = np.random.default_rng(2)
    A, Q = hubs(rng), selector(rng, 12, N)
    numerators = None if weights == "equal" else np.where(Q.vertices == 2, 2**45, 1).astype(np.uint64)
    draw = Draw(KEY, 2, 40)
    assert_equal(backend.draw_entries(A, Q, numerators, draw), REFERENCE.draw_entries(A, Q, numerators, draw))


@pytest.mark.parametrize("rule", RULES)
def test_merged_columns_of_many_batches(backend, rule):
    rng = np.random.default_rng(3)
    data, row_normalized, shift, power = RULES[rule]
    A, Q = hubs(rng, np.int32, data, row_normalized), selector(rng, 260, 400)
    A = A._replace(indices=A.indices % 400, num_columns=400)
    numerators = QuantisationRule(None if shift is None else np.full(260, shift), 3 - power, power)
    assert_equal(backend.merge_columns(A, Q, numerators), REFERENCE.merge_columns(A, Q, numerators))


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("size", [8, 40])
@pytest.mark.parametrize(("index", "value"), [(np.int32, np.float32), (np.int64, np.float64)])
def test_weighted_rows_for_blocks(backend, index, value, size, replace):
    """Rows that a block draws from, met by several blocks at once, whose rules are found and then known."""
    rng = np.random.default_rng(4)
    lengths = np.array([8200, 8193, 9000, 8193, *rng.integers(0, 60, 40)])
    data = rng.exponential(size=lengths.sum()) * (rng.random(lengths.sum()) < 0.9)
    A = Matrix(pointers(lengths), rng.integers(0, 44, lengths.sum()).astype(index), data.astype(value))
    Q, draw = selector(rng, 2, 44, index), Draw(KEY, 0, size, replace)
    device = backend.device
    rules = device.full(len(lengths), UNKNOWN_RULE, np.int16)
    for _ in range(2):
        found = backend.sample_rows_weighted(A, Q, draw, True, True, rules)
        assert_equal(found, REFERENCE.sample_rows_weighted(A, Q, draw, True, True))


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(("index", "value"), [(np.int32, np.float32), (np.int64, np.float64)])
def test_weighted_rows_by_sums(index, value, replace):
    """Sums of rows for warps and for blocks; rows for several blocks, from which rounds of draws follow each other."""
    rng = np.random.default_rng(10)
    lengths = np.array([8200, 8193, 9000, 8193, *rng.integers(0, 60, 40)])
    data = rng.exponential(size=lengths.sum()) ** 9 * (rng.random(lengths.sum()) < 0.9)
    A = Matrix(pointers(lengths), rng.integers(0, 44, lengths.sum()).astype(index), data.astype(value))
    check_by_sums(A, selector(rng, 30, 44, index), Draw(KEY, 0, 3, replace), Draw(KEY, 0, 12, replace))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("dim", [7, 100])
def test_features(emulated, dtype, dim):
    rng = np.random.default_rng(5)
    x, ids = rng.normal(size=(50, dim)).astype(np.float32), rng.integers(0, 50, 300)
    form = format_for(dtype, np.abs(x).max(axis=0) if dtype == "int8" else None)
    rows = emulated.to_host(sp.DeviceFeatures(x, dtype=dtype).gather(ids))
    np.testing.assert_array_equal(rows, form.decode(form.encode(x))[ids])


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
def test_features_of_a_source(emulated, dtype, index):
    """Some rows on the device, the others gathered by the source; some ids are given twice."""
    rng = np.random.default_rng(9)
    x, ids = (rng.normal(size=(90, 12)) * 30).astype(dtype), rng.integers(0, 90, 600).astype(index)
    features = sp.DeviceFeatures(sp.FeatureStore(x), 0.4, rng.random(90))
    np.testing.assert_array_equal(emulated.to_host(features.gather(emulated.to_device(ids))), x[ids])


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_selected_rows(backend, index):
    rng = np.random.default_rng(6)
    A, rows = matrix(rng, rng.integers(0, 9, 300), 80, np.float64, index), rng.integers(0, 300, 600).astype(index)
    for actual, expected in zip(backend.select_rows(A, rows), REFERENCE.select_rows(A, rows), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("kernels", [CudaKernels, ExpandingKernels])
@pytest.mark.parametrize(("index", "dtype"), [(np.int32, np.float32), (np.int64, np.float64), (np.int32, np.int64)])
def test_product_of_many_rows(index, dtype, kernels):
    """Rows of no, few and some hundred columns."""
    rng = np.random.default_rng(7)
    A = matrix(rng, rng.choice([0, 1, 3, 12], 300), 60, dtype, index)
    check_product(A, matrix(rng, rng.choice([0, 1, 20, 60], 60), 500, dtype, index), 500, kernels=kernels)


@pytest.mark.parametrize("most_columns", [1 << 20, 1], ids=["in tables", "by sorting"])
def test_product_of_many_long_rows(monkeypatch, most_columns):
    """Of more columns than shared memory holds: in tables of global memory, or by sorting where these would not fit."""
    monkeypatch.setattr(HashedProduct, "_most_columns", lambda _: most_columns)
    rng = np.random.default_rng(8)
    A = matrix(rng, [1] * 260, 1, np.float32)
    B = np.array([0, 1025]), rng.permutation(1100)[:1025].astype(np.int32), rng.random(1025, np.float32)
    check_product(A, B, 1100)
