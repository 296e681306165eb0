"""Features on a disk are those of memory to the bit, within their budget, and keep what is wanted soonest."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import mmap
import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import spsample as sp
from spsample.errors import BackendError, CapacityError, DataError, DTypeError, InputError
from spsample.features import CachedFeatures, DiskFeatures, FeatureSource, FeatureStore, disk
from spsample.features.formats import BFloat16, Float, Int8
from spsample.features.gathering import row_reader
from spsample.reorder import reorder
from spsample.store import StoreWriter

pytest.importorskip("spsample._core")

BLOCK = disk.BLOCK_BYTES
DTYPES = ("float32", "float16", "float64", "int8", "uint16", "int64", "bool")


def features(n, dim, dtype="float32", seed=0):
    return (np.random.default_rng(seed).standard_normal((n, dim)) * 20).astype(dtype)


def saved(folder, x, name="x.npy"):
    np.save(folder / name, x)
    return folder / name


def store_of(folder, **arrays):
    n = len(next(iter(arrays.values())))
    with StoreWriter(folder / "store") as writer:
        writer.write("indptr", np.arange(n + 1))
        writer.write("indices", np.arange(n)[::-1].copy())
        for name, array in arrays.items():
            writer.write(name, array)
    return folder / "store"


def least_budget(path):
    """The smallest that is not refused."""
    low, high = 0, 1 << 24
    while high - low > 1:
        middle = (low + high) // 2
        try:
            DiskFeatures(path, middle).close()
            high = middle
        except InputError:
            low = middle
    return high


@pytest.mark.sanitize
@settings(deadline=None, max_examples=150)
@given(
    dtype=st.sampled_from(DTYPES),
    n=st.integers(1, 3000),
    dim=st.sampled_from([1, 2, 3, 7, 64, 129, 1024, 2500]),
    share=st.sampled_from([0, 0.01, 0.3, 2]),
    direct=st.booleans(),
    from_store=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_equal_to_memory_to_the_bit(tmp_path_factory, dtype, n, dim, share, direct, from_store, seed):
    """Any dtype, rows within and across blocks, any budget; announced, announced otherwise, and not announced."""
    rng = np.random.default_rng(seed)
    n = max(1, min(n, 400_000 // dim))
    x, folder = features(n, dim, dtype, seed), tmp_path_factory.mktemp("rows")
    path = store_of(folder, x=x) if from_store else saved(folder, x)
    memory = FeatureStore(x)
    budget = 0 if share == 0 else int(share * x.nbytes) + disk.READS_AT_A_TIME * (1 << 20) // 4
    with DiskFeatures(path, budget, direct=direct) as found:
        batches = [rng.integers(0, n, rng.integers(0, 300)).astype(rng.choice([np.int32, np.int64])) for _ in range(8)]
        found.prefetch_hint(batches[:3])
        found.prefetch_hint([batches[i] for i in (4, 3, 5)])
        for ids in [*batches, batches[0]]:
            assert np.array_equal(found.gather(ids), memory.gather(ids))
            wide, at = np.zeros((len(ids) + 5, dim), np.float32), rng.permutation(len(ids) + 5)[: len(ids)]
            assert found.gather(ids, out=wide, at=at) is wide
            assert np.array_equal(wide, memory.gather(ids, out=np.zeros_like(wide), at=at))
            stored = np.zeros((len(ids), dim), x.dtype)
            assert np.array_equal(found.gather(ids, out=stored), x[ids])
        assert (found.num_rows, found.dim, found.shape, found.stored_dtype) == (n, dim, (n, dim), x.dtype)
        assert isinstance(found, FeatureSource)
        assert found.nbytes <= max(budget, found.nbytes if budget == 0 else 0)


@pytest.mark.sanitize
@pytest.mark.parametrize("form", [BFloat16(), Int8(np.full(40, 3.0)), Float("float16")], ids=lambda form: form.name)
def test_forms(tmp_path, form):
    kept = form.encode(np.random.default_rng(0).uniform(-3, 3, (500, 40)).astype(np.float32))
    ids = np.random.default_rng(1).integers(0, 500, 300)
    with DiskFeatures(saved(tmp_path, kept), "1MiB", form=form) as found:
        for _ in range(2):
            assert np.array_equal(found.gather(ids), row_reader(kept, form).gather(ids))
            if not form.is_coded:
                assert np.array_equal(found.gather(ids, out=np.zeros((300, 40), kept.dtype)), kept[ids])
        assert found.stored_dtype == (np.float32 if form.is_coded else kept.dtype)
        for replacement in ("static", "lookahead"):
            cached = CachedFeatures(found, "40KiB", np.arange(500), replacement=replacement)
            cached.prefetch_hint([ids, ids])
            for _ in range(2):
                assert np.array_equal(cached.gather(ids), found.gather(ids))
    with pytest.raises(InputError, match="form: got"):
        DiskFeatures(tmp_path / "x.npy", 0, form=Float("float32"))


@pytest.mark.parametrize("budget", [0, 200_000])
def test_rows_of_a_reordered_store(tmp_path, budget):
    x, rng = features(3000, 24), np.random.default_rng(0)
    reorder(store_of(tmp_path, x=x), tmp_path / "hot", rng.random(3000), exact=True)
    batches = rng.integers(0, 3000, (6, 300))
    with DiskFeatures(tmp_path / "hot", budget) as found:
        found.prefetch_hint(batches)
        for left, ids in zip(range(5, -1, -1), batches, strict=True):
            assert np.array_equal(found.gather(ids), x[ids])
            assert found._rows.known == (left if budget else 0)
        assert found.nbytes <= budget or budget == 0
        assert found._rows.known == 0
        assert np.array_equal(pickle.loads(pickle.dumps(found)).gather(batches[0]), x[batches[0]])
    with pytest.raises(InputError, match="budget: got"):
        DiskFeatures(tmp_path / "hot", 12_000)  # of which the map takes all


def test_arrays_of_a_store_by_name(tmp_path):
    x, degree = features(50, 3), np.arange(50.0)
    with StoreWriter(tmp_path / "store") as writer:
        writer.write("indptr", np.zeros(51, np.int64))
        writer.write("indices", np.zeros(0, np.int64))
        writer.write("x", x)
        writer.write("degree", degree)
        writer.set(node_features=["degree"])
    with DiskFeatures(tmp_path / "store", "1MiB", name="degree") as found:
        assert np.array_equal(found.gather([4, 2]), FeatureStore.open(tmp_path / "store", "degree").gather([4, 2]))
    with pytest.raises(InputError, match="name"):
        DiskFeatures(tmp_path / "store", "1MiB", name="no")


class Model:
    """What is kept and read, in Python sets: pages of one row that lie in whole blocks, one read per run of them."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.resident, self.uses = set(), np.zeros(1000, int)
        self.reads = self.hits = 0

    def gather(self, pages, following):
        self.uses[sorted(pages)] += 1
        self.hits += len(pages & self.resident)
        missing = sorted(pages - self.resident)
        self.reads += len([p for p in missing if p - 1 not in missing])
        if not missing:
            return
        candidates = self.resident | pages

        def key(page):
            use = next((i for i, batch in enumerate(following) if page in batch), len(following))
            often = -self.uses[page] if use == len(following) else 0
            return use, often, page not in self.resident, page

        self.resident = set(sorted(candidates, key=key)[: self.capacity])


