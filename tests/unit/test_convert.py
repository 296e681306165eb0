"""Conversion: the store equals `Graph.from_edge_index` on the same edges, whatever the source and the memory."""

from __future__ import annotations

import gc
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
import weakref
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner

from spsample.cli.main import app
from spsample.convert import ConvertOptions, convert, sort
from spsample.convert.edges import CachedEdges, EdgeChunk
from spsample.convert.sort import SortPlan, anonymous_bytes
from spsample.convert.text import TextEdges, text_form
from spsample.data import load_dataset
from spsample.errors import CapacityError, DataError, DTypeError, InputError, SpSampleError
from spsample.store import Graph, GraphStore, StoreWriter

ROOT = Path(__file__).resolve().parents[2]
TINY = SortPlan(chunk=64, capacity=100, bucket=40, threads=2)
LEAST = SortPlan(chunk=200, capacity=1, bucket=1, threads=1)
MIDDLE = SortPlan(chunk=1 << 12, capacity=1 << 14, bucket=1 << 10, threads=2)
PLANS = {"tiny": TINY, "least": LEAST, "middle": MIDDLE}
EDGES = np.array([[2, 0, 1, 2, 0], [0, 1, 0, 0, 0]])


def merged(values: np.ndarray, rule: str) -> float:
    if rule == "first":
        return values[0]
    return values.max() if rule == "max" else np.cumsum(values.astype(np.float64))[-1]


def expected(edges, n, weights=None, *, symmetrise=False, deduplicate="no", drop=False, add=False):
    """(indptr, indices, edge ids, data): what the options mean, edge by edge."""
    sources, targets = edges
    position = np.arange(edges.shape[1])
    data = np.ones(len(position), np.float32) if weights is None else weights
    if drop:
        keep = sources != targets
        sources, targets, position, data = sources[keep], targets[keep], position[keep], data[keep]
    if symmetrise:
        both = np.concatenate([np.arange(len(sources)), np.flatnonzero(sources != targets)])
        reverse = np.arange(len(both)) >= len(sources)
        ends = sources[both], targets[both]
        order = np.lexsort([reverse, position[both]])
        sources, targets = (np.where(reverse, b, a)[order] for a, b in (ends, ends[::-1]))
        position, data = position[both][order], data[both][order]
    if add:
        loops = np.arange(n)
        sources, targets = np.concatenate([sources, loops]), np.concatenate([targets, loops])
        position = np.concatenate([position, edges.shape[1] + loops])
        data = np.concatenate([data, np.ones(n, data.dtype)])
    graph = Graph.from_edge_index(np.stack([sources, targets]), num_nodes=n, edge_weight=data)
    ids = position if graph.edge_ids is None else position[graph.edge_ids]
    rows = np.repeat(np.arange(n), np.diff(graph.indptr))
    indices, data = graph.indices, graph.data
    if deduplicate != "no" and len(rows):
        first = np.flatnonzero(np.r_[True, (rows[1:] != rows[:-1]) | (indices[1:] != indices[:-1])])
        ends = np.r_[first[1:], len(rows)]
        data = np.array([merged(data[a:b], deduplicate) for a, b in zip(first, ends, strict=True)], data.dtype)
        rows, indices, ids = rows[first], indices[first], ids[first]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    return indptr, indices, ids, None if weights is None else data


def check(path, wanted) -> None:
    store = GraphStore.open(path)
    store.verify()
    graph, (indptr, indices, ids, data) = store.graph(), wanted
    np.testing.assert_array_equal(graph.indptr, indptr)
    np.testing.assert_array_equal(graph.indices, indices)
    assert graph.indices.dtype == indices.dtype
    np.testing.assert_array_equal(np.arange(len(ids)) if graph.edge_ids is None else graph.edge_ids, ids)
    assert (graph.data is None) == (data is None)
    if data is not None:
        np.testing.assert_array_equal(graph.data, data)
        assert graph.data.dtype == data.dtype
    named = {f"{name}.npy" for name in store.names}
    assert {entry.name for entry in Path(path).iterdir()} == named | {"meta.json", "meta.json.sha256"}


# -------------------------------------------------------------------------------------------------------------- order


@st.composite
def edge_lists(draw):
    n = draw(st.sampled_from([1, 2, 5, 40, 2_000]))
    count = draw(st.integers(0, 300))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    some = draw(st.sampled_from([1, 3, n]))  # few vertices make hubs and parallel edges
    edges = rng.integers(0, min(some, n), (2, count)), rng.integers(0, n, (2, count))
    return np.where(rng.random((2, count)) < 0.7, *edges), n, rng


