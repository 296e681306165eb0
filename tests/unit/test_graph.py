"""Graph: its order of entries, its constructors, its derived graphs, against plain Python."""

from __future__ import annotations

import copy
import math
import pickle
import sys
import weakref
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from spsample.common import checks
from spsample.errors import CapacityError, InputError
from spsample.store import Graph, to_scipy, validation

DTYPES = st.sampled_from([np.int32, np.int64])


@st.composite
def edge_lists(draw):
    """A number of vertices, an array of shape (2, E) and weights (or None); parallel edges are likely."""
    n = draw(st.integers(1, 12))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
    edges = np.array(pairs, dtype=draw(DTYPES)).reshape(-1, 2).T
    size = len(pairs)
    weights = st.lists(st.floats(0, 1e6, width=32), min_size=size, max_size=size)
    chosen = draw(st.none() | weights)
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return n, edges, None if chosen is None else np.array(chosen, dtype=dtype)


def naive_order(edges):
    """Positions sorted by (target, source, position), in plain Python."""
    return sorted(range(edges.shape[1]), key=lambda e: (int(edges[1, e]), int(edges[0, e]), e))


def entry_ids(graph):
    return np.arange(graph.num_edges) if graph.edge_ids is None else graph.edge_ids


def targets(graph):
    return np.repeat(np.arange(graph.num_nodes), graph.in_degrees())


def assert_same(one, two):
    np.testing.assert_array_equal(one.indptr, two.indptr)
    np.testing.assert_array_equal(one.indices, two.indices)
    np.testing.assert_array_equal(entry_ids(one), entry_ids(two))
    if one.data is None or two.data is None:
        assert one.data is two.data
    else:
        assert one.data.dtype == two.data.dtype
        np.testing.assert_array_equal(one.data, two.data)
    assert one.weighting == two.weighting


def random_graph(n=50, edges=400, weights=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    weight = None if weights is None else rng.random(edges).astype(weights)
    return Graph.from_edge_index(rng.integers(0, n, (2, edges)), num_nodes=n, edge_weight=weight)


# ------------------------------------------------------------------------------------------- order of entries


@given(edge_lists())
def test_from_edge_index_is_the_naive_sort(case):
    n, edges, weights = case
    graph = Graph.from_edge_index(edges, num_nodes=n, edge_weight=weights)
    order = naive_order(edges)
    np.testing.assert_array_equal(entry_ids(graph), order)
    np.testing.assert_array_equal(graph.indices, edges[0][order])
    np.testing.assert_array_equal(targets(graph), edges[1][order])
    assert (graph.num_nodes, graph.num_edges) == (n, edges.shape[1])
    assert graph.indptr.dtype == np.int64
    assert graph.indices.dtype == np.int32
    if weights is None:
        assert graph.data is None
    else:
        assert graph.data.dtype == weights.dtype
        np.testing.assert_array_equal(graph.data, weights[order])


@given(edge_lists())
def test_edge_ids_reproduce_the_entries(case):
    n, edges, _ = case
    graph = Graph.from_edge_index(edges, num_nodes=n)
    np.testing.assert_array_equal(edges[:, entry_ids(graph)], np.stack([graph.indices, targets(graph)]))
    assert graph.edge_ids is None or graph.edge_ids.dtype == np.int64


@given(edge_lists(), st.sampled_from(["coo", "csr", "csc", "lil", "dok"]), st.booleans())
def test_from_scipy_agrees(case, form, as_array):
    n, edges, weights = case
    if weights is None:
        weights = np.ones(edges.shape[1])
    make = scipy.sparse.coo_array if as_array else scipy.sparse.coo_matrix
    matrix = make((weights, (edges[1], edges[0])), shape=(n, n))
    if form != "coo":
        matrix = matrix.asformat(form)
    triplets = matrix.tocoo()
    graph = Graph.from_scipy(matrix)
    expected = Graph.from_edge_index(np.stack([triplets.col, triplets.row]), num_nodes=n, edge_weight=triplets.data)
    assert_same(graph, expected)


def test_from_scipy_keeps_duplicates_of_coo_and_csr():
    coo = scipy.sparse.coo_array(([1.0, 2.0, 4.0], ([1, 1, 0], [0, 0, 1])), shape=(2, 2))
    assert Graph.from_scipy(coo).data.tolist() == [4.0, 1.0, 2.0]
    csr = scipy.sparse.csr_array((np.array([4.0, 1.0, 2.0]), [1, 0, 0], [0, 1, 3]), shape=(2, 2))
    assert Graph.from_scipy(csr).data.tolist() == [4.0, 1.0, 2.0]
    assert np.shares_memory(Graph.from_scipy(csr).data, csr.data)


def test_from_scipy_ignores_room_behind_the_last_entry():
    matrix = scipy.sparse.csr_array((3, 3))
    matrix.indptr = np.array([0, 1, 2, 2], dtype=np.int32)
    matrix.indices = np.array([1, 0, 7, 7], dtype=np.int32)
    matrix.data = np.array([1.0, 2.0, np.nan, np.nan])
    assert Graph.from_scipy(matrix).data.tolist() == [1.0, 2.0]


@given(edge_lists())
def test_unsorted_rows_equal_from_edge_index(case):
    """Rows in input order, as a CSR matrix, are the same graph; ids lead to positions in that CSR."""
    n, edges, weights = case
    by_target = np.argsort(edges[1], kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(edges[1], minlength=n))])
    indices, data = edges[0][by_target], None if weights is None else weights[by_target]
    graph = Graph(indptr, indices, data)
    assert_same(graph, Graph.from_edge_index(edges[:, by_target], num_nodes=n, edge_weight=data))
    assert graph.indices.dtype == edges.dtype
    ids = np.arange(len(indices)) * 10
    labelled = Graph(indptr, indices, data, edge_ids=ids)
    np.testing.assert_array_equal(labelled.edge_ids, entry_ids(graph) * 10)