@pytest.mark.sanitize
@settings(deadline=None, max_examples=150)
@given(
    n=st.integers(1, 150),
    capacity=st.integers(1, 60),
    ahead=st.integers(0, 6),
    size=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_keeps_what_the_model_keeps(tmp_path_factory, n, capacity, ahead, size, seed):
    """Rows of two blocks that do not touch: whatever is announced, hits and reads are those of the rule."""
    rng = np.random.default_rng(seed)
    path = saved(tmp_path_factory.mktemp("rows"), np.zeros((n, 2 * BLOCK), np.uint8))
    gap = 3  # pages that are far enough from each other to be reads of their own
    pages = np.arange(0, n, gap)
    model = Model(capacity)
    batches = [np.unique(rng.choice(pages, rng.integers(1, size + 1))) for _ in range(25)]
    with DiskFeatures(path, budget_for(path, capacity)) as found:
        assert found.plan.frames == min(capacity, n)
        found.prefetch_hint(batches[:ahead])
        for i, ids in enumerate(batches):
            found.gather(ids)
            model.gather(set(ids.tolist()), [set(b.tolist()) for b in batches[i + 1 : max(ahead, i + 1)]])
            if i + 1 >= ahead > 0:
                more = batches[ahead : ahead + 3]
                found.prefetch_hint(more)
                ahead += len(more)
            assert (found.counts.hits, found.counts.reads) == (model.hits, model.reads)


def budget_for(path, frames):
    """The largest budget that has so many frames."""
    low, high = 0, 1 << 30
    while high - low > 1:
        middle = (low + high) // 2
        try:
            fits = DiskFeatures(path, middle).plan.frames <= frames
        except InputError:
            fits = True
        low, high = (middle, high) if fits else (low, middle)
    return low


def least_misses(batches, capacity):
    """The fewest rows that any rule reads, of all subsets that could be kept: exhaustive."""
    from itertools import combinations

    states = {frozenset(): 0}
    for batch in batches:
        after = {}
        for kept, misses in states.items():
            total = misses + len(batch - kept)
            for next_kept in combinations(sorted(kept | batch), min(capacity, len(kept | batch))):
                key = frozenset(next_kept)
                after[key] = min(after.get(key, total), total)
        states = after
    return min(states.values())


@settings(deadline=None, max_examples=60)
@given(capacity=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_fewest_misses_of_all_rules_where_all_is_known(tmp_path_factory, capacity, seed):
    rng = np.random.default_rng(seed)
    path = saved(tmp_path_factory.mktemp("rows"), np.zeros((21, 2 * BLOCK), np.uint8))
    batches = [np.unique(rng.choice(7, rng.integers(1, 5))) * 3 for _ in range(8)]
    with DiskFeatures(path, budget_for(path, capacity)) as found:
        found.prefetch_hint(batches)
        for ids in batches:
            found.gather(ids)
        assert found.counts.misses == least_misses([frozenset(ids.tolist()) for ids in batches], capacity)


def test_without_announcements_rows_that_are_wanted_often_stay(tmp_path):
    path = saved(tmp_path, np.zeros((900, 2 * BLOCK), np.uint8))
    with DiskFeatures(path, budget_for(path, 10)) as found:
        for i in range(20):
            found.gather(np.concatenate([np.arange(10), [20 + 3 * i]]))
        assert found.counts.hits == 19 * 10


@pytest.mark.sanitize
def test_neighbours_in_the_file_are_one_read(tmp_path):
    path = saved(tmp_path, features(4096, 128))
    with DiskFeatures(path, "2MiB") as found:
        found.gather(np.arange(16))
        assert (found.counts.reads, found.counts.read_bytes) == (1, 3 * BLOCK)
        found.gather([1, 20, 5])  # 20 lies in the last block that was read
        assert (found.counts.reads, found.counts.hits) == (1, 3)


def test_what_was_announced_and_left_is_forgotten(tmp_path):
    """A pass that was left early: its batches are over when one of the next pass comes."""
    path = saved(tmp_path, features(10_000, 32))
    with DiskFeatures(path, "512KiB") as found:
        found.prefetch_hint([[i] for i in range(5)])
        found.prefetch_hint([[100 + i] for i in range(5)])
        found.gather([100])
        assert found._rows.known == 4
        found.gather([7])
        assert found._rows.known == 4


def test_forget(tmp_path):
    with DiskFeatures(saved(tmp_path, features(10_000, 32)), "512KiB") as found:
        assert found.looks_ahead
        found.prefetch_hint([[1], [2]] * found.plan.known_batches)  # half of them wait for room
        found.prefetch_hint(None)
        found.gather([3])
        assert found._rows.known == 0
    for budget in (0, "9MiB"):
        with DiskFeatures(tmp_path / "x.npy", budget) as found:
            assert not found.looks_ahead


def test_more_announcements_than_are_remembered(tmp_path):
    """Those of a large bulk wait until there is room: the next ones are always known."""
    rng = np.random.default_rng(0)
    path = saved(tmp_path, np.zeros((300, 2 * BLOCK), np.uint8))
    model = Model(20)
    with DiskFeatures(path, budget_for(path, 20)) as found:
        batches = [np.unique(rng.choice(np.arange(0, 300, 3), 12)) for _ in range(100)]
        most = found.plan.known_batches
        found.prefetch_hint(batches[:70])
        for i, ids in enumerate(batches):
            if i == 30:
                found.prefetch_hint(batches[70:])
            found.gather(ids)
            model.gather(set(ids.tolist()), [set(b.tolist()) for b in batches[i + 1 : i + most]])
            assert (found.counts.hits, found.counts.reads) == (model.hits, model.reads)
        assert found._rows.known == 0


def test_announcements_that_never_come(tmp_path):
    path = saved(tmp_path, features(10_000, 32))
    with DiskFeatures(path, "512KiB") as found:
        found.prefetch_hint([[1]] * (found.plan.known_batches + 10))
        for i in range(100):
            found.gather([9000 + i])
        assert found._rows.known == 0


def test_nested_under_a_cache(tmp_path):
    x = features(3000, 20, "float16")
    ids = np.random.default_rng(0).integers(0, 3000, (5, 800))
    with DiskFeatures(saved(tmp_path, x), "256KiB") as found:
        cached = CachedFeatures(found, "20KiB", np.arange(3000)[::-1])
        for batch in ids:
            assert np.array_equal(cached.gather(batch), x[batch].astype(np.float32))


@pytest.mark.parametrize("budget", [0, "64KiB"])
def test_a_store_whose_rows_were_moved(tmp_path, budget):
    x = np.random.default_rng(1).random((3000, 5), np.float32)
    with StoreWriter(tmp_path / "plain") as writer:
        writer.write("indptr", np.zeros(3001, np.int64))
        writer.write("indices", np.zeros(0, np.int32))
        writer.write("x", x)
        writer.set(weighting="unweighted")
    reorder(tmp_path / "plain", tmp_path / "moved", np.arange(3000), exact=True)
    ids = np.array([7, 2999, 7, 0])
    with DiskFeatures(tmp_path / "moved", budget) as features:
        features.prefetch_hint([ids, ids[:2]])
        np.testing.assert_array_equal(features.gather(ids), x[ids])
        np.testing.assert_array_equal(features.gather(ids[:2]), x[ids[:2]])
        assert features.counts.hits == (2 if budget else 0)
        assert features.nbytes >= features.file.row_of_vertex.nbytes == 3000 * 4
        assert not budget or features.nbytes <= 64 << 10
    np.load(tmp_path / "moved" / "row_of_vertex.npy", mmap_mode="r+")[5] = 3000
    with pytest.raises(DataError, match="a map to rows from 0 to 3000"):
        DiskFeatures(tmp_path / "moved", budget)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_in_a_loader(tmp_path, prefetch):
    graph = sp.load_dataset("rmat:10,8").graph
    x, seeds = features(graph.num_nodes, 16), np.arange(0, 1024, 3)
    options = {"batch_size": 16, "bulk_size": 4, "prefetch": prefetch}
    plain = sp.BulkLoader(graph, seeds, sp.GraphSAGE([5, 5]), features=x, **options)
    with DiskFeatures(saved(tmp_path, x), "256KiB") as found:
        loader = sp.BulkLoader(graph, seeds, sp.GraphSAGE([5, 5]), features=found, **options)
        for a, b in zip(plain, loader, strict=True):
            assert np.array_equal(a.src_nodes, b.src_nodes)
            assert np.array_equal(a.x, b.x)


@pytest.mark.sanitize
def test_from_many_threads(tmp_path):
    x = features(5000, 32)
    with DiskFeatures(saved(tmp_path, x), "300KiB") as found, ThreadPoolExecutor(6) as pool:

        def work(seed):
            ids = np.random.default_rng(seed).integers(0, 5000, 400)
            found.prefetch_hint([ids])
            return np.array_equal(found.gather(ids), x[ids]) and found.counts.misses >= 0

        assert all(pool.map(work, range(60)))


def test_pickled_as_its_recipe(tmp_path):
    x = features(2000, 8)
    path = saved(tmp_path, x)
    with DiskFeatures(path, "256KiB") as found:
        text = pickle.dumps(found)
        assert len(text) < 2000
        with pickle.loads(text) as again:
            assert np.array_equal(again.gather([5, 1999]), x[[5, 1999]])
    saved(tmp_path, x + 1)
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match="written to since"):
        pickle.loads(text)


def _gathered(found, ids, results):
    results.put(found.gather(ids).tobytes())


def test_in_a_forked_process(tmp_path):
    x = features(2000, 8)
    context = multiprocessing.get_context("fork")
    with DiskFeatures(saved(tmp_path, x), "256KiB") as found:
        found.gather(np.arange(100))
        results = context.Queue()
        process = context.Process(target=_gathered, args=(found, [3, 1999, 50], results))
        process.start()
        assert results.get(timeout=60) == x[[3, 1999, 50]].tobytes()
        process.join(60)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_in_a_process_that_was_forked_while_a_thread_gathers(tmp_path):
    x, ids, is_over = features(20_000, 64), np.arange(20_000), threading.Event()
    context = multiprocessing.get_context("fork")
    with DiskFeatures(saved(tmp_path, x), 0) as found:

        def gather():
            while not is_over.is_set():
                found.gather(ids)

        thread = threading.Thread(target=gather)
        thread.start()
        try:
            for _ in range(3):
                process = context.Process(target=found.gather, args=(ids[:50],))
                process.start()
                process.join(30)
                process.kill()
                process.join()
                assert process.exitcode == 0
        finally:
            is_over.set()
            thread.join()


@pytest.mark.parametrize("direct", [True, False])
def test_the_cache_of_the_system_is_left_alone(tmp_path, direct):
    """Nothing that is read stays in it, but the header, which NumPy reads."""
    path = saved(tmp_path, features(20_000, 64))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if resident_pages(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) > 20:
            pytest.skip(f"{tmp_path} lies in memory, or its files cannot be dropped from the cache")
        with DiskFeatures(path, "1MiB", direct=direct) as found:
            found.gather(np.arange(0, 20_000, 40))
            assert ("O_DIRECT" in repr(found)) == found.direct <= direct
        assert resident_pages(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) <= 20


def resident_pages(pages):
    libc = ctypes.CDLL(None, use_errno=True)
    address = np.frombuffer(pages, np.uint8).ctypes.data
    count = -(-len(pages) // 4096)
    states = (ctypes.c_ubyte * count)()
    if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(pages)), states):
        pytest.skip("mincore does not work here")
    return sum(state & 1 for state in states)