@settings(deadline=None, max_examples=25)
@given(
    lists=edge_lists(),
    plan=st.sampled_from(sorted(PLANS)),
    rule=st.sampled_from(["no", "sum", "first", "max"]),
    weights=st.sampled_from([None, np.float32, np.float64]),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_equals_from_edge_index(tmp_path_factory, lists, plan, rule, weights, flags):
    edges, n, rng = lists
    folder = tmp_path_factory.mktemp("convert")
    np.save(folder / "edges.npy", edges.T)
    held = None if weights is None else rng.random(edges.shape[1]).astype(weights)
    if held is not None:
        np.save(folder / "weights.npy", held)
    symmetrise, drop, add = flags
    options = ConvertOptions(
        num_nodes=n,
        npy_shape="E,2",  # two edges could be either
        weights=None if held is None else str(folder / "weights.npy"),
        symmetrise=symmetrise,
        deduplicate=rule,
        drop_self_loops=drop,
        add_self_loops=add,
    )
    convert(folder / "edges.npy", folder / "store", options, plan=PLANS[plan])
    wanted = expected(edges, n, held, symmetrise=symmetrise, deduplicate=rule, drop=drop, add=add)
    check(folder / "store", wanted)
    assert [entry.name for entry in folder.iterdir() if entry.name.startswith(".")] == []


def test_hub_larger_than_memory(tmp_path):
    rng = np.random.default_rng(1)
    edges = rng.integers(0, 3000, (2, 20_000))
    edges[1, rng.random(20_000) < 0.9] = 7
    np.save(tmp_path / "edges.npy", edges)
    plan = SortPlan(chunk=1000, capacity=500, bucket=200, threads=2)
    convert(tmp_path / "edges.npy", tmp_path / "store", ConvertOptions(num_nodes=3000), plan=plan)
    check(tmp_path / "store", expected(edges, 3000))


@pytest.mark.parametrize("rule", ["first", "sum", "max"])
def test_one_edge_more_often_than_fits_in_memory(tmp_path, rule):
    edges, weights = np.ones((2, 250), int), np.random.default_rng(3).random(250)
    np.save(tmp_path / "edges.npy", edges)
    np.save(tmp_path / "weights.npy", weights)
    options = ConvertOptions(num_nodes=3, weights=str(tmp_path / "weights.npy"), deduplicate=rule)
    convert(tmp_path / "edges.npy", tmp_path / "store", options, plan=TINY)
    check(tmp_path / "store", expected(edges, 3, weights, deduplicate=rule))


def test_ids_beyond_32_bits_of_key(tmp_path):
    """Wide ranges: keys of more than 32 bits, words of more than 64."""
    rng = np.random.default_rng(2)
    edges = rng.integers(0, 1 << 22, (2, 5000))
    np.save(tmp_path / "edges.npy", edges)
    plan = SortPlan(chunk=1 << 12, capacity=1 << 14, bucket=1 << 14, threads=1)
    convert(tmp_path / "edges.npy", tmp_path / "store", ConvertOptions(num_nodes=1 << 22), plan=plan)
    check(tmp_path / "store", expected(edges, 1 << 22))


def test_without_edge_ids(tmp_path):
    np.save(tmp_path / "edges.npy", EDGES)
    convert(tmp_path / "edges.npy", tmp_path / "store", ConvertOptions(edge_ids=False), plan=TINY)
    store = GraphStore.open(tmp_path / "store")
    assert store.names == ("indptr", "indices")
    assert store.graph().indices.tolist() == [0, 1, 2, 2, 0]


# ------------------------------------------------------------------------------------------------------------ sources


def write_text(path: Path, text: str) -> Path:
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    if path.suffix == ".zst":
        data = pytest.importorskip("pyarrow").Codec("zstd").compress(data, asbytes=True)
    path.write_bytes(data)
    return path


LINES = "\n".join(f"{s},{t},{i + 0.5}" for i, (s, t) in enumerate(EDGES.T)) + "\n"
BACKWARDS = "\n".join(",".join(line.split(",")[::-1]) for line in LINES.split())
WEIGHTS = np.arange(5) + 0.5


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("a.csv", LINES, {}),
        ("a.csv", "from,to,stars\n" + LINES, {}),
        ("a.csv", "from,to,stars\r\n" + LINES.replace("\n", "\r\n"), {"weights": "stars"}),
        ("a.csv", "stars,to,from\n" + BACKWARDS, {"columns": ("from", "to"), "weights": "stars"}),
        ("a.tsv", LINES.replace(",", "\t"), {"weights": "2"}),
        ("a.txt", "# SNAP\n#\tFrom To\n\n" + LINES.replace(",", "  ") + "# end", {"weights": "2"}),
        ("a.edges", LINES.replace(",", ";"), {"header": False}),
    ],
)
def test_text(tmp_path, name, text, options, suffix):
    path = write_text(tmp_path / (name + suffix), text)
    convert(path, tmp_path / "store", ConvertOptions(**options), plan=TINY)
    check(tmp_path / "store", expected(EDGES, 3, WEIGHTS if "weights" in options else None))


def test_text_of_many_blocks(tmp_path):
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 1000, (2, 3000))
    np.savetxt(tmp_path / "a.txt", edges.T, fmt="%d")
    convert(tmp_path / "a.txt", tmp_path / "store", ConvertOptions(num_nodes=1000), plan=TINY)
    check(tmp_path / "store", expected(edges, 1000))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint16])
@pytest.mark.parametrize("form", ["rows", "columns", "fortran", "pair"])
def test_npy(tmp_path, dtype, form):
    edges = EDGES.astype(dtype)
    source = tmp_path / "e.npy"
    if form == "pair":
        np.save(source, edges[0])
        np.save(tmp_path / "t.npy", edges[1])
        source = f"{source},{tmp_path / 't.npy'}"
    else:
        np.save(source, {"rows": edges.T.copy(), "columns": edges, "fortran": np.asfortranarray(edges)}[form])
    convert(source, tmp_path / "store", plan=TINY)
    check(tmp_path / "store", expected(EDGES, 3))


@pytest.mark.parametrize(("shape", "order"), [("2,E", np.array), ("E,2", np.transpose)])
def test_npy_that_may_be_read_in_two_ways(tmp_path, shape, order):
    edges = np.array([[0, 2], [1, 1]])
    np.save(tmp_path / "e.npy", edges)
    with pytest.raises(DataError, match=r"e.npy: got shape \(2, 2\).*--npy-shape"):
        convert(tmp_path / "e.npy", tmp_path / "store")
    convert(tmp_path / "e.npy", tmp_path / "store", ConvertOptions(npy_shape=shape), plan=TINY)
    check(tmp_path / "store", expected(order(edges), 3))


