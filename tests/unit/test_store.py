"""Stores on disk: written whole or not at all, opened by their headers, verified piece by piece."""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spsample as sp
from spsample.convert import convert
from spsample.data import load_dataset, planted, save_dataset
from spsample.errors import DataError, DTypeError, InputError
from spsample.store import Graph, GraphStore, StoreWriter, folder, layout, writer
from spsample.store.mapped_store import MappedStore
from spsample.store.npy import check_file

GRAPH = Graph([0, 2, 3, 3, 6], [3, 1, 0, 2, 0, 3], data=[1, 2, 3, 4, 5, 6])


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "store"
    with StoreWriter(path) as w:
        w.write_graph(GRAPH)
        w.write("x", np.arange(8, dtype=np.float32).reshape(4, 2))
        w.write("train_idx", np.array([0, 3]))
        w.set(name="small", node_features=["x"])
    return path


def assert_same(a: Graph, b: Graph):
    for name in ("indptr", "indices", "data", "edge_ids"):
        first, second = getattr(a, name), getattr(b, name)
        assert (first is None) == (second is None)
        if first is not None:
            assert first.dtype == second.dtype
            np.testing.assert_array_equal(first, second)
    assert a.weighting == b.weighting


def entries(path: Path):
    return sorted(entry.name for entry in path.iterdir())


# ------------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize(
    "graph",
    [
        GRAPH,
        Graph([0, 1], [0]),
        Graph([0, 0, 0], np.zeros(0, np.int32)),
        Graph([0, 2, 3], np.array([0, 1, 0], np.int32)).normalized("row"),
        Graph([0, 2, 3], [0, 1, 0], np.array([1, 2, 4], np.float32), edge_ids=[7, 5, 3]),
    ],
    ids=["weighted", "loop", "no edges", "row", "edge ids"],
)
def test_graphs_come_back(graph, tmp_path):
    graph.save(tmp_path / "g")
    opened = Graph.open(tmp_path / "g")
    assert_same(graph, opened)
    GraphStore.open(tmp_path / "g").verify()
    files = [f"{name}.npy" for name in GraphStore.open(tmp_path / "g").names]
    assert entries(tmp_path / "g") == sorted(["meta.json", "meta.json.sha256", *files])
    assert entries(tmp_path) == ["g"]


@settings(max_examples=30)
@given(
    edges=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30),
    weights=st.booleans(),
)
def test_any_graph_comes_back(edges, weights, tmp_path_factory):
    index = np.array(edges, np.int64).reshape(-1, 2).T
    weight = np.arange(len(edges)) / 4 if weights else None
    graph = Graph.from_edge_index(index, num_nodes=6, edge_weight=weight)
    path = tmp_path_factory.mktemp("any") / "g"
    graph.save(path)
    store = GraphStore.open(path)
    store.verify()
    assert_same(graph, store.graph())


@pytest.mark.parametrize("name", ["with space", "[x]*?", "naïve-日本", "-rf", "a'b\"c", "x" * 200, ".hidden"])
def test_odd_names(name, tmp_path):
    GRAPH.save(tmp_path / name)
    GRAPH.save(tmp_path / name, overwrite=True)
    assert_same(Graph.open(tmp_path / name), GRAPH)
    assert entries(tmp_path) == [name]


def test_names_that_are_too_long(tmp_path):
    with pytest.raises(DataError, match="250 bytes"):
        GRAPH.save(tmp_path / ("x" * 250))


def test_samples_are_those_of_the_graph_in_memory(store):
    opened = Graph.open(store)
    bulks = [sp.bulk_sample(g, [0, 1, 3], sp.GraphSAGE([2, 2]), batch_size=2) for g in (GRAPH, opened)]
    for a, b in zip(*bulks, strict=True):
        np.testing.assert_array_equal(a.src_nodes, b.src_nodes)
        np.testing.assert_array_equal(a.layers[0].adj.data, b.layers[0].adj.data)