@pytest.mark.parametrize("direct", [True, False])
def test_a_file_that_was_cut(tmp_path, direct):
    path = saved(tmp_path, features(5000, 32))
    with DiskFeatures(path, "1MiB", direct=direct) as found:
        found.gather([1])
        os.truncate(path, 5000)
        for _ in range(2):
            with pytest.raises(DataError, match=r"x\.npy: got it was written to since"):
                found.gather([4000])


def test_a_file_that_was_written_to(tmp_path):
    path = saved(tmp_path, features(5000, 32))
    with DiskFeatures(path, "1MiB") as found:
        found.gather([1])
        with path.open("r+b") as file:
            file.seek(3000)
            file.write(b"other")
        os.utime(path, ns=(1, 1))
        with pytest.raises(DataError, match="written to since"):
            found.gather([1])


@pytest.mark.parametrize("replacement", ["static", "lookahead"])
def test_a_cache_notices_too(tmp_path, replacement):
    """Though all rows that are asked for are cached, and none is read."""
    path = saved(tmp_path, features(2000, 16))
    with DiskFeatures(path, 0) as found:
        cached = CachedFeatures(found, "100KiB", np.arange(2000), replacement=replacement)
        ids = cached.cached_vertices
        cached.gather(ids)
        np.save(path, features(2000, 16, seed=1))
        with pytest.raises(DataError, match="written to"):
            cached.gather(ids)


