"""Equal samples from every instruction set that this machine has: whole samplers, and the kernels at their edges."""

from __future__ import annotations

import numpy as np
import pytest
from covers import pairs
from each_set import CPU, REFERENCE, SETS, assert_compacts, assert_equal, each_set, instruction_set, pointers
from equality import KINDS, assert_bulks_same, calls, edge_lists, examples, make_graph, node_wise, subgraphs, threads
from hypothesis import given, settings
from hypothesis import strategies as st

core = pytest.importorskip("spsample._core", reason="the compiled core is not built")

import spsample as sp  # noqa: E402
from spsample.backends import Draw, Matrix, StackedSelector  # noqa: E402
from spsample.backends.hops import hop_by_hop  # noqa: E402

pytestmark = pytest.mark.sanitize

INDEX = (np.int32, np.int64)
KEY = (0x12345678, 0x9ABCDEF0)


def test_the_best_set_is_the_first_choice():
    assert "portable" in SETS
    assert core.instruction_set() in SETS
    assert not core.set_instruction_set("none such")


# --- whole samplers -------------------------------------------------------------------------------------------------


@given(edges=edge_lists(), kind=st.sampled_from(KINDS), sampler=st.one_of(node_wise, subgraphs), data=st.data())
@settings(max_examples=examples(150))
def test_samplers(edges, kind, sampler, data):
    graph, call = make_graph(edges, kind, data.draw(st.sampled_from([np.int32, np.int64]))), {}
    call = data.draw(calls(edges.num_nodes))
    reference = sp.bulk_sample(graph, sampler=sampler, backend="reference", **call)
    for name in SETS:
        with instruction_set(name):
            assert_bulks_same(reference, sp.bulk_sample(graph, sampler=sampler, backend="cpu", **call))


# --- rows -----------------------------------------------------------------------------------------------------------


def random_matrix(rng, lengths, index=np.int32):
    indices = rng.integers(0, len(lengths), sum(lengths)).astype(index)
    return Matrix(pointers(lengths), indices)


def random_selector(rng, num_rows, sizes, ordered, index=np.int32):
    parts = [rng.permutation(num_rows)[:size] for size in sizes]
    parts = [np.sort(part) if ordered else part for part in parts]
    vertices = np.concatenate([*parts, []]).astype(index)
    return StackedSelector(pointers([len(p) for p in parts]), vertices, 2**32 - 1 - np.arange(len(parts)))


@pytest.mark.parametrize(
    ("name", "index", "replace", "size"),
    pairs(SETS, INDEX, [False, True], [1, 2, 3, 4, 5, 10, 15, 16, 31, 64, 65, 80]),
)
def test_rows_of_all_lengths(name, index, replace, size):
    """Degrees around the fanout, empty rows, the last row of A, and batches that do not fill 16 lanes."""
    rng = np.random.default_rng(size)
    lengths = [*rng.integers(0, 2 * size + 2, 60), size - 1, size, size + 1, 0, 3]
    A = random_matrix(rng, lengths, index)
    for ordered in (False, True):
        Q = random_selector(rng, len(lengths), [1, 15, 16, 17, 0, 65, 40], ordered, index)
        draw = Draw(KEY, 255, size, replace)
        with instruction_set(name):
            rows = CPU.sample_rows_uniform(A, Q, draw, True)
            assert_equal(rows, REFERENCE.sample_rows_uniform(A, Q, draw, True))
            assert_equal(CPU.sample_rows_uniform(A, Q, draw, False), rows._replace(positions=None))


@pytest.mark.parametrize(
    ("name", "index", "weighted", "replace", "size"), pairs(SETS, INDEX, [False, True], [False, True], [2, 5, 15, 70])
)
def test_rows_of_a_block(name, index, weighted, replace, size):
    """Rows drawn by the vertices that they are, which need all 48 bits where the index type has them."""
    rng = np.random.default_rng(size)
    lengths = rng.integers(0, 3 * size, 150).tolist()
    n = 2**31 - 1 if index == np.int32 else 2**48
    data = rng.exponential(size=sum(lengths)).astype(np.float32) if weighted else None
    ids = rng.integers(0, n, len(lengths)).astype(index)
    A = Matrix(pointers(lengths), rng.integers(0, n, sum(lengths)).astype(index), data, False, ids, n)
    sample_rows = "sample_rows_weighted" if weighted else "sample_rows_uniform"
    for ordered in (False, True):
        Q = random_selector(rng, len(lengths), [1, 15, 16, 17, 0, 65, 140], ordered, index)
        draw = Draw(KEY, 3, size, replace)
        with instruction_set(name):
            rows = getattr(CPU, sample_rows)(A, Q, draw, True)
        assert_equal(rows, getattr(REFERENCE, sample_rows)(A, Q, draw, True))