def test_arrays_are_read_only_maps(store):
    graph = Graph.open(store)
    for array in (graph.indptr, graph.indices, graph.data):
        assert not array.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_facts(store):
    opened = GraphStore.open(store)
    assert opened.meta["name"] == "small"
    assert (opened.meta["num_nodes"], opened.meta["num_edges"], opened.meta["weighting"]) == (4, 6, "weighted")
    assert opened.nbytes == sum(opened.array(name).nbytes for name in opened.names)
    opened.meta["num_nodes"] = 0
    assert opened.meta["num_nodes"] == 4
    with pytest.raises(InputError, match="'z'; expected one of indptr, indices"):
        opened.array("z")


# ------------------------------------------------------------------------------------------- digest and pickling


def test_digest_tells_graphs_apart(store, tmp_path):
    GRAPH.save(tmp_path / "again")
    Graph(GRAPH.indptr, GRAPH.indices).save(tmp_path / "unweighted")
    digest = Graph.open(store).digest
    assert digest == Graph.open(tmp_path / "again").digest
    assert digest != Graph.open(tmp_path / "unweighted").digest
    assert GRAPH.digest is None
    assert Graph.open(store).normalized("sym").digest is None
    unweighted = Graph.open(tmp_path / "unweighted")
    assert unweighted.normalized("row").digest == unweighted.digest


@pytest.mark.parametrize("again", [lambda g: pickle.loads(pickle.dumps(g)), copy.copy, copy.deepcopy])
def test_graphs_over_maps_travel_as_a_path(again, store, tmp_path):
    graph = Graph.open(store)
    assert len(pickle.dumps(graph)) < 1000
    assert_same(again(graph), graph)
    assert again(graph).digest == graph.digest
    Graph(GRAPH.indptr, GRAPH.indices).save(tmp_path / "unweighted")
    row = Graph.open(tmp_path / "unweighted").normalized("row")
    assert_same(again(row), row)


def test_a_pickled_graph_whose_store_was_replaced_is_refused(store):
    pickled = pickle.dumps(Graph.open(store))
    Graph([0, 1], [0]).save(store, overwrite=True)
    with pytest.raises(DataError, match="replaced since"):
        pickle.loads(pickled)


# ---------------------------------------------------------------------------------------------- what is refused


def edit(path: Path, change):
    meta = json.loads((path / "meta.json").read_text("utf-8"))
    change(meta)
    write_meta(path, json.dumps(meta).encode())


def write_meta(path: Path, content: bytes):
    """Another meta.json, with the checksum of it."""
    (path / "meta.json").write_bytes(content)
    (path / "meta.json.sha256").write_text(f"{hashlib.sha256(content).hexdigest()}  meta.json\n")


def set_array(name, **values):
    return lambda meta: meta["arrays"][name].update(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=2), "newer release: upgrade"),
        (lambda m: m.update(version="1"), "format version '1'"),
        (lambda m: m.update(version=True), "format version True"),
        (lambda m: m.update(format="zarr"), "format 'zarr'"),
        (lambda m: m.pop("arrays"), "no table of arrays"),
        (lambda m: m["arrays"].pop("indices"), "no array indices"),
        (lambda m: m.update(num_nodes=5), "expected indptr of int64 and shape \\(6\\)"),
        (lambda m: m.update(num_nodes=-1), "num_nodes -1"),
        (lambda m: m.update(num_edges=2.5), "num_edges 2.5"),
        (lambda m: m.update(weighting="row"), "weighting 'row' and an array data"),
        (lambda m: m.update(node_features=["nope"]), "node_features"),
        (lambda m: m["arrays"].update(names_ptr={**m["arrays"]["indptr"], "file": "names_ptr.npy"}), "both or neither"),
        (set_array("x", file="../x.npy"), "the file '../x.npy'"),
        (set_array("x", file="/etc/passwd"), "the file '/etc/passwd'"),
        (lambda m: m["arrays"].update({"../x": m["arrays"].pop("x")}), "an array named '../x'"),
        (set_array("x", shape=[3, 2]), "x of shape \\(3, 2\\)"),
        (set_array("x", shape=[]), "shape \\[\\] of x"),
        (set_array("x", shape=[-4, 2]), "shape \\[-4, 2\\] of x"),
        (set_array("x", dtype="<f8"), "dtype '<f4' and shape"),
        (set_array("x", dtype="|O"), "dtype '|O' of x"),
        (set_array("x", dtype="f4,f4"), "dtype 'f4,f4' of x"),
        (set_array("x", dtype=">f4" if sys.byteorder == "little" else "<f4"), "another machine's byte order"),
        (set_array("x", sha256=[]), "0 checksums for x"),
        (set_array("x", sha256=["nothing"]), "sha256 of x"),
        (set_array("x", sha256=7), "sha256 of x"),
        (set_array("indptr", dtype="<i4"), "expected indptr of int64"),
    ],
)
def test_bad_meta(change, message, store):
    edit(store, change)
    with pytest.raises(DataError, match=message):
        GraphStore.open(store)