def test_a_file_that_another_one_replaced_stays_readable(tmp_path):
    x = features(5000, 32)
    path = saved(tmp_path, x)
    with DiskFeatures(path, "1MiB") as found:
        os.replace(saved(tmp_path, x + 1, "other.npy"), path)
        assert np.array_equal(found.gather([4000]), x[[4000]])


@pytest.mark.sanitize
def test_a_read_that_fails_names_the_file_and_the_byte(tmp_path):
    """The core is told of more rows than there are; what was kept is not used after it."""
    x = features(1000, 16)
    path = saved(tmp_path, x)
    status = path.stat()
    core = disk.require_core("a test")
    made = core.DiskRows(
        str(path), True, (128, 100_000, 64, 0), "f4", (100, 4, 4, 4), (status.st_size, status.st_mtime_ns)
    )
    out = np.zeros(2 * 16, np.float32)
    with pytest.raises(OSError, match=r"reading \d+ bytes at byte 4\d{6}: the file ends there"):
        made.gather(np.array([3, 70_000]), "number", None, out, None)
    made.gather(np.array([3, 4]), "number", None, out, None)
    assert np.array_equal(out.reshape(2, 16), x[3:5])


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"budget": 1}, InputError, "budget: got 1 B; expected 0, or .* which is enough"),
        ({"budget": -1}, InputError, "budget"),
        ({"budget": "much"}, InputError, "budget"),
        ({"budget": 1 << 62}, None, ""),
        ({"direct": 1}, DTypeError, "direct"),
        ({"form": "int8"}, DTypeError, "form"),
        ({"path": "missing.npy"}, DataError, "missing.npy"),
        ({"path": "missing"}, DataError, "missing"),
        ({"path": 3}, DTypeError, "path"),
    ],
)
def test_bad_arguments(tmp_path, change, error, text):
    arguments = {"path": saved(tmp_path, features(1000, 16)), "budget": "1MiB", **change}
    if error is None:
        return DiskFeatures(**arguments).close()  # more than all rows is all rows
    with pytest.raises(error, match=text):
        DiskFeatures(**arguments)


