"""The sparse algebra: general products, row selection, probabilities, draws from explicit matrices, selectors, keys."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample.backends import Draw, available_backends, get_backend
from spsample.common.checks import check_range
from spsample.errors import CapacityError, ConsumedError, DTypeError, InputError
from spsample.sparse import (
    CSRMatrix,
    ExtractOptions,
    RowSelector,
    UnbiasedWeights,
    column_norms,
    derive_key,
    extract,
    its_sample,
    normalize_rows,
    pattern,
    select_rows,
    spgemm,
    split,
    square,
    stack,
)
from spsample.sparse.operand import EntryLimit

backends = pytest.mark.parametrize("backend", available_backends())
seeds = st.integers(0, 2**32 - 1)
index_types = st.sampled_from([np.int32, np.int64])
shapes = st.tuples(*[st.integers(0, 25)] * 3)


def random_csr(rng, rows, columns, index=np.int32, values=None):
    """Columns neither sorted nor distinct within a row; rows without entries among them."""
    lengths = rng.integers(0, 7, rows) * (rng.random(rows) < 0.8) if columns else np.zeros(rows, np.int64)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = rng.integers(0, max(columns, 1), indptr[-1]).astype(index)
    data = rng.normal(size=len(indices)) if values is None else values(len(indices))
    return CSRMatrix(indptr, indices, data, (rows, columns))


def dense(matrix):
    """Repeated entries summed, in the dtype of the values."""
    out = np.zeros(matrix.shape, np.float32 if matrix.data is None else matrix.data.dtype)
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    np.add.at(out, (row, matrix.indices), 1 if matrix.data is None else matrix.data)
    return out


# --- spgemm ---------------------------------------------------------------------------------------------------------


@backends
@given(shape=shapes, seed=seeds, index=index_types)
@settings(max_examples=60)
def test_spgemm_equals_scipy(backend, shape, seed, index):
    rng = np.random.default_rng(seed)
    A, B = random_csr(rng, *shape[:2], index), random_csr(rng, *shape[1:], index)
    C = spgemm(A, B, backend=backend)
    assert C.shape == (shape[0], shape[2])
    np.testing.assert_allclose(dense(C), (A.to_scipy() @ B.to_scipy()).toarray(), rtol=1e-12, atol=1e-12)
    for lo, hi in zip(C.indptr[:-1], C.indptr[1:], strict=True):
        assert (np.diff(C.indices[lo:hi]) > 0).all()
    assert C.indices.dtype == index


@backends
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@given(shape=shapes, seed=seeds)
@settings(max_examples=30)
def test_spgemm_of_integers_is_exact(backend, dtype, shape, seed):
    """Beyond 2^53, and modulo 2^64 beyond 2^63, as integer arithmetic is."""
    rng = np.random.default_rng(seed)
    A = random_csr(rng, *shape[:2], values=lambda n: rng.integers(0, 2**62, n).astype(dtype))
    B = random_csr(rng, *shape[1:], values=lambda n: rng.integers(0, 2**62, n).astype(dtype))
    C = spgemm(A, B, backend=backend)
    assert C.data.dtype == dtype
    np.testing.assert_array_equal(dense(C), dense(A) @ dense(B))


@backends
def test_spgemm_without_values(backend):
    """Missing data count as ones of the other's type, float32 where both are missing."""
    rng = np.random.default_rng(1)
    weighted = random_csr(rng, 6, 6)
    plain = CSRMatrix(weighted.indptr, weighted.indices, None, (6, 6))
    for A, B, dtype in ((plain, plain, np.float32), (plain, weighted, np.float64), (weighted, plain, np.float64)):
        C = spgemm(A, B, backend=backend)
        assert C.data.dtype == dtype
        np.testing.assert_allclose(dense(C), dense(A) @ dense(B), rtol=1e-6)