@pytest.mark.parametrize(("shape", "fits"), [("2,E", (2, 5)), ("E,2", (5, 2))])
def test_npy_of_a_shape_that_is_told(tmp_path, shape, fits):
    edges = EDGES if fits == EDGES.shape else EDGES.T.copy()
    np.save(tmp_path / "e.npy", edges)
    np.save(tmp_path / "turned.npy", edges.T.copy())
    options = ConvertOptions(npy_shape=shape)
    convert(tmp_path / "e.npy", tmp_path / "store", options, plan=TINY)
    check(tmp_path / "store", expected(EDGES, 3))
    with pytest.raises(DataError, match=re.escape(f"turned.npy: got shape {fits[::-1]}; expected shape ({shape[0]}")):
        convert(tmp_path / "turned.npy", tmp_path / "other", options)


@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
def test_matrix_market(tmp_path, field, symmetry):
    matrix = scipy.sparse.random(30, 30, 0.2, random_state=np.random.default_rng(0), format="coo")
    matrix.data[:] = np.round(matrix.data * 9) + 1
    matrix = matrix + matrix.T if symmetry == "symmetric" else matrix
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix, field=field, symmetry=symmetry)
    convert(tmp_path / "a.mtx", tmp_path / "store", plan=TINY)
    graph, wanted = Graph.open(tmp_path / "store"), matrix.tocsr()
    wanted.sort_indices()
    np.testing.assert_array_equal(graph.indptr, wanted.indptr)
    np.testing.assert_array_equal(graph.indices, wanted.indices)
    if field == "pattern":
        assert graph.data is None
    else:
        np.testing.assert_array_equal(graph.data, wanted.data)


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table({"w": WEIGHTS, "src": EDGES[0], "dst": EDGES[1].astype(np.int16)})
    pq.write_table(table, tmp_path / "a.parquet")
    convert(tmp_path / "a.parquet", tmp_path / "store", ConvertOptions(columns=("src", "dst"), weights="w"), plan=TINY)
    check(tmp_path / "store", expected(EDGES, 3, WEIGHTS))
    named = pa.table({"src": ["b", "a", "b"], "dst": ["a", "b", "c"]})
    pq.write_table(named, tmp_path / "b.parquet")
    convert(tmp_path / "b.parquet", tmp_path / "named", ConvertOptions(string_ids=True), plan=TINY)
    assert names(tmp_path / "named") == ["b", "a", "c"]


def names(path) -> list[str]:
    store = GraphStore.open(path)
    ptr, data = store.array("names_ptr"), store.array("names_data").tobytes()
    return [data[a:b].decode() for a, b in pairwise(ptr)]


def test_string_ids(tmp_path):
    text = 'who,whom,w\nzoe,"a, b",1\n"a, b",zoe,2\nÉa,zoe,3\n'
    path = write_text(tmp_path / "a.csv", text)
    options = ConvertOptions(string_ids=True, columns=("who", "whom"), weights="w")
    convert(path, tmp_path / "store", options, plan=TINY)
    assert names(tmp_path / "store") == ["zoe", "a, b", "Éa"]
    check(tmp_path / "store", expected(np.array([[0, 1, 2], [1, 0, 0]]), 3, np.array([1.0, 2.0, 3.0])))


def test_renumber(tmp_path):
    ids = np.array([2**50, 5, 17])
    np.save(tmp_path / "e.npy", ids[EDGES])
    convert(tmp_path / "e.npy", tmp_path / "store", ConvertOptions(renumber="sorted"), plan=TINY)
    order = np.array([2, 0, 1])
    check(tmp_path / "store", expected(order[EDGES], 3))
    np.testing.assert_array_equal(GraphStore.open(tmp_path / "store").array("original_ids"), np.sort(ids))


def test_positions_of_cached_edges_of_two_widths(tmp_path):
    cached = CachedEdges("edges", tmp_path, None)
    for first, ids in ((0, [1, 2, 3]), (3, [2**31, 5])):
        ends = np.array(ids)
        cached.add(EdgeChunk(ends, ends[::-1], len(ids), first=first), max(ids))
    chunks = [task() for task in cached.tasks(2)]
    assert [chunk.first for chunk in chunks] == [0, 2, 3]
    assert [chunk.sources.tolist() for chunk in chunks] == [[1, 2], [3], [2**31, 5]]
    assert [str(chunk.targets.dtype) for chunk in chunks] == ["int32", "int32", "int64"]
    cached.close()
    assert not list(tmp_path.iterdir())


def test_scipy_npz(tmp_path):
    matrix = scipy.sparse.coo_array((WEIGHTS, (EDGES[1], EDGES[0])), shape=(3, 3))
    scipy.sparse.save_npz(tmp_path / "a.npz", matrix)
    convert(tmp_path / "a.npz", tmp_path / "store", plan=TINY)
    graph, wanted = Graph.open(tmp_path / "store"), Graph.from_scipy(matrix)
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(wanted, name))


def test_pyg(tmp_path):
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric.data")
    mask = torch.tensor([True, False, False])
    data = pyg.Data(
        x=torch.eye(3),
        y=torch.tensor([0, 1, 1]),
        edge_index=torch.from_numpy(EDGES),
        edge_weight=torch.from_numpy(WEIGHTS),
        train_mask=mask,
        val_mask=mask.roll(1),
        test_mask=mask.roll(2),
    )
    torch.save(data, tmp_path / "data.pt")
    for source, name in ((tmp_path / "data.pt", "file"), (data, "object")):
        convert(source, tmp_path / name, plan=TINY)
        check(tmp_path / name, expected(EDGES, 3, WEIGHTS))
        dataset = load_dataset(str(tmp_path / name))
        assert (dataset.num_classes, dataset.train_idx.tolist(), dataset.test_idx.tolist()) == (2, [0], [2])


