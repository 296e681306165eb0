"""Data sets as stores, and published ones by name; stand-ins take the place of PyG and ogb."""

from __future__ import annotations

import gzip
import pickle
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from typer.testing import CliRunner

import spsample as sp
from spsample.cli.main import app
from spsample.data import Dataset, load_dataset, planted, save_dataset
from spsample.data.named import NAMED, data_root
from spsample.errors import DataError, InputError, MissingDependencyError
from spsample.features import FeatureStore
from spsample.store import Graph, GraphStore, StoreWriter, to_scipy


def planted_store(path, **changes):
    data = replace(planted(60, 3, 2), **changes)
    save_dataset(data, path)
    return data


def write(path, **arrays):
    facts = arrays.pop("facts", {})
    with StoreWriter(path) as writer:
        writer.write_graph(Graph([0, 1, 2, 2], [1, 0]))
        for name, array in arrays.items():
            writer.write(name, array)
        writer.set(**facts)
    return path


def test_a_data_set_comes_back(tmp_path):
    data = planted_store(tmp_path / "p", meta={"bayes_rate": 0.5, "version": "no fact of the format"})
    back = load_dataset(tmp_path / "p")
    assert (back.name, back.metric, back.num_classes, back.split, back.num_splits) == ("p", "accuracy", 2, 0, 1)
    assert back.meta == {"bayes_rate": 0.5, "name": "planted"}
    for name in ("x", "y", "train_idx", "val_idx", "test_idx"):
        np.testing.assert_array_equal(getattr(back, name), getattr(data, name))
    assert back.x.dtype == data.x.dtype
    assert not back.x.flags.writeable
    assert back.graph.digest
    data.save(tmp_path / "p", overwrite=True)
    assert load_dataset(str(tmp_path / "p")).meta["bayes_rate"] == 0.5


def test_sparse_features(tmp_path):
    x = sparse.random_array((60, 7), density=0.3, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    planted_store(tmp_path / "p", x=x)
    back = load_dataset(tmp_path / "p")
    np.testing.assert_array_equal(back.x.toarray(), x.toarray())
    np.testing.assert_array_equal(FeatureStore.open(tmp_path / "p").gather([5, 2]), x.toarray()[[5, 2]])
    GraphStore.open(tmp_path / "p").verify()


def test_several_labels_of_a_vertex(tmp_path):
    y = np.array([[0, 1], [1, 1], [0, 0]], np.uint8)
    data = load_dataset(write(tmp_path / "s", y=y, x=np.eye(3), train_idx=[0], val_idx=[1], test_idx=[2]))
    assert (data.num_classes, data.y.shape) == (2, (3, 2))
    data.require_training_data()
    save_dataset(data, tmp_path / "again")
    np.testing.assert_array_equal(load_dataset(tmp_path / "again").y, y)
    bad = replace(data, y=np.array([[0, 1], [1, -1], [0, 0]]))
    with pytest.raises(InputError, match="vertex 1 without a label in val_idx"):
        bad.require_training_data()


def test_several_labels_stay_a_map(tmp_path):
    share = np.array([[0, 1], [1, 0], [0.5, 1]], np.float32)
    y = load_dataset(str(write(tmp_path / "store", y=share))).y
    assert not y.flags.owndata
    np.testing.assert_array_equal(y, share)


def test_masks(tmp_path):
    eye = np.eye(3, dtype=bool)
    path = write(tmp_path / "s", train_masks=eye[[0, 1]], val_masks=eye[[1, 2]], test_masks=eye[[2, 0]])
    for split in (0, 1):
        data = load_dataset(path, split=split)
        assert (data.num_splits, data.train_idx.tolist(), data.test_idx.tolist()) == (2, [split], [(split + 2) % 3])
    with pytest.raises(InputError, match=r"split: got 2; expected an integer in \[0, 2\)"):
        load_dataset(path, split=2)


def test_a_graph_alone(tmp_path):
    data = load_dataset(write(tmp_path / "lonely"))
    assert (data.name, data.x, data.num_classes, len(data.train_idx)) == ("lonely", None, 0, 0)
    assert data.y.tolist() == [-1, -1, -1]


def test_metric_and_classes(tmp_path):
    facts = {"metric": "ROC AUC", "num_classes": 4, "name": "tolokers"}
    data = load_dataset(write(tmp_path / "s", y=np.array([0, 1, -1], np.int8), facts=facts))
    assert (data.metric, data.num_classes, data.name, data.y.dtype) == ("roc_auc", 4, "s", np.int64)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.array([0.5, 1, 2])}, "0.5 at position 0"),
        ({"y": np.array([0, -2, 2])}, "-2 at position 1"),
        ({"y": np.array([0, 1, 2]), "facts": {"num_classes": 2}}, "label 2 where num_classes is 2"),
        ({"train_idx": [0], "val_idx": [1]}, "all of train_idx, val_idx, test_idx, or none"),
        ({"train_idx": [0], "val_idx": [3], "test_idx": [1]}, "3 at position 0"),
        ({"train_idx": [0], "val_idx": [1], "test_idx": [0]}, "vertex 0 in train_idx and test_idx"),
        (
            {f"{p}_masks": np.zeros((k, 3), bool) for p, k in (("train", 2), ("val", 1), ("test", 2))},
            "2, 1, 2 splits in train_masks",
        ),
        (
            {"x_data": [1.0], "x_indices": [9], "x_indptr": [0, 1, 1, 1], "facts": {"x_shape": [3, 2]}},
            "broken features",
        ),
        ({"x_data": [1.0], "x_indices": [0], "x_indptr": [0, 1], "facts": {"x_shape": [1, 2]}}, "1 rows for 3"),
        ({"x_data": [1.0]}, "broken features"),
    ],
)
def test_bad_data_sets(arrays, message, tmp_path):
    path = write(tmp_path / "s", **arrays)
    with pytest.raises((DataError, InputError), match=message):
        load_dataset(path)