@backends
def test_spgemm_of_mixed_index_types(backend):
    rng = np.random.default_rng(2)
    A, B = random_csr(rng, 5, 6, np.int32), random_csr(rng, 6, 4, np.int64)
    for left, right in ((A, B), (random_csr(rng, 5, 6, np.int64), random_csr(rng, 6, 4, np.int32))):
        C = spgemm(left, right, backend=backend)
        np.testing.assert_allclose(dense(C), dense(left) @ dense(right), rtol=1e-12, atol=1e-12)
        assert C.indices.dtype == np.int64


@backends
def test_spgemm_of_a_long_row(backend):
    """One row of A meets every row of B: the accumulator grows; a column is hit a thousand times."""
    n = 1000
    A = CSRMatrix(np.array([0, n]), np.arange(n)[::-1].copy(), np.ones(n), (1, n))
    B = CSRMatrix(np.arange(0, 2 * n + 1, 2), np.stack([np.arange(n), np.full(n, 7)]).T.ravel(), None, (n, n))
    C = spgemm(A, B, backend=backend)
    assert C.indices.tolist() == list(range(n))
    assert C.data[7] == n + 1
    assert C.data.sum() == 2 * n


def test_spgemm_by_the_operator():
    rng = np.random.default_rng(3)
    A, B = random_csr(rng, 4, 5), random_csr(rng, 5, 3)
    assert (A @ B).data.tolist() == spgemm(A, B).data.tolist()


# --- select_rows ----------------------------------------------------------------------------------------------------


@backends
@given(seed=seeds, index=index_types, rows=st.lists(st.integers(0, 11), max_size=20))
@settings(max_examples=40)
def test_select_rows_equals_scipy(backend, seed, index, rows):
    A = random_csr(np.random.default_rng(seed), 12, 9, index)
    chosen = select_rows(A, np.array(rows, np.int64), backend=backend)
    assert chosen.shape == (len(rows), 9)
    expected = A.to_scipy()[rows] if rows else scipy.sparse.csr_array((0, 9))
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(chosen, name), getattr(expected, name))


def test_select_rows_is_the_product_with_the_selector():
    """Equation 1 of the paper: Q A written out."""
    A = random_csr(np.random.default_rng(4), 12, 9)
    Q = stack([np.array([3, 0]), np.array([11])])
    written = CSRMatrix(np.arange(4), Q.vertices, np.ones(3), (3, 12)) @ A
    np.testing.assert_array_equal(dense(written), dense(select_rows(A, Q.vertices)))


def test_select_rows_takes_lists():
    A = random_csr(np.random.default_rng(4), 3, 3)
    np.testing.assert_array_equal(dense(select_rows(A, [2, 0])), dense(A)[[2, 0]])


# --- CSRMatrix ------------------------------------------------------------------------------------------------------


def test_csr_round_trip():
    matrix = scipy.sparse.random_array((7, 5), density=0.4, rng=np.random.default_rng(0), format="csr")
    A = CSRMatrix.from_scipy(matrix)
    assert (A.shape, A.nnz, A.indptr.dtype) == ((7, 5), matrix.nnz, np.int64)
    np.testing.assert_array_equal(A.to_scipy().toarray(), matrix.toarray())
    np.testing.assert_array_equal(CSRMatrix.from_scipy(matrix.tocoo()).to_scipy().toarray(), matrix.toarray())


def test_csr_without_values_shows_ones():
    A = CSRMatrix(np.array([0, 2]), np.array([1, 1]), None, (1, 2))
    assert A.to_scipy().toarray().tolist() == [[0.0, 2.0]]


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (3, 0)])
def test_csr_of_nothing(shape):
    A = CSRMatrix(np.zeros(shape[0] + 1, np.int64), np.zeros(0, np.int32), None, shape)
    assert (A.nnz, A.to_scipy().shape) == (0, shape)


# --- normalize_rows and its_sample ----------------------------------------------------------------------------------