@pytest.mark.parametrize(
    ("y", "given"),
    [
        ([0.0, 1.5, 2.25], "1.5 at position 1"),
        ([[0.0], [float("inf")], [1.0]], "inf at position 1"),
        ([0.0, 1.0, 1e30], "at position 2"),
        ([[0.0, 1.0], [1.0, 0.0], [float("nan"), 0.5]], "0.5 at position 2, 1"),
    ],
)
def test_labels_that_are_no_classes(tmp_path, y, given):
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").Data(
        y=torch.tensor(y), edge_index=torch.from_numpy(EDGES), num_nodes=3
    )
    torch.save(data, tmp_path / "data.pt")
    for source, name in ((tmp_path / "data.pt", tmp_path / "data.pt"), (data, "graph")):
        with pytest.raises(DataError, match=rf"^y of {name}: got .*{given}; expected whole numbers; .* --labels"):
            convert(source, tmp_path / "store", plan=TINY)
    np.save(tmp_path / "y.npy", np.array([1, 0, -1]))
    convert(data, tmp_path / "store", ConvertOptions(labels=tmp_path / "y.npy"), plan=TINY)
    assert load_dataset(str(tmp_path / "store")).y.tolist() == [1, 0, -1]


@pytest.mark.parametrize(
    ("y", "given"),
    [
        ([1], "labels of dtype int64 and shape (1,); expected numbers in 3 rows, one per vertex"),  # of the graph
        (1, "labels of dtype int64 and shape (); expected numbers in 3 rows"),
        ([[[0]], [[1]], [[2]]], "labels of dtype int64 and shape (3, 1, 1); expected"),
        ([[], [], []], "labels of dtype float32 and shape (3, 0); expected"),
        ([0, -100, 1], "-100 at position 1; expected whole numbers; from 0 on"),
        ([0.0, -2.0, 1.0], "-2.0 at position 1; expected whole numbers; from 0 on"),
    ],
)
def test_labels_that_are_not_of_vertices(tmp_path, y, given):
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").Data(
        y=torch.tensor(y), edge_index=torch.from_numpy(EDGES), num_nodes=3
    )
    with pytest.raises(DataError, match=rf"^y of graph: got {re.escape(given)}.* --labels"):
        convert(data, tmp_path / "store", plan=TINY)
    assert not (tmp_path / "store").exists()


def test_tensors_that_numpy_does_not_take(tmp_path):
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").Data(
        x=torch.ones(3, 2, requires_grad=True),
        y=torch.arange(3).to(torch.bfloat16),
        edge_index=torch.from_numpy(EDGES),
        num_nodes=3,
    )
    convert(data, tmp_path / "store", plan=TINY)
    dataset = load_dataset(str(tmp_path / "store"))
    assert (dataset.y.tolist(), dataset.x.tolist()) == ([0, 1, 2], [[1, 1]] * 3)


def test_masks_of_different_lengths(tmp_path):
    torch = pytest.importorskip("torch")
    masks = {f"{part}_mask": torch.zeros(n, dtype=torch.bool) for part, n in (("train", 3), ("val", 2), ("test", 3))}
    data = pytest.importorskip("torch_geometric.data").Data(edge_index=torch.from_numpy(EDGES), num_nodes=3, **masks)
    with pytest.raises(
        DataError, match=r"^graph: got val_mask of dtype bool and shape \(2,\); expected bool of shape \(3,\)"
    ):
        convert(data, tmp_path / "store", plan=TINY)


def test_whole_labels_in_floats(tmp_path):
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric.data")
    one_each, two_each = [[2.0], [float("nan")], [0.0]], [[1.0, 0.0]] * 3
    for y, wanted, classes in ((one_each, [2, -1, 0], 3), (two_each, [[1, 0]] * 3, 2)):
        data = pyg.Data(y=torch.tensor(y), edge_index=torch.from_numpy(EDGES), num_nodes=3)
        convert(data, tmp_path / "store", ConvertOptions(overwrite=True), plan=TINY)
        dataset = load_dataset(str(tmp_path / "store"))
        assert (dataset.y.tolist(), dataset.num_classes) == (wanted, classes)


def test_data_set_and_its_other_form(tmp_path):
    dataset = load_dataset("planted:80,3")
    convert(dataset, tmp_path / "store", plan=TINY)
    again = load_dataset(str(tmp_path / "store"))
    np.testing.assert_array_equal(again.graph.indices, dataset.graph.indices)
    np.testing.assert_array_equal(again.y, dataset.y)
    np.testing.assert_array_equal(again.val_idx, dataset.val_idx)
    assert again.meta["bayes_rate"] == dataset.meta["bayes_rate"]


def masks_of(count: int, vertices: int) -> dict[str, np.ndarray]:
    """Splits in which vertex v is of part (v + number of the split) mod 3."""
    part = (np.arange(vertices) + np.arange(count)[:, None]) % 3
    return {f"{name}_masks": part == number for number, name in enumerate(("train", "val", "test"))}


def test_store_to_store(tmp_path):
    """Everything that belongs to vertices is kept: names of both kinds, all splits, more features, facts."""
    kept = {
        "original_ids": np.array([7, 3, 5, 4]),
        "names_ptr": np.array([0, 1, 2, 2, 4]),
        "names_data": np.frombuffer(b"abcd", np.uint8),
        "x": np.eye(4, 2, dtype=np.float32),
        "train_embedding": np.arange(4.0),
        "y": np.array([0, 1, 1, -1]),
        **masks_of(3, 4),
    }
    with StoreWriter(tmp_path / "first") as writer:
        writer.write_graph(Graph.from_edge_index(np.array([[0, 1, 2], [1, 2, 0]]), num_nodes=4))
        for name, array in kept.items():
            writer.write(name, array)
        writer.set(name="mine", license="CC0", node_features=["x", "train_embedding"])
    convert(tmp_path / "first", tmp_path / "second", ConvertOptions(symmetrise=True), plan=TINY)
    first, second = GraphStore.open(tmp_path / "first"), GraphStore.open(tmp_path / "second")
    assert {"indptr", "indices", *kept} <= set(second.names)
    for name, array in kept.items():
        np.testing.assert_array_equal(second.array(name), array)
    for fact in ("name", "license", "node_features"):
        assert second.meta[fact] == first.meta[fact]
    assert second.graph().num_edges == 6
    assert load_dataset(str(tmp_path / "second"), split=2).num_splits == 3
    np.savez(tmp_path / "s.npz", train_idx=[0], val_idx=[1], test_idx=[2])
    convert(tmp_path / "first", tmp_path / "third", ConvertOptions(splits=tmp_path / "s.npz"), plan=TINY)
    assert load_dataset(str(tmp_path / "third")).num_splits == 1
    assert "train_embedding" in GraphStore.open(tmp_path / "third")
    with pytest.raises(InputError, match="num_nodes: got a source with features, labels, splits or names"):
        convert(tmp_path / "first", tmp_path / "other", ConvertOptions(num_nodes=9), plan=TINY)