def test_bad_files(tmp_path):
    x = features(100, 4)
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(DataError, match="damaged header"):
        DiskFeatures(tmp_path / "text.npy", 0)
    with pytest.raises(InputError, match="Fortran"):
        DiskFeatures(saved(tmp_path, np.asfortranarray(x)), 0)
    with pytest.raises(InputError, match="shape"):
        DiskFeatures(saved(tmp_path, np.zeros((3, 2, 2))), 0)
    with pytest.raises(InputError, match="shape"):
        DiskFeatures(saved(tmp_path, np.zeros((0, 2))), 0)
    with pytest.raises(InputError, match="numbers of"):
        DiskFeatures(saved(tmp_path, np.zeros((3, 2), np.complex64)), 0)
    path = saved(tmp_path, x)
    os.truncate(path, 1000)
    with pytest.raises(DataError, match="got 1000 bytes; expected 1728 bytes"):
        DiskFeatures(path, 0)


def test_sparse_features_are_refused(tmp_path):
    rows = sparse.csr_array(np.eye(5, dtype=np.float32))
    with StoreWriter(tmp_path / "store") as writer:
        writer.write("indptr", np.zeros(6, np.int64))
        writer.write("indices", np.zeros(0, np.int64))
        writer.write("x_indptr", rows.indptr)
        writer.write("x_indices", rows.indices)
        writer.write("x_data", rows.data)
        writer.set(x_shape=[5, 5])
    with pytest.raises(InputError, match="name: got 'x', whose rows are sparse"):
        DiskFeatures(tmp_path / "store", 0)


