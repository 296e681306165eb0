"""Stores with their rows in another order: what is in them, the way back, and what is refused."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import spsample as sp
from spsample.cli.main import app
from spsample.data import load_dataset, planted, save_dataset
from spsample.errors import CapacityError, DataError, DTypeError, InputError
from spsample.reorder import reorder, reordering, restore
from spsample.reorder.array_files import RowFile, Workers
from spsample.store import GraphStore, StoreWriter

N = 120


def full_store(path, seed=0, *, weighted=True, ids=True, wide=False, sparse_x=False):
    """A store with everything that one may have: parallel edges, names, masks, features of vertices and of edges."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, N, (2, 900))
    edges[:, 400:500] = edges[:, 300:400]
    graph = sp.Graph.from_edge_index(edges, num_nodes=N, edge_weight=rng.random(900) if weighted else None)
    names = [b"vertex %d" % v for v in rng.integers(0, 10**6, N)]
    with StoreWriter(path) as writer:
        writer.set(name="all of it", node_features=["x", "more"], edge_features=["e"], num_classes=4)
        writer.write("indptr", graph.indptr)
        writer.write("indices", graph.indices.astype(np.int64) if wide else graph.indices)
        if weighted:
            writer.write("data", graph.data)
        if ids:
            writer.write("edge_ids", graph.edge_ids)
        if sparse_x:
            x = scipy.sparse.random_array((N, 7), density=0.3, rng=rng, format="csr", dtype=np.float32)
            for part in ("data", "indices", "indptr"):
                writer.write(f"x_{part}", getattr(x, part))
            writer.set(x_shape=[N, 7], node_features=["more"])
        else:
            writer.write("x", rng.standard_normal((N, 7)).astype(np.float32))
        writer.write("more", rng.integers(-9, 9, N).astype(np.int16))
        writer.write("e", rng.random((900, 2)))
        writer.write("y", rng.integers(0, 4, N))
        writer.write("original_ids", rng.permutation(N))
        writer.write("names_ptr", np.cumsum([0, *map(len, names)]))
        writer.write("names_data", np.frombuffer(b"".join(names), np.uint8))
        split = rng.integers(0, 3, (2, N))
        for part in range(3):
            writer.write(f"{('train', 'val', 'test')[part]}_masks", split == part)
    return path


def files_of(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32 - 1),
    form=st.fixed_dictionaries({name: st.booleans() for name in ("weighted", "ids", "wide", "sparse_x")}),
    steps=st.lists(st.booleans(), min_size=1, max_size=2),
    budget=st.sampled_from([200, 700, 2**20]),
)
@example(seed=1, form=dict.fromkeys(("weighted", "ids", "wide", "sparse_x"), True), steps=[False, True], budget=1)
def test_the_way_back_leads_to_equal_bytes(tmp_path_factory, seed, form, steps, budget):
    """Moved, numbered anew, or both, in windows of any size. Those of one byte take long: an example has them."""
    folder = tmp_path_factory.mktemp("stores")
    first = full_store(folder / "0", seed, **form)
    at, count = first, 0
    for relabel in steps:
        count += 1
        scores = np.random.default_rng(seed + count).integers(0, 60, N)
        reorder(at, folder / str(count), scores, relabel=relabel, memory_budget=budget)
        at = folder / str(count)
        assert GraphStore.open(at).verify() == ()
    while GraphStore.open(at).is_reordered or "relabelled_from" in GraphStore.open(at):
        count += 1
        restore(at, folder / str(count), memory_budget=budget)
        at = folder / str(count)
    assert files_of(at) == files_of(first)