def test_int64_positions_and_ids_beyond_int32(monkeypatch):
    """The int64 path of the sort, forced on a small graph."""
    edges = np.random.default_rng(1).integers(0, 20, (2, 200))
    expected = Graph.from_edge_index(edges, num_nodes=20)
    monkeypatch.setattr(validation, "INT32_NODES", 10)
    graph = Graph.from_edge_index(edges, num_nodes=20)
    assert graph.indices.dtype == np.int64
    assert_same(graph, expected)


def test_default_number_of_vertices_is_largest_id_plus_one():
    assert Graph.from_edge_index([[0, 7], [3, 1]]).num_nodes == 8


def test_edges_already_in_order_need_no_ids():
    assert Graph.from_edge_index([[1, 2, 0], [0, 0, 1]], num_nodes=3).edge_ids is None


def test_no_edges():
    for edges in (np.zeros((2, 0), dtype=np.int64), [[], []]):
        graph = Graph.from_edge_index(edges, num_nodes=4)
        assert (graph.num_nodes, graph.num_edges) == (4, 0)
        assert graph.in_degrees().tolist() == [0, 0, 0, 0]
        assert graph.normalized("sym").num_edges == 0
        assert graph.with_self_loops().indices.tolist() == [0, 1, 2, 3]
    assert Graph([0, 0], []).num_edges == 0