def test_bad_ids_and_places(tmp_path):
    with DiskFeatures(saved(tmp_path, features(10, 4)), "1MiB") as found:
        for bad in ([10], [-1], [0.5], [[1]]):
            with pytest.raises(InputError, match="ids"):
                found.gather(bad)
            with pytest.raises(InputError, match="batches"):
                found.prefetch_hint([[1], bad])
        assert found._rows.known == 0
        with pytest.raises(InputError, match="out"):
            found.gather([1], out=np.zeros((1, 3), np.float32))
        with pytest.raises(InputError, match="at"):
            found.gather([1], out=np.zeros((2, 4), np.float32), at=[2])
        assert found.gather([]).shape == (0, 4)
    with pytest.raises(InputError, match="closed"):
        found.gather([1])
    found.close()


def test_counts(tmp_path):
    with DiskFeatures(saved(tmp_path, features(2000, 128)), "1MiB") as found:
        found.gather([0, 0, 1000])
        assert found.counts[:3] == (0, 3, 2)
        found.gather([0, 1000, 1000])
        assert found.counts[:3] == (3, 3, 2)
        found.reset_counts()
        assert found.counts == (0, 0, 0, 0)
        assert found.counts.hit_share == 0


def test_without_the_core(tmp_path, monkeypatch):
    monkeypatch.setattr("spsample.features.gathering.compiled_core", lambda: None)
    with pytest.raises(BackendError, match="needs the compiled core"):
        DiskFeatures(saved(tmp_path, features(10, 4)), 0)