@given(seed=seeds)
@settings(max_examples=60)
def test_normalize_rows(seed):
    rng = np.random.default_rng(seed)
    spread = rng.integers(0, 9)
    W = random_csr(rng, 8, 10, values=lambda n: (rng.random(n) + 0.1) * 10.0 ** -rng.integers(0, spread + 1, n))
    W.data[rng.random(W.nnz) < 0.2] = 0.0
    P = normalize_rows(W)
    shown = P.to_scipy()
    sums = np.asarray(W.to_scipy().sum(axis=1)).ravel()
    probabilities = np.zeros((8, 10))
    row = np.repeat(np.arange(8), np.diff(shown.indptr))
    np.add.at(probabilities, (row, shown.indices), shown.data)
    expected = dense(W) / np.where(sums > 0, sums, 1)[:, None]
    np.testing.assert_allclose(probabilities, expected, rtol=2**-10, atol=1e-9)
    for lo, hi, total in zip(P.matrix.indptr[:-1], P.matrix.indptr[1:], P.matrix.totals, strict=True):
        assert P.matrix.numerators[lo:hi].sum(dtype=np.uint64) == total
        assert (P.matrix.numerators[lo:hi] > 0).all()
        assert (np.diff(P.matrix.columns[lo:hi]) >= 0).all()
        assert total <= 2**62


def test_normalize_rows_of_a_matrix_without_values():
    P = normalize_rows(CSRMatrix(np.array([0, 4, 4]), np.array([3, 0, 1, 2]), None, (2, 4)))
    assert P.to_scipy().toarray().tolist() == [[0.25] * 4, [0.0] * 4]


LAWS = [
    (lambda Q, A: Q @ A, ("RowLaw", "RowLaw", "RowLaw")),
    (lambda Q, A: Q @ pattern(A), ("RowLaw", "RowLaw", "RowLaw")),
    (lambda Q, A: Q.per_batch() @ A, ("EntryLaw", "EntryLaw", "ColumnLaw")),
    (lambda Q, A: Q.per_batch() @ square(A), ("EntryLaw", "EntryLaw", "ColumnLaw")),
    (lambda Q, A: square(Q.per_batch() @ A), ("ColumnLaw", "ColumnLaw", "ColumnLaw")),
    (column_norms, ("GraphLaw", "GraphLaw", "GraphLaw")),
]


@pytest.mark.parametrize(("product", "laws"), LAWS)
def test_normalize_rows_knows_the_law(product, laws):
    """The table of the law, section 3."""
    plain = sp.Graph([0, 1, 2], [1, 0])
    weighted = sp.Graph([0, 1, 2], [1, 0], np.array([1.0, 2.0]))
    Q = stack([np.array([0], np.int32)])
    for graph, law in zip((plain, plain.normalized("row"), weighted), laws, strict=True):
        assert type(normalize_rows(product(Q, graph.operand()))).__name__ == law
    assert normalize_rows(Q @ weighted.operand()).form == "weighted"
    assert normalize_rows(Q @ pattern(weighted.operand())).form == "uniform"


def test_only_a_p_is_sampled():
    A, Q = sp.Graph([0, 1, 2], [1, 0]).operand(), stack([np.array([0], np.int32)])
    for product in (Q @ A, Q.per_batch() @ A, column_norms(Q, A)):
        with pytest.raises(DTypeError, match=r"P: got a \w+; expected what normalize_rows returns\. Call norm"):
            its_sample(product, Draw((1, 2), 0, 1))


