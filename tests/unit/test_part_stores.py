"""Stores of parts: what is in them, that sampling finds there what it finds in the whole graph, and what is refused."""

import errno
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from typer.testing import CliRunner

import spsample as sp
from spsample.cli.main import app
from spsample.data import (
    Dataset,
    load_dataset,
    part_dataset,
    partition_vertices,
    planted,
    save_dataset,
    write_part_stores,
)
from spsample.data.part_stores import Reach
from spsample.errors import CapacityError, DataError, InputError
from spsample.reorder import reorder
from spsample.store import GraphStore

HOPS = 2


def weighted_dataset(n=300, sparse_features=False, weighting="weighted"):
    """Directed, with parallel edges and loops, of which most vertices are out of reach of the few train vertices."""
    rng = np.random.default_rng(0)
    edges = rng.integers(0, n, (2, 2 * n))
    weight = rng.random(2 * n).astype(np.float32) if weighting == "weighted" else None
    graph = sp.Graph.from_edge_index(edges, num_nodes=n, edge_weight=weight)
    x = rng.random((n, 3)).astype(np.float32)
    order = rng.permutation(n)
    return Dataset(
        name="made",
        graph=graph.normalized("row") if weighting == "row" else graph,
        x=sparse.csr_array(x) if sparse_features else x,
        y=rng.integers(0, 3, n),
        train_idx=order[:30],
        val_idx=order[30:60],
        test_idx=order[60:],
        num_classes=3,
        metric="accuracy",
    )


def stores_of(dataset, folder, num_parts=3, hops=HOPS, **options):
    parts = partition_vertices(dataset.graph, num_parts, "pagraph", seeds=dataset.train_idx, hops=hops)
    return parts, write_part_stores(dataset, parts, num_parts, folder, hops=hops, **options)


def rows_by_edge(graph, vertices, ids):
    """For each vertex its row as (edge id, original id of the source, value)."""
    rows = {}
    for v in vertices:
        at = np.arange(graph.indptr[v], graph.indptr[v + 1])
        edges = at if graph.edge_ids is None else graph.edge_ids[at]
        values = np.ones(len(at)) if graph.data is None else graph.data[at]
        rows[int(ids[v])] = sorted(zip(edges.tolist(), ids[graph.indices[at]].tolist(), values.tolist(), strict=True))
    return rows


@pytest.mark.parametrize("weighting", ["weighted", "row", "unweighted"])
@pytest.mark.parametrize("sparse_features", [False, True])
def test_a_store_has_what_its_train_vertices_need_and_no_more(tmp_path, weighting, sparse_features):
    whole = weighted_dataset(weighting=weighting, sparse_features=sparse_features)
    parts, paths = stores_of(whole, tmp_path / "stores")
    assert [path.name for path in paths] == ["part-0", "part-1", "part-2"]
    everyone = np.arange(whole.graph.num_nodes)
    trained = []
    for part, path in enumerate(paths):
        store = GraphStore.open(path)
        assert store.verify() == ()
        ids, made = store.array("original_ids"), sp.load_dataset(str(path))
        reach = Reach(whole.graph, whole.train_idx[parts[whole.train_idx] == part], HOPS)
        assert ids.tolist() == reach.vertices.tolist()
        assert len(ids) < whole.graph.num_nodes
        local = np.flatnonzero(reach.is_inner)
        assert rows_by_edge(made.graph, local, ids) == rows_by_edge(whole.graph, reach.inner, everyone)
        assert made.graph.num_edges == sum(made.graph.in_degrees()[local])
        assert made.graph.weighting == weighting
        dense = [x.toarray() if sparse.issparse(x) else np.asarray(x) for x in (made.x, whole.x)]
        assert (dense[0] == dense[1][ids]).all()
        assert (made.y == whole.y[ids]).all()
        assert (made.name, made.metric, made.num_classes) == (f"part-{part}", "accuracy", 3)
        assert made.meta == {"name": "made", "part": part, "num_parts": 3, "part_hops": HOPS, "whole_nodes": 300}
        assert len(made.val_idx) == len(made.test_idx) == 0
        trained += ids[made.train_idx].tolist()
    assert sorted(trained) == sorted(whole.train_idx.tolist())