@pytest.mark.parametrize("text", ["", "[]", "7", "{", "[" * 100_000, '{"format": "spsample graph"}'])
def test_meta_that_is_no_object_of_the_format(text, store):
    write_meta(store, text.encode())
    with pytest.raises(DataError, match=r"meta.json: got"):
        GraphStore.open(store)


def test_meta_that_is_no_text(store):
    write_meta(store, b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"no JSON .'utf-8' codec"):
        GraphStore.open(store)


def truncate(path: Path):
    os.truncate(path, path.stat().st_size - 1)


def pickled(path: Path):
    np.save(path, np.array([None, 1], object), allow_pickle=True)


def pipe(path: Path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "got 151 bytes; expected 152 bytes|bytes; expected"),
        (lambda p: p.write_bytes(b""), "damaged header"),
        (lambda p: p.write_bytes(b"\x93NUMPY\x01\x00\xff\xff" + b"{" * 70000), "damaged header"),
        (lambda p: p.unlink(), "No such file"),
        (pickled, "dtype '.O'"),
        (pipe, "no regular file"),
        (lambda p: (p.unlink(), p.mkdir()), "no regular file"),
        (lambda p: np.save(p, np.zeros((2, 3), np.int64)), "as meta.json says"),
        (lambda p: np.save(p, np.asfortranarray(np.load(p.with_name("x.npy")))), "as meta.json says"),
    ],
    ids=["truncated", "empty", "header", "missing", "pickled", "pipe", "folder", "swapped", "columns first"],
)
def test_bad_files(damage, message, store):
    damage(store / "indices.npy")
    with pytest.raises(DataError, match=message) as caught:
        GraphStore.open(store)
    assert caught.value.argument.endswith("indices.npy")


def test_files_exchanged_after_opening(store):
    opened = GraphStore.open(store)
    truncate(store / "indices.npy")
    with pytest.raises(DataError, match="another file than when the store was opened"):
        opened.graph()


def test_no_store(tmp_path):
    with pytest.raises(DataError, match="nothing there"):
        Graph.open(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="got a file"):
        Graph.open(tmp_path / "file")
    with pytest.raises(DataError, match=r"without meta\.json"):
        Graph.open(tmp_path)


def test_unreadable(store, monkeypatch):
    real = os.open

    def refuse(path, *arguments, **options):
        if str(path).endswith("data.npy"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DataError, match=r"data.npy: got Permission denied"):
        GraphStore.open(store)


# ------------------------------------------------------------------------------------------------- verification


def overwrite(path: Path, name: str, values, *, keep_sums=False):
    """Change an array of a store; with its checksum, unless told to keep it."""
    np.save(path / f"{name}.npy", values)
    if not keep_sums:
        sums = [hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()]
        edit(path, set_array(name, sha256=sums))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("indptr", [0, 3, 2, 3, 6], "2 at position 2, less"),
        ("indptr", [0, -3, 2, 3, 6], "-3 at position 1, less"),
        ("indices", [1, 3, 0, 0, 2, 4], "4 at position 5; expected vertex ids in \\[0, 4\\)"),
        ("indices", [1, 3, 0, -1, 2, 3], "-1 at position 3; expected vertex ids"),
        ("indices", [3, 1, 0, 0, 2, 3], "1 at position 1, less than the one before in row 0"),
        ("indices", [1, 3, 0, 0, 3, 2], "2 at position 5, less than the one before in row 3"),
        ("data", [1.0, 2.0, np.nan, 4.0, 5.0, 6.0], "nan at position 2"),
        ("data", [1.0, 2.0, 3.0, -4.0, 5.0, 6.0], "-4.0 at position 3"),
        ("train_idx", [0, 4], "4 at position 1; expected vertex ids"),
        ("x", np.array([[0, 1], [2, np.inf], [0, 0], [0, 0]], np.float32), r"inf at position \(1, 1\)"),
    ],
)
@pytest.mark.parametrize("piece", [1, 2, 3, 2**22])
def test_structure_is_verified(name, values, message, piece, store, monkeypatch):
    from spsample.store import verification

    old = GraphStore.open(store).array(name).dtype
    overwrite(store, name, np.asarray(values, old))
    monkeypatch.setattr(verification, "_NUMBERS_AT_ONCE", piece)
    opened = GraphStore.open(store)
    with pytest.raises(DataError, match=message if piece > 9 else name):
        opened.verify()