@given(
    budget=st.integers(1, 1 << 40),
    rows=st.integers(1, 1 << 33),
    row_bytes=st.integers(1, 1 << 16),
)
def test_plans_are_within_the_budget(budget, rows, row_bytes):
    try:
        plan = disk.disk_plan(budget, rows, row_bytes)
    except (InputError, CapacityError):
        return
    page_bytes = row_bytes << plan.shift
    assert plan.nbytes <= budget
    assert 1 <= plan.frames <= -(-rows >> plan.shift)
    assert plan.frames * page_bytes <= plan.nbytes
    assert plan.buffer_blocks * BLOCK >= page_bytes + 2 * BLOCK - 2


def test_the_least_budget(tmp_path):
    path = saved(tmp_path, features(1000, 16))
    least = least_budget(path)
    with pytest.raises(InputError, match="which is enough"):
        DiskFeatures(path, least - 1)
    with DiskFeatures(path, least) as found:
        assert found.plan.frames == 1
        assert np.array_equal(found.gather([5, 6]), features(1000, 16)[5:7])


@pytest.mark.parametrize("fetch", ["batch", "bulk"])
def test_told_by_a_loader_they_read_less(tmp_path, fetch):
    """The loader says what its next bulks need; left early and resumed, too."""
    graph = sp.load_dataset("rmat:12,4").graph
    x, seeds = features(graph.num_nodes, 128), np.arange(0, 4096, 5)
    path = saved(tmp_path, x)
    read = []
    for is_told in (True, False):
        with DiskFeatures(path, "768KiB") as found:
            source = found if is_told else Untold(found)
            loader = sp.BulkLoader(
                graph, seeds, sp.GraphSAGE([4, 4]), batch_size=32, features=source, bulk_size=6, fetch=fetch
            )
            next(iter(loader))
            for batch in loader:
                assert np.array_equal(batch.x, x[batch.src_nodes])
            read.append(found.counts.read_bytes)
    assert read[0] < 0.9 * read[1]


