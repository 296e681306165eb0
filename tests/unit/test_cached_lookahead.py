"""Caches that look ahead give the rows of their source to the bit, whatever they were told."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spsample.errors import DataError, DTypeError, InputError
from spsample.features import CachedFeatures, FeatureSource, FeatureStore, Lookahead
from spsample.features.lookahead import LookaheadRows, rows_ahead

N, DIM = 40, 3
DTYPES = ("float32", "float16", "float64", "int8", "int64", ">f4")

pytestmark = pytest.mark.filterwarnings("ignore:replacement='lookahead' knows no next batches")


def features(dtype):
    return (np.random.default_rng(0).standard_normal((N, DIM)) * 20).astype(dtype)


def budget_of(source, rows):
    """Bytes in which so many rows fit, and what decides."""
    row = source.dim * source.stored_dtype.itemsize
    count = next(count for count in range(rows, N) if rows_ahead(N, count, row) >= rows)
    return count * (row + 1) + 16


def ahead_of(source, rows, score):
    """A cache of so many rows that looks ahead from the beginning."""
    one = CachedFeatures(source, budget_of(source, rows), score, replacement="lookahead")
    chosen = one._rows
    chosen._rows, chosen._order = LookaheadRows.in_place_of(chosen._rows, chosen._order, rows), None
    one._rows = chosen._rows
    return one


class Watched(FeatureSource):
    """A source that looks ahead, and knows whether what it was told came."""

    looks_ahead = True

    def __init__(self, x):
        self.store = FeatureStore(x)
        self.num_rows, self.dim = self.store.shape
        self.known = []
        self.surprises = self.calls = 0

    def _read(self, ids, out, at=None):
        self.calls += 1
        if self.known and np.array_equal(self.known[0], ids):
            self.known.pop(0)
        else:
            self.surprises += 1
        self.store.gather(ids, out, at)

    def _hint(self, batches):
        self.known = [] if batches is None else [*self.known, *batches]


@pytest.fixture
def x():
    """Rows of 1 KiB."""
    return np.random.default_rng(0).standard_normal((N, 256)).astype(np.float32)


@settings(deadline=None, max_examples=150)
@given(
    dtype=st.sampled_from(DTYPES),
    layers=st.lists(st.tuples(st.booleans(), st.integers(1, N - 1)), min_size=1, max_size=3),
    bulk=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_equal_to_the_source_to_the_bit(dtype, layers, bulk, seed):
    """Announced calls, others between them, some that never come, and what is forgotten."""
    rng = np.random.default_rng(seed)
    x = np.repeat(features(dtype), 40, axis=1)  # rows that are long beside the map
    store = one = FeatureStore(x)
    for looks, rows in layers:
        way = "lookahead" if looks else "static"
        one = CachedFeatures(one, rows * x.shape[1] * x.itemsize + 2000, rng.random(N), replacement=way)
    expected = store.gather(np.arange(N))
    batches = [rng.choice(N, rng.integers(0, N), replace=rng.random() < 0.2) for _ in range(4 * bulk)]
    bulks = [batches[i : i + bulk] for i in range(0, len(batches), bulk)]
    one.prefetch_hint(bulks[0])
    for number, now in enumerate(bulks):
        one.prefetch_hint(bulks[number + 1] if number + 1 < len(bulks) else [])
        for ids in now:
            if rng.random() < 0.2:
                continue
            if rng.random() < 0.2:
                other = rng.integers(0, N, 5)
                np.testing.assert_array_equal(one.gather(other), expected[other])
            if rng.random() < 0.1:
                one.prefetch_hint(None)
            as_kept = rng.random() < 0.3 and x.dtype.isnative
            out, at = np.zeros((N + 60, x.shape[1]), x.dtype if as_kept else np.float32), rng.permutation(N + 60)
            at = at[: len(ids)]
            assert one.gather(ids, out, at) is out
            np.testing.assert_array_equal(out[at], (x if as_kept else expected)[ids])
            np.testing.assert_array_equal(one.gather(np.arange(N)), expected)


def test_it_hits_what_the_rule_says(x):
    rng = np.random.default_rng(1)
    scores = rng.random(N)
    batches = [np.sort(rng.choice(N, 12, replace=False)) for _ in range(30)]
    one = ahead_of(FeatureStore(x), 8, scores)
    rule = Lookahead(scores, 8)
    static = CachedFeatures(FeatureStore(x), 8 * x[0].nbytes + 16, scores)
    assert one.cached_rows == static.cached_rows == 8
    expected = 0
    for begin in range(0, 30, 5):
        batches_told = batches[: begin + 10] if begin == 0 else batches[begin + 5 : begin + 10]
        one.prefetch_hint(batches_told)
        rule.announce(batches_told)
        for ids in batches[begin : begin + 5]:
            one.gather(ids)
            static.gather(ids)
            assert one.counts.hits >= static.counts.hits
            expected += len(rule.step().hits)
            assert one.counts.hits == expected


def test_calls_that_were_not_announced_change_nothing(x):
    one = ahead_of(FeatureStore(x), 5, np.arange(N)[::-1])
    one.prefetch_hint([np.arange(20, 30)])
    for _ in range(3):
        one.gather(np.arange(5))
        one.gather(np.arange(30, 40))
    assert one.counts.hits == 15
    assert one.counts.misses == 30


@pytest.mark.parametrize("of", [FeatureStore, Watched])
def test_what_is_known_and_surely_will_not_come_is_forgotten(x, of):
    """Two loaders gather side by side, so that calls do not come in the order of announcements."""
    rng = np.random.default_rng(5)
    one = ahead_of(of(x), 6, rng.random(N))
    for _ in range(50):
        calls = [rng.choice(N, 15, replace=False) for _ in range(4)]
        one.prefetch_hint(calls)
        for ids in calls[::-1]:
            np.testing.assert_array_equal(one.gather(ids), x[ids])
    assert one._rows._lookahead.known + len(one._rows._fixed) < 100
    one.prefetch_hint([])


def test_arrays_that_were_announced_may_change(x):
    one, ids = ahead_of(Watched(x), 6, np.arange(N)), np.arange(34, 40)  # kept at first
    one.prefetch_hint([ids])
    one.prefetch_hint([])
    ids[:] = np.arange(6)
    np.testing.assert_array_equal(one.gather(ids), x[:6])


def test_places_that_are_not_distinct_spoil_no_row_that_is_kept(x):
    one = ahead_of(FeatureStore(x), 6, np.arange(N))
    one.prefetch_hint([np.arange(6), np.arange(6)])
    one.gather(np.arange(6), np.zeros_like(x), np.zeros(6, int))
    np.testing.assert_array_equal(one.gather(np.arange(6)), x[:6])


def test_without_announcements_it_is_static_and_says_so_once(x):
    one = CachedFeatures(FeatureStore(x), 5 * x[0].nbytes + 21, np.arange(N)[::-1], replacement="lookahead")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for calls in range(1, 100):
            one.gather(np.arange(10))
            assert len(said) == (calls >= 32)
    assert "knows no next batches" in str(said[0].message)
    assert one.counts.hits == 99 * 5


def test_all_rows_or_none_need_no_lookahead(x):
    store = FeatureStore(x)
    for budget in (0, x.nbytes):
        one = CachedFeatures(store, budget, np.ones(N), replacement="lookahead")
        assert not one.looks_ahead
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(one.gather([3]), x[[3]])


def test_the_budget_counts_what_decides(x):
    source, of_map = FeatureStore(x), 16
    row = x[0].nbytes + 1
    for rows in (2, 7, 30):
        budget = of_map + rows * row + row - 1
        one = CachedFeatures(source, budget, np.ones(N), replacement="lookahead")
        assert one.cached_rows == rows
        assert one.nbytes <= of_map + rows * row
        one._rows._rows = LookaheadRows.in_place_of(one._rows._rows, one._rows._order, rows_ahead(N, rows, row - 1))
        assert 0 < one.cached_rows < rows
        assert one.nbytes <= budget
    with pytest.raises(InputError, match="budget"):
        CachedFeatures(source, of_map + row - 1, np.ones(N), replacement="lookahead")


def test_rows_that_are_short_beside_the_map_stay(x):
    for rows in (x[:, :49], x):  # of no use is a map without a row, either
        one = CachedFeatures(FeatureStore(rows), 20 + rows[0].nbytes, np.ones(N), replacement="lookahead")
        assert one.cached_rows == 1
        assert not one.looks_ahead


def batches_told(one, batches, bulk):
    """As a loader announces them."""
    one.prefetch_hint(batches[:bulk])
    for number, ids in enumerate(batches):
        if number % bulk == 0:
            one.prefetch_hint(batches[number + bulk : number + 2 * bulk])
        one.gather(ids)
    return one


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    dim=st.sampled_from([1, 24, 25, 64, 100, 512]),
    share=st.sampled_from([0.01, 0.03, 0.05, 0.1, 0.2, 0.5, 0.9]),
    skew=st.sampled_from([0.0, 0.5, 1.0, 1.5]),
    size=st.sampled_from([30, 150, 500]),
    bulk=st.sampled_from([1, 4, 16]),
    scored=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_hits_are_never_below_those_of_rows_that_stay_by_more_than_a_point(dim, share, skew, size, bulk, scored, seed):
    """Batches are drawn by any popularity, and scores are these or have nothing to do with it."""
    rng, n = np.random.default_rng(seed), 2000
    popularity = rng.permutation((1.0 + np.arange(n)) ** -skew)
    batches = [rng.choice(n, size, replace=False, p=popularity / popularity.sum()) for _ in range(64)]
    source, hits = FeatureStore(np.zeros((n, dim), np.float32)), []
    scores = popularity if scored else rng.random(n)
    for way in ("static", "lookahead"):
        budget = int(share * n) * (4 * dim + 1) + 1000
        one = CachedFeatures(source, budget, scores, replacement=way)
        hits.append(batches_told(one, batches, bulk).counts.hit_share)
        assert one.nbytes <= budget
    assert hits[1] >= hits[0] - 0.01


def test_it_looks_ahead_where_that_pays_and_only_there():
    x = np.random.default_rng(0).random((400, 128), np.float32)
    turns = [np.arange(first, first + 40) for first in range(0, 400, 40)]
    near = [turns[number // 4 % 10] for number in range(128)]  # four batches in a row need the same rows
    same = [turns[0]] * 128
    for batches, pays in ((near, True), (same, False)):
        one = CachedFeatures(FeatureStore(x), 80 * 512, np.arange(400)[::-1], replacement="lookahead")
        batches_told(one, batches, 8)
        assert one.looks_ahead is pays
        assert (one.cached_rows < 79) is pays
        np.testing.assert_array_equal(one.gather(np.arange(400)), x)
        np.testing.assert_array_equal(one.cached_vertices, one._rows.kept()[0])
        np.testing.assert_array_equal(one._rows.kept()[1], x[one.cached_vertices])


def test_arrays_that_were_announced_before_the_choice_may_change():
    x = np.random.default_rng(0).random((400, 128), np.float32)
    batches = [np.arange(first, first + 40, dtype=np.int32) for first in range(0, 400, 40) for _ in range(4)]
    hits = []
    for changes in (False, True):
        one = CachedFeatures(FeatureStore(x), 80 * 512, np.arange(400)[::-1], replacement="lookahead")
        for first, end in ((0, 1), (1, 2), (2, 3), (3, 40)):  # it looks ahead from the fourth on
            told = [ids.copy() for ids in batches[first:end]]
            one.prefetch_hint(told)
            for ids in told:
                ids[:] = 0 if changes else ids
        assert one.looks_ahead
        for ids in batches:
            one.gather(ids)
        hits.append(one.counts.hits)
    assert hits[0] == hits[1] > 1000


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("moves", [False, True])
def test_in_a_process_that_was_forked_while_rows_moved(x, moves):
    one = CachedFeatures(FeatureStore(x), 10 * x[0].nbytes + 26, np.arange(N), replacement="lookahead")

    def child():
        np.testing.assert_array_equal(one.gather(np.arange(N)), x)
        assert one.counts.hits == (0 if moves else 10)

    process = multiprocessing.get_context("fork").Process(target=child)
    with one._rows._changing:
        one._rows._moves = moves
        process.start()
    process.join(60)
    assert process.exitcode == 0


@pytest.mark.parametrize("pays", [False, True])
def test_pickled_before_and_after_it_was_chosen(x, pays):
    one = CachedFeatures(FeatureStore(x), 10 * x[0].nbytes + 26, np.arange(N), replacement="lookahead")
    assert pickle.loads(pickle.dumps(one)).looks_ahead
    near = [np.arange(8) + number // 4 % 4 * 8 for number in range(64)]
    batches_told(one, near, 16 if pays else 1)
    again = pickle.loads(pickle.dumps(one))
    assert again.looks_ahead is one.looks_ahead
    assert again.cached_rows == one.cached_rows
    np.testing.assert_array_equal(again.gather(np.arange(N)), x)


@pytest.mark.parametrize("way", ["ahead", 1, None])
def test_other_ways_of_replacement_are_refused(x, way):
    with pytest.raises((InputError, DTypeError), match="replacement"):
        CachedFeatures(FeatureStore(x), 0, np.ones(N), replacement=way)


def test_bad_announcements_are_refused(x):
    one = ahead_of(FeatureStore(x), 5, np.ones(N))
    for batches in ([[N]], [[-1]], [[0.5]], [[[0]]]):
        with pytest.raises((InputError, DTypeError), match="batches"):
            one.prefetch_hint(batches)


@pytest.mark.parametrize("way", ["static", "lookahead"])
def test_a_source_that_looks_ahead_is_told_what_misses(x, way):
    rng = np.random.default_rng(3)
    source = Watched(x)
    one = CachedFeatures(source, budget_of(source, 6), rng.random(N), replacement=way)
    assert one.looks_ahead
    source.surprises = 0
    batches = [rng.choice(N, 15, replace=False) for _ in range(12)]
    one.prefetch_hint(batches[:4])
    for begin in (0, 4, 8):
        one.prefetch_hint(batches[begin + 4 : begin + 8])  # in the end nothing: no more is known
        for ids in batches[begin : begin + 4]:
            np.testing.assert_array_equal(one.gather(ids), x[ids])
    assert source.surprises == 0
    assert source.known == []


def test_decisions_made_ahead_are_those_made_in_time(x):
    rng = np.random.default_rng(4)
    scores = rng.random(N)
    batches = [rng.choice(N, 15, replace=False) for _ in range(12)]
    counts = []
    for source in (FeatureStore(x), Watched(x)):
        one = ahead_of(source, 6, scores)
        one.prefetch_hint(batches[:4])
        for begin in (0, 4, 8):
            one.prefetch_hint(batches[begin + 4 : begin + 8])
            for ids in batches[begin : begin + 4]:
                one.gather(ids)
        counts.append(one.counts)
    assert counts[0] == counts[1]


def test_rows_that_were_decided_on_and_never_came_are_not_given(x):
    source = Watched(x)
    one = ahead_of(source, 6, np.arange(N))
    one.prefetch_hint([np.arange(6), np.arange(6)])
    one.prefetch_hint([])  # fixes both: rows 0 to 5 are to be kept
    np.testing.assert_array_equal(one.gather(np.arange(N)), x)
    one.prefetch_hint(None)
    assert source.known == []
    np.testing.assert_array_equal(one.gather(np.arange(N)), x)
    one.prefetch_hint([np.arange(10)])
    np.testing.assert_array_equal(one.gather(np.arange(10)), x[:10])
    np.testing.assert_array_equal(one.gather(np.arange(N)), x)


def test_a_call_that_failed_leaves_no_wrong_row(x):
    class Failing(Watched):
        fails = False

        def _read(self, ids, out, at=None):
            if self.fails:
                raise OSError
            super()._read(ids, out, at)

    source = Failing(x)
    one = ahead_of(source, 6, np.arange(N))
    one.prefetch_hint([np.arange(6), np.arange(6), np.arange(8)])
    source.fails = True
    with pytest.raises(OSError):
        one.gather(np.arange(6))
    source.fails = False
    for ids in (np.arange(6), np.arange(8), np.arange(N)):
        np.testing.assert_array_equal(one.gather(ids), x[ids])
    one.prefetch_hint(None)
    np.testing.assert_array_equal(one.gather(np.arange(N)), x)


def test_a_later_call_may_be_faster(x):
    """Two announced calls at a time: the slow one must not put back a row that the fast one replaced."""
    entered, go_on = threading.Event(), threading.Event()

    class Slow(FeatureStore):
        def _read(self, ids, out, at=None):
            if threading.current_thread().name.startswith("slow"):
                entered.set()
                assert go_on.wait(10)
            super()._read(ids, out, at)

    one = ahead_of(Slow(x), 2, np.arange(N))
    one.prefetch_hint([[0, 1], [2, 3], [2, 3], [0, 1, 2, 3], [0, 1, 2, 3]])
    with ThreadPoolExecutor(1, thread_name_prefix="slow") as pool:
        slow = pool.submit(one.gather, [0, 1])
        assert entered.wait(10)
        np.testing.assert_array_equal(one.gather([2, 3]), x[[2, 3]])
        np.testing.assert_array_equal(one.gather(np.arange(N)), x)
        go_on.set()
        np.testing.assert_array_equal(slow.result(), x[[0, 1]])
    assert one.cached_vertices.tolist() == [2, 3]  # no place waits for a row that will not come
    np.testing.assert_array_equal(one.gather([2, 3]), x[[2, 3]])
    for _ in range(2):
        np.testing.assert_array_equal(one.gather([0, 1, 2, 3]), x[:4])
    np.testing.assert_array_equal(one.gather(np.arange(N)), x)


def test_many_threads_get_the_rows_of_the_source(x):
    rng = np.random.default_rng(5)
    one = ahead_of(FeatureStore(x), 10, rng.random(N))
    batches = [rng.choice(N, 20, replace=False) for _ in range(200)]
    one.prefetch_hint(batches[:120])

    def check(ids):
        return np.array_equal(one.gather(ids), x[ids])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(check, batches[:100]))
        one.prefetch_hint(None)
        assert all(pool.map(check, batches))
    np.testing.assert_array_equal(one.gather(np.arange(N)), x)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("held", [False, True])
def test_in_a_process_that_was_forked_while_threads_gathered(x, held):
    one = ahead_of(FeatureStore(x), 6, np.arange(N))
    one.prefetch_hint([np.arange(10)])

    def child():
        for ids in (np.arange(N), np.arange(10), np.arange(N)):
            np.testing.assert_array_equal(one.gather(ids), x[ids])
            one.prefetch_hint([np.arange(10)])
        assert one.counts.hits == (6 if held else 12)

    process = multiprocessing.get_context("fork").Process(target=child)
    with one._rows._changing if held else nullcontext():
        process.start()
    process.join(60)
    assert process.exitcode == 0


def test_pickled_as_a_recipe(x):
    one = ahead_of(FeatureStore(x), 6, np.arange(N))
    one.prefetch_hint([np.arange(10), np.arange(4), np.arange(4)])
    one.gather(np.arange(10))
    again = pickle.loads(pickle.dumps(one))
    assert again.looks_ahead
    assert again.cached_rows == 6
    for ids in (np.arange(4), np.arange(N)):
        again.reset_counts()
        np.testing.assert_array_equal(again.gather(ids), x[ids])
    assert again.counts.hits == 6
    again.prefetch_hint([[39], [39]])
    again.gather([39])
    again.reset_counts()
    again.gather([39])
    assert again.counts.hits == 1


def test_pickled_while_rows_are_on_their_way(x):
    one = ahead_of(Watched(x), 6, np.arange(N))
    one.prefetch_hint([np.arange(6), np.arange(6)])
    one.prefetch_hint([])
    assert len(one.cached_vertices) == 0
    again = pickle.loads(pickle.dumps(one))
    assert again.cached_vertices.tolist() == list(range(N - 6, N))
    np.testing.assert_array_equal(again.gather(np.arange(N)), x)


def test_a_recipe_of_rows_that_changed_is_refused(x):
    class Changing(FeatureStore):
        def __reduce__(self):
            return FeatureStore, (x + 1,)

    with pytest.raises(DataError, match="source"):
        pickle.loads(pickle.dumps(ahead_of(Changing(x), 6, np.arange(N))))