def test_a_folder_that_is_no_store(tmp_path):
    with pytest.raises(DataError, match="without meta"):
        load_dataset(tmp_path)


# ----------------------------------------------------------------------------------------------------- features


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8])
def test_features_of_a_store(dtype, tmp_path):
    x = np.arange(3 * 5000).reshape(3, 5000).astype(dtype)
    edges = np.arange(4, dtype=np.float32).reshape(2, 2)
    names = {"node_features": ["x", "rank"], "edge_features": ["edge_x"]}
    path = write(tmp_path / "s", x=x, rank=np.array([3, 1, 2], np.int8), edge_x=edges, facts=names)
    features = FeatureStore.open(path)
    ids = [2, 0, 2, 1]
    np.testing.assert_array_equal(features.gather(ids), x[ids].astype(np.float32))
    assert features.gather(ids).dtype == np.float32
    assert features.gather([]).shape == (0, 5000)
    assert "memory-mapped" in repr(features)
    assert len(pickle.dumps(features)) < 1000
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(features)).gather(ids), x[ids].astype(np.float32))
    np.testing.assert_array_equal(FeatureStore.open(path, "rank").gather([0, 2]), [[3], [2]])
    np.testing.assert_array_equal(FeatureStore.open(path, name="edge_x").gather([1]), [[2, 3]])
    for name in ("indices", "z", "y"):
        with pytest.raises(InputError, match="expected one of 'x', 'rank', 'edge_x'"):
            FeatureStore.open(path, name)
    with pytest.raises(InputError, match="ids: got 3"):
        features.gather([3])


def test_features_that_are_not_there(tmp_path):
    with pytest.raises(InputError, match="a store with features"):
        FeatureStore.open(write(tmp_path / "s"))
    with pytest.raises(DataError):
        FeatureStore.open(tmp_path / "none")


# --------------------------------------------------------------------------------------- published data sets


class Tensor:
    """As much of a torch tensor as is asked for."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def numpy(self):
        return self.values


def pyg_module(calls):
    def make(root, *arguments):
        calls.append((root, *arguments))
        eye = np.eye(3, dtype=bool)
        masks = {f"{part}_mask": Tensor(eye[i]) for i, part in enumerate(("train", "val", "test"))}
        data = SimpleNamespace(
            edge_index=Tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3, x=Tensor(np.eye(3)), y=Tensor([0, 1, 1]), **masks
        )
        return [data]

    module = ModuleType("torch_geometric.datasets")
    for kind in ("Planetoid", "Reddit", "Flickr"):
        setattr(module, kind, make)
    return module


class OgbDataset:
    def __init__(self, name, root):
        self.labels = np.array([[0.0], [np.nan], [2.0]]) if "papers" in name else np.array([[0], [1], [2]])

    def __getitem__(self, at):
        graph = {"edge_index": np.array([[0, 1], [1, 2]]), "num_nodes": 3, "node_feat": np.eye(3, dtype=np.float32)}
        return graph, self.labels

    def get_idx_split(self):
        return {"train": np.array([0]), "valid": np.array([2]), "test": np.array([], np.int64)}


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Stand-ins for both packages, and a root; the calls that PyG's data sets get."""
    made = []
    ogb = ModuleType("ogb.nodeproppred")
    ogb.NodePropPredDataset = OgbDataset
    monkeypatch.setitem(sys.modules, "torch_geometric.datasets", pyg_module(made))
    monkeypatch.setitem(sys.modules, "ogb", ModuleType("ogb"))
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", ogb)
    monkeypatch.setenv("SPSAMPLE_DATA_ROOT", str(tmp_path / "root"))
    return made


