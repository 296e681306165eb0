"""Sums over columns: the compiled core against NumPy, on any threads, and what the core refuses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample import _core
from spsample.features.scores import column_sums as room
from spsample.features.scores.column_sums import column_sums, out_degree

pytestmark = pytest.mark.sanitize


@pytest.fixture
def by_numpy(monkeypatch):
    """Calls a function without the core."""

    def call(function):
        with monkeypatch.context() as without_core:
            without_core.setattr(room, "compiled_core", lambda: None)
            return function()

    return call


@pytest.fixture(params=[1, 2, 4])
def threads(request):
    before = _core.get_num_threads()
    _core.set_num_threads(request.param)
    yield
    _core.set_num_threads(before)


def a_graph(num_nodes, num_edges, dtype, seed=0):
    rng = np.random.default_rng(seed)
    targets = np.sort(rng.integers(0, num_nodes, num_edges))
    indptr = np.searchsorted(targets, np.arange(num_nodes + 1))
    # A few columns have most entries, as in real graphs.
    indices = (num_nodes * rng.random(num_edges) ** 3).astype(dtype)
    return sp.Graph(indptr, indices)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(("num_nodes", "num_edges"), [(1, 0), (1, 3), (50, 400), (3000, 1_500_000), (200_000, 900_000)])
def test_equal_to_numpy(num_nodes, num_edges, dtype, by_numpy, threads):
    graph = a_graph(num_nodes, num_edges, dtype)
    numbers = np.random.default_rng(1).random(num_nodes)
    numbers[::3] = 0.0
    of_entries = np.random.default_rng(2).random(num_edges)

    def sums():
        by_row = column_sums(graph, lambda rows: numbers[rows.vertices], 1.0)
        first = 0

        def entries(rows):
            nonlocal first
            first += len(rows.columns)
            return of_entries[first - len(rows.columns) : first]

        return by_row, column_sums(graph, entries, 1.0, by_entry=True), out_degree(graph, None, None, 1)

    for found, expected in zip(sums(), by_numpy(sums), strict=True):
        np.testing.assert_array_equal(found, expected)


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1e300), st.floats(0, 1), st.integers(1, 5))
def test_any_size_of_numbers(largest, share, num_edges):
    graph = sp.Graph([0, num_edges], [0] * num_edges)
    addend = largest * share
    found = float(column_sums(graph, lambda rows: np.array([addend]), largest)[0])
    assert found == pytest.approx(num_edges * addend, rel=1e-15, abs=largest * 2.0**-50)
    assert (found > 0) == (addend > 0)


@pytest.mark.parametrize("column", [-1, 2])
def test_a_column_outside_the_sums(column):
    columns, sums = np.array([0, column]), np.zeros(2, np.int64)
    with pytest.raises(IndexError, match="columns: outside the sums"):
        _core.add_rows(np.array([0, 2]), columns, np.ones(1), 1.0, sums)
    with pytest.raises(IndexError, match="columns: outside the sums"):
        _core.add_entries(columns, np.ones(2), 1.0, sums)


def test_lengths_that_do_not_fit():
    columns, sums = np.zeros(2, np.int64), np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="numbers: needs one element per row"):
        _core.add_rows(np.array([0, 2]), columns, np.ones(2), 1.0, sums)
    with pytest.raises(ValueError, match="numbers: needs one element per entry"):
        _core.add_entries(columns, np.ones(1), 1.0, sums)


def a_symmetric_graph(num_nodes, num_edges, dtype=np.int32, seed=0):
    """Parallel edges, self-loops and vertices of many neighbours, each edge with its reverse."""
    rng = np.random.default_rng(seed)
    some = (num_nodes * rng.random((2, num_edges)) ** 3).astype(np.int64)
    targets, sources = np.concatenate([some, some[::-1]], axis=1)
    targets, sources = np.append(targets, 0), np.append(sources, 0)
    order = np.argsort(targets, kind="stable")
    return np.searchsorted(targets[order], np.arange(num_nodes + 1)), sources[order].astype(dtype)


def in_avx512():
    return _core.instruction_set() == "avx512"


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 20_000), st.floats(0, 50), st.integers(0, 2**32 - 1), st.booleans())
def test_a_symmetric_matrix_is_read(num_nodes, num_edges, bits, seed, is_sparse):
    indptr, columns = a_symmetric_graph(num_nodes, num_edges, seed=seed)
    rng = np.random.default_rng(seed)
    numbers = rng.random(num_nodes) ** 4 * (rng.random(num_nodes) < (0.1 if is_sparse else 1.0))
    found, expected = (np.full(num_nodes, 7, np.int64) for _ in range(2))
    _core.add_rows(indptr, columns, numbers, 2.0**bits, expected)
    is_added = _core.add_symmetric_rows(indptr, columns, numbers, 2.0**bits, found)
    assert is_added == in_avx512()
    np.testing.assert_array_equal(found, expected if is_added else 7)


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 500), st.integers(100, 20_000), st.integers(0, 2**32 - 1))
def test_one_entry_without_its_reverse_is_found(num_nodes, num_edges, seed):
    indptr, columns = a_symmetric_graph(num_nodes, num_edges, seed=seed)
    rng = np.random.default_rng(seed)
    at = rng.integers(0, len(columns))
    columns[at] = (columns[at] + rng.integers(1, num_nodes)) % num_nodes
    sums = np.zeros(num_nodes, np.int64)
    numbers = 1.0 - rng.random(num_nodes)  # with equal ones the sums may be right all the same
    assert not _core.add_symmetric_rows(indptr, columns, numbers, 2.0**30, sums)
    assert not sums.any()


@pytest.mark.parametrize("is_symmetric", [True, False])
def test_equal_whether_a_is_symmetric_or_not(is_symmetric, by_numpy, threads, monkeypatch):
    monkeypatch.setattr(room, "FAR_SUMS", 1)
    indptr, columns = a_symmetric_graph(5000, 200_000)
    if not is_symmetric:
        columns[-1] = (columns[-1] + 1) % 5000
    graph, numbers = sp.Graph(indptr, columns), np.random.default_rng(1).random(5000)
    found = column_sums(graph, lambda rows: numbers[rows.vertices], 1.0)
    expected = by_numpy(lambda: column_sums(graph, lambda rows: numbers[rows.vertices], 1.0))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("column", [-1, 3, 2**31 - 1])
def test_a_column_outside_a_matrix_that_may_be_symmetric(column):
    if not in_avx512():
        pytest.skip("only AVX-512 reads symmetric matrices")
    columns = np.ones(200, np.int32)
    columns[150] = column
    sums = np.zeros(3, np.int64)
    with pytest.raises(IndexError, match="columns: outside the sums"):
        _core.add_symmetric_rows(np.array([0, 0, 200, 200]), columns, np.ones(3), 1.0, sums)


def test_lengths_of_a_symmetric_matrix():
    columns, sums = np.zeros(2, np.int32), np.zeros(1, np.int64)
    with pytest.raises(ValueError, match="numbers: needs one element per row"):
        _core.add_symmetric_rows(np.array([0, 2]), columns, np.ones(2), 1.0, sums)
    with pytest.raises(ValueError, match="sums: needs one element per row"):
        _core.add_symmetric_rows(np.array([0, 2]), columns, np.ones(1), 1.0, np.zeros(2, np.int64))
