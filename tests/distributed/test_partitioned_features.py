"""Partitioned features are the local ones, moved no more than needed, and fail on all ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from spsample.comm import Recorder, run_threads
from spsample.data import planted, save_dataset
from spsample.distributed import ProcessGrid
from spsample.errors import DataError, DTypeError, InputError
from spsample.features import FeatureSource, FeatureStore, PartitionedFeatures
from spsample.features.partitioned import even_placement

GRIDS = [(p, c) for p in (1, 2, 4, 6) for c in range(1, p + 1) if p % c == 0]
TIMEOUT = 20.0


def ids_of(rank, n, seed):
    """Ids with repeats, none on some ranks."""
    rng = np.random.default_rng([seed, rank])
    return rng.integers(0, n, rng.choice([0, 1, 3 * n]))


@pytest.mark.parametrize(("p", "c"), GRIDS)
@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 40), dim=st.integers(0, 5), seed=st.integers(0, 2**32 - 1))
def test_equal_to_the_local_store_bit_for_bit(p, c, n, dim, seed):
    x = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    local = FeatureStore(x)

    def body(comm):
        features = PartitionedFeatures.of(x, ProcessGrid(comm, c))
        ids = ids_of(comm.rank, n, seed)
        for _ in range(2):
            gathered = features.gather(ids)
            assert gathered.dtype == np.float32
            assert gathered.flags.c_contiguous
            np.testing.assert_array_equal(gathered, local.gather(ids))
        out, at = np.full((len(ids) + 3, dim), -1, np.float32), np.random.default_rng(1).permutation(len(ids) + 3)[3:]
        assert features.gather(ids, out, at) is out
        np.testing.assert_array_equal(out, local.gather(ids, np.full_like(out, -1), at))
        return features.block_rows

    rows = run_threads(p, body, TIMEOUT)
    assert sum(rows) == n * c


def test_a_destination_that_does_not_fit_on_one_rank_ends_all():
    def body(comm):
        features = PartitionedFeatures.of(np.ones((8, 2), np.float32), ProcessGrid(comm))
        with pytest.raises(InputError, match=r"out: got 1 rows.*; expected one for each id: 2"):
            features.gather([0, 7], out=np.zeros((2 - (comm.rank == 1), 2), np.float32))
        return features.gather([0, 7]).tolist() == [[1, 1], [1, 1]]

    assert run_threads(2, body, TIMEOUT) == [True, True]


def test_a_duplicate_exchanges_over_communicators_of_its_own():
    def body(comm):
        features = PartitionedFeatures.of(np.ones((8, 2), np.float32), ProcessGrid(comm))
        twin = features.duplicate()
        channels = [one.exchange.channel for one in (features, twin)]
        mine, its = ({id(channel.scope), id(channel.group)} for channel in channels)
        return mine.isdisjoint(its) and twin.gather(np.array([7, 0])).tolist() == [[1.0, 1.0]] * 2

    assert run_threads(2, body, TIMEOUT) == [True, True]


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int8, np.int32, np.bool_])
def test_other_stored_dtypes_come_out_as_from_the_local_store(dtype):
    x = (np.random.default_rng(0).standard_normal((23, 4)) * 50).astype(dtype)

    def body(comm):
        features = PartitionedFeatures.of(x, ProcessGrid(comm, 2))
        assert features.row_bytes == 4 * min(np.dtype(dtype).itemsize, 4)
        return features.gather(np.arange(23))

    for rows in run_threads(4, body, TIMEOUT):
        np.testing.assert_array_equal(rows, FeatureStore(x).gather(np.arange(23)))


def test_sparse_rows():
    x = sparse.random_array((30, 7), density=0.2, rng=0, dtype=np.float32)

    def body(comm):
        return PartitionedFeatures.of(x, ProcessGrid(comm)).gather([3, 29, 3])

    for rows in run_threads(3, body, TIMEOUT):
        np.testing.assert_array_equal(rows, x.tocsr()[[3, 29, 3]].toarray())


def test_rows_placed_by_a_partition():
    x = np.arange(20, dtype=np.float32).reshape(10, 2)
    partition = np.array([2, 0, 1, 1, 0, 2, 2, 0, 0, 1])

    def body(comm):
        features = PartitionedFeatures.of(x, ProcessGrid(comm), partition=partition)
        return features.block_rows, features.gather(np.arange(10)[::-1])

    for size, rows in run_threads(3, body, TIMEOUT):
        assert size in (3, 4)
        np.testing.assert_array_equal(rows, x[::-1])


@pytest.mark.parametrize("p", [1, 4])
@pytest.mark.parametrize(
    ("dtype", "bytes_per_number", "error"),
    [("float32", 4, 0), ("float16", 2, 2**-11), ("bfloat16", 2, 2**-8), ("int8", 1, None)],
)
def test_narrow_forms_keep_their_error_and_are_what_is_sent(p, dtype, bytes_per_number, error):
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((40, 6)) * 10.0 ** np.arange(-3, 3)).astype(np.float32)
    x[5] = 0

    def body(comm):
        features = PartitionedFeatures.of(x, ProcessGrid(comm), dtype=dtype)
        assert features.row_bytes == 6 * bytes_per_number
        assert features.nbytes == features.block_rows * features.row_bytes
        return features.gather(np.arange(40))

    bound = np.abs(x).max(axis=0) / 254 * (1 + 1e-5) if error is None else error * np.abs(x) + 2.0**-25
    for rows in run_threads(p, body, TIMEOUT):
        assert (np.abs(rows - x) <= bound).all()


def test_arguments_that_differ_between_ranks_are_refused_on_all():
    x = np.arange(12.0).reshape(6, 2)

    def body(comm):
        grid = ProcessGrid(comm)
        for options in ({"dtype": "int8" if comm.rank else None}, {"dtype": "float16" if comm.rank else "float32"}):
            with pytest.raises(InputError, match="dtype: got something else on rank 1 than on rank 0"):
                PartitionedFeatures.of(x, grid, **options)
        parts = np.array([0, 1] * 3) if comm.rank else np.array([1, 0] * 3)
        with pytest.raises(InputError, match="position: got something else on rank 1"):
            PartitionedFeatures.of(x, grid, partition=parts)
        return PartitionedFeatures.of(x, grid).gather([4]).tolist()

    assert run_threads(2, body, TIMEOUT) == [[[8.0, 9.0]]] * 2


@pytest.mark.parametrize(
    ("columns", "dtype", "named"), [(2, "float32", "2 columns of float32"), (5, "float64", "5 columns of float64")]
)
def test_blocks_of_other_features_are_refused_on_all(columns, dtype, named):
    def body(comm):
        block = np.ones((4, columns), dtype) if comm.rank == 1 else np.ones((4, 5), np.float32)
        with pytest.raises(InputError, match=f"block: got 5 columns of float32 on rank 0, {named} on rank 1; expected"):
            PartitionedFeatures(block, ProcessGrid(comm), even_placement(12, 3))

    run_threads(3, body, TIMEOUT)


def test_int8_scales_are_those_of_all_blocks():
    x = np.array([[1.0], [100.0]], np.float32)
    rows = run_threads(2, lambda comm: PartitionedFeatures.of(x, ProcessGrid(comm), dtype="int8").gather([0, 1]))
    np.testing.assert_array_equal(rows[0], rows[1])
    assert abs(rows[0][0, 0] - 1) <= 100 / 254


def test_what_is_not_a_number_survives_or_is_refused():
    x = np.array([[np.nan], [np.inf]], np.float32)
    for dtype in ("float16", "bfloat16"):
        rows = run_threads(
            2, lambda comm, d=dtype: PartitionedFeatures.of(x, ProcessGrid(comm), dtype=d).gather([0, 1])
        )
        assert np.isnan(rows[1][0, 0])
        assert np.isinf(rows[1][1, 0])
    with pytest.raises(InputError, match="not finite"):
        run_threads(2, lambda comm: PartitionedFeatures.of(x, ProcessGrid(comm), dtype="int8"), TIMEOUT)


@pytest.mark.parametrize(("p", "c"), [(p, c) for p, c in GRIDS if p > 1])
def test_bytes_are_those_of_distinct_remote_rows(p, c):
    n, dim = 240, 3
    x = np.zeros((n, dim), np.float32)

    def body(comm):
        recorder = Recorder(comm)
        features = PartitionedFeatures.of(x, ProcessGrid(recorder, c))
        recorder.traffic.clear()
        ids = np.random.default_rng(comm.rank).integers(0, n, 2 * n)
        features.gather(ids)
        block = np.unique(ids) * (p // c) // n
        remote = int((block != features.grid.row).sum())
        phases = recorder.traffic.phases
        return remote, len(np.unique(ids)), phases.get("features"), phases.get("features requests")

    shares = []
    for remote, distinct, rows, requests in run_threads(p, body, TIMEOUT):
        shares.append(remote / distinct)
        if c == p:
            assert rows is None
            assert remote == 0
            continue
        assert rows.bytes_received == remote * 4 * dim
        assert requests.bytes_sent == remote * 4
        assert rows.calls == requests.calls == 1
    assert np.mean(shares) == pytest.approx(1 - c / p, abs=0.05)


@pytest.mark.parametrize("bad", [[10], [-1], [2**40]])
def test_bad_ids_of_one_rank_raise_on_every_rank(bad):
    x = np.zeros((10, 2), np.float32)
    raised = []

    def body(comm):
        features = PartitionedFeatures.of(x, ProcessGrid(comm, 2))
        with pytest.raises(InputError, match=r"\(on rank 2\)") as caught:
            features.gather(bad if comm.rank == 2 else [0, 9])
        raised.append(caught.value.argument)
        return features.gather([9]).tolist()  # and it goes on

    assert run_threads(4, body, TIMEOUT) == [[[0.0, 0.0]]] * 4
    assert raised == ["ids"] * 4


def test_ids_of_another_kind_raise_on_every_rank():
    x = np.zeros((10, 2), np.float32)

    def body(comm):
        features = PartitionedFeatures.of(x, ProcessGrid(comm))
        with pytest.raises(DTypeError, match="on rank 0"):
            features.gather([0.5] if comm.rank == 0 else [0])

    run_threads(3, body, TIMEOUT)


def test_columns_that_differ_between_ranks_are_refused():
    def body(comm):
        with pytest.raises(InputError, match="x: got other rows on rank 1 than on rank 0"):
            PartitionedFeatures.of(np.zeros((4, 2 + comm.rank), np.float32), ProcessGrid(comm))

    run_threads(2, body, TIMEOUT)


def test_opened_from_a_store(tmp_path):
    data = planted(120, random_seed=1)
    save_dataset(data, tmp_path / "g")
    local = FeatureStore.open(tmp_path / "g")

    def body(comm):
        features = FeatureStore.open(tmp_path / "g", grid=ProcessGrid(comm, 2))
        assert features.block_rows == 60
        narrow = FeatureStore.open(tmp_path / "g", grid=features.grid, dtype="float16")
        np.testing.assert_allclose(narrow.gather([7]), local.gather([7]), rtol=1e-3)
        return features.gather(np.arange(120))

    for rows in run_threads(4, body, TIMEOUT):
        np.testing.assert_array_equal(rows, local.gather(np.arange(120)))


def test_a_store_that_one_rank_lacks_is_refused_by_all(tmp_path):
    save_dataset(planted(60), tmp_path / "g")

    def body(comm):
        with pytest.raises(DataError, match="on rank 1"):
            FeatureStore.open(tmp_path / ("g" if comm.rank != 1 else "h"), grid=ProcessGrid(comm))

    run_threads(3, body, TIMEOUT)


def test_a_dtype_needs_a_grid(tmp_path):
    with pytest.raises(InputError, match="dtype"):
        FeatureStore.open(tmp_path, dtype="int8")


def test_it_is_a_feature_source():
    x = np.zeros((4, 2), np.float32)
    assert run_threads(2, lambda comm: isinstance(PartitionedFeatures.of(x, ProcessGrid(comm)), FeatureSource))[0]