def test_rows_follow_the_scores(tmp_path):
    store = GraphStore.open(full_store(tmp_path / "a"))
    scores = np.random.default_rng(1).integers(0, 40, N)
    reorder(tmp_path / "a", tmp_path / "b", scores, exact=True)
    moved = GraphStore.open(tmp_path / "b")
    order = np.lexsort((np.arange(N), -scores))
    np.testing.assert_array_equal(moved.array("vertex_of_row"), order)
    np.testing.assert_array_equal(moved.row_of_vertex()[order], np.arange(N))
    np.testing.assert_array_equal(moved.array("x"), store.array("x")[order])  # the hottest rows are the first ones
    np.testing.assert_array_equal(moved.array("more"), store.array("more")[order])
    for name in ("y", "e", "train_masks", "original_ids", "names_data"):
        np.testing.assert_array_equal(moved.array(name), store.array(name))
    first = store.array("indices")[slice(*store.array("indptr")[order[0] : order[0] + 2])]
    np.testing.assert_array_equal(moved.array("indices")[: len(first)], first)
    assert moved.digest == store.digest
    assert moved.meta["version"] == 2
    assert store.row_of_vertex() is None
    np.testing.assert_array_equal(np.asarray(moved.features("more")), store.features("more"))
    np.testing.assert_array_equal(moved.features("e"), store.features("e"))


def test_scores_within_a_factor_of_two_are_equal(tmp_path):
    """And rows of equal scores keep their order; 0 comes last, however small the others are."""
    full_store(tmp_path / "a")
    scores = np.random.default_rng(1).choice([0.0, 5e-324, 1e-310, 0.3, 0.49, 0.5, 0.99, 1.0, 1e300], N)
    reorder(tmp_path / "a", tmp_path / "b", scores)
    exponents = np.where(scores > 0, np.floor(np.log2(np.maximum(scores, 5e-324))), -np.inf)
    expected = np.lexsort((np.arange(N), -exponents))
    np.testing.assert_array_equal(GraphStore.open(tmp_path / "b").array("vertex_of_row"), expected)


def test_moved_again(tmp_path):
    """The map leads from vertices, however often rows were moved."""
    full_store(tmp_path / "a")
    scores = np.random.default_rng(1).random((2, N))
    reorder(tmp_path / "a", tmp_path / "b", scores[0])
    reorder(tmp_path / "b", tmp_path / "c", scores[1])
    reorder(tmp_path / "a", tmp_path / "d", scores[1])
    assert files_of(tmp_path / "c") == files_of(tmp_path / "d")


@pytest.mark.parametrize("ids", [True, False])
def test_new_numbers_are_another_graph_with_the_same_edges(tmp_path, ids):
    store = GraphStore.open(full_store(tmp_path / "a", ids=ids))
    scores = np.random.default_rng(1).random(N)
    assert reorder(tmp_path / "a", tmp_path / "b", scores, relabel=True, exact=True).relabelled
    other = GraphStore.open(tmp_path / "b")
    old = other.array("relabelled_from")
    np.testing.assert_array_equal(old, np.argsort(-scores, kind="stable"))
    assert other.digest != store.digest
    assert other.row_of_vertex() is None
    assert other.meta["version"] == 1
    one, two = store.graph(), other.graph()
    rows = [np.repeat(np.arange(N), graph.in_degrees()) for graph in (one, two)]
    numbers = [np.arange(900) if graph.edge_ids is None else graph.edge_ids for graph in (one, two)]
    places = [np.argsort(edge_ids) for edge_ids in numbers]  # by edge id, the same edges stand side by side
    np.testing.assert_array_equal(rows[0][places[0]], old[rows[1][places[1]]])
    np.testing.assert_array_equal(one.indices[places[0]], old[two.indices[places[1]]])
    np.testing.assert_array_equal(one.data[places[0]], two.data[places[1]])
    before, after = load_dataset(str(tmp_path / "a")), load_dataset(str(tmp_path / "b"))
    np.testing.assert_array_equal(before.x[old], after.x)
    np.testing.assert_array_equal(before.y[old], after.y)
    for part in ("train_idx", "val_idx", "test_idx"):
        np.testing.assert_array_equal(np.sort(old[getattr(after, part)]), getattr(before, part))


