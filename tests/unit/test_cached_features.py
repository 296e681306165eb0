"""Cached features are those of their source to the bit, within their budget, and count what they do."""

from __future__ import annotations

import copy
import os
import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import spsample as sp
from spsample.data import planted, save_dataset
from spsample.errors import CapacityError, DataError, DTypeError, InputError
from spsample.features import (
    CacheCounts,
    CachedFeatures,
    FeatureSource,
    FeatureStore,
    gathering,
    score,
    score_names,
)
from spsample.features import keeper as budgets
from spsample.features.gathering import SlotMap, find_slots, slot_map_bytes, slot_words
from spsample.features.scores import registry
from spsample.planning import bulk_plan
from spsample.store import StoreWriter

DTYPES = ("float32", "float16", "float64", "int8", "bool", ">f4")
N, DIM = 70, 5


def features(dtype="float32", n=N, dim=DIM, seed=0):
    return (np.random.default_rng(seed).standard_normal((n, dim)) * 20).astype(dtype)


def budget_of(store, rows):
    """Bytes for exactly so many rows, and the map."""
    if rows in (0, store.num_rows):
        return rows * store.dim * store.stored_dtype.itemsize
    return rows * store.dim * store.stored_dtype.itemsize + slot_map_bytes(store.num_rows)


class Plain(FeatureSource):
    """A source of a user's own: what the base asks for, and no more."""

    num_rows, dim = N, DIM

    def __init__(self, x):
        self.store = FeatureStore(x)

    def _read(self, ids, out, at=None):
        self.store.gather(ids, out, at)


def source_of(kind, x, folder):
    if kind == "sparse":
        x = x.astype(np.float32) if x.dtype == np.float16 else x  # which SciPy has not
        return FeatureStore(sparse.csr_array(x * (np.arange(x.size).reshape(x.shape) % 3 == 0)))
    if kind == "transposed":
        return FeatureStore(np.asfortranarray(x))
    if kind == "map":
        np.save(folder / "x.npy", x)
        return FeatureStore(np.load(folder / "x.npy", mmap_mode="r"))
    return FeatureStore(x) if kind == "dense" else Plain(x)


