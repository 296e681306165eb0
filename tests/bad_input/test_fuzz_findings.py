"""What tests/fuzz/fuzz_entry_points.py once found: each now gives a clear error, or works."""

from __future__ import annotations

import gc
import io
import zipfile

import numpy as np
import pytest
import scipy.sparse

import spsample as sp
from spsample.advice import advise, cache_report
from spsample.convert import convert
from spsample.errors import DataError, DTypeError, InputError
from spsample.features import (
    CachedFeatures,
    DiskFeatures,
    FeatureStore,
    aggregate_features,
    aggregated_dim,
    draw_shift,
)
from spsample.reorder import reorder
from spsample.sampling.workload import Workload
from spsample.timeline import Phases


def archive(**changes):
    """A data set with vertices 0 -> 1 -> 2 as the bytes of an .npz file."""
    arrays = {"indptr": np.array([0, 0, 1, 2]), "indices": np.array([0, 1]), "y": np.array([0, 1, 0])}
    arrays |= {f"{part}_idx": np.array([v]) for v, part in enumerate(("train", "val", "test"))}
    buffer = io.BytesIO()
    np.savez(buffer, **{**arrays, **changes})
    return buffer.getvalue()


def rewritten(raw, change):
    """The archive with every member's bytes changed, its checksums right again."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            target.writestr(name, change(name, source.read(name)))
    return out.getvalue()


def flipped(raw, signature, offset, value):
    """With one byte of the first record that begins with `signature` changed."""
    at = raw.index(signature) + offset
    return raw[:at] + bytes([value]) + raw[at + 1 :]


DAMAGED = {
    "header of an array": lambda raw: rewritten(
        raw, lambda name, content: content.replace(b"{'descr'", b"{('descr'", 1)
    ),
    "a member that is no array": lambda raw: rewritten(
        raw, lambda name, content: b"garbage" if name == "indices.npy" else content
    ),
    "flags of a member": lambda raw: flipped(raw, b"PK\x01\x02", 8, 0x20),
    "encrypted": lambda raw: flipped(raw, b"PK\x01\x02", 8, 0x01),
    "method of compression": lambda raw: flipped(raw, b"PK\x01\x02", 10, 77),
    "version of the archive": lambda raw: flipped(raw, b"PK\x01\x02", 6, 87),
    "truncated": lambda raw: raw[: len(raw) // 2],
    "empty": lambda raw: b"",
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_damaged_archives(damage, tmp_path):
    path = tmp_path / "damaged.npz"
    path.write_bytes(damage(archive()))
    with pytest.raises(DataError) as caught:
        sp.load_dataset(str(path))
    assert caught.value.argument == str(path)
    del caught
    gc.collect()  # a file left open would be reported here, as an unraisable ResourceWarning


def test_the_archive_itself_is_sound(tmp_path):
    path = tmp_path / "sound.npz"
    path.write_bytes(rewritten(archive(), lambda name, content: content))
    assert sp.load_dataset(str(path)).graph.num_edges == 2


@pytest.mark.parametrize("spec", [None, 3, b"digits", scipy.sparse.coo_array((2, 2)), ["digits"]], ids=repr)
def test_data_sets_by_something_else_than_a_name(spec):
    with pytest.raises(DTypeError, match=r"dataset: got an object of type .*; expected 'digits'"):
        sp.load_dataset(spec)


@pytest.mark.parametrize("split", [[], np.zeros(0), 1.0, "0", None, True], ids=repr)
def test_splits_that_are_no_integer(split, tmp_path):
    path = tmp_path / "sound.npz"
    path.write_bytes(archive())
    for spec in (str(path), "rmat:3,2"):
        with pytest.raises(DTypeError, match=r"split: got "):
            sp.load_dataset(spec, split=split)


def test_coo_matrices_whose_arrays_differ_in_length():
    matrix = scipy.sparse.coo_array((np.ones(3), ([0, 1, 1], [1, 0, 1])), shape=(2, 2))
    matrix.data = matrix.data[:2]
    with pytest.raises(InputError, match=r"matrix\.data: got length 2; expected length 3"):
        sp.Graph.from_scipy(matrix)


@pytest.mark.filterwarnings("ignore:.* array has non-integer dtype")
@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
def test_matrices_with_arrays_of_text(kind):
    for name in ("indptr", "indices"):
        matrix = scipy.sparse.random_array((4, 4), density=0.5, format=kind, rng=np.random.default_rng(0))
        setattr(matrix, name, getattr(matrix, name).astype("S2"))
        with pytest.raises(InputError, match=r"matrix.*: got "):
            sp.Graph.from_scipy(matrix)


def test_shuffle_by_small_integer_types():
    np.testing.assert_array_equal(sp.shuffle(np.int8(9), np.int8(3), np.uint8(2)), sp.shuffle(9, 3, 2))


# --- features near the trainer ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [3, 0.5, np.array(3), len], ids=repr)
def test_hints_that_are_no_batches(batches, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 2), np.float32))
    store = FeatureStore(np.ones((4, 2)))
    with DiskFeatures(tmp_path / "x.npy", 0) as disk:
        for source in (CachedFeatures(store, "1KiB", np.ones(4), replacement="lookahead"), disk):
            with pytest.raises(DTypeError, match=r"batches: got .*; expected ids of each call"):
                source.prefetch_hint(batches)


def test_local_batches_of_any_size():
    graph = sp.Graph([0, 1, 2], [1, 0])
    loader = sp.BulkLoader(graph, [0, 1], sp.GraphSAGE([1]), batch_size=10**400, batches="local")
    assert [batch.seeds.tolist() for batch in loader] in ([[0, 1]], [[1, 0]])


@pytest.mark.parametrize("batches", [scipy.sparse.coo_array((2, 2)), np.zeros(3), None, 3], ids=repr)
def test_states_of_other_batches(batches):
    loader = sp.BulkLoader(sp.Graph([0, 1, 2], [1, 0]), [0, 1], sp.GraphSAGE([1]), batch_size=1)
    with pytest.raises(InputError, match="state: got the state of"):
        loader.load_state_dict({**loader.state_dict(), "batches": batches})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seeds": scipy.sparse.coo_array((2, 2))}, "seeds: got "),
        ({"seeds": np.array([], np.int64)}, "seeds: got none"),
        ({"seeds": np.array([9])}, "seeds: got 9"),
        ({"graph": "rmat:3,2"}, "graph: got 'rmat:3,2'"),
        ({"row_bytes": "row"}, "row_bytes: got 'row'"),
        ({"row_bytes": 0}, "row_bytes: got 0"),
        ({"bulk_size": 0}, "bulk_size: got 0"),
    ],
)
def test_workloads_that_cannot_be_sampled(change, words):
    graph = sp.Graph([0, 1, 2], [1, 0])
    workload = {"graph": graph, "seeds": np.array([0, 1]), "sampler": sp.GraphSAGE([1]), "batch_size": 1}
    options = {name: change[name] for name in ("row_bytes", "bulk_size") if name in change}
    workload |= {name: value for name, value in change.items() if name not in options}
    with pytest.raises((InputError, DTypeError), match=words):
        cache_report(Workload(**workload), **{"row_bytes": 4, **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scores": len}, "scores: got "),
        ({"scores": ["replay"]}, "scores: got 'replay'"),
        ({"budgets": 0.5}, "budgets: got 0.5"),
        ({"budgets": []}, "budgets: got none"),
        ({"budget": 0}, "budget: got 0"),
    ],
)
def test_reports_of_no_scores_or_budgets(options, words):
    workload = Workload(sp.Graph([0, 1, 2], [1, 0]), np.array([0, 1]), sp.GraphSAGE([1]), 1)
    with pytest.raises((InputError, DTypeError), match=words):
        cache_report(workload, 4, **options)


def test_advice_where_nothing_is_received():
    """A graph without edges, each part of which has the rows of its own seeds."""
    graph = sp.Graph(np.zeros(5, np.int64), [])
    report = cache_report(Workload(graph, np.arange(4), sp.GraphSAGE([2, 2]), 1), 4, ranks=2)
    assert advise(report)
    with pytest.raises(DTypeError, match="report: got 3 of type int; expected a CacheReport"):
        advise(3)


def test_advice_where_batches_need_no_rows():
    graph = sp.Graph(np.zeros(5, np.int64), [])
    sampler = sp.GraphSAGE([2], include_targets=False)
    assert advise(cache_report(Workload(graph, np.arange(4), sampler, 1), 4, ranks=2))


def test_the_shift_of_a_graph_without_edges():
    graph = sp.Graph(np.zeros(5, np.int64), [])
    shift = draw_shift(graph, [0, 1], sp.Biased(sp.GraphSAGE([2]), [1], factor=2), batch_size=1)
    assert shift.total_variation == shift.largest_total_variation == 0


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (3, "out: got 3 of type int"),
        (np.zeros((2, 4)), "out: got dtype float64"),
        (np.zeros((2, 3), np.float32), r"out: got shape \(2, 3\)"),
        (np.broadcast_to(np.float32(0), (2, 4)), "out: got an array that cannot be written to"),
    ],
)
def test_places_of_sums_that_are_refused(out, words):
    with pytest.raises((InputError, DTypeError), match=words):
        aggregate_features(sp.Graph([0, 1, 2], [1, 0]), np.ones((2, 2)), out=out)


@pytest.mark.parametrize(("dim", "aggregation"), [("3", "mean"), (-1, "mean"), (3, "sum"), (3, np.zeros(0))])
def test_widths_of_sums_that_are_refused(dim, aggregation):
    with pytest.raises((InputError, DTypeError), match=r"dim: got|aggregation: got"):
        aggregated_dim(dim, aggregation)


@pytest.mark.parametrize("sizes", [5, None, np.array(2)], ids=repr)
def test_sizes_that_are_one_number(sizes):
    for sampler in (sp.GraphSAGE([2]), sp.Biased(sp.GraphSAGE([2]), [0], factor=2)):
        with pytest.raises(DTypeError, match=r"sizes: got .*; expected a number for each layer"):
            sampler.with_sizes(sizes)


def test_names_of_sources_that_no_system_takes(tmp_path):
    for source in ("x" * 300 + ".txt", "x" * 300 + ".npy", "x" * 300):
        with pytest.raises((DataError, InputError), match="xxx"):
            convert(str(tmp_path / source), tmp_path / "store")


@pytest.mark.parametrize("options", [{"exact": scipy.sparse.coo_array((2, 2))}, {"relabel": "no"}, {"name": 3}])
def test_orders_by_words_that_are_none(options, tmp_path):
    sp.Graph([0, 1, 2], [1, 0]).save(tmp_path / "store")
    with pytest.raises(DTypeError, match=f"{next(iter(options))}: got "):
        reorder(tmp_path / "store", tmp_path / "new", [1, 2], **options)
    assert not (tmp_path / "new").exists()


def test_an_array_as_the_dtype_of_rows_on_a_device():
    with pytest.raises((InputError, DTypeError), match="dtype"):
        sp.DeviceFeatures(np.zeros((3, 2), np.float32), dtype=np.zeros(2))


ARRAYS_FOR_ONE = [np.arange(2), np.ones((2, 2)), np.zeros(0), np.array(["auto"]), scipy.sparse.eye(3)]
IDS_OF_NO_CALLS = [scipy.sparse.eye(3), scipy.sparse.csr_array(np.eye(3)), scipy.sparse.coo_array((3, 3))]


@pytest.mark.parametrize("value", ARRAYS_FOR_ONE, ids=lambda one: f"{type(one).__name__}{one.shape}")
@pytest.mark.parametrize("name", ["cache_budget", "cache_score", "epochs", "lr", "fetch", "pipeline"])
def test_arrays_for_one_setting(name, value):
    training = pytest.importorskip("spsample.training")
    name = {"lr": "learning_rate"}.get(name, name)
    with pytest.raises((InputError, DTypeError), match=f"{name}: got "):
        training.TrainConfig(**{name: value})


@pytest.mark.parametrize("matrix", IDS_OF_NO_CALLS, ids=lambda one: one.format)
def test_sparse_matrices_for_what_is_gone_through(matrix, tmp_path):
    x = np.ones((30, 8), np.float32)
    np.save(tmp_path / "x.npy", np.ones((3000, 8), np.float32))
    store = sp.FeatureStore(x)
    sources = [
        sp.CachedFeatures(store, 400, np.arange(30)),
        sp.CachedFeatures(store, 1500, np.arange(30), replacement="lookahead"),
        sp.DiskFeatures(tmp_path / "x.npy", "32KiB"),
    ]
    for source in sources:
        with pytest.raises(DTypeError, match="batches: got a scipy"):
            source.prefetch_hint(matrix)
        with pytest.raises(DTypeError, match=r"(batches|ids): got a scipy"):
            source.prefetch_hint([matrix])
    with pytest.raises(DTypeError, match="names: got a scipy"):
        Phases(matrix)
