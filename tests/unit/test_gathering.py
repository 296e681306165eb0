"""Rows of features to where they are wanted: the compiled core in every instruction set, and NumPy, to the bit."""

from __future__ import annotations

import copy
import pickle
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from spsample.errors import DTypeError, InputError
from spsample.features import FeatureStore
from spsample.features.formats import BFloat16, Float, Int8
from spsample.features.gathering import RowReader, SlotMap, require_destination, row_reader

core = pytest.importorskip("spsample._core", reason="the compiled core is not built")

pytestmark = pytest.mark.sanitize

SETS = ("portable", "avx2", "avx512")
DTYPES = (
    "float16",
    "float32",
    "float64",
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
)


@contextmanager
def instruction_set(name):
    before = core.instruction_set()
    if not core.set_instruction_set(name):
        pytest.skip(f"this processor has no {name}")
    try:
        yield
    finally:
        core.set_instruction_set(before)


def bits(array):
    """The numbers as integers: a NaN equals itself, and -0 is not 0."""
    return array.view(f"u{array.dtype.itemsize}")


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_of_number(name, dtype):
    rng = np.random.default_rng(1)
    for dim in (0, 1, 7, 8, 33):
        x = (rng.standard_normal((50, dim)) * 100).astype(dtype)
        for ids in (np.array([], np.int64), rng.integers(0, 50, 3), rng.integers(0, 50, 401, np.int32)):
            with instruction_set(name):
                rows = row_reader(x).gather(ids)
                stored = row_reader(x).gather(ids, out=np.empty((len(ids), dim), dtype))
            assert rows.dtype == np.float32
            np.testing.assert_array_equal(bits(rows), bits(x[ids].astype(np.float32)))
            np.testing.assert_array_equal(stored, x[ids])


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("dim", [3, 16, 32, 64, 100, 1024, 5000])
def test_results_larger_than_the_caches(name, dim):
    """They are written past the caches, a piece at a time; rows of 5000 numbers are longer than a piece.

    Rows of 16, 32, 64 and 1024 numbers fill whole lines, and are written by themselves where the result begins with a
    line.
    """
    rng = np.random.default_rng(2)
    x = rng.standard_normal((300, dim)).astype(np.float32)
    ids = rng.integers(0, 300, 9_000_000 // (4 * dim))
    with instruction_set(name):
        np.testing.assert_array_equal(row_reader(x).gather(ids), x[ids])
        moved = np.empty(4 * len(ids) * dim + 4, np.uint8)[4:].view(np.float32).reshape(len(ids), dim)
        row_reader(x).gather(ids, out=moved)
    np.testing.assert_array_equal(moved, x[ids])


@pytest.mark.parametrize("name", SETS)
def test_every_number_of_two_bytes(name):
    """All of float16 and bfloat16; a NaN stays one."""
    half = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(-1, 16)
    every = np.arange(len(half))
    with instruction_set(name):
        wide = row_reader(half, Float("float16")).gather(every)
        brain = row_reader(half.view(np.uint16), BFloat16()).gather(every)
    expected = half.astype(np.float32)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(wide), ~number)
    np.testing.assert_array_equal(bits(wide)[number], bits(expected)[number])
    np.testing.assert_array_equal(bits(brain), half.view(np.uint16).astype(np.uint32) << 16)


@pytest.mark.parametrize("name", SETS)
def test_integers_with_scales(name):
    form = Int8(np.array([1.27, 300.0, 0.0] * 7))
    x = np.random.default_rng(3).integers(-127, 128, (40, 21)).astype(np.int8)
    ids = np.random.default_rng(4).integers(0, 40, 100)
    with instruction_set(name):
        rows = row_reader(x, form).gather(ids)
    np.testing.assert_array_equal(bits(rows), bits(form.decode(x[ids])))


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bool", "int8", "int64"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_sparse_rows(name, dtype, index):
    rng = np.random.default_rng(5)
    dense = (rng.random((60, 37)) < 0.2) * rng.integers(1, 90, (60, 37))
    x = sparse.csr_array(dense.astype(dtype))
    x.indices, x.indptr = x.indices.astype(index), x.indptr.astype(index)
    ids = rng.integers(0, 60, 500)
    with instruction_set(name):
        rows = row_reader(x).gather(ids)
    np.testing.assert_array_equal(rows, dense.astype(dtype)[ids].astype(np.float32))