@settings(deadline=None, max_examples=150)
@given(
    kind=st.sampled_from(["dense", "sparse", "transposed", "map", "plain"]),
    dtype=st.sampled_from(DTYPES[:-1]),
    shares=st.lists(st.sampled_from([0, 1, 3, N // 2, N - 9, N]), min_size=1, max_size=3),
    count=st.integers(0, 90),
    more=st.integers(0, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_equal_to_the_source_to_the_bit(tmp_path_factory, kind, dtype, shares, count, more, seed):
    """Any source, any nesting, repeats, nothing, new memory and given memory."""
    rng = np.random.default_rng(seed)
    source = source_of(kind, features(dtype, seed=seed), tmp_path_factory.mktemp("rows"))
    nested = source
    for rows in shares:
        stored = nested.stored_dtype
        size = rows * DIM * stored.itemsize + (slot_map_bytes(N) if 0 < rows < N else 0)
        nested = CachedFeatures(nested, size, rng.integers(0, 4, N))
        assert nested.cached_rows == rows
        assert nested.nbytes == size
    ids, at = rng.integers(0, N, count), rng.permutation(count + more)[:count]
    assert isinstance(nested, FeatureSource)
    np.testing.assert_array_equal(nested.gather(ids), source.gather(ids), strict=True)
    np.testing.assert_array_equal(nested.gather(ids.astype(np.int32).tolist()), source.gather(ids), strict=True)
    for out_dtype in {"float32", nested.stored_dtype.name}:
        mine, its = (np.full((count + more, DIM), 7, out_dtype) for _ in range(2))
        assert nested.gather(ids, mine, at) is mine
        np.testing.assert_array_equal(mine, source.gather(ids, its, at))
        assert nested.gather(ids, mine[:count]) is not None
        np.testing.assert_array_equal(mine[:count], source.gather(ids, its[:count]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_kept_as_they_are_stored(dtype):
    store = FeatureStore(features(dtype))
    half = CachedFeatures(store, budget_of(store, 30), np.arange(N))
    assert half.stored_dtype == dtype
    assert half.nbytes == 30 * DIM * np.dtype(dtype).itemsize + slot_map_bytes(N)
    out = np.zeros((N, DIM), dtype)
    np.testing.assert_array_equal(half.gather(np.arange(N), out), features(dtype))
    np.testing.assert_array_equal(half.gather(np.arange(N)), store.gather(np.arange(N)))


def test_infinity_minus_zero_and_numbers_that_are_none():
    x = features()
    x[::3, 0], x[::4, 1], x[::5, 2] = np.nan, -0.0, -np.inf
    rows = CachedFeatures(FeatureStore(x), "1KiB", np.arange(N)).gather(np.arange(N))
    np.testing.assert_array_equal(rows.view(np.uint32), x.view(np.uint32))


def test_a_class_that_reads_in_its_own_way_is_asked(tmp_path):
    class Doubled(FeatureStore):
        def _read(self, ids, out, at=None):
            rows = np.empty((len(ids), self.dim), np.float32)
            super()._read(ids, rows)
            out[slice(None) if at is None else at] = 2 * rows

    source = Doubled(features())
    assert (source.rows_in_memory, FeatureStore(features()).rows_in_memory is None) == (None, False)
    half = CachedFeatures(source, budget_of(source, 30), np.arange(N))
    np.testing.assert_array_equal(half.gather(np.arange(N)), 2 * features())
    save_dataset(planted(60, 3, 2), tmp_path / "planted")
    assert FeatureStore.open(tmp_path / "planted").rows_in_memory is None


@pytest.mark.sanitize
@settings(deadline=None, max_examples=80)
@given(n=st.integers(1, 200), share=st.floats(0, 1), count=st.integers(0, 300), seed=st.integers(0, 2**32 - 1))
def test_slots(n, share, count, seed):
    """The core's and NumPy's are those of a plain table."""
    rng = np.random.default_rng(seed)
    kept = np.flatnonzero(rng.random(n) < share)
    table = np.full(n, -1)
    table[kept] = np.arange(len(kept))
    slots, ids = SlotMap(kept, n), rng.integers(0, n, count)
    for split in (slots.find(ids), slots.find(ids.astype(np.int32)), find_slots(slot_words(kept, n), ids)):
        np.testing.assert_array_equal(split.hits, np.flatnonzero(table[ids] >= 0))
        np.testing.assert_array_equal(split.slots, table[ids][split.hits])
        np.testing.assert_array_equal(split.misses, np.flatnonzero(table[ids] < 0))
    np.testing.assert_array_equal(slots.vertices(), kept)
    assert slots.nbytes == (slot_map_bytes(n) if 0 < len(kept) < n else 0)


@pytest.mark.sanitize
def test_slots_of_many_ids():
    """More than a thread takes at a time."""
    rng = np.random.default_rng(0)
    kept = np.flatnonzero(rng.random(100_000) < 0.3)
    slots, ids = SlotMap(kept, 100_000), rng.integers(0, 100_000, 70_001)
    for mine, its in zip(slots.find(ids), find_slots(slots.words, ids), strict=True):
        np.testing.assert_array_equal(mine, its)


@pytest.mark.sanitize
@pytest.mark.parametrize("ids", [[64], [-1], [2**40]])
def test_the_core_reads_no_word_that_is_not_there(ids):
    core = pytest.importorskip("spsample._core", reason="the compiled core is not built")
    with pytest.raises(IndexError, match="ids: outside the vertices"):
        core.find_places(np.zeros(2, np.uint64), 64, np.array(ids, np.int64))


def test_without_the_compiled_core(monkeypatch):
    monkeypatch.setattr(gathering, "compiled_core", lambda: None)
    one = CachedFeatures(FeatureStore(features("float16")), "256B", np.arange(N))
    np.testing.assert_array_equal(one.gather(np.arange(N)), features("float16").astype(np.float32), strict=True)
    assert one.counts.hits == 23


@pytest.mark.parametrize("kept", [0, 1, 20, N])
def test_counts(kept):
    store = FeatureStore(features("float16"))
    one = CachedFeatures(store, budget_of(store, kept), -np.arange(N) + N)  # the first vertices
    ids = np.array([0, 0, 5, N - 1])
    for _ in range(2):
        one.gather(ids)
    hits = 2 * int((ids < kept).sum())
    assert one.counts[:4] == (hits, 8 - hits, hits * 2 * DIM, (8 - hits) * 2 * DIM)
    assert one.counts.hit_share == hits / 8
    assert f"{hits / 8:.1%} of 8 hit" in repr(one)
    one.reset_counts()
    assert one.counts == CacheCounts()
    assert one.counts.hit_share == 0
    assert f"{kept} of {N} rows" in repr(one)
    assert "hit" not in repr(one)


def test_what_is_refused_is_not_counted():
    one = CachedFeatures(FeatureStore(features()), 100, np.ones(N))
    with pytest.raises(InputError):
        one.gather([0, N])
    assert one.counts.misses == one.counts.hits == 0


def test_the_vertices_of_the_largest_scores_are_kept():
    scores = np.zeros(N)
    scores[[3, 60, 17]] = 5, 1, 2
    store = FeatureStore(features())
    one = CachedFeatures(store, budget_of(store, 3), scores)
    one.gather([3, 17, 60])
    assert one.counts[:2] == (3, 0)
    one.gather(np.arange(N))
    assert one.counts[:2] == (6, N - 3)


def test_levels_of_caches():
    """What the outer one lacks is looked for in the inner one."""
    store = FeatureStore(features())
    inner = CachedFeatures(store, budget_of(store, 40), np.arange(N))
    outer = CachedFeatures(inner, budget_of(store, 10), np.arange(N))
    inner.reset_counts()
    outer.gather(np.arange(N))
    assert (outer.counts[:2], inner.counts[:2]) == ((10, 60), (30, 30))
    assert outer.fingerprint() == store.fingerprint()


@pytest.mark.parametrize(("text", "rows"), [("1KiB", 50), (1024, 50), ("1MiB", N), (0, 0), (N * DIM * 4, N)])
def test_budgets(text, rows):
    one = CachedFeatures(FeatureStore(features()), text, np.ones(N))
    assert one.cached_rows == rows
    assert one.nbytes <= (text if isinstance(text, int) else 2**20)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((1, np.ones(N)), InputError, "budget: got 1 B; expected 0, or at least one row of 20 bytes and 24 bytes"),
        ((43, np.ones(N)), InputError, "budget: got 43 B"),
        ((-1, np.ones(N)), InputError, "budget: got -1"),
        ((True, np.ones(N)), DTypeError, "budget: got True"),
        ((1.5, np.ones(N)), DTypeError, "budget: got 1.5"),
        (
            ("auto", np.ones(N)),
            InputError,
            "graph: got nothing; expected graph, seeds, sampler and batch_size: the budget",
        ),
        (("automatic", np.ones(N)), InputError, "budget: got 'automatic'"),
        ((100, np.ones(N - 1)), InputError, "score: got length 69; expected length 70, one per vertex"),
        ((100, np.ones((N, 1))), InputError, "score: got shape (70, 1)"),
        ((100, np.full(N, np.nan)), InputError, "score: got nan at position 0"),
        ((100, -np.arange(N)), InputError, "score: got -1.0 at position 1"),
        ((100, np.ones(N, complex)), DTypeError, "score: got dtype complex128"),
        ((100, None), DTypeError, "score: got None"),
        ((100, "degree"), InputError, "score: got 'degree'; expected one of 'posterior'"),
        ((100,), InputError, "graph: got nothing; expected graph, seeds, sampler and batch_size: the score"),
    ],
)
def test_arguments_that_are_refused(arguments, error, words):
    with pytest.raises(error) as caught:
        CachedFeatures(FeatureStore(features()), *arguments)
    assert words in str(caught.value)


def workload(**changes):
    """What scores of a name are computed from."""
    given = {"graph": GRAPH, "seeds": np.arange(0, N, 2), "sampler": sp.GraphSAGE([3, 2]), "batch_size": 8, **changes}
    return {name: value for name, value in given.items() if value is not None}


GRAPH = sp.Graph.from_edge_index(np.random.default_rng(5).integers(0, N, (2, 400)), num_nodes=N)
OPTIONS = {"replay": {"epochs": [0]}, "posterior": {"epochs": 2, "random_seed": 3}}


@pytest.mark.parametrize("name", score_names())
def test_scores_of_a_name(name):
    options = OPTIONS.get(name, {})
    store = FeatureStore(features())
    mine = CachedFeatures(store, budget_of(store, 20), name, **workload(), **options)
    its = CachedFeatures(store, budget_of(store, 20), score(name, **workload(), **options))
    for one in (mine, its):
        one.reset_counts()
    ids = np.random.default_rng(0).integers(0, N, 200)
    np.testing.assert_array_equal(mine.gather(ids), its.gather(ids))
    assert mine.counts == its.counts
    assert mine.cached_rows == 20


def test_the_posterior_is_taken_where_no_score_is_said():
    store = FeatureStore(features())
    mine = CachedFeatures(store, budget_of(store, 9), **workload())
    hottest = np.argsort(-score("posterior", **workload()), kind="stable")[:9]
    mine.gather(hottest)
    assert mine.counts[:2] == (9, 0)


def test_what_a_loader_has_is_a_workload():
    loader = sp.BulkLoader(**workload())
    given = {name: getattr(loader, name) for name in ("graph", "seeds", "sampler", "batch_size")}
    assert CachedFeatures(FeatureStore(features()), "500B", "out-degree", **given).cached_rows > 0


@pytest.mark.parametrize("rows", [0, N])
def test_nothing_is_scored_where_no_rows_or_all_are_kept(rows, monkeypatch):
    monkeypatch.setattr(registry, "score", None)
    store = FeatureStore(features())
    assert CachedFeatures(store, budget_of(store, rows), **workload()).cached_rows == rows


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"graph": None}, InputError, "graph: got nothing"),
        ({"seeds": None}, InputError, "seeds: got nothing"),
        ({"sampler": None}, InputError, "sampler: got nothing"),
        ({"batch_size": None}, InputError, "batch_size: got nothing"),
        ({"graph": 3}, DTypeError, "graph: got an object of type int"),
        ({"graph": sp.Graph([0, 0], [])}, InputError, "graph: got one of 1 vertices; expected one of the 70 vertices"),
        ({"seeds": [N]}, InputError, "seeds: got 70"),
        ({"batch_size": 0}, InputError, "batch_size: got 0"),
        ({"epochs": 0}, InputError, "epochs: got 0"),
        ({"epoch": 1}, InputError, "epoch: got a value; expected an option of the score 'posterior'"),
    ],
)
def test_workloads_that_are_refused(changes, error, words):
    with pytest.raises(error) as caught:
        CachedFeatures(FeatureStore(features()), 100, **workload(**changes))
    assert words in str(caught.value)


@pytest.mark.parametrize(("free", "rows"), [(1 << 40, N), (1 << 10, 0), (None, 40)])
def test_the_budget_that_a_loader_leaves(free, rows, monkeypatch):
    """Available memory less an eighth, and what a loader of these batches plans with."""
    store = FeatureStore(features())
    loader = sp.BulkLoader(**workload(), features=store, memory_budget="1GiB")
    assert loader.plan is not None
    needed = loader.plan.peak(loader.num_batches)
    at_hand = free or -(-8 * (needed + budget_of(store, 40)) // 7)
    monkeypatch.setattr(budgets, "available_memory", lambda: at_hand)
    for scores in ((), (np.arange(N),)):
        assert CachedFeatures(store, "auto", *scores, **workload()).cached_rows == rows


LARGE = sp.load_dataset("rmat:14,8").graph


@pytest.mark.parametrize("bulk_size", [None, "auto"])
@pytest.mark.parametrize(
    ("sampler", "batch_size", "replacement", "dim", "factor"),
    [
        (sp.GraphSAGE([5, 5]), 256, "static", 300, 1.6),
        (sp.GraphSAGE([8, 4], layout="subgraph"), 64, "lookahead", 300, 1.6),
        (sp.LADIES([256, 256]), 128, "static", 600, 1.6),
        (sp.FastGCN([100]), 1024, "lookahead", 300, 1.4),
        (sp.GraphSAGE([5, 5]), 128, "static", 300, 1.1),
    ],
)
def test_an_automatic_cache_leaves_room_for_its_loader(
    sampler, batch_size, replacement, dim, factor, bulk_size, monkeypatch
):
    """Where a loader has room without the cache, it has beside the cache, too."""
    batches = {"graph": LARGE, "seeds": np.arange(LARGE.num_nodes), "sampler": sampler, "batch_size": batch_size}
    options = {} if bulk_size is None else {"bulk_size": bulk_size}
    store = FeatureStore(np.zeros((LARGE.num_nodes, dim), np.float32))
    plan = sp.BulkLoader(**batches, features=store, memory_budget="4GiB").plan
    assert plan is not None
    at_hand = int(factor * plan.peak(min(64, plan.num_batches)))
    kept: list[CachedFeatures] = []
    for module in (budgets, bulk_plan):
        monkeypatch.setattr(module, "available_memory", lambda: at_hand - sum(one.nbytes for one in kept))
    sp.BulkLoader(**batches, features=store, **options)
    kept.append(CachedFeatures(store, "auto", "out-degree", replacement=replacement, **batches))
    loader = sp.BulkLoader(**batches, features=kept[0], **options)
    assert loader.bulk_size > 1
    assert (0 < kept[0].cached_rows < LARGE.num_nodes) == (factor > 1.3)


def test_an_option_of_a_score_with_an_array_is_refused():
    with pytest.raises(InputError, match="epochs: got it without the name of a score"):
        CachedFeatures(FeatureStore(features()), "auto", np.ones(N), epochs=1, **workload())


def test_a_workload_with_an_array_of_scores_is_refused():
    with pytest.raises(InputError, match="seeds: got it without the name of a score"):
        CachedFeatures(FeatureStore(features()), 100, np.ones(N), seeds=[1])


def test_a_sampler_that_inclusion_does_not_know():
    class Own(sp.GraphSAGE):
        def layer(self, *arguments, **options):
            return super().layer(*arguments, **options)

    store = FeatureStore(features())
    with pytest.raises(InputError, match="sampler: got a Own, which does not state"):
        CachedFeatures(store, 100, **workload(sampler=Own([2])))
    assert CachedFeatures(store, 100, "presc", **workload(sampler=Own([2]))).cached_rows == 3


def test_sources_that_are_refused():
    class OnDevice(Plain):
        device = "a GPU"

    with pytest.raises(InputError, match="source: got OnDevice, whose rows are on a device"):
        CachedFeatures(OnDevice(features()), 100, np.ones(N))
    with pytest.raises(DTypeError, match=r"source: got .* of type ndarray; expected a FeatureSource"):
        CachedFeatures(features(), 100, np.ones(N))


def test_more_than_there_is_memory(monkeypatch):
    monkeypatch.setattr(budgets, "available_memory", lambda: 200)
    with pytest.raises(CapacityError, match=r"budget: got 400 B, which 360 B of rows would take; .* 200 B"):
        CachedFeatures(FeatureStore(features()), 400, np.ones(N))
    assert CachedFeatures(FeatureStore(features()), 200, np.ones(N)).cached_rows == 8


@pytest.mark.parametrize("ids", [[N], [-1], [0.0], [[0]], np.array([True])])
@pytest.mark.parametrize("rows", [0, 10, N])
def test_ids_that_are_refused(ids, rows):
    store = FeatureStore(features())
    one = CachedFeatures(store, budget_of(store, rows), np.ones(N))
    with pytest.raises(InputError) as mine:
        one.gather(ids)
    with pytest.raises(InputError) as its:
        store.gather(ids)
    assert str(mine.value) == str(its.value)


@pytest.mark.parametrize(
    ("out", "at"),
    [
        (np.zeros((2, DIM), np.float64), None),
        (np.zeros((1, DIM), np.float32), None),
        (np.zeros((2, 3), np.float32), None),
        (np.zeros((3, DIM), np.float32), [0, 3]),
        (None, [0, 1]),
    ],
)
def test_destinations_that_are_refused(out, at):
    with pytest.raises(InputError, match=r"out: |at: "):
        CachedFeatures(FeatureStore(features()), 100, np.ones(N)).gather([0, 1], out, at)


def test_memory_is_that_of_nbytes():
    """No row is held twice while the cache is made, nor when rows are gathered to memory that is there."""
    n = 200_000
    store, score = FeatureStore(features("float16", n, 64)), np.arange(n)
    ids, out = np.arange(0, n, 3), np.empty((n // 3 + 1, 64), np.float32)
    tracemalloc.start()
    try:
        one = CachedFeatures(store, "8MiB", score)
        assert 0.99 * 2**23 < one.nbytes <= 2**23
        held, most = tracemalloc.get_traced_memory()
        assert abs(held - one.nbytes) < 0.01 * one.nbytes
        assert most < one.nbytes + 40 * n
        tracemalloc.reset_peak()
        one.gather(ids, out)
        assert tracemalloc.get_traced_memory()[1] < held + 40 * len(ids)
    finally:
        tracemalloc.stop()


def test_pickles_are_recipes(tmp_path):
    data = planted(200, random_seed=0)
    save_dataset(data, tmp_path / "store")
    store = FeatureStore.open(tmp_path / "store")
    one = CachedFeatures(store, budget_of(store, 150), np.arange(200))
    one.gather([1])
    recipe = pickle.dumps(one)
    assert len(recipe) < one.nbytes
    for other in (pickle.loads(recipe), pickle.loads(pickle.dumps(pickle.loads(recipe)))):
        assert (other.cached_rows, other.nbytes, other.counts.misses) == (150, one.nbytes, 0)
        np.testing.assert_array_equal(other.gather(np.arange(200)), store.gather(np.arange(200)))
        assert other.counts[:2] == (150, 50)


@pytest.mark.parametrize("rows", [0, 30, N])
def test_a_recipe_holds_the_map_and_no_rows(rows):
    class Nowhere(Plain):
        def __reduce__(self):
            return int, ()

    one = CachedFeatures(Nowhere(features()), budget_of(FeatureStore(features()), rows), np.ones(N))
    assert len(pickle.dumps(one)) < 500


def test_rows_that_have_changed_since_are_refused(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, features())
    one = CachedFeatures(FromFile(path), "1KiB", np.arange(N))
    recipe = pickle.dumps(one)
    assert pickle.loads(recipe).gather([N - 1]).tolist() == one.gather([N - 1]).tolist()
    changed = features()
    changed[N - 1] += 1
    np.save(path, changed)
    with pytest.raises(DataError, match=r"source: got .*, whose rows have changed"):
        pickle.loads(recipe)


def on_disk(folder, kind="map"):
    if kind == "map":
        np.save(folder / "x.npy", features())
        return FeatureStore(np.load(folder / "x.npy", mmap_mode="r"))
    with StoreWriter(folder / "store") as writer:
        writer.write("indptr", np.zeros(N + 1, np.int64))
        writer.write("indices", np.zeros(0, np.int32))
        writer.write("x", features())
    return FeatureStore.open(folder / "store")


def write(path, vertex, change):
    """Into the file that is mapped, and its time for systems whose clock is coarse."""
    rows = np.load(path, mmap_mode="r+")
    rows[vertex] += change
    rows.flush()
    later = path.stat().st_mtime_ns + 10**9
    os.utime(path, ns=(later, later))


@pytest.mark.parametrize(("kind", "path"), [("map", "x.npy"), ("store", "store/x.npy")])
@pytest.mark.parametrize("levels", [1, 2])
def test_a_file_that_changes_while_it_is_open_is_refused(tmp_path, levels, kind, path):
    one = on_disk(tmp_path, kind)
    path = tmp_path / path
    for _ in range(levels):
        one = CachedFeatures(one, "1KiB", np.arange(N))
    before = one.gather(np.arange(N))
    write(path, N - 1, 0)
    np.testing.assert_array_equal(one.gather(np.arange(N)), before)
    write(path, N - 1, 1)
    for ids in ([0], [N - 1], []):
        with pytest.raises(DataError, match=r"source: got .*, whose file was written to: its rows have changed"):
            one.gather(ids)
    write(path, N - 1, -1)
    write(path, 0, 1)  # a row that is not kept is read from the file
    assert one.gather([0]).tolist() == (before[[0]] + 1).tolist()


def test_a_file_that_is_cut_is_refused_unread(tmp_path):
    one = CachedFeatures(on_disk(tmp_path), "1KiB", np.arange(N))
    os.truncate(tmp_path / "x.npy", 256)
    with pytest.raises(DataError, match=r"source: got .*, whose file was written to"):
        one.gather([0])


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_a_map_outlives_the_name_of_its_file(tmp_path, how):
    one = CachedFeatures(on_disk(tmp_path), "1KiB", np.arange(N))
    if how == "replaced":
        np.save(tmp_path / "new.npy", features() + 1)
        os.replace(tmp_path / "new.npy", tmp_path / "x.npy")
    else:
        (tmp_path / "x.npy").unlink()
    np.testing.assert_array_equal(one.gather(np.arange(N)), features())


class FromFile(Plain):
    """Pickled as a path."""

    def __init__(self, path):
        super().__init__(np.load(path))
        self.path = path

    def __reduce__(self):
        return FromFile, (self.path,)


def test_copies():
    one = CachedFeatures(FeatureStore(features()), "1KiB", np.arange(N))
    for other in (copy.copy(one), copy.deepcopy(one), one.duplicate()):
        np.testing.assert_array_equal(other.gather(np.arange(N)), features())
        other.close()
    assert copy.copy(one).counts == one.counts
    assert one.counts.hits + one.counts.misses == 2 * N  # a deep copy counts for itself


def test_threads_side_by_side():
    x = features(n=5000)
    one = CachedFeatures(FeatureStore(x), 40_000, np.arange(5000)[::-1])

    def work(seed):
        ids = np.random.default_rng(seed).integers(0, 5000, 2000)
        return all(np.array_equal(one.gather(ids), x[ids]) for _ in range(20))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(12)))
    assert one.counts.hits + one.counts.misses == 12 * 20 * 2000


def test_sources_without_rows_or_columns():
    for shape in ((0, 3), (4, 0)):
        one = CachedFeatures(FeatureStore(np.ones(shape)), "1KiB", np.ones(shape[0]))
        assert one.gather(np.arange(shape[0])).shape == shape
        assert one.cached_rows == shape[0]


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("budget", [0, "4KiB", "1GiB"])
def test_a_loader(prefetch, budget, monkeypatch):
    """Threads stay, however slow the machine is: what they have ready at a change to turns would be counted twice."""
    monkeypatch.setattr("spsample.loading.serial.LOOK_SECONDS", float("inf"))
    data = planted(400, random_seed=1)
    one = CachedFeatures(FeatureStore(data.x), budget, np.arange(400))
    loaders = [
        sp.BulkLoader(
            data.graph,
            np.arange(200),
            sp.GraphSAGE([3, 2]),
            batch_size=32,
            bulk_size=3,
            features=source,
            prefetch=prefetch,
        )
        for source in (data.x, one)
    ]
    seen = 0
    for _ in range(2):
        for plain, batch in zip(*loaders, strict=True):
            np.testing.assert_array_equal(batch.x, plain.x, strict=True)
            np.testing.assert_array_equal(batch.src_nodes, plain.src_nodes)
            seen += len(batch.x)
    assert one.counts.hits + one.counts.misses == seen
