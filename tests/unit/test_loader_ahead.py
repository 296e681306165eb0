"""Loaders that announce what comes, and fetch by the bulk: the batches of those that do not, whatever is left early."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import spsample as sp
from spsample.data import planted
from spsample.errors import CapacityError, DTypeError, InputError
from spsample.features import CachedFeatures, FeatureStore
from spsample.planning.budget import FeaturesAhead

DATA = planted(500, random_seed=3)
X = np.tile(DATA.x, (1, 64))
SEEDS = np.arange(260)


class Told(FeatureStore):
    """A source that is told what comes; knows how far, and what came untold."""

    def __init__(self, x):
        super().__init__(x)
        self.known, self.ahead, self.untold, self.calls = [], [], 0, 0

    looks_ahead = True

    def _hint(self, batches):
        self.known = [] if batches is None else [*self.known, *batches]

    def _read(self, ids, out, at=None):
        self.calls += 1
        if self.known and np.array_equal(self.known[0], ids):
            self.known.pop(0)
        else:
            self.untold += 1
        self.ahead.append(len(self.known))
        super()._read(ids, out, at)


def loader_of(features, **options):
    options = {"batch_size": 16, "bulk_size": 4, "labels": DATA.y, "random_seed": 5, **options}
    return sp.BulkLoader(DATA.graph, SEEDS, options.pop("sampler", sp.GraphSAGE([3, 2])), features=features, **options)


def rows_of(batches):
    return [(batch.batch_id, batch.src_nodes.tolist(), batch.x.tobytes(), batch.x.dtype) for batch in batches]


def cached(source, rows, replacement, seed=0):
    score = np.random.default_rng(seed).random(500)
    return CachedFeatures(source, 128 + rows * (source.dim * 4 + 1), score, replacement=replacement)


SOURCES = {
    "plain": lambda: FeatureStore(X),
    "float16": lambda: FeatureStore(X.astype(np.float16).astype(np.float32).astype(np.float16)),
    "sparse": lambda: FeatureStore(sparse.csr_matrix(X * (X > 0))),
    "static": lambda: cached(FeatureStore(X), 60, "static"),
    "lookahead": lambda: cached(FeatureStore(X), 60, "lookahead"),
    "static before lookahead": lambda: cached(cached(FeatureStore(X), 90, "lookahead"), 40, "static", 1),
    "lookahead before lookahead": lambda: cached(cached(FeatureStore(X), 90, "lookahead"), 40, "lookahead", 1),
    "told": lambda: Told(X),
}


@pytest.mark.parametrize("name", SOURCES)
@settings(deadline=None, max_examples=12)
@given(
    fetch=st.sampled_from(["batch", "bulk"]),
    prefetch=st.integers(0, 2),
    bulk_size=st.integers(1, 20),
    stops=st.lists(st.integers(0, 17), max_size=3),
    sampler=st.sampled_from([sp.GraphSAGE([3, 2]), sp.LADIES([20, 20]), sp.GraphSAGE([3, 2], layout="subgraph")]),
)
def test_batches_do_not_change_by_a_bit(name, fetch, prefetch, bulk_size, stops, sampler):
    """Passes that are left, then gone on with from a state, then a whole epoch."""
    plain = FeatureStore(SOURCES[name]().gather(np.arange(500)))
    expected = loader_of(plain, sampler=sampler, prefetch=0)
    loader = loader_of(SOURCES[name](), sampler=sampler, prefetch=prefetch, bulk_size=bulk_size, fetch=fetch)
    wanted = [rows_of(expected) for _ in range(3)]
    for stop in stops:
        loader.set_epoch(0)
        taken = rows_of(batch for _, batch in zip(range(stop), loader, strict=False))
        assert taken == wanted[0][:stop]
        again = loader_of(SOURCES[name](), sampler=sampler, prefetch=prefetch, bulk_size=bulk_size, fetch=fetch)
        again.load_state_dict(loader.state_dict())
        assert rows_of(again) == wanted[0][stop:]
    loader.set_epoch(0)
    assert [rows_of(loader) for _ in range(3)] == wanted


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("fetch", ["batch", "bulk"])
def test_a_source_is_told_of_every_call_a_bulk_ahead(prefetch, fetch):
    source = Told(X)
    loader = loader_of(source, prefetch=prefetch, fetch=fetch)
    bulks = len(list(loader._assignment.bulk_ranges(0, 17, 4, 1 if prefetch == 0 else 8)))
    known, calls = [], []
    for _ in range(3):
        before = source.calls
        list(loader)
        known.append(len(source.known))
        calls.append(source.calls - before)
    assert source.untold == 0
    assert known == [0, 0, 0]
    assert calls == [17 if fetch == "batch" else bulks] * 3
    if prefetch == 0 and fetch == "batch":
        assert source.ahead[:4] == [7, 6, 5, 4]
        assert min(source.ahead[:12]) == 4  # the next bulk, always
        assert source.ahead[12:17] == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("prefetch", [0, 1])
def test_a_pass_that_is_left_leaves_nothing_known(prefetch):
    source = Told(X)
    loader = loader_of(source, prefetch=prefetch)
    for stop in (1, 5, 16):
        for step, _ in enumerate(loader):
            if step == stop:
                break
        assert source.known == []
    state = loader.state_dict()
    loader.load_state_dict(state)
    list(loader)
    assert source.untold == 0
    assert source.known == []


def test_a_loader_that_is_closed_in_a_pass_leaves_nothing_known():
    source = Told(X)
    loader = loader_of(source, prefetch=0)
    batches = iter(loader)
    next(batches)
    assert source.known
    loader.close()
    assert source.known == []


@pytest.mark.parametrize("prefetch", [0, 1])
def test_loaders_that_take_turns_do_not_spoil_what_each_other_knows(prefetch):
    """Training and validation over the same cache, epoch after epoch."""
    source = Told(X)
    loaders = [loader_of(source, prefetch=prefetch, random_seed=seed) for seed in (1, 2)]
    for _ in range(4):
        for loader in loaders:
            list(loader)
    assert source.untold == 0
    assert source.known == []


def test_decisions_do_not_depend_on_threads():
    counts = []
    for prefetch in (1, 1, 2):
        source = cached(FeatureStore(X), 60, "lookahead")
        loader = loader_of(source, prefetch=prefetch)
        for _ in range(3):
            list(loader)
        counts.append(source.counts)
    assert counts[0] == counts[1] == counts[2]


def test_lookahead_hits_more_than_static():
    hits = {}
    for way in ("static", "lookahead"):
        source = cached(FeatureStore(X), 60, way)
        loader = loader_of(source)
        for _ in range(4):
            list(loader)
        hits[way] = source.counts.hits
    assert hits["lookahead"] > hits["static"]


def test_each_row_is_fetched_once_a_bulk():
    asked = []

    class Counted(FeatureStore):
        def _read(self, ids, out, at=None):
            asked.append(np.array(ids))
            super()._read(ids, out, at)

    source = Counted(X)
    loader = loader_of(source, fetch="bulk", prefetch=0)
    unions = [np.unique(np.concatenate([batch.src_nodes for batch in bulk])) for bulk in loader.bulks(0)]
    list(loader)
    assert len(asked) == len(unions) == 5
    for ids, union in zip(asked, unions, strict=True):
        np.testing.assert_array_equal(ids, union)


def test_without_features_there_is_nothing_to_fetch():
    assert all(batch.x is None for batch in loader_of(None, fetch="bulk"))


@pytest.mark.parametrize("fetch", ["epoch", 1, None])
def test_other_ways_to_fetch_are_refused(fetch):
    with pytest.raises((InputError, DTypeError), match="fetch"):
        loader_of(FeatureStore(X), fetch=fetch)


def test_memory_of_both_is_planned():
    plans = {
        (name, fetch): loader_of(SOURCES[name](), fetch=fetch, memory_budget="1GiB").plan
        for name in ("plain", "lookahead")
        for fetch in ("batch", "bulk")
    }
    assert [plan.known_bytes(4) > 0 for plan in plans.values()] == [False, False, True, True]
    assert [plan.fetched_bytes(4) > 0 for plan in plans.values()] == [False, True, False, True]
    plain, bulk = plans["plain", "batch"], plans["plain", "bulk"]
    assert bulk.peak(4) == plain.peak(4) + bulk.fetched_bytes(4)
    assert bulk.fetched_bytes(100) == 500 * (X.shape[1] * 4 + 8)  # no row twice
    ahead = plans["lookahead", "batch"]
    assert ahead.held == plain.held + 1
    assert ahead.peak(4) >= plain.peak(4) + ahead.known_bytes(4)
    least = plain.peak(4)
    assert loader_of(FeatureStore(X), memory_budget=least).plan.fits(4)
    for features, fetch in ((FeatureStore(X), "bulk"), (SOURCES["lookahead"](), "batch")):
        with pytest.raises(CapacityError):
            loader_of(features, memory_budget=least, fetch=fetch)


def test_what_is_known_takes_what_is_planned():
    ahead = FeaturesAhead(known_bulks=1, use_bytes=16, row_bytes=0, num_vertices=10)
    assert ahead.fetched_bytes(100) == 0
    assert ahead.nbytes(100) == 3200