@pytest.mark.parametrize("name", sorted(set(NAMED) - {"protein"}))
def test_published_data_sets_become_stores(name, calls, tmp_path, monkeypatch):
    first = load_dataset(name)
    assert first.name == NAMED[name].title
    assert (first.graph.num_nodes, first.x.shape, first.graph.digest is not None) == (3, (3, 3), True)
    assert "source" in first.meta
    if "papers" in name:
        assert first.y.tolist() == [0, -1, 2]
    for module in ("torch_geometric.datasets", "ogb.nodeproppred"):
        monkeypatch.setitem(sys.modules, module, None)  # not needed any more
    assert load_dataset(name).graph.digest == first.graph.digest
    assert len(calls) == (0 if "ogb" in name else 1)
    assert (tmp_path / "root" / "stores" / name / "meta.json").is_file()
    with pytest.raises(InputError, match="has one split"):
        load_dataset(name, split=1)


def test_no_package(monkeypatch, tmp_path):
    for module in ("torch_geometric.datasets", "ogb.nodeproppred"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=r"spsample\[pyg\]"):
        load_dataset("cora", root=tmp_path)
    with pytest.raises(MissingDependencyError, match="pip install ogb"):
        load_dataset("ogbn-arxiv", root=tmp_path)


@pytest.mark.parametrize("error", [OSError("no route to host"), RuntimeError("404"), EOFError("input")])
def test_no_network(error, calls, tmp_path, monkeypatch):
    def fail(*arguments, **named):
        raise error

    monkeypatch.setattr(sys.modules["torch_geometric.datasets"], "Planetoid", fail)
    with pytest.raises(DataError, match=r"'cora', which could not be fetched .*expected a network") as caught:
        load_dataset("cora")
    assert str(error) in str(caught.value)
    assert not (tmp_path / "root" / "stores" / "cora").exists()


def test_protein(tmp_path):
    with pytest.raises(DataError, match="HipMCL"):
        load_dataset("protein", root=tmp_path)
    folder = tmp_path / "downloads" / "protein"
    folder.mkdir(parents=True)
    text = "%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 0.5\n3 1 0.25\n"
    (folder / "protein.mtx.gz").write_bytes(gzip.compress(text.encode()))
    data = load_dataset("protein", root=tmp_path)
    assert to_scipy(data.graph).toarray().tolist() == [[0, 0.5, 0.25], [0.5, 0, 0], [0.25, 0, 0]]
    assert isinstance(data, Dataset)


def test_root(monkeypatch, tmp_path):
    monkeypatch.delenv("SPSAMPLE_DATA_ROOT", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_root() == tmp_path / "spsample"
    monkeypatch.setenv("SPSAMPLE_DATA_ROOT", "~/sets")
    assert data_root().name == "sets"
    assert "~" not in str(data_root())
    assert data_root(tmp_path) == tmp_path


# ------------------------------------------------------------------------------------------------------------- names


def test_a_store_is_named_after_its_folder_wherever_that_is(tmp_path, monkeypatch):
    save_dataset(planted(60, 3, 2), tmp_path / "first")
    (tmp_path / "first").rename(tmp_path / "second")
    for path in (tmp_path / "second", f"{tmp_path}/second/"):
        assert load_dataset(path).name == "second"
        assert GraphStore.open(path).name == "second"
    assert load_dataset(tmp_path / "second").meta["name"] == "planted"
    (tmp_path / "link").symlink_to("second")
    assert load_dataset(tmp_path / "link").name == "link"
    monkeypatch.chdir(tmp_path / "second")
    assert load_dataset(".").name == "second"


def test_commands_print_the_name_of_the_folder(tmp_path):
    pytest.importorskip("torch")
    runner, store = CliRunner(), str(tmp_path / "mine")
    assert runner.invoke(app, ["convert", "planted:300", store]).exit_code == 0
    assert runner.invoke(app, ["info", store]).stdout.startswith("mine\n")
    trained = runner.invoke(app, ["train", store, "--epochs", "1", "--fanouts", "2", "--hidden", "4"])
    assert trained.stdout.startswith("mine: 300 vertices")


def test_a_run_on_a_store_of_an_older_release_goes_on(tmp_path):
    """Older releases took the name of what a store was made of for that of the data set."""
    pytest.importorskip("torch")
    from spsample.training import ModelConfig, TrainConfig, Trainer

    save_dataset(planted(300), tmp_path / "mine")

    def trainer(data):
        return Trainer(data, sp.GraphSAGE([2]), ModelConfig(hidden=4), TrainConfig(epochs=1, batch_size=64))

    data = load_dataset(tmp_path / "mine")
    state = trainer(replace(data, name="planted")).state_dict()
    trainer(data).load_state_dict(state)
    with pytest.raises(InputError, match=r"dataset 'other' \(here 'mine'\)"):
        trainer(data).load_state_dict(trainer(replace(data, name="other")).state_dict())