def test_entries_of_one_place_are_added_in_their_own_type():
    """As SciPy does: float32 would lose the 1. The matrix given is left as it is."""
    x = sparse.csr_array((np.array([2.0**24, 1, -(2.0**24)]), np.array([1, 1, 1]), np.array([0, 3])), shape=(1, 2))
    assert row_reader(x).gather(np.array([0])).tolist() == [[0, 1]]
    assert x.nnz == 3


@settings(deadline=None, max_examples=60)
@given(
    num_rows=st.integers(1, 40),
    dim=st.integers(0, 20),
    count=st.integers(0, 60),
    more=st.integers(0, 9),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_go_to_their_places(num_rows, dim, count, more, dtype, seed):
    """And nowhere else; the readers of the core and of NumPy do the same."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((num_rows, dim)) * 50).astype(dtype)
    ids, at = rng.integers(0, num_rows, count), rng.permutation(count + more)[:count]
    for reader in (row_reader(x), RowReader(x, row_reader(x).form), row_reader(sparse.csr_array(x.astype(float)))):
        out = np.full((count + more, dim), -7, np.float32)
        assert reader.gather(ids, out, at) is out
        np.testing.assert_array_equal(out[at], x[ids].astype(np.float32))
        assert (np.delete(out, at, axis=0) == -7).all()


@pytest.mark.parametrize(
    ("out", "at", "error", "words"),
    [
        (None, [0, 1], InputError, "at: got places without out"),
        ([[0.0, 0.0]] * 2, None, DTypeError, "out: got list; expected a NumPy array of float32"),
        (np.zeros((2, 2)), None, DTypeError, "out: got dtype float64; expected a NumPy array of float32"),
        (np.zeros((2, 3), np.float32), None, InputError, "out: got shape (2, 3); expected rows of 2 numbers"),
        (np.zeros(4, np.float32), None, InputError, "out: got shape (4,)"),
        (np.zeros((3, 2), np.float32), None, InputError, "out: got 3 rows; expected one for each id: 2"),
        (np.zeros((2, 2), np.float32, order="F"), None, InputError, "expected an array in C order"),
        (np.broadcast_to(np.zeros(2, np.float32), (2, 2)), None, InputError, "expected an array in C order"),
        (np.zeros((3, 2), np.float32), [0], InputError, "at: got 1 places; expected one for each id: 2"),
        (np.zeros((3, 2), np.float32), [0, 3], InputError, "at: got 3 at position 1"),
        (np.zeros((3, 2), np.float32), [0, -1], InputError, "at: got -1 at position 1"),
        (np.zeros((3, 2), np.float32), [0.0, 1.0], DTypeError, "at: got dtype float64"),
    ],
)
def test_destinations_that_are_refused(out, at, error, words):
    with pytest.raises(error) as caught:
        FeatureStore(np.ones((5, 2), np.float32)).gather([1, 4], out, at)
    assert words in str(caught.value)
    with pytest.raises(error):
        require_destination(out, at, 2, 2, (np.dtype(np.float32),))


@pytest.mark.parametrize(
    "x", [np.ones((5, 2)), sparse.csr_array(np.ones((5, 2))), np.ones((2, 5)).T, np.ones((5, 2), ">f4")]
)
@pytest.mark.parametrize("ids", [[5], [0, -1], [2**40], np.array([2**63], np.uint64)])
def test_ids_out_of_range(x, ids):
    with pytest.raises(InputError, match="ids: got "):
        FeatureStore(x).gather(ids)


def test_ids_of_every_kind():
    store = FeatureStore(np.arange(6.0).reshape(3, 2))
    for ids in ([2, 0], np.array([2, 0], np.uint8), np.array([2, 9, 0])[::2], np.array([2, 0], ">i8"), (2, 0)):
        assert store.gather(ids).tolist() == [[4, 5], [0, 1]]


def test_a_result_has_its_own_memory():
    """Also where the memory of an earlier one is used again."""
    store = FeatureStore(np.arange(1 << 20, dtype=np.float32).reshape(-1, 64))
    first = store.gather(np.arange(16_000))
    kept = first.copy()
    second = store.gather(np.arange(16_000)[::-1])
    np.testing.assert_array_equal(first, kept)
    assert not np.shares_memory(first, second)


def test_copies_and_pickles():
    store = FeatureStore(sparse.csr_array(np.eye(3)))
    for other in (copy.copy(store), copy.deepcopy(store), pickle.loads(pickle.dumps(store))):
        assert other.gather([2]).tolist() == [[0, 0, 1]]


@pytest.mark.parametrize("name", SETS)
@settings(max_examples=10, deadline=None)
@given(
    dtype=st.sampled_from(["int8", "uint16", "float32"]),
    dim=st.integers(1, 300) | st.sampled_from([64, 128, 256]),
    first=st.sampled_from([0, 64, 1, 16, 60]),
    more=st.integers(0, 40),
)
def test_short_rows_as_they_are_stored(name, dtype, dim, first, more):
    """Into a result larger than the caches, from the beginning of a line on or not; nothing beside it is written."""
    size = np.dtype(dtype).itemsize
    x = np.random.default_rng(dim).integers(0, 255, (500, dim * size), np.uint8).view(dtype)
    ids = np.random.default_rng(more).integers(0, 500, (8 << 20) // (dim * size) + more)
    memory = np.full(ids.size * dim * size + 256, 7, np.uint8)
    begin = -memory.ctypes.data % 64 + first // size * size
    end = begin + ids.size * dim * size
    with instruction_set(name):
        row_reader(x).gather(ids, out=memory[begin:end].view(dtype).reshape(-1, dim))
    np.testing.assert_array_equal(memory[begin:end].reshape(ids.size, -1), x.view(np.uint8)[ids])
    assert (memory[:begin] == 7).all()
    assert (memory[end:] == 7).all()


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("dim", [16, 100, 5000])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_at_places_of_a_result_larger_than_the_caches(name, dim, dtype):
    """They are written past the caches, a row at a time, from any place of a line on."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((300, dim)).astype(dtype)
    count = 9_000_000 // (4 * dim)
    ids, at = rng.integers(0, 300, count), rng.permutation(count + 5)[:count]
    for first, out_type in ((0, np.float32), (1, np.float32), (1, dtype)):
        out = np.full((count + 5) * dim + first, -1, out_type)[first:].reshape(-1, dim)
        expected = out.copy()
        expected[at] = x[ids]
        with instruction_set(name):
            np.testing.assert_array_equal(row_reader(x).gather(ids, out, at), expected)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0], ids=["no-hit", "mixed", "all-hit"])