@pytest.mark.parametrize("size", [1, -1])
@pytest.mark.parametrize("looked_at", [False, True])
def test_extract_consumes_the_sample(size, looked_at):
    graph = sp.Graph([0, 2, 3, 3], [1, 2, 0])
    A, Q = graph.operand(), stack([np.array([1, 0], np.int32), np.array([2, 0], np.int32)])
    P, draw = normalize_rows(Q @ A), Draw((1, 2), 0, size)
    S = its_sample(P, draw, edge_ids=True)
    columns = its_sample(P, draw, edge_ids=True).rows.columns
    if looked_at:
        assert S.rows.columns.tolist() == columns.tolist() == graph.indices[S.edge_ids].tolist()
    layer = extract(S, ExtractOptions(edge_ids=True))
    batch = np.repeat(np.arange(2), np.diff(layer.rows.entry_ptr))
    assert layer.src[layer.src_ptr[batch] + layer.rows.columns].tolist() == columns.tolist()
    for look in ("rows", "matrix", "selector", "edge_ids", "entries"):
        with pytest.raises(ConsumedError, match="sample: got a sample that EXTRACT has consumed"):
            getattr(S, look)
    with pytest.raises(ConsumedError):
        extract(S, ExtractOptions())


def arrays_of(sample):
    """Copies of the sampled rows' arrays."""
    return [array.copy() for array in (sample.rows.indptr, sample.rows.columns, sample.rows.positions)]


class NoEntries(EntryLimit):
    """Lets rows be drawn, and none be extracted."""

    def at_extract(self, entries):
        if entries:
            raise CapacityError(argument="entries", given=str(entries), expected="0")


@pytest.mark.parametrize("size", [1, -1])
@pytest.mark.parametrize("looked_at", [False, True])
def test_a_refused_extraction_leaves_the_sample(size, looked_at):
    """Bad arguments and a limit that the entries pass; the sample can be extracted afterwards."""
    A, Q = sp.Graph([0, 2, 3, 3], [1, 2, 0]).operand(), stack([np.array([1, 0], np.int32)])
    P, draw = normalize_rows(Q @ A), Draw((1, 2), 0, size)
    S, expected = its_sample(P, draw, edge_ids=True), arrays_of(its_sample(P, draw, edge_ids=True))
    if looked_at:
        arrays_of(S)
    refusals = [((S, None), DTypeError, "options: "), ((P, ExtractOptions()), DTypeError, "sample: ")]
    for known in ((), 3, Q.vertices, Q.per_batch()):
        refusals.append(((S, ExtractOptions(), known), DTypeError, "known: got .*; expected a RowSelector, or None"))
    two = stack([np.array([1], np.int32), np.array([0], np.int32)])
    other = RowSelector(Q.batch_ptr, Q.vertices, Q.batch_ids + 1)
    for known in (two, other):
        message = "known: got batches .*; expected .*, those of the rows"
        refusals.append(((S, ExtractOptions(), known), InputError, message))
    for arguments, error, message in refusals:
        with pytest.raises(error, match=message):
            extract(*arguments)
    A.limit = NoEntries()
    with pytest.raises(CapacityError, match="entries: got"):
        extract(S, ExtractOptions())
    del A.limit
    if looked_at:
        for got, want in zip(arrays_of(S), expected, strict=True):
            np.testing.assert_array_equal(got, want)
    layer = extract(S, ExtractOptions(edge_ids=True), Q)
    assert layer.src[layer.rows.columns].tolist() == expected[1].tolist()


@pytest.mark.parametrize("size", [1, -1])
def test_an_extraction_that_fails_while_it_numbers_consumes_what_was_looked_at(size):
    A, Q = sp.Graph([0, 2, 3, 3], [1, 2, 0]).operand(), stack([np.array([1, 0], np.int32)])
    P = normalize_rows(Q @ A)
    twice = RowSelector(Q.batch_ptr, np.array([1, 1], np.int32), Q.batch_ids)
    S = its_sample(P, Draw((1, 2), 0, size))
    assert len(S.rows.columns)
    with pytest.raises(ValueError, match="distinct"):
        extract(S, ExtractOptions(), twice)
    with pytest.raises(ConsumedError):
        extract(S, ExtractOptions())