@pytest.mark.parametrize("sampler", [sp.GraphSAGE([-1, -1]), sp.GraphSAGE([3, 2]), sp.GraphSAGE([3])])
def test_sampling_in_a_store_is_sampling_in_the_whole_graph(tmp_path, sampler):
    """Vertices have other numbers, so draws differ; what is drawn from does not: rows are those of the whole graph."""
    whole = weighted_dataset(weighting="unweighted")
    _, paths = stores_of(whole, tmp_path / "stores")
    degrees = whole.graph.in_degrees()
    for path in paths:
        made, ids = sp.load_dataset(str(path)), GraphStore.open(path).array("original_ids")
        bulk = sp.bulk_sample(made.graph, made.train_idx, sampler, batch_size=4, edge_ids=True)
        again = sp.bulk_sample(whole.graph, ids[made.train_idx], sampler, batch_size=4, edge_ids=True)
        for one, other in zip(bulk, again, strict=True):
            for layer, expected, size in zip(one.layers, other.layers, sampler.sizes[::-1], strict=True):
                sources = ids[layer.src_nodes][layer.adj.indices]
                targets = np.repeat(ids[layer.dst_nodes], np.diff(layer.adj.indptr))
                in_input = np.argsort(whole.graph.edge_ids)
                assert (whole.graph.indices[in_input][layer.edge_ids] == sources).all()
                row_of = np.repeat(np.arange(whole.graph.num_nodes), degrees)
                assert (row_of[in_input][layer.edge_ids] == targets).all()
                taken = degrees[ids[layer.dst_nodes]]
                assert np.diff(layer.adj.indptr).tolist() == (taken if size < 0 else np.minimum(taken, size)).tolist()
                if sampler.sizes == (-1, -1):
                    assert sorted(layer.edge_ids) == sorted(expected.edge_ids)
                    assert sorted(ids[layer.src_nodes]) == sorted(expected.src_nodes)


def test_evaluation_vertices_come_with_what_they_need(tmp_path):
    whole = weighted_dataset()
    parts, paths = stores_of(whole, tmp_path / "stores", evaluation=True)
    for name in ("train_idx", "val_idx", "test_idx"):
        found = []
        for part, path in enumerate(paths):
            made, ids = sp.load_dataset(str(path)), GraphStore.open(path).array("original_ids")
            mine = ids[getattr(made, name)]
            assert (parts[mine] == part).all()
            found += mine.tolist()
            inner = Reach(made.graph, getattr(made, name), HOPS - 1).vertices
            assert (made.graph.in_degrees()[inner] == whole.graph.in_degrees()[ids[inner]]).all()
        assert sorted(found) == sorted(getattr(whole, name).tolist())


def test_parts_of_a_reordered_store_are_those_of_the_plain_one(tmp_path):
    save_dataset(planted(90, 3, 2), tmp_path / "plain")
    reorder(tmp_path / "plain", tmp_path / "moved", np.arange(90), exact=True)
    parts = np.arange(90) % 2
    for name in ("plain", "moved"):
        write_part_stores(load_dataset(str(tmp_path / name)), parts, 2, tmp_path / f"{name}-parts", hops=1)
    for part in range(2):
        one, other = (tmp_path / f"{name}-parts" / f"part-{part}" for name in ("plain", "moved"))
        assert (one / "x.npy").read_bytes() == (other / "x.npy").read_bytes()
        assert GraphStore.open(one).digest == GraphStore.open(other).digest


def test_part_dataset_is_what_is_written(tmp_path):
    whole = weighted_dataset()
    parts, paths = stores_of(whole, tmp_path / "stores")
    one, ids = part_dataset(whole, parts, 3, 1, hops=HOPS)
    made = sp.load_dataset(str(paths[1]))
    assert ids.tolist() == GraphStore.open(paths[1]).array("original_ids").tolist()
    for name in ("indptr", "indices", "data", "edge_ids"):
        assert getattr(one.graph, name).tolist() == getattr(made.graph, name).tolist()
    assert one.train_idx.tolist() == made.train_idx.tolist()


def test_parts_of_a_reordered_store(tmp_path):
    whole = planted(120, 3, 2)
    save_dataset(whole, tmp_path / "plain")
    reorder(tmp_path / "plain", tmp_path / "moved", np.arange(120))
    _, made = stores_of(whole, tmp_path / "a")
    _, again = stores_of(load_dataset(str(tmp_path / "moved")), tmp_path / "b")
    for one, two in zip(map(str, made), map(str, again), strict=True):
        assert load_dataset(one).graph.digest == load_dataset(two).graph.digest
        np.testing.assert_array_equal(load_dataset(one).x, load_dataset(two).x)


