"""Data sets: their form, their determinism, their laws, and the errors of bad input."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import numpy as np
import pytest
from scipy import sparse, stats

from spsample.data import load_dataset, planted, rewire, scale_features
from spsample.data.generators import (
    PhiloxStream,
    _bayes_rates,
    _pick_one,
    nearest_neighbours,
    rmat,
    rmat_piece,
    symmetric_graph,
)
from spsample.errors import DataError, InputError
from spsample.store import to_scipy


def triangle_file(tmp_path, **changes):
    """A valid file of three vertices, with some arrays changed or (None) left out."""
    arrays = {
        "indptr": np.array([0, 2, 4, 6]),
        "indices": np.array([1, 2, 0, 2, 0, 1], dtype=np.int32),
        "x": np.eye(3, dtype=np.float32),
        "y": np.array([0, 1, 1]),
        "train_idx": np.array([0]),
        "val_idx": np.array([1]),
        "test_idx": np.array([2]),
        "meta": np.array(json.dumps({"source": "here"})),
    }
    arrays.update(changes)
    path = tmp_path / "triangle.npz"
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return path


# ---- Philox


def test_stream_is_pinned():
    stream = PhiloxStream(0)
    assert stream.words(2).tolist() == [259491006799949737, 4754966410622352325]
    assert PhiloxStream(7).permutation(6).tolist() == PhiloxStream(7).permutation(6).tolist()
    assert sorted(PhiloxStream(7).permutation(1000)) == list(range(1000))


def test_stream_below_stays_below():
    draws = PhiloxStream(1).below(3, 30_000)
    assert stats.chisquare(np.bincount(draws, minlength=3)).pvalue > 1e-6


# ---- digits


def test_digits():
    pytest.importorskip("sklearn")
    data = load_dataset("digits")
    assert data.graph.num_nodes == 1797
    assert data.x.shape == (1797, 64)
    assert data.x.dtype == np.float32
    assert [len(data.train_idx), len(data.val_idx), len(data.test_idx)] == [1078, 360, 359]
    everyone = np.concatenate([data.train_idx, data.val_idx, data.test_idx])
    assert sorted(everyone) == list(range(1797))
    matrix = to_scipy(data.graph)
    assert abs(matrix - matrix.T).nnz == 0
    assert data.graph.in_degrees().min() >= 10
    same = data.y[data.graph.indices] == np.repeat(data.y, data.graph.in_degrees())
    assert same.mean() > 0.9


def test_digits_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match="scikit-learn"):
        load_dataset("digits")


def test_nearest_neighbours_against_brute_force():
    points = PhiloxStream(3).below(5, 60).reshape(20, 3)
    near = nearest_neighbours(points, 4)
    for i, row in enumerate(near):
        order = sorted((((points[i] - points[j]) ** 2).sum(), j) for j in range(20) if j != i)
        assert row.tolist() == [j for _, j in order[:4]]


# ---- R-MAT


def test_symmetric_graph_against_scipy():
    stream = PhiloxStream(5)
    a, b = stream.below(30, 200), stream.below(30, 200)
    matrix = sparse.coo_array((np.ones(200), (a, b)), shape=(30, 30)).toarray()
    expected = (matrix + matrix.T > 0) & ~np.eye(30, dtype=bool)
    graph = symmetric_graph(a, b, 30)
    assert (to_scipy(graph).toarray() > 0).tolist() == expected.tolist()
    assert graph.indices.dtype == np.int32


def test_symmetric_graph_of_no_edges():
    assert symmetric_graph(np.array([1]), np.array([1]), 2).num_edges == 0


def test_rmat_is_deterministic():
    first, second, other = (load_dataset("rmat:9,5", random_seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.graph.indices, second.graph.indices)
    assert np.array_equal(first.x, second.x)
    assert not np.array_equal(first.graph.indptr, other.graph.indptr)
    assert first.graph.num_edges < 2 * 5 * 512


def test_rmat_quadrants():
    sources, targets = rmat_piece(1, 40_000, slice(0, 40_000), PhiloxStream(0))
    counts = np.bincount(2 * sources + targets, minlength=4)
    assert stats.chisquare(counts, 40_000 * np.array([0.57, 0.19, 0.19, 0.05])).pvalue > 1e-6


def test_rmat_in_chunks(monkeypatch):
    monkeypatch.setattr("spsample.data.generators._CHUNK", 64)
    sources, _ = rmat_piece(6, 200, slice(0, 200), PhiloxStream(0))
    assert len(sources) == 200
    assert sources.max() < 64


@pytest.mark.parametrize(("scale", "edge_factor"), [(0, 4), (32, 4), (4, 0)])
def test_rmat_refuses(scale, edge_factor):
    with pytest.raises(InputError) as caught:
        rmat(scale, edge_factor)
    assert caught.value.argument in ("scale", "edge_factor")


# ---- planted


def test_planted_neighbours_are_distinct_others():
    chosen = planted(40, 15).graph.indices.reshape(40, 15)
    assert (np.diff(chosen, axis=1) > 0).all()
    assert not (chosen == np.arange(40)[:, None]).any()
    assert chosen.min() >= 0
    assert chosen.max() < 40


def test_planted_neighbour_sets_are_uniform():
    sets = Counter(tuple(planted(5, 2, random_seed=seed).graph.indices[4:6].tolist()) for seed in range(6000))
    assert set(sets) == set(itertools.combinations([0, 1, 3, 4], 2))
    assert stats.chisquare(list(sets.values())).pvalue > 1e-6


def test_planted_labels_follow_the_majority():
    data = planted(3000, degree=7, num_classes=3, noise=0.0, random_seed=4)
    colours = data.x.argmax(axis=1)[data.graph.indices.reshape(3000, 7)]
    counts = (colours[:, :, None] == np.arange(3)).sum(axis=1)
    assert (counts[np.arange(3000), data.y] == counts.max(axis=1)).all()
    assert data.meta["bayes_rate"] < 1.0  # ties


def test_planted_label_is_independent_of_the_own_feature():
    data = planted(20_000, random_seed=1)
    table = np.zeros((4, 4))
    np.add.at(table, (data.x.argmax(axis=1), data.y), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-6


def test_planted_bayes_rate_is_reached_and_not_passed():
    data = planted(60_000, degree=6, num_classes=3, noise=0.2, random_seed=2)
    colours = data.x.argmax(axis=1)[data.graph.indices.reshape(-1, 6)]
    guess = (colours[:, :, None] == np.arange(3)).sum(axis=1).argmax(axis=1)
    reached = (guess == data.y)[data.test_idx].mean()
    rate = data.meta["bayes_rate"]
    assert abs(reached - rate) < 5 * np.sqrt(rate * (1 - rate) / len(data.test_idx))


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5, 0.75, 0.9, 1.0])
@pytest.mark.parametrize("num_classes", [2, 3, 4])
def test_planted_bayes_rate_by_enumeration(num_classes, noise):
    """The formula of the docstring against the law of the label, summed over majority and replacement."""
    for num_tied in range(1, num_classes + 1):
        law = np.zeros(num_classes)
        for majority in range(num_tied):
            law[majority] += (1 - noise) / num_tied
            for other in set(range(num_classes)) - {majority}:
                law[other] += noise / num_tied / (num_classes - 1)
        rate = _bayes_rates(np.array([num_tied]), num_classes, noise)[0]
        assert rate == pytest.approx(law.max())


def test_planted_ties_are_broken_uniformly():
    marked = np.tile([True, False, True, True], (9000, 1))
    counts = np.bincount(_pick_one(marked, PhiloxStream(0)), minlength=4)
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]]).pvalue > 1e-6


def test_rewire_keeps_degrees_and_forgets_the_rate():
    data = planted(500, degree=5)
    control = rewire(data, random_seed=3)
    assert control.name == "planted-rewired"
    assert np.array_equal(control.graph.in_degrees(), data.graph.in_degrees())
    assert np.array_equal(np.bincount(control.graph.indices), np.bincount(data.graph.indices))
    assert not np.array_equal(control.graph.indices, data.graph.indices)
    assert "bayes_rate" not in control.meta


def test_rewire_depends_on_its_seed():
    data = planted(500, degree=5)
    first, again, other = (rewire(data, random_seed=seed).graph.indices for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_streams_of_other_purposes_differ():
    assert not np.array_equal(PhiloxStream(1).words(4), PhiloxStream(1, purpose=1).words(4))
    assert not np.array_equal(PhiloxStream(2, purpose=1).words(4), PhiloxStream(1, purpose=1).words(4))


@pytest.mark.parametrize(
    ("spec", "argument"),
    [
        ("planted:15", "planted:NODES"),
        ("planted:100,0", "planted:DEGREE"),
        ("planted:100,5,1", "planted:CLASSES"),
        ("planted:100,5,3,1.5", "planted:NOISE"),
        ("planted:100,5,3,nan", "planted:NOISE"),
        ("rmat:0,4", "rmat:SCALE"),
        ("rmat:4,0", "rmat:EDGE_FACTOR"),
        ("planted:", "dataset"),
        ("planted", "dataset"),
        ("planted:100,5,3,0.1,7", "dataset"),
        ("planted:many", "dataset"),
        ("rmat:8", "dataset"),
        ("rmat:8,4.5", "dataset"),
        ("karate", "dataset"),
        ("", "dataset"),
    ],
)
def test_bad_specs(spec, argument):
    with pytest.raises(InputError) as caught:
        load_dataset(spec)
    assert caught.value.argument == argument


def test_generators_have_one_split():
    with pytest.raises(InputError, match=r"^split: got 1"):
        load_dataset("rmat:4,2", split=1)


@pytest.mark.parametrize("spec", ["./cora", "no/folder", ".hidden", "edges.txt", "graph.store", "/no-such-root/x:1"])
def test_a_path_that_leads_nowhere(spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for split in (0, 1):
        with pytest.raises(DataError, match="but there is no such file or folder; expected 'digits', the folder"):
            load_dataset(spec, split=split)


@pytest.mark.parametrize("spec", ["karate", "karate:0.5", "ogbn-arxive", ""])
def test_a_name_that_nobody_knows(spec):
    with pytest.raises(InputError, match=r"^dataset: got '.*'; expected 'digits', the folder of a store"):
        load_dataset(spec)


def test_a_file_that_is_to_be_converted(tmp_path):
    (tmp_path / "edges.txt").write_text("0 1\n")
    with pytest.raises(InputError, match="spsample convert makes a store"):
        load_dataset(tmp_path / "edges.txt")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=r"meta\.json"):
        load_dataset(tmp_path / "folder")


# ---- .npz


def test_npz(tmp_path):
    data = load_dataset(str(triangle_file(tmp_path)))
    assert data.name == "triangle"
    assert data.num_classes == 2
    assert data.meta == {"source": "here"}
    assert data.metric == "accuracy"
    assert data.graph.indices.tolist() == [1, 2, 0, 2, 0, 1]
    assert data.require_training_data() is data.x
    assert "3 vertices" in repr(data)


def test_npz_sparse_features(tmp_path):
    x = sparse.csr_array(np.array([[0, 1], [0, 0], [2, 3]], dtype=np.uint8))
    parts = {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr, "x_shape": np.array(x.shape)}
    data = load_dataset(str(triangle_file(tmp_path, x=None, **parts)))
    assert data.x.toarray().tolist() == [[0, 1], [0, 0], [2, 3]]
    scaled = scale_features(data, "rows")
    assert scaled.x.toarray() == pytest.approx(np.array([[0, 1], [0, 0], [0.4, 0.6]]))


def test_npz_topology_only_loads_but_does_not_train(tmp_path):
    missing = dict.fromkeys(["x", "y", "train_idx", "val_idx", "test_idx", "meta"])
    data = load_dataset(str(triangle_file(tmp_path, **missing)))
    assert data.x is None
    assert data.y.tolist() == [-1, -1, -1]
    with pytest.raises(
        InputError, match=r"no features in 'triangle'.* convert \.\.\. --features x.npy .*--splits .*--nodes people.csv"
    ):
        data.require_training_data()


def test_npz_splits(tmp_path):
    masks = {
        f"{part}_masks": np.roll(np.eye(3, dtype=bool), i, axis=1)[:2]
        for i, part in enumerate(["train", "val", "test"])
    }
    none = dict.fromkeys(["train_idx", "val_idx", "test_idx"])
    path = str(triangle_file(tmp_path, meta=np.array('{"metric": "ROC AUC"}'), **none, **masks))
    data = load_dataset(path, split=1)
    assert (data.train_idx.tolist(), data.val_idx.tolist(), data.test_idx.tolist()) == ([1], [2], [0])
    assert (data.split, data.num_splits, data.metric) == (1, 2, "roc_auc")
    path = str(triangle_file(tmp_path, meta=np.array('{"metric": "F1 micro"}'), **none, **masks))
    assert load_dataset(path).metric == "f1_micro"
    for split in (-1, 2):
        with pytest.raises(InputError, match=rf"^split: got {split}"):
            load_dataset(path, split=split)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"indptr": None}, "no array 'indptr'"),
        ({"indices": None}, "no array 'indices'"),
        ({"indptr": np.array([0, 2, 1, 6])}, "indptr with"),
        ({"indptr": np.array([0.0, 2.0, 4.0, 6.0])}, "indptr of dtype float64"),
        ({"indices": np.array([1, 2, 0, 2, 0, 3])}, "indices with 3 at position 5"),
        ({"indices": np.array([1, 2, 0, 2, 0, -1])}, "indices with -1 at position 5"),
        ({"data": np.array([1, 1, np.nan, 1, 1, 1])}, "nan at position 2"),
        ({"x": np.eye(4, dtype=np.float32)}, "x of shape (4, 4)"),
        ({"x": np.ones(3)}, "x of dtype float64 and shape (3,)"),
        ({"x": np.array([[1.0], [np.inf], [0.0]])}, "inf at position (1, 0)"),
        ({"x": np.array([["a"], ["b"], ["c"]])}, "x of dtype <U1"),
        ({"x": np.array([[None], [1], [2]], dtype=object)}, "unreadable"),
        ({"x": None, "x_data": np.ones(1)}, "no array 'x_indices'"),
        ({"y": np.array([0, 1])}, "labels of dtype int64 and shape (2,)"),
        ({"y": np.array([0, 1, -2])}, "-2 at position 2"),
        ({"y": np.array([0.0, 1.5, 1.0])}, "1.5 at position 1"),
        ({"val_idx": None}, "no array 'val_idx'"),
        ({"test_idx": np.array([0, 3])}, "test_idx with 3 at position 1"),
        ({"train_masks": np.ones((2, 3), dtype=bool)}, "no array 'val_masks'"),
        ({"train_idx": np.array([0, 1])}, "vertex 1 in train_idx and val_idx"),
        ({"meta": np.array("{")}, "not JSON"),
        ({"meta": np.array("[1]")}, "holding a list"),
    ],
)
def test_npz_refuses(tmp_path, changes, words):
    path = triangle_file(tmp_path, **changes)
    with pytest.raises(DataError) as caught:
        load_dataset(str(path))
    assert caught.value.argument == str(path)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"x_shape": np.array([2, 2])}, "x_shape [2, 2]"),
        ({"x_indices": np.array([5])}, "broken CSR"),
        ({"x_indptr": np.array([0, 1])}, "broken CSR"),
        ({"x_data": np.array([np.nan])}, "nan at position (0)"),
    ],
)
def test_npz_refuses_sparse_features(tmp_path, parts, words):
    good = {
        "x_data": np.ones(1),
        "x_indices": np.array([0]),
        "x_indptr": np.array([0, 1, 1, 1]),
        "x_shape": np.array([3, 2]),
    }
    path = triangle_file(tmp_path, x=None, **{**good, **parts})
    with pytest.raises(DataError) as caught:
        load_dataset(str(path))
    assert words in str(caught.value)


def test_npz_missing_truncated_and_foreign_files(tmp_path):
    with pytest.raises(DataError, match=r"^dataset: got '.*none.npz', which does not exist; expected an .npz file"):
        load_dataset(str(tmp_path / "none.npz"))
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(DataError, match="which is a folder"):
        load_dataset(str(tmp_path / "folder.npz"))
    path = triangle_file(tmp_path)
    content = path.read_bytes()
    for name, data in {"half": content[: len(content) // 2], "empty": b"", "text": b"hello"}.items():
        broken = tmp_path / f"{name}.npz"
        broken.write_bytes(data)
        with pytest.raises(DataError, match=r"no \.npz archive \(damaged or truncated\?\)") as caught:
            load_dataset(str(broken))
        assert caught.value.argument == str(broken)
    np.save(tmp_path / "lone.npy", np.arange(3))
    (tmp_path / "lone.npy").rename(tmp_path / "lone.npz")
    with pytest.raises(DataError, match=r"no \.npz archive"):
        load_dataset(str(tmp_path / "lone.npz"))


def test_npz_damaged_member(tmp_path):
    path = triangle_file(tmp_path)
    content = bytearray(path.read_bytes())
    at = content.index(b"\x93NUMPY") + 130  # within the first array: its checksum is wrong then
    content[at] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match="an unreadable file"):
        load_dataset(str(path))


def test_unlabelled_training_vertex(tmp_path):
    data = load_dataset(str(triangle_file(tmp_path, y=np.array([-1, 0, 1]))))
    with pytest.raises(InputError, match="vertex 0 without a label in train_idx"):
        data.require_training_data()


# ---- scaling


def test_scaling(tmp_path):
    data = load_dataset(str(triangle_file(tmp_path, x=np.array([[1.0, 1.0], [3.0, 1.0], [5.0, 2.0]]))))
    assert scale_features(data, "none").x is data.x
    standard = scale_features(data, "standard").x
    assert standard.mean(axis=0) == pytest.approx([0, 0], abs=1e-6)
    assert standard.std(axis=0) == pytest.approx([1, 1], abs=1e-6)
    with pytest.raises(InputError, match=r"^scaling: got 'other'"):
        scale_features(data, "other")


def test_standardising_sparse_features_is_refused(tmp_path):
    x = sparse.csr_array(np.eye(3))
    parts = {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr, "x_shape": np.array(x.shape)}
    data = load_dataset(str(triangle_file(tmp_path, x=None, **parts)))
    with pytest.raises(InputError, match="sparse"):
        scale_features(data, "standard")