@pytest.mark.parametrize("source", ["store", "data set"])
def test_row_normalised_graphs(tmp_path, source):
    """They stay so, unless edges would change."""
    graph = Graph.from_edge_index(EDGES).normalized("row")
    graph.save(tmp_path / "first")
    given = tmp_path / "first" if source == "store" else load_dataset(str(tmp_path / "first"))
    convert(given, tmp_path / "second", plan=TINY)
    assert Graph.open(tmp_path / "second").weighting == "row"
    np.testing.assert_array_equal(Graph.open(tmp_path / "second").indices, graph.indices)
    for option in ({"symmetrise": True}, {"deduplicate": "sum"}, {"drop_self_loops": True}, {"add_self_loops": True}):
        with pytest.raises(DataError, match=f"^first: got a row-normalised graph, .* {next(iter(option))} would"):
            convert(given, tmp_path / "third", ConvertOptions(**option), plan=TINY)
    assert not (tmp_path / "third").exists()


def test_a_store_with_arrays_that_cannot_be_kept(tmp_path):
    with StoreWriter(tmp_path / "first") as writer:
        writer.write_graph(Graph.from_edge_index(np.array([[0, 1], [1, 0]]), num_nodes=2))
        writer.write("times", np.array([3, 4]))
        writer.set(edge_features=["times"])
    with pytest.raises(DataError, match="got an array 'times'; expected a store of a graph") as caught:
        convert(tmp_path / "first", tmp_path / "second", plan=TINY)
    assert caught.value.argument == str(tmp_path / "first")
    assert not (tmp_path / "second").exists()


def test_all_splits_of_a_file(tmp_path):
    parts = masks_of(2, 3)
    np.savez(tmp_path / "a.npz", indptr=[0, 1, 1, 1], indices=[1], y=[0, 1, 0], **parts)
    for form in ("auto", "dataset"):
        convert(tmp_path / "a.npz", tmp_path / "store", ConvertOptions(format=form, overwrite=True), plan=TINY)
        for number in range(2):
            dataset = load_dataset(str(tmp_path / "store"), split=number)
            np.testing.assert_array_equal(dataset.train_idx, np.flatnonzero(parts["train_masks"][number]))
            np.testing.assert_array_equal(dataset.test_idx, np.flatnonzero(parts["test_masks"][number]))


@pytest.mark.parametrize("spec", ["rmat:8,4", "rmat:1,3", "planted:500,4,3,0.2", "planted:20,3"])
@pytest.mark.parametrize("plan", [TINY, None], ids=["tiny", "default"])
def test_generators(tmp_path, spec, plan):
    convert(spec, tmp_path / "store", ConvertOptions(random_seed=3), plan=plan)
    wanted, got = load_dataset(spec, random_seed=3), load_dataset(str(tmp_path / "store"))
    assert got.graph.edge_ids is None
    for name in ("indptr", "indices"):
        np.testing.assert_array_equal(getattr(got.graph, name), getattr(wanted.graph, name))
    for name in ("x", "y", "train_idx", "val_idx", "test_idx"):
        np.testing.assert_array_equal(np.asarray(getattr(got, name)[:]), getattr(wanted, name))
    assert wanted.meta.items() <= got.meta.items()
    assert (got.name, got.num_classes, got.metric) == ("store", wanted.num_classes, wanted.metric)


def test_features_labels_splits(tmp_path):
    np.save(tmp_path / "e.npy", EDGES)
    np.save(tmp_path / "x.npy", np.eye(3, dtype=np.float32))
    np.save(tmp_path / "y.npy", np.array([1, 0, -1]))
    np.savez(tmp_path / "s.npz", train_idx=[0], val_idx=[1], test_idx=[2])
    files = {"features": tmp_path / "x.npy", "labels": tmp_path / "y.npy", "splits": tmp_path / "s.npz"}
    convert(tmp_path / "e.npy", tmp_path / "store", ConvertOptions(**files), plan=TINY)
    dataset = load_dataset(str(tmp_path / "store"))
    assert (dataset.num_classes, dataset.y.tolist(), dataset.val_idx.tolist()) == (2, [1, 0, -1], [1])
    np.save(tmp_path / "x.npy", np.array([[0.0], [np.nan], [1.0]]))
    with pytest.raises(DataError, match="row 1"):
        convert(tmp_path / "e.npy", tmp_path / "other", ConvertOptions(**files), plan=TINY)


