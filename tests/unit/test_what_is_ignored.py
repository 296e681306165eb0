"""What has no effect is said, or refused by its own name; sparse features stay sparse; other spellings are taken."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from typer.testing import CliRunner

import spsample as sp
from spsample.cli.main import app
from spsample.convert import ConvertOptions, convert
from spsample.data import load_dataset
from spsample.errors import DataError
from spsample.store import GraphStore


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("source,target,stars,time\n0,1,5,7\n1,0,3,8\n2,0,1,9\n")
    return path


def write_parquet(columns, path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path)


# ---- columns that are not read


def test_columns_that_are_not_read_are_said(table, tmp_path):
    options = ("--columns", "source,target")
    result = run("convert", table, tmp_path / "a", *options)
    assert "note: columns stars, time of" in result.stderr
    assert "are not read; --weights COLUMN takes one as weights" in result.stderr
    weighted = run("convert", table, tmp_path / "b", *options, "--weights", "stars")
    assert "note: column time of" in weighted.stderr
    assert "--weights" not in weighted.stderr
    told = json.loads(run("convert", table, tmp_path / "c", *options, "--json").stdout)
    assert told["not_read"] == ["stars", "time"]


def test_a_column_whose_name_is_empty(tmp_path):
    (tmp_path / "e.csv").write_text("src,dst,,stars\n0,1,2,3\n")
    assert "note: columns (without a name), stars of" in run("convert", tmp_path / "e.csv", tmp_path / "a").stderr


def test_columns_without_names_have_numbers(tmp_path):
    (tmp_path / "e.txt").write_text("# a comment\n0 1 0.5\n1 0 2.5\n")
    assert convert(tmp_path / "e.txt", tmp_path / "a").not_read == ("2",)
    assert convert(tmp_path / "e.txt", tmp_path / "b", ConvertOptions(weights="2")).not_read == ()


def test_columns_of_parquet_that_are_not_read(tmp_path):
    write_parquet({"a": [0, 1], "b": [1, 0], "weight": [0.5, 1.5]}, tmp_path / "e.parquet")
    options = ConvertOptions(columns=("a", "b"))
    assert convert(tmp_path / "e.parquet", tmp_path / "s", options).not_read == ("weight",)


def test_attributes_of_pyg_that_are_not_read(tmp_path):
    torch = pytest.importorskip("torch")
    data_of = pytest.importorskip("torch_geometric.data").Data
    edges = torch.tensor([[0, 1], [1, 0]])
    data = data_of(edge_index=edges, edge_attr=torch.ones(2, 3), pos=torch.ones(2, 3), x=torch.ones(2, 1), num_nodes=2)
    assert convert(data, tmp_path / "s").not_read == ("edge_attr", "pos")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_option_that_is_wrong_is_named(kind, table, tmp_path):
    source = table
    if kind == "parquet":
        source = tmp_path / "e.parquet"
        write_parquet({"source": [0], "target": [1], "stars": [5.0]}, source)
    wrong = run("convert", source, tmp_path / "s", "--columns", "source,target", "--weights", "points")
    assert wrong.exit_code == 2
    assert "--weights: got 'points'" in wrong.stderr
    assert "--columns" not in wrong.stderr
    assert "--columns: got 'from'" in run("convert", source, tmp_path / "s", "--columns", "from,target").stderr


# ---- options of ranks


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--network", "ethernet"),
        ("--replication", "2"),
        ("--memory-per-rank", "40GB"),
        ("--algorithm", "stages"),
        ("--threads-per-rank", "8"),
    ],
)
def test_options_of_a_cluster_need_ranks(option, value):
    result = run("plan", "planted:300", option, value)
    assert result.exit_code == 2
    assert f"{option}: got {value} without --ranks; expected --ranks, for a cluster" in result.stderr


def test_options_of_ranks_on_one_are_said():
    pytest.importorskip("torch")
    words = ("--replication", "2", "--feature-dtype", "float16", "--replicated")
    result = run("train", "planted:300", "--epochs", "1", *words[:4])
    assert "note: --replication, --feature-dtype have no effect on one rank" in result.stderr
    assert (
        "note: --replicated has no effect on one rank" in run("train", "planted:300", "--epochs", "1", words[4]).stderr
    )
    assert "no effect" not in run("train", "planted:300", "--epochs", "1").stderr


# ---- sparse features


@pytest.fixture
def one_hot(tmp_path):
    n, columns = 300, 4005
    x = scipy.sparse.csr_array(
        (np.ones(n, np.float32), np.random.default_rng(0).integers(0, columns, n), np.arange(n + 1)), (n, columns)
    )
    ring = np.stack([np.arange(n), np.roll(np.arange(n), 1)])
    np.save(tmp_path / "edges.npy", ring)
    np.save(tmp_path / "y.npy", np.arange(n) % 3)
    parts = np.split(np.arange(n), [180, 240])
    np.savez(tmp_path / "splits.npz", **dict(zip(("train_idx", "val_idx", "test_idx"), parts, strict=True)))
    return x


def options(tmp_path):
    return ("--labels", tmp_path / "y.npy", "--splits", tmp_path / "splits.npz")


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sparse_features_stay_sparse(form, one_hot, tmp_path):
    scipy.sparse.save_npz(tmp_path / "x.npz", one_hot.asformat(form))
    store = tmp_path / "store"
    features = ("--features", tmp_path / "x.npz")
    result = run("convert", tmp_path / "edges.npy", store, *features, *options(tmp_path))
    assert result.exit_code == 0, result.output
    assert sum(path.stat().st_size for path in store.glob("x*.npy")) < 10_000
    GraphStore.open(store).verify()
    source = sp.FeatureStore.open(store)
    assert source.shape == (300, 4005)
    assert "sparse" in repr(source)
    assert np.array_equal(source.gather([5, 5, 299]), one_hot.toarray()[[5, 5, 299]])
    again = run("convert", store, tmp_path / "again", "--symmetrise")
    assert again.exit_code == 0, again.output
    assert scipy.sparse.issparse(load_dataset(tmp_path / "again").x)


def test_sparse_features_take_the_place_of_dense_ones(one_hot, tmp_path):
    scipy.sparse.save_npz(tmp_path / "x.npz", one_hot)
    np.save(tmp_path / "x.npy", np.ones((300, 2), np.float32))
    assert run("convert", tmp_path / "edges.npy", tmp_path / "a", "--features", tmp_path / "x.npy").exit_code == 0
    result = run("convert", tmp_path / "a", tmp_path / "b", "--features", tmp_path / "x.npz")
    assert result.exit_code == 0, result.output
    assert sp.FeatureStore.open(tmp_path / "b").shape == (300, 4005)


def test_sparse_features_are_trained_on(one_hot, tmp_path):
    pytest.importorskip("torch")
    scipy.sparse.save_npz(tmp_path / "x.npz", one_hot)
    np.save(tmp_path / "x.npy", one_hot.toarray())
    results = []
    for name in ("x.npz", "x.npy"):
        store = tmp_path / f"store-{Path(name).suffix[1:]}"
        run("convert", tmp_path / "edges.npy", store, "--features", tmp_path / name, *options(tmp_path))
        trained = run("train", store, "--epochs", "2", "--fanouts", "3,2", "--hidden", "8", "--json")
        assert trained.exit_code == 0, trained.output
        results.append([one["loss"] for one in json.loads(trained.stdout)["runs"][0]["history"]])
    assert results[0] == results[1]


def test_sparse_features_of_pyg_stay_sparse(one_hot, tmp_path):
    torch = pytest.importorskip("torch")
    data_of = pytest.importorskip("torch_geometric.data").Data
    edges = torch.from_numpy(np.load(tmp_path / "edges.npy"))
    dense = torch.from_numpy(one_hot.toarray())
    for x in (dense.to_sparse_csr(), dense.to_sparse_coo()):
        convert(data_of(edge_index=edges, x=x, num_nodes=300), tmp_path / "s", ConvertOptions(overwrite=True))
        kept = load_dataset(tmp_path / "s").x
        assert scipy.sparse.issparse(kept)
        assert np.array_equal(kept.toarray(), one_hot.toarray())


def broken(x):
    x.data[7] = np.inf
    return x


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[:299], "shape (299, 4005); expected numbers in 300 rows, one per vertex"),
        (lambda x: x.astype(np.complex64), "dtype complex64"),
        (broken, "a value that is not finite in row 7"),
    ],
)
def test_sparse_features_that_do_not_fit(change, words, one_hot, tmp_path):
    scipy.sparse.save_npz(tmp_path / "x.npz", change(one_hot))
    with pytest.raises(DataError) as caught:
        convert(tmp_path / "edges.npy", tmp_path / "s", ConvertOptions(features=tmp_path / "x.npz"))
    assert words in str(caught.value)
    assert "x.npz" in str(caught.value)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", None])
def test_features_that_cannot_be_read(content, one_hot, tmp_path):
    path = tmp_path / "x.npz"
    if content is None:
        np.savez(path, x=np.ones((300, 2)))
    else:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.npz: got .*; expected what scipy\.sparse\.save_npz writes"):
        convert(tmp_path / "edges.npy", tmp_path / "s", ConvertOptions(features=path))


def test_a_matrix_whose_indices_lie_outside(one_hot, tmp_path):
    one_hot.indices[3] = 9999
    scipy.sparse.save_npz(tmp_path / "x.npz", one_hot)
    with pytest.raises(DataError, match=r"x\.npz: got "):
        convert(tmp_path / "edges.npy", tmp_path / "s", ConvertOptions(features=tmp_path / "x.npz"))


def test_the_shape_of_features():
    from spsample.comm import run_threads
    from spsample.distributed import ProcessGrid
    from spsample.features import PartitionedFeatures

    x = np.ones((8, 3), np.float32)
    assert sp.FeatureStore(x).shape == (8, 3)
    assert run_threads(2, lambda comm: PartitionedFeatures.of(x, ProcessGrid(comm)).shape) == [(8, 3)] * 2


# ---- spellings


def test_american_spellings(table, tmp_path):
    for number, word in enumerate(("--symmetrise", "--symmetrize")):
        made = run("convert", table, tmp_path / str(number), "--columns", "source,target", word)
        assert made.exit_code == 0, made.output
    stores = [GraphStore.open(tmp_path / str(number)) for number in range(2)]
    assert stores[0].digest == stores[1].digest
    assert ConvertOptions(symmetrize=True) == ConvertOptions(symmetrise=True)
    assert ConvertOptions(symmetrize=True).symmetrise
    config = tmp_path / "a.toml"
    config.write_text("[convert]\nsymmetrize = true\ncolumns = ['source', 'target']\n")
    assert run("convert", table, tmp_path / "c", "--config", config).exit_code == 0
    assert GraphStore.open(tmp_path / "c").digest == stores[0].digest


def test_repeats_are_not_seeds():
    pytest.importorskip("torch")
    old = run("train", "planted:300", "--seeds", "2")
    assert old.exit_code == 2
    assert "No such option: --seeds" in old.stderr