# ------------------------------------------------------------------------------------------ arrays and memory


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("value", [np.float32, np.float64])
def test_valid_arrays_are_shared_and_read_only(index, value):
    indptr, indices = np.array([0, 2, 3]), np.array([0, 1, 0], dtype=index)
    data, ids = np.array([1, 2, 3], dtype=value), np.array([5, 4, 3])
    graph = Graph(indptr, indices, data, edge_ids=ids)
    pairs = [
        (graph.indptr, indptr),
        (graph.indices, indices),
        (graph.data, data),
        (graph.edge_ids, ids),
    ]
    for ours, theirs in pairs:
        assert np.shares_memory(ours, theirs)
        assert ours.dtype == theirs.dtype
        assert theirs.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            ours[0] = 1
    assert graph.nbytes == sum(theirs.nbytes for _, theirs in pairs)
    assert graph.dtype == value


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32", "uint64", ">i4", ">i8"])
def test_other_integers_are_converted(dtype):
    graph = Graph(np.array([0, 2, 3], dtype=dtype), np.array([0, 1, 0], dtype=dtype))
    assert graph.indptr.dtype == np.int64
    assert graph.indices.dtype in (np.int32, np.int64)
    assert graph.indices.dtype.isnative
    assert graph.indices.tolist() == [0, 1, 0]


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8", "float16", ">f4", ">f8", "longdouble"])
def test_other_weights_are_converted(dtype):
    data = Graph([0, 2, 3], [0, 1, 0], np.array([1, 0, 1], dtype=dtype)).data
    assert data.dtype == (np.float32 if dtype == ">f4" else np.float64)
    assert data.dtype.isnative
    assert data.tolist() == [1.0, 0.0, 1.0]


def test_strided_and_read_only_inputs():
    wide = np.array([0, 9, 1, 9, 0, 9])
    wide.flags.writeable = False
    graph = Graph(np.array([0, 2, 3]), wide[::2], np.ones((3, 2))[:, 0])
    assert graph.indices.tolist() == [0, 1, 0]
    assert graph.indices.flags.c_contiguous
    assert graph.data.flags.c_contiguous
    pairs = np.array([[1, 0], [2, 0], [0, 1]])
    assert_same(Graph.from_edge_index(pairs.T), Graph.from_edge_index(pairs.T.copy()))


def test_arrays_between_the_words_of_memory():
    """Kernels would bring them into order at every call, so a graph does it once."""
    indices, data = np.array([0, 1, 0], np.int32), np.ones(3)
    records = np.zeros(3, dtype=[("pad", "u1"), ("column", "<i4"), ("weight", "<f8")])
    records["column"], records["weight"] = indices, data
    off = np.ndarray(3, np.int32, buffer=np.zeros(13, np.uint8), offset=1)
    off[...] = indices
    for column in (off, records["column"]):
        assert not column.flags.aligned
        graph = Graph([0, 2, 3], column, records["weight"])
        assert graph.indices.flags.aligned
        assert graph.data.flags.aligned
        assert_same(graph, Graph([0, 2, 3], indices, data))


def test_memory_mapped_arrays(tmp_path):
    np.save(tmp_path / "indices.npy", np.array([0, 1, 0], dtype=np.int32))
    mapped = np.load(tmp_path / "indices.npy", mmap_mode="r")
    graph = Graph([0, 2, 3], mapped)
    assert np.shares_memory(graph.indices, mapped)


def test_anything_with_dlpack():
    class OnlyDLPack:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **kwargs):
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    graph = Graph(OnlyDLPack(np.array([0, 1])), OnlyDLPack(np.array([0])))
    assert graph.indices.tolist() == [0]


def test_torch_tensors_are_shared():
    torch = pytest.importorskip("torch")
    indices, data = torch.tensor([0, 1, 0], dtype=torch.int32), torch.tensor([1.0, 2.0, 3.0])
    graph = Graph(torch.tensor([0, 2, 3]), indices, data)
    assert graph.indices.dtype == np.int32
    assert np.shares_memory(graph.indices, indices.numpy())
    assert np.shares_memory(graph.data, data.numpy())
    assert Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]])).indices.tolist() == [1, 0]


def test_without_validation_nothing_is_sorted():
    graph = Graph([0, 2], np.array([1, 0]), validate=False)
    assert graph.indices.tolist() == [1, 0]
    assert graph.edge_ids is None


@pytest.mark.parametrize("weights", [None, np.float32])
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_and_copy(weights, protocol):
    graph = random_graph(weights=weights)
    for again in (pickle.loads(pickle.dumps(graph, protocol)), copy.copy(graph), copy.deepcopy(graph)):
        assert_same(again, graph)
        assert not again.indptr.flags.writeable
    assert_same(pickle.loads(pickle.dumps(graph.normalized("row"))), graph.normalized("row"))