class Untold(FeatureSource):
    """The same rows from a source that is told nothing."""

    def __init__(self, source):
        self.source, self.num_rows, self.dim = source, source.num_rows, source.dim
        self.stored_dtype = source.stored_dtype

    def _read(self, ids, out, at=None):
        self.source.gather(ids, out, at)


def test_training_has_the_losses_of_memory(tmp_path):
    """Features four times the budget: samples, losses and accuracies are equal."""
    pytest.importorskip("torch")
    from spsample.data import planted
    from spsample.training import ModelConfig, TrainConfig, Trainer

    data = planted(6000, degree=5)
    x = np.hstack([data.x, features(6000, 128 - data.x.shape[1])]).astype(np.float32)
    config = TrainConfig(epochs=2, batch_size=64, learning_rate=0.02, bulk_size=4)

    def losses(source):
        trained = Trainer(
            dataclasses.replace(data, x=source), sp.GraphSAGE([5, 3]), ModelConfig(hidden=16), config
        ).fit()
        return [record.loss for record in trained.history], trained.val, trained.test

    with DiskFeatures(saved(tmp_path, x), x.nbytes // 4) as found:
        assert losses(found) == losses(x)
        assert found.counts.misses > 0


def train(*arguments):
    pytest.importorskip("torch")
    from typer.testing import CliRunner

    from spsample.cli.main import app

    return CliRunner().invoke(app, ["train", *arguments])


def test_the_command(tmp_path):
    from spsample.data import planted, save_dataset

    save_dataset(planted(3000, degree=5), tmp_path / "planted")
    options = [str(tmp_path / "planted"), "--epochs", "2", "--json", "--scaling", "none"]
    plain, on_disk = (train(*options, *more) for more in ([], ["--features-on-disk", "256KiB"]))
    runs = [json.loads(done.stdout)["runs"] for done in (plain, on_disk)]
    assert [[run[key] for run in runs[0]] for key in ("val", "test")] == [
        [run[key] for run in runs[1]] for key in ("val", "test")
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["digits", "--features-on-disk", "1MiB"], "got it with 'digits'; expected the folder of a store"),
        (["planted", "--features-on-disk", "1MiB", "--scaling", "rows"], "got it with --scaling rows"),
        (["planted", "--features-on-disk", "much"], "--features-on-disk: got 'much'"),
    ],
)
def test_the_command_refuses(tmp_path, monkeypatch, arguments, text):
    from spsample.data import planted, save_dataset

    monkeypatch.chdir(tmp_path)
    save_dataset(planted(100), "planted")
    done = train(*arguments, "--epochs", "1")
    assert done.exit_code != 0
    assert text in " ".join((done.output + str(done.exception)).split())


@pytest.mark.parametrize("replacement", ["static", "lookahead"])
def test_tiers_in_a_loader(tmp_path, replacement):
    """A cache before the disk: what it is told, it tells on."""
    graph = sp.load_dataset("rmat:12,4").graph
    x, seeds = features(graph.num_nodes, 128), np.arange(0, 4096, 5)
    with DiskFeatures(saved(tmp_path, x), "768KiB") as found:
        cached = CachedFeatures(found, "200KiB", graph.in_degrees(), replacement=replacement)
        for batch in sp.BulkLoader(graph, seeds, sp.GraphSAGE([4, 4]), batch_size=32, features=cached, bulk_size=6):
            assert np.array_equal(batch.x, x[batch.src_nodes])
        assert found.counts.hits > 0
        assert found._rows.known == 0