@each_set
@pytest.mark.parametrize("count", [1, 3])
def test_block_in_bulk_order(name, count):
    """A block larger than a range gives what the whole A does, in every order of visiting."""
    rng = np.random.default_rng(4)
    n = 20_000
    A = random_matrix(rng, rng.integers(0, 250, n).tolist())
    rows = rng.permutation(n)[: n // 2]
    where = np.concatenate([np.arange(A.indptr[v], A.indptr[v + 1]) for v in rows])
    ids = rows.astype(np.int32)
    block = Matrix(pointers(np.diff(A.indptr)[rows]), A.indices[where], None, False, ids, n)
    assert block.indices.nbytes > 4 << 20
    for sizes in ([40], [3000] * 4, [n // 2, *[4000] * 60, 0, 150, 5]):
        Q = random_selector(rng, len(rows), sizes, True)
        with threads(count), instruction_set(name):
            drawn = CPU.sample_rows_uniform(block, Q, Draw(KEY, 1, 7), True)
            whole = CPU.sample_rows_uniform(A, Q._replace(vertices=ids[Q.vertices]), Draw(KEY, 1, 7), True)
        assert_equal(drawn._replace(positions=where[drawn.positions]), whole)


@each_set
@pytest.mark.parametrize("replace", [False, True])
def test_rejected_words(name, replace):
    """A row of 3 000 000 entries rejects a word with probability (2^32 mod t) / 2^32, about 1 in 1600: many are."""
    degree, k, size = 3_000_000, 400, 15
    A = Matrix(np.array([0, 5, 5 + degree]), np.arange(5 + degree, dtype=np.int32))
    Q = StackedSelector(np.arange(k + 1), np.ones(k, np.int32), np.arange(k))
    counters = np.zeros((4 * k, 4), np.uint32)
    counters[:, 0], counters[:, 1] = 1, 2 << 16
    counters[:, 2], counters[:, 3] = np.tile(np.arange(4), k), np.repeat(np.arange(k), 4)
    words = CPU.philox(counters, KEY).reshape(k, 16)[:, :size].astype(np.uint64)
    t = degree + (np.zeros(size, np.int64) if replace else np.arange(size) + 1 - size).astype(np.int64)
    t = t.astype(np.uint64)
    rejected = (words * t & np.uint64(2**32 - 1)) < np.uint64(2**32) % t
    assert rejected.sum() >= 2
    with instruction_set(name):
        rows = CPU.sample_rows_uniform(A, Q, Draw(KEY, 2, size, replace), False)
    assert_equal(rows, REFERENCE.sample_rows_uniform(A, Q, Draw(KEY, 2, size, replace), False))


@pytest.mark.parametrize(("name", "count", "index"), pairs(SETS, [1, 2, 4], INDEX))
def test_bulk_order(name, count, index):
    """A larger than a range, visited by k batches: every order of visiting gives equal samples."""
    rng = np.random.default_rng(3)
    n = 20_000
    A = random_matrix(rng, rng.integers(0, 250, n).tolist(), index)
    assert A.indices.nbytes > 2 * (4 << 20)
    for sizes in ([40], [3000] * 4, [n, *[9000] * 60, 0, 150, 5]):
        parts = []
        for size in sizes:  # some unordered vertices, then two ascending runs, as a second hop's frontier
            some = rng.permutation(n)[:size]
            first, second = len(some) // 10, len(some) // 3
            parts += [some[:first], np.sort(some[first:second]), np.sort(some[second:])]
        Q = StackedSelector(pointers(sizes), np.concatenate(parts).astype(index), np.arange(len(sizes)))
        draw = Draw(KEY, 1, 7)
        with threads(1), instruction_set("portable"):
            one_by_one = [batch_rows(A, Q, draw, i) for i in range(len(sizes))]
        with threads(count), instruction_set(name):
            rows = CPU.sample_rows_uniform(A, Q, draw, True)
        np.testing.assert_array_equal(rows.columns, np.concatenate([r.columns for r in one_by_one]))
        np.testing.assert_array_equal(rows.positions, np.concatenate([r.positions for r in one_by_one]))
        np.testing.assert_array_equal(rows.indptr, np.concatenate([r.indptr for r in one_by_one]))


@pytest.mark.parametrize(("name", "sizes", "replace"), pairs(SETS, [[300], [900] * 3, [1200] * 12], [False, True]))
def test_rows_mostly_whole(name, replace, sizes):
    """Long runs of rows that are taken whole among few that are drawn from; piece by piece and in both ranges."""
    rng = np.random.default_rng(len(sizes))
    size, n = 7, 12_000
    lengths = np.where(rng.random(n) < 0.05, rng.integers(size, 4000, n), rng.integers(0, size + 1, n))
    lengths[-200:] = rng.integers(0, size + 1, 200)
    A = random_matrix(rng, lengths.tolist())
    assert A.indices.nbytes > 4 << 20
    Q, draw = random_selector(rng, n, sizes, True), Draw(KEY, 1, size, replace)
    expected = REFERENCE.sample_rows_uniform(A, Q, draw, True)
    for count in (1, 3):
        with threads(count), instruction_set(name):
            assert_equal(CPU.sample_rows_uniform(A, Q, draw, True), expected)
            assert_equal(CPU.sample_rows_uniform(A, Q, draw, False), expected._replace(positions=None))


@each_set
def test_rows_of_near_and_far_vertices(name):
    """Vertices on both sides of 2^32 in one group of rows: the shared rounds of Philox hold below it only."""
    rng = np.random.default_rng(6)
    ids = np.where(rng.random(400) < 0.03, 2**32, 0) + rng.permutation(400)
    A = Matrix(pointers([40] * 400), rng.integers(0, 400, 400 * 40), None, False, ids, 2**33)
    Q = random_selector(rng, 400, [400, 37, 150], True, np.int64)
    for size in (1, 5, 10, 15, 33):
        for replace in (False, True):
            draw = Draw(KEY, 7, size, replace)
            with instruction_set(name):
                rows = CPU.sample_rows_uniform(A, Q, draw, True)
            assert_equal(rows, REFERENCE.sample_rows_uniform(A, Q, draw, True))


def batch_rows(A, Q, draw, i):
    """The rows of one batch of Q by itself."""
    lo, hi = Q.batch_ptr[i], Q.batch_ptr[i + 1]
    alone = StackedSelector(np.array([0, hi - lo]), Q.vertices[lo:hi], Q.batch_ids[i : i + 1])
    return CPU.sample_rows_uniform(A, alone, draw, True)


# --- compact --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "index", "include_targets", "largest"), pairs(SETS, INDEX, [False, True], [0, 63, 64, 5000, 2**31 - 2])
)
def test_compact(name, index, include_targets, largest):
    """Dense and sparse sets of vertices, ids up to the largest of int32 (where a hash table serves)."""
    rng = np.random.default_rng(largest)
    ids = np.unique(np.append(rng.integers(0, largest + 1, 3000), largest))
    targets = [rng.permutation(ids)[: len(ids) // d] for d in (7, 1, 2, 3)] + [ids[:0]]
    columns = [rng.choice(ids, c) for c in (4000, 300, 0)] + [ids, ids[:0]]
    assert_compacts(name, targets, columns, index, include_targets)


@each_set
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("include_targets", [False, True])
def test_compact_with_few_targets(name, index, include_targets):
    """Words full of vertices, words whose only vertex is a target, targets that no entry leads to."""
    rng = np.random.default_rng(5)
    n = 40_000
    dense, sparse = np.arange(700, 1500), rng.permutation(n)[:600]
    columns = [rng.choice(np.concatenate([dense, sparse]), 5000), rng.choice(sparse, 4000), rng.integers(0, n, 9000)]
    targets = [np.append(columns[0][:3], [n - 1, 0]), np.unique(columns[1])[::9], rng.permutation(n)[:250]]
    targets = [np.unique(part)[::-1] for part in targets]
    assert all(32 * len(t) <= len(c) for t, c in zip(targets, columns, strict=True))
    assert_compacts(name, targets, columns, index, include_targets)


@pytest.mark.parametrize(("name", "num_batches", "index"), pairs(SETS, [1, 3, 40], INDEX))
def test_whole_rows_numbered(name, index, num_batches):
    """A hub's row among short ones: threads share a row's entries, or number batches as they copy them."""
    rng = np.random.default_rng(num_batches)
    lengths = rng.integers(0, 40, 3000)
    lengths[[5, 2999]] = 150_000, 0
    A = random_matrix(rng, lengths.tolist(), index)
    Q = random_selector(rng, len(lengths), [30] * num_batches, False, index)
    Q.vertices[-1] = 5 if 5 not in Q.vertices[-30:] else Q.vertices[-1]
    with instruction_set(name):
        rows, sources = CPU.take_rows_numbered(A, Q, Q, True, True)
        taken = CPU.take_rows(A, Q, True)
    assert_equal(taken, REFERENCE.take_rows(A, Q, True))
    assert_equal(rows._replace(columns=taken.columns), taken)
    assert_equal(sources, REFERENCE.compact(Q, taken.entry_ptr, taken.columns, True))


@pytest.mark.parametrize(("name", "num_batches", "index", "last"), pairs(SETS, [1, 3, 20], INDEX, [40, 70]))
def test_all_hops_at_once(name, index, num_batches, last):
    """Hubs, empty rows, rows that are taken whole, and batches that find vertices of each other; many draws a row."""
    rng = np.random.default_rng(num_batches)
    lengths = rng.integers(0, 40, 3000)
    lengths[[5, 2999]] = 3000, 0
    A = random_matrix(rng, lengths.tolist(), index)
    Q = random_selector(rng, len(lengths), [30] * num_batches, False, index)
    draws = [Draw((3, 4), hop, size, False) for hop, size in enumerate([15, 10, last])]
    with instruction_set(name):
        hops = CPU.sample_hops(A, Q, draws, True)
    expected = REFERENCE.sample_hops(A, Q, draws, True)
    for got, want in zip(hops, expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("name", "sizes", "positions"), pairs(SETS, [[2], [300] * 12, [40, 0, *[500] * 60]], [False, True])
)
def test_hops_in_bulk_order(name, positions, sizes):
    """A larger than a range: the last hop of all batches, visited range by range, goes between those before it."""
    rng = np.random.default_rng(9)
    n = 20_000
    A = random_matrix(rng, rng.integers(0, 250, n).tolist())
    assert A.indices.nbytes > 2 * (4 << 20)
    Q, draws = random_selector(rng, n, sizes, True), [Draw(KEY, hop, size) for hop, size in enumerate([9, 7])]
    with threads(1), instruction_set("portable"):
        expected = hop_by_hop(CPU, A, Q, draws, positions)
    for count in (1, 3):
        with threads(count), instruction_set(name):
            hops = CPU.sample_hops(A, Q, draws, positions)
        for got, want in zip(hops, expected, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("seeds", "changed", "hops", "named"),
    [
        ([0, 3], {}, 1, "vertices"),
        ([0, -1], {}, 1, "vertices"),
        ([1, 1], {}, 1, "vertices"),
        ([0], {"ids": np.arange(3, dtype=np.int32)}, 1, "A"),
        ([0], {"indices": np.array([1, 7, 0], np.int32)}, 2, "vertices"),
        ([0], {}, 0, "draws"),
    ],
)
def test_hops_that_are_refused(seeds, changed, hops, named):
    """Seeds that are no rows, or repeated; a block of rows; a neighbour that is no row, when drawn from; no hop."""
    A = Matrix(np.array([0, 2, 3, 3]), np.array([1, 2, 0], np.int32))._replace(**changed)
    Q = StackedSelector(np.array([0, len(seeds)]), np.array(seeds, np.int32), np.array([0]))
    with pytest.raises(ValueError, match=f"^{named}"):
        CPU.sample_hops(A, Q, [Draw(KEY, hop, 2) for hop in range(hops)], True)


@each_set
@pytest.mark.parametrize("largest", [100, 2**31 - 2])
def test_compact_refuses(name, largest):
    ptr = np.array([0, 2])
    with instruction_set(name):
        for targets, columns in (([5, 5], [1, largest]), ([5, -6], [1, largest]), ([5, 6], [-1, largest])):
            with pytest.raises(ValueError, match=r"vertices|columns"):
                core.compact(ptr, np.array(targets, np.int32), ptr, np.array(columns, np.int32), True)