def test_split_ids_get_new_numbers(tmp_path):
    data = planted(60, 3, 2)
    save_dataset(data, tmp_path / "a")
    reorder(tmp_path / "a", tmp_path / "b", np.random.default_rng(0).random(60), relabel=True)
    store = GraphStore.open(tmp_path / "b")
    for part in ("train_idx", "val_idx", "test_idx"):
        np.testing.assert_array_equal(store.array("relabelled_from")[store.array(part)], getattr(data, part))
    restore(tmp_path / "b", tmp_path / "c")
    assert files_of(tmp_path / "c") == files_of(tmp_path / "a")


def test_a_file_larger_than_memory_is_read_in_its_own_order(tmp_path, monkeypatch):
    full_store(tmp_path / "a")
    scores = np.random.default_rng(1).random(N)
    reorder(tmp_path / "a", tmp_path / "b", scores)
    monkeypatch.setattr(reordering, "available_memory", lambda: 0)
    reorder(tmp_path / "a", tmp_path / "c", scores, memory_budget=900)
    assert files_of(tmp_path / "b") == files_of(tmp_path / "c")


# ----------------------------------------------------------------------------------------------------- what is refused


@pytest.fixture
def store(tmp_path):
    return full_store(tmp_path / "a")


@pytest.mark.parametrize(
    ("scores", "error", "words"),
    [
        (np.ones(N - 1), InputError, "scores: got length 119"),
        (np.ones((N, 1)), InputError, r"scores: got shape \(120, 1\)"),
        (np.where(np.arange(N) == 7, np.nan, 1), InputError, "scores: got nan at position 7"),
        (np.where(np.arange(N) == 7, np.inf, 1), InputError, "scores: got inf at position 7"),
        (-np.ones(N), InputError, "scores: got -1.0 at position 0"),
        (np.ones(N, complex), DTypeError, "scores: got dtype complex128"),
    ],
)
def test_scores(store, tmp_path, scores, error, words):
    with pytest.raises(error, match=words):
        reorder(store, tmp_path / "b", scores)
    assert sorted(os.listdir(tmp_path)) == ["a"]


@pytest.mark.parametrize("function", [lambda a, b: reorder(a, b, np.ones(N)), restore])
def test_paths(store, tmp_path, function):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(store)
    before = files_of(store)
    for out, words in (
        (store, "the store itself"),
        (f"{store}/../a", "the store itself"),
        (tmp_path / "link", "the store itself"),
        (tmp_path / "file", "which exists"),
        (store / "inside", "within the store"),
    ):
        with pytest.raises(InputError, match=f"out: got .*{words}"):
            function(store, out)
    assert files_of(store) == before
    with pytest.raises(DataError, match="nothing there"):
        function(tmp_path / "missing", tmp_path / "b")


@pytest.mark.parametrize("function", [lambda a, b: reorder(a, b, np.ones(N)), restore])
def test_folders_that_are_locked(store, tmp_path, function, monkeypatch):
    """Root may read all folders: the system's answer is made."""

    def locked(self, *arguments):
        raise PermissionError(13, "Permission denied", str(self))

    (tmp_path / "b").mkdir()
    monkeypatch.setattr(Path, "iterdir", locked)
    with pytest.raises(DataError, match="b: got Permission denied"):
        function(store, tmp_path / "b")
    monkeypatch.setattr(Path, "is_dir", locked)
    with pytest.raises(DataError, match="a: got Permission denied"):
        function(store, tmp_path / "c")


def test_a_store_that_was_not_reordered_has_no_way_back(store, tmp_path):
    with pytest.raises(InputError, match=r"path: got .*; expected a store made by reorder"):
        restore(store, tmp_path / "b")


def test_an_array_without_a_meaning_is_not_renumbered(tmp_path):
    with StoreWriter(tmp_path / "a") as writer:
        writer.write_graph(sp.Graph([0, 1, 2], [1, 0]))
        writer.write("extra", np.arange(2))
    with pytest.raises(DataError, match="an array extra, of which nothing says"):
        reorder(tmp_path / "a", tmp_path / "b", [1, 2], relabel=True)
    reorder(tmp_path / "a", tmp_path / "b", [1, 2])
    np.testing.assert_array_equal(GraphStore.open(tmp_path / "b").array("extra"), np.arange(2))