@pytest.mark.parametrize("dim", [0, 3, 100])
@pytest.mark.parametrize("ids_of", [np.int32, np.int64])
def test_rows_that_are_kept(name, share, dim, ids_of):
    """Small and large results, in order and at places; the rows of other ids are left as they are."""
    rng = np.random.default_rng(3)
    kept = np.flatnonzero(rng.random(5000) < 0.5)
    others = np.setdiff1d(np.arange(5000), kept)
    places, rows = SlotMap(kept, 5000), rng.standard_normal((len(kept), dim)).astype(np.float16)
    x = np.zeros((5000, dim), np.float16)
    x[kept] = rows
    for count in (0, 1, 300, 25_000) if dim == 100 else (0, 1, 300):
        ids = np.where(rng.random(count) < share, rng.choice(kept, count), rng.choice(others, count)).astype(ids_of)
        for at in (None, rng.permutation(count + 3)[:count]):
            for dtype in (np.float32, np.float16):
                out = np.full((count if at is None else count + 3, dim), 7, dtype)
                expected, hits = out.copy(), np.flatnonzero(np.isin(ids, kept))
                expected[hits if at is None else at[hits]] = x[ids[hits]]
                with instruction_set(name):
                    misses = row_reader(rows).gather_kept(places, ids, out, at)
                np.testing.assert_array_equal(misses, np.setdiff1d(np.arange(count), hits))
                np.testing.assert_array_equal(out, expected)
                by_numpy = RowReader(rows, row_reader(rows).form).gather_kept(places, ids, out, at)
                np.testing.assert_array_equal(by_numpy, misses)
                np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0], ids=["no-hit", "mixed", "all-hit"])