@pytest.mark.parametrize(
    ("splits", "given"),
    [
        ({"train_idx": [2, 0], "val_idx": [1], "test_idx": [2, 0]}, "vertex 0 in train_idx and test_idx"),
        ({"train_idx": [0], "val_idx": [2, 1, 2], "test_idx": []}, "vertex 2 more than once in val_idx"),
        (
            {f"{part}_masks": np.eye(2, 3, k, bool) for k, part in enumerate(("train", "val"))}
            | {"test_masks": np.array([[0, 0, 1], [0, 1, 0]], bool)},
            "vertex 1 in train_masks and test_masks of split 1",
        ),
        (
            {f"{part}_masks": np.ones((1, 3), bool) for part in ("train", "val", "test")},
            "vertex 0 in train_masks and val",
        ),
        (
            {f"{part}_masks": np.zeros((k, 3), bool) for k, part in enumerate(("train", "val", "test"), 1)},
            "1, 2, 3 splits in train_masks, val_masks, test_masks",
        ),
    ],
)
def test_splits_that_overlap(tmp_path, splits, given):
    np.save(tmp_path / "e.npy", EDGES)
    np.savez(
        tmp_path / "s.npz", **{name: np.asarray(part, getattr(part, "dtype", int)) for name, part in splits.items()}
    )
    with pytest.raises(DataError, match=re.escape(given)) as caught:
        convert(tmp_path / "e.npy", tmp_path / "store", ConvertOptions(splits=tmp_path / "s.npz"), plan=TINY)
    assert caught.value.argument == str(tmp_path / "s.npz")
    assert not (tmp_path / "store").exists()


@pytest.mark.realdata
def test_real_graph(tmp_path):
    path = Path(os.environ.get("SPSAMPLE_DATA", ROOT.parent / "shared" / "data")) / "planetoid_cora.npz"
    if not path.is_file():
        pytest.skip(f"{path} is not there: set SPSAMPLE_DATA")
    convert(path, tmp_path / "store", plan=TINY)
    wanted, got = load_dataset(str(path)), load_dataset(str(tmp_path / "store"))
    np.testing.assert_array_equal(got.graph.indices, wanted.graph.indices)
    np.testing.assert_array_equal(got.y, wanted.y)
    assert got.num_splits == wanted.num_splits


# ---------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("a.txt", "0 1\n1 2\n\n# c\n3 x\n", {}, "'3 x' in line 5"),
        ("a.txt", "0 1\n1\n", {}, "'1' in line 2"),
        ("a.txt", "0 1\n1 -2\n", {}, "1 -> -2 at line 2"),
        ("a.csv", "s,t\n0,1\n# c\n7,1\n", {"num_nodes": 3}, "7 -> 1 at line 4"),
        ("a.csv", "0,1,2.5\n1,0,nan\n", {"weights": "2"}, "weight nan at line 2"),
        ("a.csv", "0,1,2.5\n1,0,-1\n", {"weights": "2"}, "weight -1.0 at line 2"),
        ("a.csv", "0,1,2.5\n1,0,many\n", {"weights": "2"}, "line 2"),
        ("a.csv", "s,t\n0,1\n", {"columns": ("s", "u")}, "'u' for"),
        ("a.txt", "0 99999999999999999999\n", {}, "line 1"),
        ("a.txt", "0 281474976710656\n", {}, "281474976710656"),
        ("a.txt", "0 281474976710650\n", {}, "--renumber"),
        ("a.txt", "# nothing\n", {}, "no edges"),
        ("a.csv", "a,b\nc\n", {"string_ids": True, "header": False}, "'c' in line 2"),
        ("a.npy", "no array", {}, "unreadable"),
        ("a.npz", "no archive", {}, "unreadable"),
        ("a.pt", "no pickle", {}, "torch_geometric.data.Data"),
        ("a.parquet", "no parquet", {}, "unreadable"),
        ("a.mtx", "%%MatrixMarket matrix array real general\n2 2\n", {}, "coordinate"),
        ("a.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 3 1\n1 1\n", {}, "square"),
        ("a.mtx", "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 1\n", {}, "1 entries"),
        (
            "a.mtx",
            "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 1\n4 1\n",
            {},
            "row 4 and column 1 in line 4",
        ),
        ("a.mtx", "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 1\n0 1\n", {}, "line 4"),
        ("a.csv.gz", "not compressed", {}, "no edges"),
    ],
)
def test_bad_files(tmp_path, name, text, options, message):
    if name.endswith(".pt"):
        pytest.importorskip("torch_geometric")
    (tmp_path / name).write_text(text)
    with pytest.raises((DataError, InputError), match=re.escape(message)):
        convert(tmp_path / name, tmp_path / "store", ConvertOptions(**options), plan=TINY)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_truncated(tmp_path, suffix):
    rng = np.random.default_rng(0)
    path = write_text(tmp_path / f"a.txt{suffix}", "\n".join(f"{a} {b}" for a, b in rng.integers(0, 99, (4000, 2))))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match="truncated"):
        convert(path, tmp_path / "store", plan=MIDDLE)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"deduplicate": "mean"}, InputError),
        ({"threads": 0}, InputError),
        ({"memory_budget": "much"}, InputError),
        ({"columns": ("0", "0")}, InputError),
        ({"string_ids": True, "num_nodes": 3}, InputError),
        ({"num_nodes": 0}, InputError),
        ({"num_nodes": 2**49}, CapacityError),
        ({"num_nodes": "3"}, DTypeError),
    ],
)
def test_bad_options(options, error):
    with pytest.raises(error):
        ConvertOptions(**options)


def test_budget_too_small(tmp_path):
    np.save(tmp_path / "e.npy", EDGES)
    with pytest.raises(InputError, match="memory_budget"):
        convert(tmp_path / "e.npy", tmp_path / "store", ConvertOptions(memory_budget="1MiB"))


@pytest.mark.parametrize("source", ["rmat:22,1", "planted:1000000"])
def test_generated_graphs_that_pass_the_budget(source, tmp_path):
    with pytest.raises(CapacityError, match=r"memory_budget: got 100.* a generated graph"):
        convert(source, tmp_path / "store", ConvertOptions(memory_budget="100MiB"), plan=LEAST)
    assert not (tmp_path / "store").exists()


def test_raw_pairs(tmp_path):
    np.asarray(EDGES, np.int64).tofile(tmp_path / "e.int64")
    with pytest.raises(InputError, match=r"\.npy file.* np\.save"):
        convert(tmp_path / "e.int64", tmp_path / "store")