def test_repr_and_weak_references():
    graph = random_graph(weights=np.float32)
    assert repr(graph) == ("Graph(num_nodes=50, num_edges=400, weighting='weighted', indices=int32, data=float32)")
    assert weakref.ref(graph)() is graph
    with pytest.raises(AttributeError):
        graph.indptr = None


def test_importing_the_store_needs_no_torch():
    import subprocess

    code = "import sys, spsample.store; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -------------------------------------------------------------------------------------------- derived graphs


def test_row_normalisation_of_an_unweighted_graph_is_lazy():
    graph = random_graph(weights=None)
    row = graph.normalized("row")
    assert row.weighting == "row"
    assert row.data is None
    assert row.indptr.base is not None
    for name in ("indptr", "indices", "edge_ids"):
        assert np.shares_memory(getattr(row, name), getattr(graph, name))
    np.testing.assert_array_equal(to_scipy(row).data, np.repeat(1.0 / row.in_degrees(), row.in_degrees()))
    assert row.normalized("row").weighting == "row"
    assert graph.weighting == "unweighted"


@settings(max_examples=50)
@given(edge_lists())
def test_row_sums_are_sequential_and_quotients_rounded_once(case):
    n, edges, weights = case
    if weights is None:
        weights = np.ones(edges.shape[1], dtype=np.float32)
    graph = Graph.from_edge_index(edges, num_nodes=n, edge_weight=weights)
    try:
        row = graph.normalized("row")
    except CapacityError:  # a quotient below the smallest float: see the test of underflow
        return
    assert row.weighting == "weighted"
    assert row.data.dtype == weights.dtype
    np.testing.assert_array_equal(entry_ids(row), entry_ids(graph))
    for v in range(n):
        total = 0.0
        values = graph.data[graph.indptr[v] : graph.indptr[v + 1]]
        for value in values:
            total += float(value)
        expected = [0.0 if total == 0 else float(value) / total for value in values]
        found = row.data[graph.indptr[v] : graph.indptr[v + 1]]
        np.testing.assert_array_equal(found, np.array(expected).astype(weights.dtype))


def test_row_sum_follows_the_order_of_the_entries():
    """1 + 2**-53 (four times) is 1 when added from the left, and more in pairs."""
    data = np.array([1.0] + [2.0**-53] * 4)
    graph = Graph([0, 5, 5, 5, 5, 5], np.arange(5), data).normalized("row")
    assert graph.data[0] == 1.0


@pytest.mark.parametrize("weights", [None, np.float32, np.float64])
def test_symmetric_normalisation(weights):
    rng = np.random.default_rng(2)
    half = rng.integers(0, 30, (2, 150))
    weight = None if weights is None else np.tile(rng.random(150) + 0.1, 2).astype(weights)
    graph = Graph.from_edge_index(np.hstack([half, half[::-1]]), num_nodes=30, edge_weight=weight)
    sym = graph.normalized("sym")
    assert sym.weighting == "weighted"
    assert sym.data.dtype == (np.float32 if weights is None else weights)
    dense = to_scipy(graph).toarray().astype(float)
    degree = dense.sum(axis=1)
    expected = dense / np.sqrt(np.outer(degree, degree))
    np.testing.assert_allclose(to_scipy(sym).toarray(), expected, rtol=1e-6)
    np.testing.assert_allclose(to_scipy(sym).toarray(), to_scipy(sym).toarray().T, rtol=1e-6)


def test_symmetric_normalisation_agrees_with_pyg():
    pytest.importorskip("torch_geometric")
    import torch
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    edges = np.random.default_rng(3).integers(0, 20, (2, 60))
    graph = Graph.from_edge_index(edges, num_nodes=20, edge_weight=np.ones(60))
    _, expected = gcn_norm(torch.from_numpy(edges), torch.ones(60, dtype=torch.float64), 20, add_self_loops=False)
    np.testing.assert_allclose(graph.normalized("sym").data, expected.numpy()[entry_ids(graph)], rtol=1e-12)