def test_a_file_is_closed_after_what_is_under_way(tmp_path, monkeypatch):
    is_open, pwrite = [], os.pwrite

    def slow(descriptor, *arguments):
        time.sleep(0.05)
        is_open.append(os.path.exists(f"/dev/fd/{descriptor}"))
        return pwrite(descriptor, *arguments)

    monkeypatch.setattr(os, "pwrite", slow)
    (tmp_path / "a").touch()

    def interrupted():
        with Workers(1) as workers, RowFile(tmp_path / "a", None, workers, print) as file:
            file.write(np.arange(3))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert is_open == [True]


@pytest.mark.parametrize(
    "way", ["as the disk can", "the file cannot be opened so", "nothing is taken", "some is taken"]
)
def test_long_pieces_of_any_size(tmp_path, monkeypatch, way):
    """They are written past the system's cache but for their ends, or whole where that cannot be."""
    direct, real_open, real_pwrite = getattr(os, "O_DIRECT", 0), os.open, os.pwrite
    refused, taken = set(), []

    def open_direct(path, flags, *arguments, **options):
        if way == "the file cannot be opened so" and direct and flags & direct:
            raise OSError(errno.EINVAL, "no such flag")
        descriptor = real_open(path, flags, *arguments, **options)
        if direct and flags & direct:
            refused.add(descriptor)
        return descriptor

    def pwrite(descriptor, content, offset):
        if descriptor in refused and way in ("nothing is taken", "some is taken"):
            if way == "nothing is taken" or len(taken) > 2:
                raise OSError(errno.EINVAL, "no such way")
            taken.append(offset)
            content = content[:8192]
        return real_pwrite(descriptor, content, offset)

    monkeypatch.setattr(os, "open", open_direct)
    monkeypatch.setattr(os, "pwrite", pwrite)
    content = np.random.default_rng(0).integers(0, 256, 70_000_003, dtype=np.uint8)
    array = np.lib.format.open_memmap(tmp_path / "a.npy", "w+", np.uint8, content.shape)
    done = []
    with Workers(2, 12 << 20) as workers, RowFile(tmp_path / "a.npy", array, workers, done.append) as file:
        for first, end in ((0, 5), (5, 5), (5, 20_000_000)):
            file.write(content[first:end])
        for first in range(20_000_000, len(content), 9_999_999):
            with file.room(len(content[first : first + 9_999_999])) as memory:
                memory[:] = content[first : first + 9_999_999]
        sums = file.checksums()
    assert sum(done) == len(content)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), content)
    assert sums == [hashlib.sha256(content[at : at + (64 << 20)]).hexdigest() for at in (0, 64 << 20)]


