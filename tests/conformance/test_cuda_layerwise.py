"""The layer-wise kernels of the backend `cuda`, run thread by thread, where small inputs do not lead them."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_device import EmulatedDevice
from on_host import OnHost
from test_instruction_sets import KEY, REFERENCE, assert_equal, pointers
from test_layerwise_kernels import EMPTY, PARALLEL, RULES, N, frontiers, hubs

import spsample as sp
from spsample.backends import ColumnMatrix, ColumnSample, Draw, Matrix, QuantisationRule, StackedSelector
from spsample.backends.cuda.backend import CudaKernels
from spsample.distributed.rounds import draw_entries_in_rounds
from spsample.sparse import LocalOperand

pytestmark = pytest.mark.needs("c++")


def backend(free_bytes=1 << 30):
    return OnHost(CudaKernels(EmulatedDevice(free_bytes)))


PLENTY, GROUPS_OF_TWO, PARTS, ONE_BY_ONE = 1 << 30, 8 * 2560, 2_200_000, 1
"""Free bytes: all at once; sets of two batches of N columns; sets of all, sums of two; one batch or block at a time."""

memory = pytest.mark.parametrize("free", [PLENTY, GROUPS_OF_TWO, PARTS, ONE_BY_ONE])


def rule_of(name, rng, k, index=np.int32):
    """The matrix and the rule of one of RULES."""
    data, row_normalized, shift, column_power = RULES[name]
    shifts = None if shift is None else shift - np.arange(k)
    return hubs(rng, index, data, row_normalized), QuantisationRule(shifts, 3 - column_power, column_power)


# --- integer probabilities --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_whole_matrix(rule):
    """Rows of none, few and thousands of entries; hub columns."""
    A, numerators = rule_of(rule, np.random.default_rng(3), 1, np.int64)
    one = backend()
    np.testing.assert_array_equal(one.row_exponents(A), REFERENCE.row_exponents(A))
    np.testing.assert_array_equal(one.column_totals(A, numerators), REFERENCE.column_totals(A, numerators))


def test_column_totals_beyond_32_bits():
    A = Matrix(np.array([0, 3, 5]), np.array([1, 1, 0, 1, 4], np.int32), np.full(5, 1.5), num_columns=5)
    rule = QuantisationRule(np.array([58]), 1, 1)
    np.testing.assert_array_equal(backend().column_totals(A, rule), REFERENCE.column_totals(A, rule))


# --- merging ----------------------------------------------------------------------------------------------------------


@memory
@pytest.mark.parametrize("rule", RULES)
def test_merge_columns(rule, free):
    rng = np.random.default_rng(12)
    for k in (1, 5):
        (A, numerators), Q = rule_of(rule, rng, k), frontiers(rng, k)
        P = backend(free).merge_columns(A, Q, numerators)
        assert_equal(P, REFERENCE.merge_columns(A, Q, numerators))


@memory
@pytest.mark.parametrize("rule", ["counts", "row", "float64, squared entries"])
def test_draw_merged(rule, free):
    rng = np.random.default_rng(11)
    (A, numerators), Q = rule_of(rule, rng, 5), frontiers(rng, 5)
    one = backend(free)
    for draw in (Draw(KEY, 0, 70), Draw(KEY, 1, 50, True), Draw(KEY, 2, N)):
        assert_equal(one.draw_merged(A, Q, numerators, draw), REFERENCE.draw_merged(A, Q, numerators, draw))


def test_no_batches_with_little_memory():
    A, rng = hubs(np.random.default_rng(1)), np.random.default_rng(2)
    Q, rule = frontiers(rng, 1), QuantisationRule(None, 1, 2)
    none = StackedSelector(np.zeros(1, np.int64), Q.vertices[:0], np.zeros(0, np.int64))
    one, draw = backend(ONE_BY_ONE), Draw(KEY, 0, 3)
    assert_equal(one.merge_columns(A, none, rule), REFERENCE.merge_columns(A, none, rule))
    assert_equal(one.draw_merged(A, none, rule, draw), REFERENCE.draw_merged(A, none, rule, draw))


def test_columns_outside_are_refused():
    A = Matrix(np.array([0, 3, 6]), np.array([1, 500_000, -7, 0, 1, 800_000], np.int32))
    Q = StackedSelector(np.array([0, 2]), np.array([0, 1], np.int32), np.array([0]))
    rule, one = QuantisationRule(None, 1, 2), backend()
    calls = [
        lambda: one.merge_columns(A, Q, rule),
        lambda: one.draw_merged(A, Q, rule, Draw(KEY, 0, 3)),
        lambda: one.column_totals(A, rule),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="indices: a column is not below the number of columns"):
            call()


def test_draw_merged_of_nothing():
    """No batches, batches without rows, rows without entries, entries of weight 0."""
    A = Matrix(np.array([0, 0, 2, 2]), np.array([0, 2], np.int32), np.zeros(2, np.float32))
    for vertices, batch_ptr in (([], [0]), ([], [0, 0]), ([0, 2], [0, 2]), ([1], [0, 1])):
        k = len(batch_ptr) - 1
        Q = StackedSelector(np.array(batch_ptr), np.array(vertices, np.int32), np.arange(k))
        rule = QuantisationRule(np.zeros(k, np.int64), 1, 2)
        for replace in (False, True):
            draw = Draw(KEY, 0, 3, replace)
            assert_equal(backend().draw_merged(A, Q, rule, draw), REFERENCE.draw_merged(A, Q, rule, draw))


# --- column law -------------------------------------------------------------------------------------------------------


def rows_of(numerators, rng, index=np.int32):
    """A ColumnMatrix of the given rows of numerators."""
    lengths = [len(row) for row in numerators]
    columns = [np.sort(rng.choice(2**30, length, replace=False)) for length in lengths]
    totals = np.array([np.sum(row, dtype=np.uint64) for row in numerators], np.uint64)
    flat = np.concatenate([np.asarray(row, np.uint64) for row in numerators])
    return ColumnMatrix(pointers(lengths), np.concatenate(columns).astype(index), flat, totals)


def skewed(rng, count, bits):
    """Numerators of 1 to `bits` bits: a few of them hold nearly all of the total."""
    return (np.uint64(1) << rng.integers(0, bits, count).astype(np.uint64)) + rng.integers(0, 2, count).astype(
        np.uint64
    )


@pytest.mark.parametrize("free", [PLENTY, ONE_BY_ONE])
@pytest.mark.parametrize("bits", [20, 52])
def test_draw_columns_later_rounds(bits, free):
    """Few positions hold nearly all of T, so that the chosen are taken out again and again; sums wrap between rows."""
    rng = np.random.default_rng(bits)
    rows = [skewed(rng, count, bits) for count in (300, 41, 0, 700, 1, 270)]
    rows[3][rng.random(700) < 0.5] = 0
    rows += [[2**61, 2**61, 2**61 - 1]] * 9
    P, ids = rows_of(rows, rng), np.arange(len(rows)) + 2**31
    one = backend(free)
    for draw in (Draw(KEY, 3, 3), Draw(KEY, 3, 40), Draw(KEY, 4, 269), Draw(KEY, 5, 290, True)):
        assert_equal(one.draw_columns(P, ids, draw), REFERENCE.draw_columns(P, ids, draw))


@pytest.mark.parametrize("replace", [False, True])
def test_draw_columns_by_tables_in_memory(replace):
    """More columns than a table in shared memory holds, drawn in several chunks and rounds."""
    rng = np.random.default_rng(4)
    P = rows_of([rng.integers(1, 1000, 2000), skewed(rng, 1100, 12), rng.integers(1, 9, 900)], rng, np.int64)
    for size in (769, 1000):
        draw = Draw(KEY, 1, size, replace)
        assert_equal(backend().draw_columns(P, np.arange(3), draw), REFERENCE.draw_columns(P, np.arange(3), draw))


def test_draw_columns_of_more_batches_than_blocks():
    rng = np.random.default_rng(5)
    rows = [rng.integers(1, 50, rng.integers(0, 30)) for _ in range(70)]
    P = rows_of(rows, rng)
    assert_equal(
        backend().draw_columns(P, np.arange(70), Draw(KEY, 1, 9)),
        REFERENCE.draw_columns(P, np.arange(70), Draw(KEY, 1, 9)),
    )


@pytest.mark.parametrize("case", ["dense", "sparse", "few", "one"])
def test_draw_shared(case):
    """With the guide table, with none, and with one of other sums; supports around the size."""
    rng = np.random.default_rng(6)
    numerators = {
        "dense": skewed(rng, 3000, 30),
        "sparse": skewed(rng, 3000, 40) * (rng.random(3000) < 0.1),
        "few": np.isin(np.arange(3000), [5, 299, 300, 2999]) * np.uint64(2**40),
        "one": np.array([7], np.uint64),
    }[case]
    cumulative = np.cumsum(numerators, dtype=np.uint64)
    one, ids = backend(), np.array([0, 7, 2**32 - 1])
    guide = one.shared_guide(cumulative)
    np.testing.assert_array_equal(guide, REFERENCE.shared_guide(cumulative))
    support = int(np.count_nonzero(numerators))
    for draw in (Draw(KEY, 1, 100), Draw(KEY, 1, min(support, 400)), Draw(KEY, 1, 4, True), Draw(KEY, 1, 3)):
        expected = REFERENCE.draw_shared(cumulative, ids, draw)
        for table in (guide, None):
            assert_equal(one.draw_shared(cumulative, ids, draw, table), expected)
    with pytest.raises(ValueError, match="not the guide table"):
        one.draw_shared(cumulative, ids, Draw(KEY, 1, 3), np.append(guide, guide[-1:]))


# --- entry law --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("free", [PLENTY, ONE_BY_ONE])
@pytest.mark.parametrize("size", [1, 5, 40, 800])
@pytest.mark.parametrize("weights", ["equal", "row-normalised", "skewed"])
def test_draw_entries_later_rounds(size, weights, free):
    """A few columns hold nearly all entries or weight: most draws repeat, and the chosen are taken out."""
    rng = np.random.default_rng(size)
    A = hubs(rng)
    vertices = np.array([EMPTY, PARALLEL, 9, PARALLEL, *range(10, 49)], np.int32)
    Q = StackedSelector(np.array([0, 3, 3, 43]), vertices, np.arange(3))
    degrees = np.diff(A.indptr)[Q.vertices]
    q = {
        "equal": None,
        "row-normalised": np.where(degrees > 0, 2**20 // np.maximum(degrees, 1), 0).astype(np.uint64),
        "skewed": np.where(vertices == PARALLEL, np.int64(2**45), 1 + vertices % 3).astype(np.uint64),
    }[weights]
    one = backend(free)
    for replace in (False, True):
        draw = Draw(KEY, 2, size, replace)
        assert_equal(one.draw_entries(A, Q, q, draw), REFERENCE.draw_entries(A, Q, q, draw))
    has_redrawn = "mark_left" in one.device.kernels
    assert has_redrawn == (size in {"equal": (5, 40), "row-normalised": (), "skewed": (5, 40)}[weights])


def test_draw_entries_of_rows_without_weight():
    """Rows of numerator 0 are neither drawn from nor part of the support; wide totals."""
    rng = np.random.default_rng(7)
    A, Q = hubs(rng, np.int64), frontiers(rng, 3, np.int64)
    q = np.where(rng.random(len(Q.vertices)) < 0.5, 0, 2**40).astype(np.uint64)
    for size in (5, 400, 2**29):
        for replace in (False, True) if size < 2**29 else (False,):
            draw = Draw(KEY, 1, size, replace)
            assert_equal(backend().draw_entries(A, Q, q, draw), REFERENCE.draw_entries(A, Q, q, draw))


@pytest.mark.parametrize("size", [1, 5, 8])
def test_composed_equals_fused(size):
    """One column has nearly all entries, or all weight: only later rounds, without it, find the others."""
    hub = np.stack([np.zeros(400, np.int64), np.arange(400) % 4])
    few = np.stack([np.arange(1, 11), np.arange(10) % 5])
    graph = sp.Graph.from_edge_index(np.concatenate([hub, few], axis=1), num_nodes=12)
    operand = LocalOperand(graph.operand("reference").matrix, None, backend())
    Q = StackedSelector(np.array([0, 5, 7]), np.array([0, 1, 2, 3, 4, 4, 0], np.int32), np.array([3, 9]))
    large = np.array([2**50, 2**50, 2**20, 2**20, 1, 1, 2**40], np.uint64)
    for q in (None, large):
        draw = Draw((5, 6), 1, size)
        fused = operand.frontier(Q).draw_entries(q, draw)
        assert_equal(fused, draw_entries_in_rounds(operand.frontier(Q), q, draw))
        assert_equal(fused, REFERENCE.draw_entries(operand.matrix, Q, q, draw))


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_rows_without_excluded_columns(index):
    """Row ends in the middle of words of entries; batches that exclude nothing, much, and columns that no row has."""
    rng = np.random.default_rng(9)
    A, Q = hubs(rng, index), frontiers(rng, 4, index)
    columns = [rng.choice(N, count, replace=False) for count in (0, 3000, 7, 40)]
    columns[2][:4] = [5, 70, 4999, 6]
    flat = np.concatenate(columns).astype(index)
    none = np.zeros(4, np.uint64)
    exclude = ColumnSample(
        pointers([len(part) for part in columns]), flat, np.ones(len(flat), np.int64), none, none > 0
    )
    one = backend()
    for excluded in (exclude, exclude._replace(columns=flat.astype(np.int64)), None):
        totals = one.entry_counts(A, Q, excluded)
        np.testing.assert_array_equal(totals, REFERENCE.entry_counts(A, Q, excluded))
        rows = np.repeat(np.flatnonzero(totals), 3)
        offsets = np.stack(
            [totals[rows[::3]] - 1, np.zeros(len(rows) // 3, np.int64), totals[rows[::3]] // 2], 1
        ).ravel()
        located = one.locate(A, Q, rows, offsets, excluded)
        np.testing.assert_array_equal(located, REFERENCE.locate(A, Q, rows, offsets, excluded))


# --- calls ------------------------------------------------------------------------------------------------------------


def layerwise_calls(kernels, rng, k):
    """(name, call) of each kernel on k batches that need no redraws."""
    device = kernels.device
    A, Q = hubs(rng), frontiers(rng, k + 1)
    Q = StackedSelector(Q.batch_ptr[: k + 1], device.to_device(Q.vertices[: Q.batch_ptr[k]]), Q.batch_ids[:k])
    A = Matrix(*(device.to_device(part) for part in A[:2]))
    rule, draw = QuantisationRule(None, 1, 2), Draw(KEY, 0, 30)
    P, exclude = kernels.merge_columns(A, Q, rule), kernels.draw_merged(A, Q, rule, draw)
    cumulative = device.to_device(np.arange(1, 3001, dtype=np.uint64))
    return {
        "merge_columns": lambda: kernels.merge_columns(A, Q, rule),
        "draw_merged": lambda: kernels.draw_merged(A, Q, rule, draw),
        "draw_columns": lambda: kernels.draw_columns(P, Q.batch_ids, draw),
        "draw_shared": lambda: kernels.draw_shared(cumulative, Q.batch_ids, draw),
        "draw_entries": lambda: kernels.draw_entries(A, Q, None, draw),
        "entry_counts": lambda: kernels.entry_counts(A, Q, exclude),
        "column_totals": lambda: kernels.column_totals(A, rule),
    }


def test_launches_and_waits_do_not_grow_with_the_number_of_batches():
    waits = {}
    for k in (1, 9):
        kernels = CudaKernels(EmulatedDevice())
        for name, call in layerwise_calls(kernels, np.random.default_rng(1), k).items():
            before = (kernels.device.launches, kernels.device.waits)
            call()
            used = (kernels.device.launches - before[0], kernels.device.waits - before[1])
            assert waits.setdefault(name, used) == used, name
    assert {name: used[1] for name, used in waits.items()} == {
        "merge_columns": 2,
        "draw_merged": 2,
        "draw_columns": 1,
        "draw_shared": 1,
        "draw_entries": 1,
        "entry_counts": 1,
        "column_totals": 1,
    }


def test_rows_that_lie_apart():
    """Columns and weights are read at the rows' addresses."""
    kernels = CudaKernels(EmulatedDevice())
    device, rng = kernels.device, np.random.default_rng(8)
    A, Q = hubs(rng, np.int32, np.float64), frontiers(rng, 3)
    indptr, indices, data = (device.to_device(part) for part in A[:3])
    columns, weights = (
        device.to_device((device.address(whole) + size * A.indptr[:-1]).astype(np.uint64))
        for whole, size in ((indices, 4), (data, 8))
    )
    apart = Matrix(indptr, indices[:0], data[:0], row_places=columns, weight_places=weights)
    whole, on_device = OnHost(kernels), Q._replace(vertices=device.to_device(Q.vertices))
    rule, graph_rule, draw = (
        QuantisationRule(np.full(3, 12), 1, 2),
        QuantisationRule(np.full(1, 12), 2, 1),
        Draw(KEY, 0, 60),
    )
    exclude = kernels.draw_merged(apart, on_device, rule, draw)
    on_host = OnHost(kernels)._returned(exclude)
    assert_equal(on_host, whole.draw_merged(A, Q, rule, draw))
    pairs = [
        (kernels.row_exponents(apart), whole.row_exponents(A)),
        (kernels.column_totals(apart, graph_rule), whole.column_totals(A, graph_rule)),
        (kernels.entry_counts(apart, on_device, exclude), whole.entry_counts(A, Q, on_host)),
        (kernels.draw_entries(apart, on_device, None, draw).columns, whole.draw_entries(A, Q, None, draw).columns),
    ]
    for one, other in pairs:
        np.testing.assert_array_equal(device.to_host(one), other)