def test_rows_that_sum_to_zero_stay_zero():
    graph = Graph([0, 2, 3, 3], [0, 1, 0], np.array([0.0, 0.0, 2.0]))
    assert graph.normalized("row").data.tolist() == [0.0, 0.0, 1.0]
    assert graph.normalized("sym").data.tolist() == [0.0, 0.0, 0.0]


def test_normalisation_loses_no_positive_weight():
    tiny = np.array([np.finfo(np.float32).tiny, 1e30], dtype=np.float32)
    with pytest.raises(CapacityError, match=r"data: got .* at entry 0"):
        Graph([0, 2, 2], [0, 1], tiny).normalized("row")
    with pytest.raises(CapacityError, match="in row 1"):
        Graph([0, 0, 2], [0, 1], np.array([1e308, 1e308])).normalized("row")


def test_normalisation_is_named():
    with pytest.raises(InputError, match="kind: got 'column'; expected one of 'row', 'sym'"):
        random_graph().normalized("column")


@given(edge_lists())
def test_with_self_loops(case):
    n, edges, weights = case
    graph = Graph.from_edge_index(edges, num_nodes=n, edge_weight=weights)
    looped = graph.with_self_loops()
    missing = sorted(set(range(n)) - {int(s) for s, t in edges.T if s == t})
    # The same edges with the missing loops at the end of the input, ids corrected to num_edges + v.
    loops = np.array([missing, missing], dtype=np.int64).reshape(2, -1)
    weight = None if weights is None else np.concatenate([weights, np.ones(len(missing), weights.dtype)])
    expected = Graph.from_edge_index(np.hstack([edges, loops]), num_nodes=n, edge_weight=weight)
    ids = np.concatenate([np.arange(edges.shape[1]), edges.shape[1] + loops[0]])[entry_ids(expected)]
    np.testing.assert_array_equal(looped.indptr, expected.indptr)
    np.testing.assert_array_equal(looped.indices, expected.indices)
    np.testing.assert_array_equal(entry_ids(looped), ids)
    assert looped.indices.dtype == graph.indices.dtype
    if weights is not None:
        assert looped.data.dtype == weights.dtype
        np.testing.assert_array_equal(looped.data, expected.data)
    assert looped.with_self_loops() is looped


def test_self_loops_on_a_row_normalised_graph_store_its_values():
    looped = Graph([0, 2, 3], [0, 1, 0]).normalized("row").with_self_loops()
    assert looped.weighting == "weighted"
    assert looped.data.tolist() == [0.5, 0.5, 1.0, 1.0]


def test_to_scipy_round_trip():
    graph = random_graph()
    again = Graph.from_scipy(to_scipy(graph))
    np.testing.assert_array_equal(again.indices, graph.indices)
    np.testing.assert_array_equal(again.data, graph.data)
    matrix = to_scipy(graph)
    matrix.data[:] = 7
    assert graph.data.max() < 1


def test_row_values_are_the_nearest_floats():
    graph = Graph([0, 3], [0, 0, 0]).normalized("row")
    value = to_scipy(graph).data[0]
    exact = Fraction(1, 3)
    assert abs(Fraction(value) - exact) <= Fraction(math.ulp(value)) / 2


# ----------------------------------------------------------------------------------- seeds, integers, choices


@given(st.lists(st.integers(0, 99), max_size=30), st.sampled_from(["<i4", "<i8", ">i8", "u1", "u8"]))
def test_seeds_keep_order_and_duplicates(ids, dtype):
    for given_seeds in (ids, tuple(ids), np.array(ids, dtype=dtype)):
        seeds = validation.validate_seeds(given_seeds, 100)
        assert seeds.dtype == np.int64
        assert seeds.flags.c_contiguous
        assert seeds.tolist() == ids


def test_integers_and_choices():
    assert checks.require_int("k", np.int16(3), 1, 3) == 3
    assert type(checks.require_int("k", np.int16(3))) is int
    assert checks.require_choice("law", "norm", ("norm", "squared_count")) == "norm"
    assert validation.check_num_nodes("num_nodes", 2**48) == 2**48