def test_a_write_that_fails_is_told(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    (tmp_path / "a").touch()

    def write(pieces):
        with Workers(1, 4 << 20) as workers, RowFile(tmp_path / "a", None, workers, print) as file:
            for _ in range(pieces):
                file.write(np.zeros(2 << 20, np.uint8))

    for pieces in (1, 20):
        with pytest.raises(OSError, match="No space left"):
            write(pieces)


def test_a_full_disk_is_refused_before_work(store, tmp_path, monkeypatch):
    monkeypatch.setattr(reordering.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    needed = GraphStore.open(store).nbytes + 4 * N * 2 + 8 * (N + 1) + 2**20
    with pytest.raises(CapacityError, match=rf"out: got .*a disk with .*1000 bytes.*; expected .*{needed} bytes"):
        reorder(store, tmp_path / "b", np.ones(N))
    assert sorted(os.listdir(tmp_path)) == ["a"]


def test_a_disk_that_fills_up_leaves_nothing(store, tmp_path):
    """The system takes no larger files, from some point on."""
    code = (
        "import resource, sys, numpy as np\n"
        "from spsample.reorder import reorder\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))\n"
        f"reorder(sys.argv[1], sys.argv[2], np.ones({N}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, store, tmp_path / "b"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "DataError" in done.stderr
    assert "File too large" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["a"]


@pytest.mark.parametrize("when", range(1, 12, 3))
def test_what_is_interrupted_leaves_nothing(store, tmp_path, when):
    calls = []

    def stop(*progress):
        calls.append(progress)
        if len(calls) == when:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reorder(store, tmp_path / "b", np.ones(N), progress=stop)
    assert sorted(os.listdir(tmp_path)) == ["a"]


def test_what_is_killed_leaves_no_store(store, tmp_path):
    """And the next one removes what was left."""
    code = (
        "import sys, time, numpy as np\n"
        "from spsample.reorder import reorder\n"
        "def wait(*progress):\n    print('begun', flush=True)\n    time.sleep(60)\n"
        f"reorder(sys.argv[1], sys.argv[2], np.ones({N}), progress=wait)"
    )
    with subprocess.Popen([sys.executable, "-c", code, store, tmp_path / "b"], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGKILL)
    left = [name for name in os.listdir(tmp_path) if name != "a"]
    assert len(left) == 1
    with pytest.raises(DataError, match="being written, or was left behind"):
        GraphStore.open(tmp_path / left[0])
    reorder(store, tmp_path / "b", np.ones(N))
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_damaged_store_has_no_way_back(store, tmp_path):
    reorder(store, tmp_path / "b", np.random.default_rng(0).random(N))
    path = tmp_path / "b" / "indices.npy"
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="got another graph"):
        restore(tmp_path / "b", tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda meta: meta.update(version=1), "format version 1; expected version 2"),
        (lambda meta: meta["arrays"].pop("vertex_of_row"), "only row_of_vertex, vertex_indptr"),
        (lambda meta: meta.pop("reordered"), "reordered None"),
        (lambda meta: meta.update(reordered={"digest": 3}), "reordered"),
    ],
)
def test_facts_that_do_not_fit(store, tmp_path, change, words):
    reorder(store, tmp_path / "b", np.ones(N))
    meta = json.loads((tmp_path / "b" / "meta.json").read_text())
    change(meta)
    (tmp_path / "b" / "meta.json").write_text(json.dumps(meta))
    (tmp_path / "b" / "meta.json.sha256").unlink()
    with pytest.raises(DataError, match=words):
        GraphStore.open(tmp_path / "b")