def test_extract_consumes_a_sample_of_columns():
    A, Q = sp.Graph([0, 2, 3, 3], [1, 2, 0]).operand(), stack([np.array([1, 0], np.int32)])
    S = its_sample(normalize_rows(Q.per_batch() @ A), Draw((1, 2), 0, 2))
    for weights in (None, 3):
        with pytest.raises(DTypeError, match=r"weights: got .*; expected UnbiasedWeights"):
            extract(S, ExtractOptions(), weights)
    columns = S.columns.tolist()
    assert columns
    assert set(columns) <= set(extract(S, ExtractOptions(), UnbiasedWeights()).src.tolist())
    for look in ("drawn", "indptr", "columns", "counts"):
        with pytest.raises(ConsumedError, match="sample: got a sample that EXTRACT has consumed"):
            getattr(S, look)
    with pytest.raises(ConsumedError):
        extract(S, ExtractOptions(), UnbiasedWeights())


def test_its_sample_of_an_explicit_matrix():
    """The column law on each row; rows are keyed by `batch_ids`."""
    rng = np.random.default_rng(0)
    W = CSRMatrix(np.array([0, 6, 6, 8]), rng.permutation(8).astype(np.int32), rng.random(8) + 0.1, (3, 8))
    P = normalize_rows(W)
    draw = Draw(derive_key(3, 0, 1), 0, 3)
    sample = its_sample(P, draw)
    assert np.diff(sample.indptr).tolist() == [3, 0, 2]
    assert sample.whole.tolist() == [False, True, True]
    rows = [W.indices[lo:hi].tolist() for lo, hi in zip(W.indptr[:-1], W.indptr[1:], strict=True)]
    for lo, hi, row in zip(sample.indptr[:-1], sample.indptr[1:], rows, strict=True):
        assert set(sample.columns[lo:hi].tolist()) <= set(row)
    by_id = its_sample(P, draw, batch_ids=np.array([9, 8, 7]))
    for name in available_backends():
        direct = get_backend(name).draw_columns(P.matrix, np.array([9, 8, 7]), draw)
        for one, other in zip(by_id, direct, strict=True):
            np.testing.assert_array_equal(one, other)


def test_its_sample_follows_the_probabilities():
    """20,000 single draws from the row (1, 2, 3, 4)/10: within four standard deviations each."""
    k = 20_000
    W = CSRMatrix(
        np.arange(0, 4 * k + 1, 4), np.tile(np.arange(4, dtype=np.int32), k), np.tile([1.0, 2.0, 3.0, 4.0], k), (k, 4)
    )
    counts = np.bincount(its_sample(normalize_rows(W), Draw((1, 2), 0, 1)).columns, minlength=4)
    p = np.array([0.1, 0.2, 0.3, 0.4])
    assert (np.abs(counts - k * p) < 4 * np.sqrt(k * p * (1 - p))).all()


def test_multi_edges_of_an_explicit_matrix_are_distinct_entries_of_one_column():
    W = CSRMatrix(np.array([0, 3]), np.array([1, 0, 1], np.int32), np.array([1.0, 1.0, 2.0]), (1, 2))
    assert normalize_rows(W).to_scipy().toarray().tolist() == [[0.25, 0.75]]
    sample = its_sample(normalize_rows(W), Draw((1, 2), 0, 2))
    assert sorted(sample.columns.tolist()) == [0, 1]


# --- selectors, keys ------------------------------------------------------------------------------------------------