@pytest.mark.parametrize("dim", [0, 3, 100])
@pytest.mark.parametrize("ids_of", [np.int32, np.int64])
def test_rows_that_are_kept_and_others(name, share, dim, ids_of):
    """In one pass, small and large results, in order and at places; rows are told apart by where they are read."""
    rng = np.random.default_rng(4)
    kept = np.flatnonzero(rng.random(5000) < 0.5)
    others = np.setdiff1d(np.arange(5000), kept)
    places, x = SlotMap(kept, 5000), rng.standard_normal((5000, dim)).astype(np.float16)
    near = row_reader(-x[kept])
    told = x.copy()
    told[kept] *= -1
    readers = {"dense": row_reader(x), "in another order": row_reader(np.asfortranarray(x))}
    for count in (0, 1, 9, 300, 25_000) if dim == 100 else (0, 1, 9, 300):
        ids = np.where(rng.random(count) < share, rng.choice(kept, count), rng.choice(others, count)).astype(ids_of)
        for at in (None, rng.permutation(count + 3)[:count]):
            for dtype in (np.float32, np.float16):
                expected = np.full((count if at is None else count + 3, dim), 7, dtype)
                expected[np.arange(count) if at is None else at] = told[ids]
                for rest in readers.values():
                    out = np.full_like(expected, 7)
                    with instruction_set(name):
                        hits = near.gather_cached(rest, places, ids, out, at)
                    assert hits == np.isin(ids, kept).sum()
                    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", SETS)
def test_many_short_rows_that_are_kept_and_others(name):
    """More ids than are looked for at a time, and a last part that is shorter."""
    rng = np.random.default_rng(5)
    kept = np.flatnonzero(rng.random(5000) < 0.5)
    x = rng.standard_normal((5000, 16)).astype(np.float32)
    told = x.copy()
    told[kept] *= -1
    ids = rng.integers(0, 5000, 300_001)
    with instruction_set(name):
        out = np.empty((len(ids), 16), np.float32)
        hits = row_reader(-x[kept]).gather_cached(row_reader(x), SlotMap(kept, 5000), ids, out, None)
    assert hits == np.isin(ids, kept).sum()
    np.testing.assert_array_equal(bits(out), bits(told[ids]))


@pytest.mark.parametrize("bad", [-1, 40, 2**40])
def test_nothing_is_written_where_an_id_is_out_of_range(bad):
    x, out = np.ones((40, 3), np.float32), np.zeros((2, 3), np.float32)
    for near in (row_reader(x[:2]), RowReader(x[:2], Float("float32"))):
        with pytest.raises((InputError, IndexError), match="ids: "):
            near.gather_cached(row_reader(x), SlotMap(np.array([1, 39]), 40), np.array([1, bad]), out, None)
        assert not out.any()


def test_rows_of_another_source_are_refused():
    places, out, ids = SlotMap(np.array([1, 39]), 40), np.zeros((1, 2), np.float32), np.array([1])
    for rest in (np.ones((39, 2), np.float32), np.ones((40, 2), np.float64)):
        with pytest.raises(ValueError, match="all: must be of the type of `kept`, a row for each vertex"):
            row_reader(np.ones((2, 2), np.float32)).gather_cached(row_reader(rest), places, ids, out, None)
    near = row_reader(np.ones((3, 2), np.float32))
    with pytest.raises(ValueError, match="words: must have a bit for each row"):
        near.gather_cached(row_reader(np.ones((40, 2), np.float32)), places, ids, out, None)


@pytest.mark.parametrize("reader", [RowReader, row_reader])
@pytest.mark.parametrize("bad", [-1, 40, 2**40])
def test_rows_that_are_kept_of_ids_out_of_range(reader, bad):
    rows, places = np.ones((2, 3), np.float32), SlotMap(np.array([1, 39]), 40)
    with pytest.raises((InputError, IndexError), match="ids: "):
        reader(rows, Float("float32")).gather_kept(places, np.array([1, bad]), np.zeros((2, 3), np.float32), None)


def test_words_of_other_rows_are_refused():
    rows, out, ids = np.ones((3, 2), np.float32), np.zeros((1, 2), np.float32), np.array([1])
    with pytest.raises(ValueError, match="words: must have a bit for each row"):
        row_reader(rows).gather_kept(SlotMap(np.array([1, 39]), 40), ids, out, None)
    with pytest.raises(ValueError, match="words: needs one element for 32 vertices"):
        core.find_places(np.zeros(2, np.uint64), 65, ids)
