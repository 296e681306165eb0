"""A device in front of a feature source: what it keeps in a budget, asks the source for, counts, tells and refuses."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from emulated_backend import emulated, needs_compiler
from nested_sources import Told

import spsample as sp
from spsample.backends import get_backend
from spsample.comm import LocalCommunicator, run_threads
from spsample.errors import CapacityError, DataError, DTypeError, InputError
from spsample.features import (
    CacheCounts,
    CachedFeatures,
    CopyPlan,
    DeviceFeatures,
    DiskFeatures,
    FeatureSource,
    FeatureStore,
    PartitionedFeatures,
    RoutedFeatures,
)
from spsample.features.device import StagedRows

pytestmark = needs_compiler
__all__ = ["emulated"]

N, DIM = 400, 8
WANTED = np.arange(N)
"""The last vertices are hot."""


def numbers(dtype=np.float32):
    return (np.random.default_rng(0).standard_normal((N, DIM)) * 50).astype(dtype)


class Asked(Told):
    """Keeps the ids and the type of what it was asked for."""

    def __init__(self, x):
        super().__init__(x)
        self.stored_dtype = x.dtype
        self.asked = []

    def _read(self, ids, out, at=None):
        super()._read(ids, out, at)
        self.asked.append((np.array(ids), out.dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
def test_a_budget_holds_the_rows_and_the_map(emulated, dtype):
    row_bytes, map_bytes = DIM * np.dtype(dtype).itemsize, 8 * -(-N // 32)
    budget = 30 * row_bytes + map_bytes + row_bytes - 1
    features = DeviceFeatures(FeatureStore(numbers(dtype)), f"{budget}B", WANTED)
    assert features.hot_rows == 30
    assert features.nbytes == 30 * row_bytes + map_bytes <= budget
    np.testing.assert_array_equal(features.hot_vertices, np.arange(N - 30, N))
    assert features.hot_share == 30 / N


def test_a_budget_for_an_array_holds_its_table(emulated):
    features = DeviceFeatures(numbers(), f"{8 * N + 30 * 4 * DIM}B", WANTED)
    np.testing.assert_array_equal(features.hot_vertices, np.arange(N - 30, N))
    assert features.counts is None
    assert not features.looks_ahead


def test_auto_takes_half_of_the_free_memory(emulated):
    row_bytes, map_bytes = 4 * DIM, 8 * -(-N // 32)
    emulated._free_bytes = 2 * (map_bytes + 17 * row_bytes)
    assert DeviceFeatures(FeatureStore(numbers()), "auto", WANTED).hot_rows == 17
    emulated._free_bytes = map_bytes
    assert DeviceFeatures(FeatureStore(numbers()), "auto", WANTED).hot_rows == 0
    emulated._free_bytes = 1 << 30
    assert DeviceFeatures(FeatureStore(numbers())).hot_rows == N


@pytest.mark.parametrize(
    ("hot", "words"),
    [
        ("10B", r"hot: got 10 B; expected at least one row of 32 bytes and 104 bytes for the map"),
        ("135B", r"at least one row of 32 bytes"),
        ("hot", r"hot: got .*expected a number of bytes"),
        (-0.1, r"hot: got -0.1; expected 'auto', the share of the rows"),
        (300, r"hot: got 300"),
        (None, r"hot: got None"),
    ],
)
def test_budgets_that_are_refused(emulated, hot, words):
    with pytest.raises(InputError, match=words):
        DeviceFeatures(FeatureStore(numbers()), hot, WANTED)


def test_more_than_the_device_has(emulated):
    emulated._free_bytes = 1000
    for hot in (1.0, "1GiB"):
        with pytest.raises(CapacityError, match="expected at most the 1000 B that the device has free"):
            DeviceFeatures(FeatureStore(numbers()), hot, WANTED)


@pytest.mark.parametrize(
    ("dtype", "sent"), [("float32", "float32"), ("float16", "float16"), ("int8", "int8"), ("float64", "float32")]
)
def test_the_source_is_asked_for_what_misses_as_it_is_stored(emulated, dtype, sent):
    source, ids = Asked(numbers(dtype)), np.array([399, 5, 0, 380, 5, 398])
    features = DeviceFeatures(source, 0.1, WANTED)
    source.asked.clear()
    np.testing.assert_array_equal(emulated.to_host(features.gather(ids)), numbers(dtype)[ids].astype(np.float32))
    ((asked, of_type),) = source.asked
    assert (asked.tolist(), of_type) == ([5, 0, 5], sent)
    row_bytes = DIM * np.dtype(sent).itemsize
    assert features.counts == CacheCounts(hits=3, misses=3, hit_bytes=3 * row_bytes, miss_bytes=3 * row_bytes)
    assert "50.0% of 6 hit" in repr(features)
    source.asked.clear()
    features.gather([399, 390])
    assert source.asked == []
    features.reset_counts()
    assert features.counts.hits == features.counts.misses == 0


def test_the_source_is_told_what_it_will_be_asked_for(emulated):
    source = Asked(numbers())
    features = DeviceFeatures(source, 0.2, WANTED)
    source.asked.clear()
    batches = [np.random.default_rng(i).integers(0, N, 50) for i in range(3)]
    assert features.looks_ahead
    features.prefetch_hint([batches[0], emulated.to_device(batches[1])])
    features.prefetch_hint([batches[2]])
    for ids in batches:
        features.gather(emulated.to_device(ids.astype(np.int32)))
    for told, (asked, _) in zip(source.known, source.asked, strict=True):
        np.testing.assert_array_equal(told, asked)
    features.prefetch_hint(None)
    assert source.known == []
    with pytest.raises(InputError, match="batches: got 400"):
        features.prefetch_hint([[N]])
    other = DeviceFeatures(FeatureStore(numbers()), 0.2, WANTED)
    before = emulated.launches, emulated.waits
    other.prefetch_hint(batches)
    assert (emulated.launches, emulated.waits, other.looks_ahead) == (*before, False)


def test_a_loader_tells_a_disk_below_a_cache_below_a_device(emulated, tmp_path):
    """Three tiers: the disk reads less where what comes is passed on to it."""
    graph = sp.load_dataset("rmat:12,6").graph
    x = np.random.default_rng(0).standard_normal((graph.num_nodes, 128)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    wanted = graph.in_degrees()
    read = []
    for is_told in (True, False):
        with DiskFeatures(tmp_path / "x.npy", "1MiB") as disk:
            features = DeviceFeatures(CachedFeatures(disk, "100KiB", wanted), "50KiB", wanted)
            if not is_told:
                features.prefetch_hint = lambda batches: None
            loader = sp.BulkLoader(
                sp.DeviceGraph(graph),
                np.arange(0, graph.num_nodes, 8),
                sp.GraphSAGE([4, 3]),
                batch_size=32,
                bulk_size=8,
                features=features,
                prefetch=0,
            )
            before = disk.counts.read_bytes
            for batch in loader:
                np.testing.assert_array_equal(emulated.to_host(batch.x), x[emulated.to_host(batch.src_nodes)])
            read.append(disk.counts.read_bytes - before)
            assert 0 < loader.cache_counts.hits < features.counts.hits + features.counts.misses
            assert features.source.counts.misses < features.counts.misses
    assert read[0] < read[1]


def test_other_sources_are_refused(emulated):
    on_device = DeviceFeatures(numbers(), 1.0)
    with pytest.raises(InputError, match=r"source: got DeviceFeatures.*DeviceFeatures\(CachedFeatures\(source, ...\)"):
        CachedFeatures(on_device, 100, WANTED)
    plan, grid = CopyPlan.of([np.arange(3)], N), sp.ProcessGrid(LocalCommunicator())
    with pytest.raises(InputError, match=r"source: got DeviceFeatures.*DeviceFeatures\(RoutedFeatures\(source"):
        RoutedFeatures(on_device, plan, 0.5, grid)
    with pytest.raises(InputError, match="x: got DeviceFeatures, whose rows are on a device"):
        DeviceFeatures(on_device, 0.5, WANTED)
    with pytest.raises(InputError, match="dtype: got 'int8' with a FeatureStore; expected None"):
        DeviceFeatures(FeatureStore(numbers()), 0.5, WANTED, dtype="int8")
    with pytest.raises(InputError, match="ranking: got none, with 50% of the rows on the device"):
        DeviceFeatures(FeatureStore(numbers()), 0.5)
    with pytest.raises(InputError, match="seeds: got it without the name"):
        DeviceFeatures(FeatureStore(numbers()), 0.5, WANTED, seeds=[1])


def test_it_is_pickled_as_its_recipe(emulated):
    source = FeatureStore(numbers())
    features = DeviceFeatures(source, 0.1, WANTED)
    read = pickle.loads(pickle.dumps(features))
    np.testing.assert_array_equal(read.hot_vertices, features.hot_vertices)
    np.testing.assert_array_equal(emulated.to_host(read.gather([399, 1])), numbers()[[399, 1]])
    pickled = pickle.dumps(DeviceFeatures(Changing(), 0.1, WANTED))
    Changing.added = 1
    try:
        with pytest.raises(DataError, match=r"source: got .*, whose rows have changed"):
            pickle.loads(pickled)
    finally:
        Changing.added = 0


class Changing(FeatureSource):
    """Features that are others later."""

    num_rows, dim, added = N, DIM, 0

    def _read(self, ids, out, at=None):
        FeatureStore(numbers() + self.added).gather(ids, out, at)


def test_a_file_that_was_written_to_is_refused(emulated, tmp_path):
    np.save(tmp_path / "x.npy", numbers())
    features = DeviceFeatures(FeatureStore(np.load(tmp_path / "x.npy", mmap_mode="r")), 0.1, WANTED)
    changed = np.load(tmp_path / "x.npy", mmap_mode="r+")
    changed[3] = 7
    changed.flush()
    touched(tmp_path / "x.npy")
    np.testing.assert_array_equal(emulated.to_host(features.gather([3])), changed[[3]])
    changed[N - 1] = 7
    changed.flush()
    touched(tmp_path / "x.npy", 2)
    with pytest.raises(DataError, match="whose file was written to"):
        features.gather([3])


def touched(path, seconds=1):
    import os

    now = path.stat().st_mtime + seconds
    os.utime(path, (now, now))


def test_what_one_rank_cannot_use_is_refused_on_all(emulated):
    def body(comm):
        source = PartitionedFeatures.of(numbers(), sp.ProcessGrid(comm))
        features = DeviceFeatures(source, 0.5, WANTED if comm.rank else WANTED[::-1])
        ids = [N] if comm.rank == 1 else [1]
        with pytest.raises(InputError, match="ids: got 400"):
            features.gather(ids)
        with pytest.raises((InputError, DTypeError), match="out"):
            features.gather([1], np.zeros((1, DIM), np.float32) if comm.rank == 1 else None)
        with pytest.raises(InputError, match="DeviceFeatures on several ranks, to be pickled"):
            pickle.dumps(features)
        with pytest.raises(InputError, match="hot: got 2"):
            DeviceFeatures(source, 2 if comm.rank else 0.5, WANTED)
        with pytest.raises(InputError, match="ranking"):
            DeviceFeatures(source, 0.5, WANTED if comm.rank else "posterior", **({} if comm.rank else workload()))
        all_hot = DeviceFeatures(source, 1.0 if comm.rank else 0.0)
        ids = np.arange(comm.rank, N, 3)
        np.testing.assert_array_equal(emulated.to_host(all_hot.gather(ids)), numbers()[ids])
        assert all_hot.counts.misses == (0 if comm.rank else len(ids))

    run_threads(3, body, 60.0)


def workload():
    graph = sp.Graph.from_edge_index(np.random.default_rng(0).integers(0, N, (2, 3000)), num_nodes=N)
    return {"graph": graph, "seeds": np.arange(0, N, 4), "sampler": sp.GraphSAGE([3, 3]), "batch_size": 16}


@pytest.mark.parametrize("name", ["posterior", "out-degree"])
def test_hot_rows_are_those_of_a_score(emulated, name):
    features = DeviceFeatures(FeatureStore(numbers()), 0.1, name, **workload())
    scores = sp.features.score(name, **workload())
    np.testing.assert_array_equal(features.hot_vertices, np.sort(np.argsort(-scores, kind="stable")[: N // 10]))


def test_pinned_memory_is_written_again_once_it_was_read(emulated, monkeypatch):
    """Within one session, in which nobody else waits for what the kernels read."""
    kernels = get_backend("cuda")

    def passes():
        staged = StagedRows(kernels.device, 2, np.dtype(np.float32))
        with kernels.session():
            for number in range(3):
                with staged.rows(2 + number % 2) as (rows, addresses):
                    rows[:] = number
                    got = kernels.gather_rows_at(addresses, None, 2, "float32")
        np.testing.assert_array_equal(emulated.to_host(got), np.full((2, 2), 2))

    passes()
    with monkeypatch.context() as patch:
        patch.setattr(emulated, "finish", lambda ready: None)
        with pytest.raises(AssertionError, match="the host wrote to memory that stream 1 may still read"):
            passes()


def test_callers_on_several_streams(emulated):
    source = FeatureStore(numbers())
    with emulated.callers_on(2):
        features = DeviceFeatures(source, 0.3, WANTED)
    for stream in (3, 2, 4, 3):
        ids = np.random.default_rng(stream).integers(0, N, 60)
        with emulated.callers_on(stream):
            rows = features.gather(ids)
        with emulated.callers_on(5):
            np.testing.assert_array_equal(get_backend("cuda").on_host(rows), numbers()[ids])