def test_a_store_refuses_more_layers_than_it_has_hops(tmp_path):
    pytest.importorskip("torch_geometric")
    from spsample.training import ModelConfig, TrainConfig, Trainer

    _, paths = stores_of(planted(200), tmp_path / "stores", evaluation=True)
    part = sp.load_dataset(str(paths[0]))
    with pytest.raises(InputError, match="sampler: got 3 layers; expected at most 2, the hops of part 0"):
        Trainer(part, sp.GraphSAGE([2, 2, 2]), ModelConfig(), TrainConfig())
    words = ["sample", str(paths[0]), "-o", str(tmp_path / "bulks"), "--fanouts", "2,2,2"]
    assert "sampler: got 3 layers" in " ".join(CliRunner().invoke(app, words).stderr.split())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"parts": np.zeros(299, int)}, "parts: got dtype int64 and shape .299,."),
        ({"parts": np.full(300, 3)}, "parts: got parts from 3 to 3"),
        ({"parts": np.zeros(300, int)}, "parts: got none in part 1"),
        ({"num_parts": 0}, "num_parts: got 0"),
        ({"num_parts": 31}, "num_parts: got 31; expected at most 30"),
        ({"hops": 0}, "hops: got 0"),
        ({"evaluation": "yes"}, "evaluation: got"),
        ({"dataset": "cora"}, "dataset: got"),
        ({"stores": 3}, "stores: got"),
    ],
)
def test_what_is_refused(tmp_path, change, told):
    whole = weighted_dataset()
    given = {"dataset": whole, "parts": np.arange(300) % 3, "num_parts": 3, "stores": tmp_path / "s", "hops": 2}
    with pytest.raises(InputError, match=told):
        write_part_stores(**given | change)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_exists_is_refused(tmp_path):
    whole = weighted_dataset()
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(InputError, match=r"stores: got .*, which exists"):
        stores_of(whole, tmp_path)
    with pytest.raises(InputError, match=r"stores: got .*, which exists"):
        stores_of(whole, tmp_path / "kept")
    (tmp_path / "empty").mkdir()
    assert len(stores_of(whole, tmp_path / "empty")[1]) == 3


def test_a_disk_without_room_is_refused_first(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: Free(2048))
    with pytest.raises(CapacityError, match=r"stores: got .*s, on a disk with 2.00 KiB free"):
        stores_of(weighted_dataset(), tmp_path / "s")
    assert not list(tmp_path.iterdir())


class Free:
    def __init__(self, free):
        self.free = free


def test_a_disk_that_gets_full_leaves_nothing(tmp_path, monkeypatch):
    made = []

    def full(path, *_):
        made.append(path)
        if len(made) > 9:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return real(path, *_)

    from spsample.store import writer

    real = writer.create_map
    monkeypatch.setattr(writer, "create_map", full)
    with pytest.raises(DataError, match="No space left"):
        stores_of(weighted_dataset(), tmp_path / "s")
    assert not list(tmp_path.iterdir())
    assert len(made) > 9


def test_the_command_writes_stores(tmp_path):
    words = ["partition", "planted:300", "--parts", "3", "--method", "pagraph", "--hops", "2"]
    out = ["--out", str(tmp_path / "p.npy"), "--stores", str(tmp_path / "s")]
    done = CliRunner().invoke(app, [*words, *out])
    assert done.exit_code == 0
    assert "300 vertices in 3 parts by pagraph" in done.output
    assert "a vertex is needed by" in done.output
    whole, parts = planted(300), np.load(tmp_path / "p.npy")
    for part in range(3):
        path = Path(tmp_path / "s" / f"part-{part}")
        ids = GraphStore.open(path).array("original_ids")
        train = ids[sp.load_dataset(str(path)).train_idx]
        assert train.tolist() == np.sort(whole.train_idx[parts[whole.train_idx] == part]).tolist()
    again = CliRunner().invoke(app, [*words, *out[2:]])
    assert again.exit_code == 2
    assert "--stores: got" in again.stderr


def test_the_command_takes_graphs_without_a_split(tmp_path):
    sp.Graph(range(9), np.roll(np.arange(8), 1)).save(tmp_path / "ring")
    words = ["partition", str(tmp_path / "ring"), "--parts", "2", "--hops", "1", "--method", "ranges"]
    assert CliRunner().invoke(app, [*words, "--stores", str(tmp_path / "s")]).exit_code == 0
    made = [GraphStore.open(tmp_path / "s" / f"part-{part}") for part in range(2)]
    trained = [store.array("original_ids")[store.array("train_idx")].tolist() for store in made]
    assert trained == [[0, 1, 2, 3], [4, 5, 6, 7]]
    done = CliRunner().invoke(app, [*words, "--seeds", "train", "--stores", str(tmp_path / "t")])
    assert "--seeds: got 'train' of" in done.stderr