def test_columns_of_an_array(tmp_path):
    np.save(tmp_path / "e.npy", EDGES)
    with pytest.raises(InputError, match="table"):
        convert(tmp_path / "e.npy", tmp_path / "store", ConvertOptions(string_ids=True))


# ------------------------------------------------------------------------------------------------------- command line


def test_command(tmp_path):
    write_text(tmp_path / "a.txt", LINES.replace(",", " "))
    arguments = ["convert", str(tmp_path / "a.txt"), str(tmp_path / "store")]
    result = CliRunner().invoke(app, [*arguments, "--symmetrise", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["num_nodes"], report["edges_read"], report["num_edges"]) == (3, 5, 9)
    check(tmp_path / "store", expected(EDGES, 3, symmetrise=True))
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 2
    assert "overwrite" in refused.stderr
    assert CliRunner().invoke(app, [*arguments, "--overwrite"]).exit_code == 0
    wrong = CliRunner().invoke(app, [*arguments, "--overwrite", "--memory-budget", "x"])
    assert wrong.exit_code == 2
    assert "--memory-budget" in wrong.stderr


def test_every_option_is_documented():
    page = (ROOT / "docs" / "convert.md").read_text("utf-8")
    for parameter in get_command(app).commands["convert"].params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            assert not option.startswith("--") or f"`{option}" in page, option


# --------------------------------------------------------------------------------------------- memory, and hard ends


def command(source: Path, store: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "spsample.cli.main", "convert", str(source), str(store), *options]


def write_pairs(path: Path, count: int) -> Path:
    rng = np.random.default_rng(0)
    np.save(path, (np.abs(rng.standard_normal((count, 2))) * 40_000).astype(np.int64))
    return path


def opens(path: Path) -> bool:
    try:
        GraphStore.open(path)
    except SpSampleError:
        return False
    return True


def test_killed(tmp_path):
    source, store = write_pairs(tmp_path / "edges.npy", 2_000_000), tmp_path / "out" / "store"
    store.parent.mkdir()
    rng = np.random.default_rng(0)
    for _ in range(4):
        process = subprocess.Popen(command(source, store))
        started = time.monotonic()
        while not any(store.parent.iterdir()) and process.poll() is None and time.monotonic() - started < 60:
            time.sleep(0.002)
        time.sleep(float(rng.uniform(0, 0.3)))
        process.send_signal(signal.SIGKILL)
        killed = process.wait() == -signal.SIGKILL
        assert not any(opens(entry) for entry in store.parent.iterdir() if entry != store)
        if not killed or store.exists():  # it was faster
            GraphStore.open(store).verify()
            break
    subprocess.run(command(source, store, "--overwrite"), check=True, stdout=subprocess.DEVNULL)
    GraphStore.open(store).verify()
    assert [entry.name for entry in store.parent.iterdir()] == ["store"]


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="RssAnon is Linux's")
def test_stays_within_its_memory(tmp_path):
    source, store = write_pairs(tmp_path / "edges.npy", 6_000_000), tmp_path / "store"
    budget = 176 * 2**20
    process = subprocess.Popen(command(source, store, "--memory-budget", str(budget), "--threads", "2"))
    peak = 0
    while process.poll() is None:
        try:
            text = Path(f"/proc/{process.pid}/status").read_text("ascii")
        except OSError:
            break
        peak = max([peak, *(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("RssAnon"))])
        time.sleep(0.005)
    assert process.wait() == 0
    assert 0 < peak < budget
    assert anonymous_bytes() > 0


def test_chunks_of_text_go_when_they_are_done(tmp_path):
    """Without waiting for the garbage collector: their arrays would pile up."""
    path = write_text(tmp_path / "a.csv", LINES)
    source = TextEdges(path, text_form(path, ConvertOptions()))
    gc.disable()
    try:
        chunk = next(iter(source.tasks(64)))()
        kept = weakref.ref(chunk)
        del chunk
        assert kept() is None
    finally:
        gc.enable()


# ------------------------------------------------------------------------------------------------ odd but real files


def names_of(path):
    store = GraphStore.open(path)
    ends, data = store.array("names_ptr").tolist(), bytes(store.array("names_data"))
    return [data[begin:end].decode() for begin, end in pairwise(ends)]


@pytest.mark.parametrize("text", ["\ufeff0,1\n1,2\n", "\ufeffsrc,dst\n0,1\n1,2\n"])
def test_byte_order_mark(tmp_path, text):
    """A spreadsheet's mark is no part of the first edge, nor of the first column's name."""
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    options = ConvertOptions(columns=("src", "dst")) if "src" in text else ConvertOptions()
    convert(tmp_path / "a.csv", tmp_path / "store", options)
    assert Graph.open(tmp_path / "store").indices.tolist() == [0, 1]


def test_tabs_between_names_with_blanks(tmp_path):
    (tmp_path / "a.txt").write_text("New York\tBoston, MA\nNew Haven\tNew York\n")
    convert(tmp_path / "a.txt", tmp_path / "store", ConvertOptions(string_ids=True, header=False))
    assert names_of(tmp_path / "store") == ["New York", "Boston, MA", "New Haven"]


@pytest.mark.parametrize("row", ["\t5\t6", "a b\t5\t6"])
def test_columns_between_tabs(tmp_path, row):
    """A column may be empty, or have blanks in it."""
    (tmp_path / "a.tsv").write_text(f"city\tfrom node\tto\nx\t0\t1\n{row}\n")
    convert(tmp_path / "a.tsv", tmp_path / "store", ConvertOptions(columns=("from node", "to")))
    graph = Graph.open(tmp_path / "store")
    assert (graph.num_nodes, graph.indices.tolist()) == (7, [0, 5])