def test_a_map_that_is_no_permutation_is_found(tmp_path):
    with StoreWriter(tmp_path / "a") as writer:
        writer.write_graph(sp.Graph([0, 1, 2], [1, 0]))
        for name in ("row_of_vertex", "vertex_of_row"):
            writer.write(name, np.zeros(2, np.int64))
        writer.write("vertex_indptr", np.arange(3))
        writer.set(reordered={"score": "none", "digest": "0" * 64})
    with pytest.raises(DataError, match="the other map does not lead back"):
        GraphStore.open(tmp_path / "a").verify()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_bounded(tmp_path):
    """A store of 96 MiB is moved with a budget of 4: the memory of the process, without maps, grows by far less."""
    n = 3 << 14
    sp.Graph(np.arange(n + 1), np.roll(np.arange(n), 1)).save(tmp_path / "graph")
    with StoreWriter(tmp_path / "a") as writer:
        writer.write_graph(sp.Graph.open(tmp_path / "graph"))
        x = writer.create("x", np.float32, (n, 512))
        for first in range(0, n, 1 << 12):
            x[first : first + (1 << 12)] = first
    code = """
import sys
import time
from pathlib import Path
import numpy as np
from spsample.reorder import reorder

def note(*progress):
    seen.append(int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]))

seen = []
note()
scores = np.random.default_rng(0).random(int(sys.argv[3]))
reorder(sys.argv[1], sys.argv[2], scores, memory_budget="4MiB", progress=note)
print(len(seen), max(seen) - seen[0])
"""
    command = [sys.executable, "-c", code, tmp_path / "a", tmp_path / "b", str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    pieces, grown = map(int, done.stdout.split())
    assert pieces > 40
    assert 1024 * grown < 24 * 2**20


# --------------------------------------------------------------------------------------------------------- the command


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_command(store, tmp_path):
    np.save(tmp_path / "scores.npy", np.arange(N))
    done = run("reorder", store, "--out", tmp_path / "b", "--score", tmp_path / "scores.npy", "--exact")
    assert done.exit_code == 0, done.output
    assert "120 vertices, 900 edges" in done.stdout
    assert GraphStore.open(tmp_path / "b").array("vertex_of_row")[0] == N - 1
    done = run("reorder", tmp_path / "b", "--out", tmp_path / "c", "--undo", "--json")
    assert json.loads(done.stdout)["num_edges"] == 900
    assert files_of(tmp_path / "c") == files_of(store)


def test_a_store_that_was_moved_is_converted_as_the_plain_one(store, tmp_path):
    with StoreWriter(tmp_path / "bare") as writer:
        whole = GraphStore.open(store)
        writer.set(node_features=["x", "more"])
        for name in ("indptr", "indices", "data", "x", "more"):
            writer.write(name, whole.array(name))
    reorder(tmp_path / "bare", tmp_path / "moved", np.arange(N), exact=True)
    for name in ("bare", "moved"):
        done = run("convert", tmp_path / name, tmp_path / f"{name}-both", "--symmetrise")
        assert done.exit_code == 0, done.output
    one, other = (tmp_path / f"{name}-both" for name in ("bare", "moved"))
    for name in ("indices.npy", "data.npy", "x.npy", "more.npy"):
        assert (one / name).read_bytes() == (other / name).read_bytes()


@pytest.mark.parametrize("score", ["posterior", "out-degree", "inclusion"])
def test_command_computes_scores(store, tmp_path, score):
    options = ("--score", score, "--fanouts", "3,2", "--batch-size", "16", "--seeds", "val")
    done = run("reorder", store, "--out", tmp_path / "b", *options, "--relabel")
    assert done.exit_code == 0, done.output
    assert "its minibatches differ" in done.stderr
    data = load_dataset(str(store))
    expected = sp.features.score(score, data.graph, data.val_idx, sp.GraphSAGE([3, 2]), 16)
    order = GraphStore.open(tmp_path / "b").array("relabelled_from")
    np.testing.assert_array_equal(order, np.lexsort((np.arange(N), -np.frexp(expected)[1], expected == 0)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--score", "fame"), "--score: got 'fame'; expected one of posterior, "),
        (("--score", "none.npy"), "--score: got 'none.npy': No such file"),
        (("--score", "replay"), "got nothing; expected a value: the score 'replay' needs it"),
        (("--layer-sizes", "3"), "--layer-sizes: got '3' with --sampler graphsage"),
        (("--undo", "--relabel"), "--relabel: got True with --undo"),
        (("--undo", "--score", "presc"), "--score: got presc with --undo"),
        (("--undo", "--exact"), "--exact: got True with --undo"),
        (("--undo",), "expected a store made by reorder"),
        (("--memory-budget", "0"), "--memory-budget: got"),
    ],
)
def test_command_refuses(store, tmp_path, arguments, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("reorder", store, "--out", tmp_path / "b", *arguments)
    assert done.exit_code == 2
    assert words in " ".join(done.stderr.split())
    assert sorted(os.listdir(tmp_path)) == ["a"]


def test_command_takes_stores_only(tmp_path):
    done = run("reorder", "digits", "--out", tmp_path / "b")
    assert done.exit_code == 2
    assert "expected the folder of a store" in " ".join(done.stderr.split())


def test_command_names_bad_scores(store, tmp_path):
    np.save(tmp_path / "scores.npy", np.full(N, np.nan))
    done = run("reorder", store, "--out", tmp_path / "b", "--score", tmp_path / "scores.npy")
    assert "--score: got nan at position 0" in done.stderr