@pytest.mark.parametrize("piece", [1, 2, 3, 100])
def test_repeated_sources_and_vertices_with_edges_are_counted_piece_by_piece(piece, monkeypatch):
    from spsample.store import verification

    monkeypatch.setattr(verification, "_ENTRIES_AT_ONCE", piece)
    indptr, indices = np.array([0, 4, 4, 6, 7, 9, 9]), np.array([1, 1, 2, 2, 2, 2, 2, 3, 3])
    assert verification.num_repeated(indptr, indices) == 4
    assert verification.num_with_edges(indptr, indices) == 5


def test_checksums_are_verified(store):
    overwrite(store, "x", np.zeros((4, 2), np.float32), keep_sums=True)
    with pytest.raises(DataError, match=r"x.npy: got another checksum in piece 0"):
        GraphStore.open(store).verify()


def finding(store):
    try:
        GraphStore.open(store).verify()
    except DataError as error:
        return error
    return None


def test_every_flipped_bit_of_the_facts_is_found(store):
    """metric, classes, features, random seed: whatever is in meta.json, in its checksum and in a header."""
    with StoreWriter(store, overwrite=True) as filled:
        filled.write_graph(GRAPH)
        filled.set(metric="accuracy", num_classes=3, random_seed=7)
    passed = []
    for name in ("meta.json", "meta.json.sha256", "indptr.npy"):
        content = (store / name).read_bytes() if (store / name).is_file() else b""
        for at in range(8 * len(content)):
            damaged = bytearray(content)
            damaged[at // 8] ^= 1 << at % 8
            (store / name).write_bytes(damaged)
            if finding(store) is None:
                passed.append((name, at // 8, at % 8))
        (store / name).write_bytes(content)
    assert passed == []
    assert GraphStore.open(store).verify() == ()


def test_a_store_of_before_facts_had_a_checksum(store):
    (store / "meta.json.sha256").unlink()
    opened = GraphStore.open(store)
    assert opened.verify() == ("meta.json",)
    assert_same(opened.graph(), GRAPH)


def test_a_checksum_of_another_form(store):
    (store / "meta.json.sha256").write_text("e3b0 meta.json\n")
    with pytest.raises(DataError, match=r"meta.json.sha256: got 'e3b0 meta.json"):
        GraphStore.open(store)


def test_the_damaged_piece_is_named(tmp_path, monkeypatch):
    from spsample.store import verification

    for module in (verification, layout):
        monkeypatch.setattr(module, "CHUNK_BYTES", 1024)
    graph = Graph(np.arange(1001), np.arange(1000))
    graph.save(tmp_path / "g")
    calls = []
    store = GraphStore.open(tmp_path / "g")
    store.verify(lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1] == (2 * store.nbytes, 2 * store.nbytes)
    with (tmp_path / "g" / "indices.npy").open("r+b") as file:
        file.seek(-1500, os.SEEK_END)
        file.write(b"\x01")
    with pytest.raises(DataError, match="piece 6"):
        GraphStore.open(tmp_path / "g").verify()


# ------------------------------------------------------------------------------------------------------ writing


def test_an_exception_leaves_nothing(tmp_path):
    with pytest.raises(DTypeError), StoreWriter(tmp_path / "s") as w:
        w.write("names", np.array(["a"]))
    assert entries(tmp_path) == []


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (lambda w: None, "at least indptr and indices"),
        (lambda w: w.write("indptr", np.array([0, 1])), "at least indptr and indices"),
        (lambda w: (w.write("indptr", np.array([0, 1])), w.write("indices", np.array([0, 0]))), "rows from 0 to 1"),
        (lambda w: (w.write("indptr", [0, 1]), w.write("indices", [0.5])), "indices of dtype float64"),
        (lambda w: (w.write_graph(GRAPH), w.write("x", np.zeros(3))), "x of shape"),
        (lambda w: (w.write_graph(GRAPH), w.set(node_features=["z"])), "node_features"),
        (lambda w: (w.write_graph(GRAPH), w.set(weighting="unweighted")), "weighting"),
    ],
)
def test_what_is_no_store_is_not_made(fill, message, tmp_path):
    with pytest.raises(DataError, match=message), StoreWriter(tmp_path / "s") as w:
        fill(w)
    assert entries(tmp_path) == []


def test_bad_calls_of_the_writer(tmp_path):
    w = StoreWriter(tmp_path / "s")
    with pytest.raises(InputError, match="with StoreWriter"):
        w.create("x", np.float32, 3)
    with w:
        for name in ("", "../x", "a.b", "1", "x" * 101):
            with pytest.raises(InputError, match="name: got"):
                w.create(name, np.float32, 3)
        for dtype in (object, "U3", "M8[s]", np.complex64, np.longdouble):
            with pytest.raises(DTypeError, match="dtype: got"):
                w.create("x", dtype, 3)
        w.create("x", np.float32, (4, 0))
        with pytest.raises(InputError, match="at least one dimension"):
            w.write("scalar", 3.0)
        with pytest.raises(InputError, match="not in use yet"):
            w.create("x", np.float32, 3)
        with pytest.raises(InputError, match="arrays: got"):
            w.set(arrays={})
        for value in (object(), float("nan"), {1, 2}):
            with pytest.raises(InputError, match="fact: got"):
                w.set(fact=value)
        w.set(count=np.int64(3), sizes=np.arange(2), source=Path("a"))
        w.write_graph(GRAPH)
    meta = GraphStore.open(tmp_path / "s").meta
    assert (meta["count"], meta["sizes"], meta["source"]) == (3, [0, 1], "a")
    assert GraphStore.open(tmp_path / "s").array("x").shape == (4, 0)


def test_what_is_there_is_not_replaced(store, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to("nowhere")
    before = entries(tmp_path)
    with pytest.raises(DataError, match=r"a store there already.*overwrite=True"):
        GRAPH.save(store)
    for name in ("folder", "file", "dangling"):
        for flag in (False, True):
            with pytest.raises(DataError, match="there already"):
                GRAPH.save(tmp_path / name, overwrite=flag)
    assert entries(tmp_path) == before


def test_an_empty_folder_becomes_a_store(tmp_path):
    (tmp_path / "empty").mkdir()
    GRAPH.save(tmp_path / "empty")
    assert_same(Graph.open(tmp_path / "empty"), GRAPH)


@pytest.mark.parametrize("exchange", [True, False], ids=["one step", "moved aside"])
def test_overwriting_a_store_that_is_open(exchange, store, tmp_path, monkeypatch):
    if not exchange:
        monkeypatch.setattr(folder, "_exchange", lambda first, second: False)
    old = Graph.open(store)
    Graph([0, 1], [0]).save(store, overwrite=True)
    assert Graph.open(store).num_nodes == 1
    assert_same(old, GRAPH)
    assert entries(tmp_path) == ["store"]
    Graph.open(store).save(store, overwrite=True)  # onto what it is read from
    assert Graph.open(store).num_nodes == 1


def test_links_are_followed(store, tmp_path):
    (tmp_path / "link").symlink_to(store)
    assert_same(Graph.open(tmp_path / "link"), GRAPH)
    Graph([0, 1], [0]).save(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert Graph.open(store).num_nodes == 1


def test_two_writers(tmp_path):
    first = StoreWriter(tmp_path / "s").__enter__()
    first.write_graph(GRAPH)
    with StoreWriter(tmp_path / "s") as second:
        second.write_graph(Graph([0, 1], [0]))
    with pytest.raises(DataError, match="a store there already"):
        first.__exit__(None, None, None)
    assert Graph.open(tmp_path / "s").num_nodes == 1
    assert entries(tmp_path) == ["s"]


def test_many_writers_at_once(tmp_path):
    def write(number):
        with StoreWriter(tmp_path / "s", overwrite=True) as w:
            w.write_graph(Graph(np.arange(number + 2), np.zeros(number + 1, np.int64)))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert entries(tmp_path) == ["s"]
    GraphStore.open(tmp_path / "s").verify()


KILLED = """
import os, signal, sys
import numpy as np
from spsample.store import StoreWriter
writer = StoreWriter(sys.argv[1])
writer.__enter__()
writer.write("indptr", np.array([0, 1]))
print(writer.folder, flush=True)
signal.pause()
"""


def test_leftovers_of_a_killed_run(tmp_path):
    target = tmp_path / "s"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(target)], stdout=subprocess.PIPE, text=True)
    partial = Path(process.stdout.readline().strip())
    GRAPH.save(tmp_path / "s")  # the other one lives: its folder stays
    assert partial.is_dir()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    for path in (partial, *partial.iterdir()):
        with pytest.raises(DataError):
            Graph.open(path)
    GRAPH.save(tmp_path / "another")
    assert partial.is_dir()
    GRAPH.save(target, overwrite=True)
    assert entries(tmp_path) == ["another", "s"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("where", ["reserve", "sync"])
def test_a_full_or_read_only_disk(code, where, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(code, os.strerror(code))

    from spsample.store import npy

    if where == "reserve":
        monkeypatch.setattr(npy, "_reserve", fail)
    else:
        monkeypatch.setattr(writer, "sync_file", fail)
    with pytest.raises(DataError, match=os.strerror(code)) as caught:
        GRAPH.save(tmp_path / "s")
    assert isinstance(caught.value, OSError)
    assert entries(tmp_path) == []


def test_a_parent_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match=r"File exists|Not a directory"):
        GRAPH.save(tmp_path / "file" / "s")


def test_a_complete_folder_that_was_not_renamed_does_not_open(store, tmp_path):
    left = tmp_path / ".other.partial-0123abcd"
    store.rename(left)
    with pytest.raises(DataError, match="left behind"):
        Graph.open(left)
    GRAPH.save(tmp_path / "other")
    assert entries(tmp_path) == ["other"]


def test_missing_parents_are_made(tmp_path):
    GRAPH.save(tmp_path / "a" / "b" / "s")
    assert_same(Graph.open(tmp_path / "a" / "b" / "s"), GRAPH)


# ----------------------------------------------------------------------------------------------- replaced and hostile


def test_a_store_that_was_replaced_is_not_mixed_with_the_new_one(store):
    opened = GraphStore.open(store)
    Graph([0, 2, 3, 3, 6], [2, 1, 1, 0, 1, 2], data=[6, 5, 4, 3, 2, 1]).save(store, overwrite=True)
    with pytest.raises(DataError, match=r"indptr\.npy: got another file than when the store was opened.*open it again"):
        opened.graph()
    assert_same(Graph.open(store), Graph([0, 2, 3, 3, 6], [2, 1, 1, 0, 1, 2], data=[6, 5, 4, 3, 2, 1]))


def test_opening_while_the_store_is_replaced(tmp_path):
    """Every opening has one store or the other, whole."""
    graphs = [Graph([0, 1, 2], [0, 1]), Graph([0, 1, 2], [1, 0]), Graph([0, 1, 2, 3], [1, 0, 2])]
    wanted = [[graph.indptr.tolist(), graph.indices.tolist()] for graph in graphs]
    graphs[0].save(tmp_path / "s")
    stop = threading.Event()

    def replace():
        try:
            for number in range(30):
                graphs[number % 3].save(tmp_path / "s", overwrite=True)
        finally:
            stop.set()

    thread = threading.Thread(target=replace)
    thread.start()
    seen = 0
    while not stop.is_set():
        opened = GraphStore.open(tmp_path / "s")
        try:
            graph = opened.graph()
        except DataError:
            continue
        assert [graph.indptr.tolist(), graph.indices.tolist()] in wanted
        seen += 1
    thread.join()
    assert seen


def test_facts_and_arrays_are_of_one_store(tmp_path, monkeypatch):
    """Another one of the same shapes takes its place once ``meta.json`` is read."""
    new, calls = Graph([0, 1, 2], [1, 0]), []
    Graph([0, 1, 2], [0, 1]).save(tmp_path / "s")
    new.save(tmp_path / "t")

    def replaced(path, spec):
        calls.append(path)
        if len(calls) == 1:
            new.save(tmp_path / "s", overwrite=True)
        return check_file(path, spec)

    monkeypatch.setattr("spsample.store.mapped_store.check_file", replaced)
    opened = GraphStore.open(tmp_path / "s")
    assert opened.digest == GraphStore.open(tmp_path / "t").digest
    assert_same(opened.graph(), new)


@pytest.mark.parametrize("form", ["graph", "features", "dataset", "conversion"])
def test_what_is_read_while_the_store_is_replaced_is_of_one_store(form, tmp_path, monkeypatch):
    """Replaced once it is open: the new store is read, and no error raised."""
    old, new = planted(60, 3, 2), planted(90, 3, 3)
    save_dataset(old, tmp_path / "s")
    array, calls = MappedStore.array, []

    def replaced(store, *arguments):
        calls.append(arguments)
        if len(calls) == 2:  # the first one is of opening
            save_dataset(new, tmp_path / "s", overwrite=True)
        return array(store, *arguments)

    monkeypatch.setattr(MappedStore, "array", replaced)
    if form == "graph":
        assert_same(Graph.open(tmp_path / "s"), new.graph)
    elif form == "features":
        np.testing.assert_array_equal(sp.FeatureStore.open(tmp_path / "s").gather([89]), new.x[[89]])
    else:
        path = tmp_path / "s"
        if form == "conversion":
            convert(path, tmp_path / "t")
            path = tmp_path / "t"
        read = load_dataset(str(path))
        assert (read.graph.num_nodes, read.num_classes, len(read.x)) == (90, 3, 90)
        np.testing.assert_array_equal(read.y, new.y)
        np.testing.assert_array_equal(read.test_idx, new.test_idx)


def test_only_partial_folders_are_removed(tmp_path):
    """A user's folder that is called nearly the same stays."""
    kept = [tmp_path / name for name in (".s.partial-notes", ".s.partial-0123abcd.old", ".s.partial-0123ABCD")]
    gone = tmp_path / ".s.partial-0123abcd"
    for path in (*kept, gone):
        path.mkdir()
        (path / "file").write_text("x")
    GRAPH.save(tmp_path / "s")
    assert all((path / "file").exists() for path in kept)
    assert not gone.exists()


@pytest.mark.parametrize("shape", [[0, 2**62], [0] + [1] * 69, [2**40, 2**40]])
def test_shapes_that_no_array_can_have(store, shape):
    meta = json.loads((store / "meta.json").read_text())
    sums = [] if 0 in shape else ["0" * 64]
    meta["arrays"]["more"] = {"file": "more.npy", "dtype": "<f4", "shape": shape, "sha256": sums}
    write_meta(store, json.dumps(meta).encode())
    with pytest.raises(DataError, match="more"):
        GraphStore.open(store)


@pytest.mark.parametrize("shape", [-1, 2.5, (3, -1), "3"])
def test_shapes_that_cannot_be_created(tmp_path, shape):
    with StoreWriter(tmp_path / "s") as w:
        w.write_graph(GRAPH)
        with pytest.raises((InputError, DTypeError), match="shape"):
            w.create("more", np.float32, shape)


@pytest.mark.parametrize("shape", [[5, 3], [2**70, 3], [4, 1], "x"])
def test_verify_looks_at_sparse_features(tmp_path, shape):
    with StoreWriter(tmp_path / "s") as w:
        w.write_graph(GRAPH)
        w.write("x_indptr", np.array([0, 1, 1, 1, 2]))
        w.write("x_indices", np.array([2, 0]))
        w.write("x_data", np.ones(2, np.float32))
        w.set(x_shape=shape)
    with pytest.raises(DataError, match="broken features x"):
        GraphStore.open(tmp_path / "s").verify()