@pytest.mark.parametrize("text", ["a,b\nc,\n", "a,b\nc\rx,d\n", "a\rx,b\n"])
def test_names_that_are_none(tmp_path, text):
    (tmp_path / "a.csv").write_bytes(text.encode())
    with pytest.raises(DataError, match="line"):
        convert(tmp_path / "a.csv", tmp_path / "store", ConvertOptions(string_ids=True, header=False))


@pytest.mark.parametrize("name", ["a.mtx", "a.csv", "a.csv.gz"])
@pytest.mark.parametrize("plan", [TINY, None], ids=["tiny", "default"])
def test_more_comments_than_are_read_at_once(tmp_path, name, plan):
    comments = "% a comment, of some length\n" * 5000
    text = f"%%MatrixMarket matrix coordinate pattern general\n{comments}3 3 2\n1 2\n3 1\n"
    if name != "a.mtx":
        text = f"{comments}src,dst\n1,0\n0,2\n"
    opener = gzip.open if name.endswith(".gz") else open
    with opener(tmp_path / name, "wt") as file:
        file.write(text)
    convert(tmp_path / name, tmp_path / "store", plan=plan)
    assert Graph.open(tmp_path / "store").indices.tolist() == [1, 0]


def test_ids_up_to_the_largest(tmp_path):
    ids = np.array([[2**63 - 1, 0], [2**63 - 2, 2**63 - 1], [0, 2**63 - 2]])
    np.save(tmp_path / "a.npy", ids)
    convert(tmp_path / "a.npy", tmp_path / "store", ConvertOptions(renumber="sorted"))
    assert GraphStore.open(tmp_path / "store").array("original_ids").tolist() == [0, 2**63 - 2, 2**63 - 1]
    assert Graph.open(tmp_path / "store").indices.tolist() == [2, 0, 1]


@pytest.mark.parametrize("options", [{"renumber": "sorted"}, {"string_ids": True}, {}])
def test_no_edges(tmp_path, options):
    (tmp_path / "a.txt").write_text("# nothing\n")
    with pytest.raises(DataError, match="no edges"):
        convert(tmp_path / "a.txt", tmp_path / "store", ConvertOptions(**options))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_chunks_of_one_edge(tmp_path):
    np.save(tmp_path / "a.npy", EDGES)
    least = SortPlan(chunk=1, capacity=1, bucket=1, threads=2)
    convert(tmp_path / "a.npy", tmp_path / "store", ConvertOptions(add_self_loops=True), plan=least)
    check(tmp_path / "store", expected(EDGES, 3, add=True))


def test_unpacked_copies_are_not_named(tmp_path):
    for name, edges in (("good", [[0, 1], [1, 2], [2, 2]]), ("bad", [[0, 1], [1, -2], [2, 2]])):
        with gzip.open(tmp_path / f"{name}.npy.gz", "wb") as file:
            np.save(file, np.array(edges))
    good, bad = (str(tmp_path / f"{name}.npy.gz") for name in ("good", "bad"))
    convert(good, tmp_path / "store")
    assert GraphStore.open(tmp_path / "store").meta["source"] == good
    with pytest.raises(DataError) as caught:
        convert(bad, tmp_path / "other")
    assert caught.value.argument == bad


def test_comma_in_a_name(tmp_path):
    np.save(tmp_path / "a,b.npy", EDGES)
    assert convert(tmp_path / "a,b.npy", tmp_path / "store").edges_read == 5


@pytest.mark.parametrize(
    ("source", "options", "argument"),
    [
        ("planted:20", {"num_nodes": 30}, "num_nodes"),
        ("planted:20", {"renumber": "sorted"}, "renumber"),
        ("rmat:4,2", {"weights": "w.npy"}, "weights"),
        ("a.mtx", {"weights": "w.npy"}, "weights"),
        ("a.csv", {"columns": ("0", "0", "1")}, "columns"),
        ("a.csv", {"npy_shape": "2,E"}, "npy_shape"),
    ],
)
def test_options_that_would_be_lost(tmp_path, source, options, argument):
    """What an option asks for is done, or refused."""
    text = "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n"
    for name in ("a.mtx", "a.csv"):
        (tmp_path / name).write_text(text)
    path = source if ":" in source else tmp_path / source
    with pytest.raises(InputError) as caught:
        convert(path, tmp_path / "store", ConvertOptions(**options))
    assert caught.value.argument == argument


def test_the_error_of_a_later_bucket_is_told(tmp_path, monkeypatch):
    """A bucket that fails stops those before it, which wait for their turn: its error is the one that comes out."""
    np.save(tmp_path / "a.npy", np.arange(2000).reshape(2, 1000) % 500)
    real, calls = sort._sorted_edges, iter(range(10**6))

    def slow_then_broken(*arguments):
        if next(calls) == 0:
            time.sleep(0.3)
            return real(*arguments)
        raise DataError(argument="disk", given="an error", expected="none")

    monkeypatch.setattr(sort, "_sorted_edges", slow_then_broken)
    with pytest.raises(DataError, match="disk"):
        convert(tmp_path / "a.npy", tmp_path / "store", ConvertOptions(deduplicate="sum"), plan=TINY)


def test_columns_of_one_name_and_null_names(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    twice = pa.Table.from_arrays([pa.array([0]), pa.array([1])], names=["a", "a"])
    parquet.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(InputError, match="different names"):
        convert(tmp_path / "twice.parquet", tmp_path / "store")
    parquet.write_table(pa.table({"a": ["x", None], "b": ["y", "z"]}), tmp_path / "null.parquet")
    with pytest.raises(DataError, match="a null in column a"):
        convert(tmp_path / "null.parquet", tmp_path / "store", ConvertOptions(string_ids=True))
    parquet.write_table(pa.table({"a": ["x", ""], "b": ["y", "z"]}), tmp_path / "empty.parquet")
    with pytest.raises(DataError, match="an empty name in column a"):
        convert(tmp_path / "empty.parquet", tmp_path / "store", ConvertOptions(string_ids=True))