def test_stack_and_split():
    batches = [np.array([4, 2]), np.array([], np.int64), np.array([4])]
    Q = stack(batches, first_batch=7)
    assert (Q.batch_ptr.tolist(), Q.vertices.tolist(), Q.batch_ids.tolist()) == ([0, 2, 2, 3], [4, 2, 4], [7, 8, 9])
    for one, other in zip(split(Q.vertices, Q.batch_ptr), batches, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.size == 0 or np.shares_memory(one, Q.vertices)
    assert stack([]).batch_ptr.tolist() == [0]


def test_keys_differ():
    keys = [
        derive_key(seed, epoch, purpose)
        for seed in (0, 1, 2**32, 2**64 - 1)
        for epoch in (0, 1, 2**32, 2**64 - 1)
        for purpose in (1, 2)
    ]
    assert len(set(keys)) == len(keys)
    assert all(0 <= word < 2**32 for key in keys for word in key)


def test_shuffle_is_a_permutation_of_its_own():
    order = sp.shuffle(1000, 1, 2)
    assert sorted(order.tolist()) == list(range(1000))
    assert order.tolist() != sp.shuffle(1000, 1, 3).tolist() != sp.shuffle(1000, 2, 2).tolist()
    for name in available_backends():
        from spsample.sparse import shuffle

        np.testing.assert_array_equal(shuffle(1000, 1, 2, backend=name), order)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64])
def test_check_range_of_every_integer_type(dtype):
    """One pass over the unsigned integers of the same bits: negative ones are refused, large unsigned ones are not."""
    largest = int(np.iinfo(dtype).max)
    array = np.array([[0, largest], [3, 1]], dtype)[:, ::-1]
    check_range("ids", array, largest + 1, "ids")
    with pytest.raises(InputError, match=f"got {largest} at position"):
        check_range("ids", array, largest, "ids")
    if np.iinfo(dtype).min < 0:
        with pytest.raises(InputError, match="got -2 at position 1"):
            check_range("ids", np.array([5, -2], dtype), 2**48, "ids")


def test_bytes_kept_for_samplers():
    n = 40
    graph = sp.Graph(np.arange(n + 1), np.arange(n, dtype=np.int32))
    assert graph.kept_nbytes == 0
    sp.bulk_sample(graph, [0], sp.GraphSAGE([2]), batch_size=1)
    assert graph.kept_nbytes == 0
    sp.bulk_sample(graph, [0], sp.FastGCN([2]), batch_size=1)
    assert graph.kept_nbytes == 8 * (n + 1) + 4 * (n + 1)
    weighted = sp.Graph(np.arange(n + 1), np.arange(n, dtype=np.int32), np.ones(n))
    sp.bulk_sample(weighted, [0], sp.FastGCN([2]), batch_size=1)
    kept = weighted.kept_nbytes
    assert 8 * (n + 1) + 4 * n < kept <= 12 * (n + 1) + 4 * n
    sp.bulk_sample(weighted, [0], sp.GraphSAGE([2]), batch_size=1)
    assert weighted.kept_nbytes == kept + 2 * n


@backends
@pytest.mark.parametrize("law", ["rows", "entries", "graph"])
def test_selectors_of_another_index_type(backend, law):
    """A product has them in that of the graph: the same sample; what does not fit into it is refused."""
    A = sp.Graph([0, 2, 3, 3], np.array([1, 2, 0], np.int32)).operand(backend)
    products = {"rows": lambda Q: Q @ A, "entries": lambda Q: Q.per_batch() @ A, "graph": lambda Q: column_norms(Q, A)}

    def layer_of(index):
        P, draw = normalize_rows(products[law](stack([np.array([1, 0], index)]))), Draw((1, 2), 0, 2)
        S = its_sample(P, draw)
        if law == "rows":
            return extract(S, ExtractOptions())
        return extract(S, ExtractOptions(), UnbiasedWeights())

    ours, expected = layer_of(np.int64), layer_of(np.int32)
    for one, other in ((ours.src, expected.src), (ours.rows.columns, expected.rows.columns)):
        assert one.dtype == other.dtype == np.int32
        np.testing.assert_array_equal(one, other)
    for wrong in (2**32 + 1, -1):
        with pytest.raises(InputError, match=r"^Q.vertices: got .*; expected vertices of the graph, 0 to 2"):
            products[law](stack([np.array([wrong, 0])]))
