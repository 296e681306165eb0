"""What belongs to vertices: tables by their ids, rows in files, labels, splits, OGB's folder, names given back."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from spsample.cli.main import app
from spsample.convert import ConvertOptions, convert, tables
from spsample.convert.sort import SortPlan
from spsample.data import Dataset, load_dataset
from spsample.errors import CapacityError, DataError, DTypeError, InputError, MissingDependencyError, SpSampleError
from spsample.store import Graph, GraphStore, StoreWriter

PLAN = SortPlan(chunk=1 << 12, capacity=1 << 14, bucket=1 << 10, threads=2)
NAMED = {"string_ids": True, "columns": ("src", "dst")}
BOB = "src,dst\nbob,ann\ncid,bob\n"


def write(folder: Path, **files: str | bytes) -> None:
    for name, text in files.items():
        content = text.encode() if isinstance(text, str) else text
        (folder / name.replace("_", ".")).write_bytes(content)


def made(folder: Path, edges: str, nodes: str | bytes, **options) -> tuple[GraphStore, list[str]]:
    """Convert edges.csv with nodes.csv; return the store, and the notes."""
    write(folder, e_csv=edges, n_csv=nodes)
    chosen = ConvertOptions(nodes=folder / "n.csv", overwrite=True, **options)
    result = convert(folder / "e.csv", folder / "store", chosen, plan=PLAN)
    store = GraphStore.open(folder / "store")
    store.verify()
    return store, [note.replace(str(folder / "n.csv"), "n.csv") for note in result.notes]


def by_name(store: GraphStore, array: str) -> dict:
    """The row of each vertex, by the name that the vertex has in the input."""
    rows = np.asarray(store.array(array))
    return dict(zip(store.vertices.names(np.arange(len(rows))).tolist(), rows.tolist(), strict=True))


# -------------------------------------------------------------------------------------------------- tables of vertices


def test_a_table_by_names(tmp_path):
    nodes = (
        "title,ID,height,label,split,width\n"
        '"a ""quoted"", title",ann,1,cat,train,2\n'
        '"two\nlines",cid,3,,test,4\nx,bob,5,dog,Valid,6\nx,zoe,7,cat,,8\n'
    )
    store, notes = made(tmp_path, BOB, nodes, **NAMED)
    assert store.vertices.names([0, 1, 2, 3]).tolist() == ["bob", "ann", "cid", "zoe"]  # zoe has no edge
    assert by_name(store, "x") == {"bob": [5, 6], "ann": [1, 2], "cid": [3, 4], "zoe": [7, 8]}
    assert by_name(store, "y") == {"bob": 1, "ann": 0, "cid": -1, "zoe": 0}
    data = load_dataset(str(tmp_path / "store"))
    assert [store.vertices.names(ids).tolist() for ids in (data.train_idx, data.val_idx, data.test_idx)] == [
        ["ann"],
        ["bob"],
        ["cid"],
    ]
    assert (data.num_classes, data.meta["class_names"], data.x.dtype) == (2, ["cat", "dog"], np.float32)
    assert notes == [
        "n.csv: ids are in ID; labels in label; splits in split; 2 features in height, width; not read: title",
        "vertices of n.csv without an edge: 1 ('zoe')",
        "classes of column label: 0 cat, 1 dog",
    ]


def arrow(**columns):
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table({name: pyarrow.array(*column) for name, column in columns.items()})


@pytest.mark.parametrize(
    "form", ["csv", "tsv", "semicolons", "csv.gz", "string", "large_string", "dictionary", "int64", "int32"]
)
@pytest.mark.parametrize("kind", ["string", "renumber", "plain"])
def test_ids_of_every_type(tmp_path, kind, form):
    """The row of a vertex is that of its id, whatever the order and the type of the ids."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    ids = ["40", "7", "1000"] if kind != "plain" else ["2", "0", "1"]
    edges = f"src,dst\n{ids[0]},{ids[1]}\n{ids[2]},{ids[0]}\n"
    options = {"string": NAMED, "renumber": {"renumber": "sorted"}, "plain": {}}[kind]
    order = [ids[1], ids[2], ids[0]]
    if form in ("csv", "tsv", "semicolons", "csv.gz"):
        mark = {"tsv": "\t", "semicolons": ";"}.get(form, ",")
        text = "\n".join(mark.join(row) for row in zip(["node_id", *order], ["a", *order], strict=True)).encode()
        path = tmp_path / f"n.{'csv' if form == 'semicolons' else form}"
        path.write_bytes(gzip.compress(text) if form.endswith("gz") else text)
    else:
        path = tmp_path / "n.parquet"
        column = pyarrow.array(order if "string" in form or form == "dictionary" else [int(word) for word in order])
        column = column.dictionary_encode() if form == "dictionary" else column.cast(form)
        parquet.write_table(pyarrow.table({"node_id": column, "a": [float(word) for word in order]}), path)
    write(tmp_path, e_csv=edges)
    convert(tmp_path / "e.csv", tmp_path / "store", ConvertOptions(nodes=path, **options), plan=PLAN)
    store = GraphStore.open(tmp_path / "store")
    assert {str(name): row for name, row in by_name(store, "x").items()} == {word: [float(word)] for word in ids}
    ends = [[word if kind == "string" else int(word) for word in pair] for pair in (ids[0:2], ids[2:] + ids[:1])]
    graph = store.graph()
    for source, target in ends:
        row, column = store.vertices.ids([target, source])
        assert column in graph.indices[graph.indptr[row] : graph.indptr[row + 1]]


def test_ids_that_look_like_nothing(tmp_path):
    """Strings are taken as they are: NA, null, nan and leading zeros are names."""
    order = ["7", "None", "nan", "null", "NA", "1e3", "007", "Zo\xeb"]
    nodes = "id,a\n" + "".join(f"{name},{place}\n" for place, name in enumerate(order))
    store, _ = made(tmp_path, "src,dst\n007,7\nNA,null\nnan,None\nZo\xeb,1e3\n", nodes, **NAMED)
    wanted = {name: [place] for place, name in enumerate(order)}
    assert by_name(store, "x") == wanted
    assert store.vertices.ids(list(wanted)).tolist() == [list(by_name(store, "x")).index(name) for name in wanted]


LATIN = (
    "which is no UTF-8; expected text in UTF-8. Where it is Latin-1, this makes UTF-8 of it: iconv -f latin1 -t utf-8"
)


@pytest.mark.parametrize(
    ("edges", "nodes", "options", "place"),
    [
        (b"src,dst\nbob,ann\nZo\xeb,bob\n", None, NAMED, "e.csv: got 'Zo\ufffd,bob' in line 3, "),
        (b"# of friends\n\nsrc,dst\nbob,Zo\xeb\n", None, NAMED, "e.csv: got 'bob,Zo\ufffd' in line 4, "),
        (b"src,dst,gr\xf6\xdfe\n0,1,2\n", None, {}, "e.csv: got 'src,dst,gr\ufffd\ufffde' in line 1, "),
        (b"src,dst\n" + b"bob,ann\n" * 9999 + b"Zo\xeb,bob", None, NAMED, "'Zo\ufffd,bob' in line 10001, "),
        ("src,dst\nZo\xeb,ann\n", b"id,a\nann,1\nZo\xeb,2\n", NAMED, "n.csv: got 'Zo\ufffd,2' in line 3, "),
        (BOB, b"id,gr\xf6\xdfe\nann,1\n", NAMED, "n.csv: got 'id,gr\ufffd\ufffde' in line 1, "),
        (BOB, b"id,a,label\nann,1,x\nbob,1,\xe9\ncid,1,x", NAMED, "n.csv: got 'bob,1,\ufffd' in line 3, "),
        (BOB, b'id,a,text\nann,1,"x\ny"\nbob,1,\xe9\n', NAMED, "n.csv: got 'bob,1,\ufffd' in line 4, "),
    ],
)
def test_text_that_is_no_utf8_is_refused_by_its_line(tmp_path, monkeypatch, edges, nodes, options, place):
    monkeypatch.setattr(tables, "_BLOCK", 12)  # in pieces of about a row
    write(tmp_path, e_csv=edges, **({} if nodes is None else {"n_csv": nodes}))
    chosen = ConvertOptions(nodes=None if nodes is None else tmp_path / "n.csv", **options)
    with pytest.raises(DataError) as caught:
        convert(tmp_path / "e.csv", tmp_path / "store", chosen, plan=PLAN)
    assert place + LATIN in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_integers_beside_other_text_are_read(tmp_path):
    """Where no name is kept, nothing is lost by what is no UTF-8 in comments and in columns that are not read."""
    write(tmp_path, e_csv=b"# \xe9\nsrc,dst,who\n0,1,Zo\xeb\n2,1,ann\n")
    assert convert(tmp_path / "e.csv", tmp_path / "store", plan=PLAN).num_edges == 2


@pytest.mark.parametrize("options", [NAMED, {"renumber": "sorted"}, {}], ids=["strings", "renumbered", "plain"])
@settings(deadline=None, max_examples=15)
@given(
    order=st.permutations(range(6)), columns=st.permutations(["id", "a", "b", "label", "split"]), seed=st.integers(0, 9)
)
def test_any_order_of_the_table_makes_the_same_store(tmp_path_factory, options, order, columns, seed):
    """Of its rows and of its columns, apart from the order of the features."""
    folder = tmp_path_factory.mktemp("order")
    rng = np.random.default_rng(seed)
    edges = "src,dst\n" + "".join(f"{u},{v}\n" for u, v in rng.integers(0, 5, (8, 2)))
    values = {
        "id": [str(i) for i in range(6)], "a": list("345678"), "b": ["0.5"] * 6,
        "label": ["x", "y", "", "x", "z", "y"], "split": ["train", "val", "test", "", "test", "train"],
    }  # fmt: skip

    def table(rows, names) -> str:
        return "\n".join([",".join(names), *(",".join(values[name][row] for name in names) for row in rows)])

    contents = []
    wide = [*(name for name in columns if name not in "ab"), "a", "b"]
    for rows, names in ((range(6), list(values)), (order, wide)):
        store, _ = made(folder, edges, table(rows, names), **options)
        contents.append({name: np.asarray(store.array(name)).tobytes() for name in store.names})
    assert contents[0] == contents[1]


@pytest.mark.parametrize("block", [32, 50, 64, 1 << 22])
def test_rows_are_whole_wherever_blocks_end(tmp_path, monkeypatch, block):
    monkeypatch.setattr(tables, "_BLOCK", block)
    rows = [f'{i},"line {i}\nand, ""{i}""",{i}.5,{i % 3}\n' for i in range(40)]
    rows[0] = "0,short,0.5,0\n"  # the first block needs a row, by which the kinds of columns are known
    edges = "src,dst\n" + "".join(f"{i},{(i + 1) % 40}\n" for i in range(40))
    if block < 40:  # the kinds of columns are those of the first block: it needs a row
        rows[0] = "0,short,0.5,0\n"
        monkeypatch.setattr(tables, "_BLOCK", block + 24)
    store, _ = made(tmp_path, edges, "id,text,a,label\n" + "".join(rows))
    assert by_name(store, "x") == {i: [i + 0.5] for i in range(40)}
    assert by_name(store, "y") == {i: i % 3 for i in range(40)}


@pytest.mark.parametrize(
    ("edges", "nodes", "options", "message"),
    [
        (
            BOB,
            "id,a\nann,1\nbob,2\n",
            NAMED,
            "no row for vertices of the graph: 1 ('cid'), while the table has 'ann'; expected a row for each",
        ),
        (BOB, "id,a\nann,1\nbob,2\ncid,\n", NAMED, "'' in column a of row 3; expected a number in each row. A missing"),
        (BOB, "id,a\nann,1\nbob,nan\ncid,2\n", NAMED, "in column a of row 2; expected finite numbers of 32 bits"),
        (BOB, "id,a\nann,1\nbob,nan\ncid,2\n", NAMED, "A missing feature needs a value"),
        (BOB, "id,a\nann,1\nbob,2\ncid,1e300\n", NAMED, "got 1e+300 in column a of row 3"),
        (BOB, "id,a\nann,1\nbob,2\ncid,3\nann,4\n", NAMED, "the id 'ann' in the rows 1 and 4"),
        (BOB, "id,a\nann,1\n,2\ncid,3\n", NAMED, "no id in row 2"),
        (BOB, "id,label\nAnn,1\nBob,2\n", NAMED, "none has an edge: the table has 'Ann', the graph 'bob'"),
        (BOB, "id,label\n", NAMED, "0 ids, of which none has an edge: the table has none, the graph 'bob'"),
        ("0,1\n2,1\n", "id,a\n105,1\n106,2\n", {}, "none has an edge: the table has 105, the graph 0"),
        ("5,9\n", "id,a\n4,1\n", {"renumber": "sorted"}, "none has an edge: the table has 4, the graph 5"),
        (BOB, "", NAMED, "the first line ''"),
        (BOB, "id,a\nann,1\nbob,2,3\n", NAMED, "row 2: Expected 2 columns, got 3"),
        (BOB, "id,a,a\nann,1,1\n", NAMED, "2 columns named 'a'"),
        (BOB, 'id,a\nann,1\n"bob,2\n', NAMED, "a quote that is not closed"),
        (BOB, "id;a,b\nann;1,2\n", NAMED, "the first line 'id;a,b'"),
        (BOB, "id,y\nann,1.5\nbob,2\ncid,1\n", NAMED, "1.5 at position 0"),
        (BOB, "id,y\nann,-2\nbob,2\ncid,1\n", NAMED, "-2.0 at position 0"),
        (BOB, "id,y\nann,NA\nbob,b\ncid,c\n", NAMED, "the label 'NA' among names"),
        (BOB, "id,y\nann,3\nbob,b\ncid,c\n", NAMED, "the label '3' among names"),
        (BOB, "id,y\nann,1_0\nbob,2\ncid,1\n", NAMED, "the label '2' among names, such as '1_0'"),
        (BOB, "id,split\nann,dev\nbob,train\ncid,test\n", NAMED, "'dev' in column split; expected train, val"),
        (BOB, "id,name,a\nann,1,1\n", NAMED, "the columns id, name in"),
        (BOB, "who,a\nann,1\n", NAMED, "Type --node-id COLUMN, such as --node-id who"),
        (BOB, "ann,1\nbob,2\n", NAMED, "the columns ann, 1 in"),
        (BOB, "ann,1\nbob,2\n", NAMED, "The first line must name the columns, as id,age: add it."),
        (BOB, "ann,1,1\nbob,2,3\n", NAMED, "The first line of a text must name the columns."),
        (BOB, "id,y,label\nann,1,2\n", NAMED, "the columns y and label in"),
        (BOB, "id,a\nann,1\n", {**NAMED, "node_id": "who"}, "'who' with the columns id, a in"),
        (BOB, "id,a\nann,1\n", {**NAMED, "features": "b"}, "'b'; expected a file, or columns of"),
        (BOB, "id,a\nann,x\n", {**NAMED, "features": "a"}, "expected columns of numbers"),
        (BOB, "id,a\nann,1\n", {**NAMED, "labels": "id"}, "column id of"),
        (BOB, "id,a,b\nann,1,1\n", {**NAMED, "splits": "a,b"}, "expected one column"),
        ("0,1\n2,1\n", "id,a\n1,1\n2,2\n3,3\n", {}, "no row for vertices of the graph: 1 (0)"),
        ("0,1\n2,1\n", "id,a\n0,0\n1,1\n2,2\n3,3\n", {"num_nodes": 3}, "the id 3; expected ids in [0, 3)"),
        ("0,1\n2,1\n", "id,a\n0,0\n1,1\n2,2\n-1,3\n", {}, "the id -1"),
        (
            "0,1\n2,1\n",
            "id,a\nx,0\n1,1\n2,2\n",
            {},
            "'x' in column id of row 1; expected a number in each row. Ids that",
        ),
        ("5,9\n9,7\n", "id,a\n5,0\n9,1\n", {"renumber": "sorted"}, "no row for vertices of the graph: 1 (7)"),
        ("5,9\n9,7\n", "id,a\n5,0\n9,1\n7,2\n9,3\n", {"renumber": "sorted"}, "the id 9 in the rows 2 and 4"),
    ],
)
def test_tables_that_are_refused(tmp_path, edges, nodes, options, message):
    with pytest.raises((DataError, InputError)) as caught:
        made(tmp_path, edges, nodes, **options)
    assert message in str(caught.value)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": (["ann", None, "bob"],), "a": ([1, 2, 3],)}, "no id in row 2"),
        ({"id": ([1.0, 2.0, 3.0],), "a": ([1, 2, 3],)}, "column id of type double; expected ids that are names"),
        ({"id": (["ann", "bob", "cid"],), "a": ([1, None, 3],)}, "got no value in column a of row 2"),
        ({"id": (["ann", "bob", "cid"],), "a": ([True, False, None],)}, "column a of row 3"),
        ({"id": (["ann", "bob", "cid"],), "split": ([0, 1, 2],)}, "'0' in column split"),
    ],
)
def test_parquet_tables_that_are_refused(tmp_path, columns, message):
    table = arrow(**columns)
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, tmp_path / "n.parquet")
    write(tmp_path, e_csv=BOB)
    options = ConvertOptions(nodes=tmp_path / "n.parquet", **NAMED)
    with pytest.raises(DataError) as caught:
        convert(tmp_path / "e.csv", tmp_path / "store", options, plan=PLAN)
    assert message in str(caught.value)


def test_parquet_columns_of_every_kind(tmp_path):
    """Numbers of all kinds are features, a few columns at a time; what is no number is named."""
    table = arrow(
        vertex=(["cid", "ann", "bob"],),
        small=([1, 2, 3], "uint8"),
        half=([1.5, 2.5, 3.5], "float32"),
        flag=([True, False, True],),
        large=([2**62 + 1, 0, 1], "int64"),
        many=([[1.0], [2.0], [3.0]],),
        label=([2.0, None, float("nan")],),
    )
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, tmp_path / "n.parquet")
    write(tmp_path, e_csv=BOB)
    result = convert(
        tmp_path / "e.csv", tmp_path / "store", ConvertOptions(nodes=tmp_path / "n.parquet", **NAMED), plan=PLAN
    )
    store = GraphStore.open(tmp_path / "store")
    assert by_name(store, "x") == {"bob": [3, 3.5, 1, 1], "ann": [2, 2.5, 0, 0], "cid": [1, 1.5, 1, 2.0**62]}
    assert by_name(store, "y") == {"bob": -1, "ann": -1, "cid": 2}
    assert "4 features in small, half, flag, large; not read: many" in result.notes[0]


def test_a_folder_of_parts(tmp_path):
    first, second = arrow(id=(["cid", "ann"],), a=([1.0, 2.0],)), arrow(a=([3.0],), id=(["bob"],))
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "parts").mkdir()
    for number, table in enumerate((first, second)):
        parquet.write_table(table, tmp_path / "parts" / f"part-{number}.parquet")
    write(tmp_path, e_csv=BOB)
    options = ConvertOptions(nodes=tmp_path / "parts", **NAMED)
    convert(tmp_path / "e.csv", tmp_path / "store", options, plan=PLAN)
    assert by_name(GraphStore.open(tmp_path / "store"), "x") == {"cid": [1], "ann": [2], "bob": [3]}
    parquet.write_table(arrow(id=(["zoe"],)), tmp_path / "parts" / "part-2.parquet")
    with pytest.raises(DataError, match="a part without the column a; expected the same columns in all parts"):
        convert(tmp_path / "e.csv", tmp_path / "other", options, plan=PLAN)


def test_ids_in_one_table_alone_are_counted_and_named(tmp_path):
    nodes = "id,label\nann,1\n" + "".join(f"other{i},0\n" for i in range(9))
    store, notes = made(tmp_path, BOB, nodes, **NAMED)
    assert notes[1] == "vertices of n.csv without an edge: 9 ('other0', 'other1', 'other2', 'other3', 'other4', ...)"
    assert notes[2].startswith("n.csv has no row for vertices of the graph: 2 ('bob', 'cid'); they have no label")
    assert by_name(store, "y")["bob"] == -1
    store, notes = made(tmp_path, "5,9\n9,7\n", "id,label\n9,1\n20,3\n8,2\n", renumber="sorted")
    assert store.vertices.names(range(5)).tolist() == [5, 7, 8, 9, 20]
    assert notes[1:2] == ["vertices of n.csv without an edge: 2 (8, 20)"]
    assert "2 (5, 7)" in notes[2]
    store, notes = made(tmp_path, "1,0\n0,1\n", "id,label\n4,1\n0,3\n")
    assert by_name(store, "y") == {0: 3, 1: -1, 2: -1, 3: -1, 4: 1}
    assert "1 (4)" in notes[1]
    assert "3 (1, 2, 3)" in notes[2]


def test_columns_that_are_named(tmp_path):
    nodes = ",id,paper,year,venue,fold\n0,1,ann,1990,icml,train\n1,2,cid,2000,nips,test\n2,3,bob,2010,icml,val\n"
    options = {**NAMED, "node_id": "paper", "features": "year", "labels": "venue", "splits": "fold"}
    store, notes = made(tmp_path, BOB, nodes, **options)
    assert by_name(store, "x") == {"bob": [2010], "ann": [1990], "cid": [2000]}
    assert by_name(store, "y") == {"bob": 0, "ann": 0, "cid": 1}
    assert store.vertices.names(store.array("test_idx")).tolist() == ["cid"]
    assert notes[0].endswith("1 features in year; not read: (without a name), id")
    store, notes = made(tmp_path, BOB, nodes, **NAMED, node_id="paper")  # an index and other ids are no features
    assert notes[0] == "n.csv: ids are in paper; 1 features in year; not read: (without a name), id, venue, fold"


def test_files_by_rows_of_the_table(tmp_path, monkeypatch):
    """Features, labels and splits in files of their own have the rows of the table."""
    nodes = "id,a,label\nann,1,5\nbob,2,6\ncid,3,7\n"
    np.save(tmp_path / "x.npy", np.array([[1.0], [2.0], [3.0]]))
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.coo_array(np.diag([1.0, 2.0, 3.0])))
    np.save(tmp_path / "y.npy", np.array([[0.0], [np.nan], [2.0]]))
    np.savez(tmp_path / "ids.npz", train_idx=[0], valid_idx=[2], test_idx=[1])
    masks = {f"{part}_masks": np.eye(3, dtype=bool)[[i, i]] for i, part in enumerate(("train", "test", "valid"))}
    np.savez(tmp_path / "masks.npz", **masks)
    for splits in ("ids.npz", "masks.npz"):
        files = {"features": tmp_path / "x.npy", "labels": tmp_path / "y.npy", "splits": tmp_path / splits}
        store, notes = made(tmp_path, BOB, nodes, **NAMED, **files)
        assert by_name(store, "x") == {"bob": [2], "ann": [1], "cid": [3]}
        assert by_name(store, "y") == {"bob": -1, "ann": 0, "cid": 2}
        assert notes == ["n.csv: ids are in id; not read: a, label"]
        data = load_dataset(str(tmp_path / "store"), split=int(splits == "masks.npz"))
        assert store.vertices.names(np.r_[data.train_idx, data.test_idx]).tolist() == ["ann", "bob"]
    made(tmp_path, BOB, nodes, **NAMED, features=tmp_path / "x.npz")
    assert load_dataset(str(tmp_path / "store")).x.toarray().tolist() == [[0, 2, 0], [1, 0, 0], [0, 0, 3]]
    with pytest.raises(DataError, match=r"no row for vertices of the graph: 1 \('cid'\)"):
        made(tmp_path, BOB, "id\nann\nbob\n", **NAMED, features=tmp_path / "x.npy")
    with pytest.raises(DataError, match="float64 and shape \\(3, 1\\); expected numbers in 4 rows"):
        made(tmp_path, BOB, "id\nann\nbob\ncid\nzoe\n", **NAMED, features=tmp_path / "x.npy")
    write(tmp_path, a="")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="'a', a file and a column of"):
        made(tmp_path, BOB, nodes, **NAMED, features="a")


def test_a_table_for_other_sources(tmp_path):
    write(tmp_path, n_csv="id,a\n2,3\n0,1\n1,2\n")
    np.savez(tmp_path / "e.npz", edge_index=[[0, 1], [1, 2]], x=np.zeros((3, 5)), y=[1, 0, 1])
    options = ConvertOptions(nodes=tmp_path / "n.csv")
    convert(tmp_path / "e.npz", tmp_path / "store", options, plan=PLAN)
    data = load_dataset(str(tmp_path / "store"))
    assert (data.x.tolist(), data.y.tolist()) == ([[1], [2], [3]], [1, 0, 1])
    with pytest.raises(InputError, match="nodes: got a table for generated vertices"):
        convert("rmat:6,4", tmp_path / "other", options, plan=PLAN)
    made(tmp_path, BOB, "id,a\nann,1\nbob,2\ncid,3\n", **NAMED)
    with pytest.raises(InputError, match="nodes: got a table for vertices that have names already"):
        convert(tmp_path / "store", tmp_path / "other", options, plan=PLAN)


def test_room_for_the_table(tmp_path):
    rows = "".join(f"{i}\n" for i in range(40))
    write(tmp_path, e_csv="0,1\n", n_csv=f"id\n{rows}")
    small = SortPlan(chunk=64, capacity=10, bucket=10, threads=1)
    with pytest.raises(CapacityError, match=r"nodes: got vertex ids that take .* Raise --memory-budget"):
        convert(tmp_path / "e.csv", tmp_path / "store", ConvertOptions(nodes=tmp_path / "n.csv"), plan=small)


def test_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    with pytest.raises(MissingDependencyError, match=r'reading n.csv .*"spsample\[convert\]"'):
        made(tmp_path, BOB, "id,a\nann,1\n", **NAMED)
    ogb(tmp_path / "ogbn")
    with pytest.raises(MissingDependencyError, match=r"spsample\[convert\]"):
        convert(tmp_path / "ogbn", tmp_path / "other", plan=PLAN)


def test_the_command_tells_what_it_made_of_the_table(tmp_path):
    write(tmp_path, e_csv=BOB, n_csv="id,a,label,title\nann,1,0,t\nbob,2,1,u\ncid,3,,v\nzoe,1,1,w\n")
    arguments = ["convert", str(tmp_path / "e.csv"), str(tmp_path / "store"), "--string-ids", "--columns", "src,dst"]
    done = CliRunner().invoke(app, [*arguments, "--nodes", str(tmp_path / "n.csv"), "--json"])
    assert done.exit_code == 0, done.output
    assert "1 features in a; not read: title" in " ".join(done.stderr.split())
    assert "without an edge: 1 ('zoe')" in " ".join(done.stderr.split())
    assert len(json.loads(done.stdout)["notes"]) == 2


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="RssAnon is Linux's")
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_table_stays_within_its_memory(tmp_path, form):
    """60 columns of one Parquet row group would take some 270 MiB at once."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    count, rng = (60_000, np.random.default_rng(0)) if form == "csv" else (300_000, np.random.default_rng(0))
    columns = {f"f{i}": rng.random(count, dtype=np.float32) for i in range(60)}
    table = pyarrow.table({"id": rng.permutation(count), **columns})
    (csv.write_csv if form == "csv" else parquet.write_table)(table, tmp_path / f"n.{form}")
    np.save(tmp_path / "e.npy", rng.integers(0, count, (2, 1000)))
    budget = 256 * 2**20
    command = [sys.executable, "-m", "spsample.cli.main", "convert", str(tmp_path / "e.npy"), str(tmp_path / "store")]
    options = ["--nodes", str(tmp_path / f"n.{form}"), "--memory-budget", str(budget), "--threads", "2"]
    process, peak = subprocess.Popen([*command, *options]), 0
    while process.poll() is None:
        try:
            text = Path(f"/proc/{process.pid}/status").read_text("ascii")
        except OSError:
            break
        peak = max([peak, *(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("RssAnon"))])
        time.sleep(0.005)
    assert process.wait() == 0
    assert 0 < peak < budget
    x = GraphStore.open(tmp_path / "store").array("x")
    np.testing.assert_array_equal(x[table["id"].to_numpy()[:1000], 7], columns["f7"][:1000])


# -------------------------------------------------------------------------------------------------------- order of rows


@pytest.mark.parametrize("kind", ["strings", "renumbered"])
@pytest.mark.parametrize("option", ["features", "labels", "splits"])
def test_rows_of_unknown_order_are_refused(tmp_path, kind, option):
    np.save(tmp_path / "a.npy", np.array([1, 0, 2]))
    np.savez(tmp_path / "a.npz", train_idx=[0], val_idx=[1], test_idx=[2])
    write(tmp_path, e_csv=BOB if kind == "strings" else "7,5\n9,7\n")
    path = tmp_path / ("a.npz" if option == "splits" else "a.npy")
    ids = NAMED if kind == "strings" else {"renumber": "sorted"}
    order = "first-appearance" if kind == "strings" else "ascending"
    with pytest.raises(InputError, match=rf"^{option}: got .*expected to be told.*--nodes TABLE.*-order {order}"):
        ConvertOptions(**ids, **{option: path})
    chosen = ConvertOptions(**ids, **{option: path}, features_order=order)
    convert(tmp_path / "e.csv", tmp_path / "store", chosen, plan=PLAN)
    store, names = GraphStore.open(tmp_path / "store"), ["bob", "ann", "cid"] if kind == "strings" else [5, 7, 9]
    assert store.vertices.names([0, 1, 2]).tolist() == names
    held = {"features": ("x", [1, 0, 2]), "labels": ("y", [1, 0, 2]), "splits": ("test_idx", [2])}[option]
    assert store.array(held[0]).reshape(-1).tolist() == held[1]


@pytest.mark.parametrize(
    "options",
    [
        {"features_order": "ascending"},
        {"features_order": "ascending", "features": "x.npy"},
        {"features_order": "first-appearance", "features": "x.npy", "renumber": "sorted"},
        {"features_order": "ascending", "features": "x.npy", "string_ids": True},
        {"features_order": "ascending", "features": "x.npy", "renumber": "sorted", "nodes": "n.csv"},
        {"features_order": "random", "features": "x.npy"},
        {"node_id": "id"},
    ],
)
def test_orders_that_say_nothing(options):
    with pytest.raises(InputError, match=r"^(features_order|node_id): got"):
        ConvertOptions(**options)


# ------------------------------------------------------------------------------------------------------ labels, splits


def saved(folder: Path, **arrays) -> Path:
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


RING = np.array([[0, 1, 2], [1, 2, 0]])
LABELS = {
    "one column": (np.array([[0], [2], [1]]), [0, 2, 1], 3),
    "floats": (np.array([1.0, 0.0, 1.0], np.float32), [1, 0, 1], 2),
    "floats with none": (np.array([[1.0], [np.nan], [0.0]]), [1, -1, 0], 2),
    "none as -1": (np.array([3, -1, 0], np.int8), [3, -1, 0], 4),
    "booleans": (np.array([True, False, True]), [1, 0, 1], 2),
    "two labels": (np.array([[1, 0], [0, 1], [1, 1]]), [[1, 0], [0, 1], [1, 1]], 2),
}
BAD_LABELS = {
    "half": (np.array([0.5, 1, 0]), "0.5 at position 0"),
    "below -1": (np.array([[0], [-2], [1]]), "-2 at position 1"),
    "infinite": (np.array([0, np.inf, 1]), "inf at position 1"),
    "too few": (np.array([0, 1]), r"labels of dtype int64 and shape \(2,\)"),
    "of strings": (np.array(["a", "b", "c"]), "labels of dtype <U1"),
    "of no column": (np.zeros((3, 0)), r"shape \(3, 0\)"),
}


def labelled(folder: Path, form: str, y: np.ndarray) -> tuple[object, ConvertOptions]:
    """A source with labels in one of the forms that have them."""
    if form == "npy":
        np.save(folder / "e.npy", RING)
        np.save(folder / "y.npy", y)
        return folder / "e.npy", ConvertOptions(labels=folder / "y.npy")
    if form == "edge_index":
        return saved(folder, edge_index=RING, num_nodes=3, y=y), ConvertOptions()
    if form == "data set":
        return saved(folder, indptr=[0, 1, 2, 3], indices=[2, 0, 1], y=y), ConvertOptions()
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").Data(edge_index=torch.from_numpy(RING), num_nodes=3)
    data.y = torch.from_numpy(y) if y.dtype.kind != "U" else y
    return data, ConvertOptions()


@pytest.mark.parametrize("form", ["npy", "edge_index", "data set", "pyg"])
@pytest.mark.parametrize("case", LABELS)
def test_labels_have_one_rule(tmp_path, form, case):
    y, wanted, classes = LABELS[case]
    convert(*(labelled(tmp_path, form, y)[0], tmp_path / "store", labelled(tmp_path, form, y)[1]), plan=PLAN)
    data = load_dataset(str(tmp_path / "store"))
    assert (data.y.tolist(), data.num_classes, data.y.dtype) == (wanted, classes, np.int64)


@pytest.mark.parametrize("form", ["npy", "edge_index", "data set", "pyg"])
@pytest.mark.parametrize("case", BAD_LABELS)
def test_what_is_no_label_is_refused_alike(tmp_path, form, case):
    y, message = BAD_LABELS[case]
    source, options = labelled(tmp_path, form, y)
    with pytest.raises(DataError, match=message):
        convert(source, tmp_path / "store", options, plan=PLAN)


PARTS = ([1, 0, 0], [0, 1, 0], [0, 0, 1])
SPLITS = {
    "ids": ("idx", [[0], [1], [2]]),
    "mask": ("mask", [np.array(part, bool) for part in PARTS]),
    "mask of bytes": ("mask", [np.array(part, np.uint8) for part in PARTS]),
    "columns of masks": ("mask", [np.array([part, part], bool).T for part in PARTS]),
    "masks": ("masks", [np.array([part], bool) for part in PARTS]),
    "one mask of masks": ("masks", [np.array(part, bool) for part in PARTS]),
}


@pytest.mark.parametrize("form", ["splits", "edge_index", "data set", "pyg"])
@pytest.mark.parametrize("case", SPLITS)
def test_splits_have_one_rule(tmp_path, form, case):
    suffix, arrays = SPLITS[case]
    val = "valid" if (len(form) + len(case)) % 2 else "val"
    named = dict(zip((f"train_{suffix}", f"{val}_{suffix}", f"test_{suffix}"), arrays, strict=True))
    options, source = ConvertOptions(), saved(tmp_path, edge_index=RING, num_nodes=3, **named)
    if form == "data set":
        source = saved(tmp_path, indptr=[0, 1, 2, 3], indices=[2, 0, 1], **named)
    elif form == "splits":
        np.save(tmp_path / "e.npy", RING)
        source, options = tmp_path / "e.npy", ConvertOptions(splits=source)
        np.savez(tmp_path / "data.npz", **named)
    elif form == "pyg":
        torch = pytest.importorskip("torch")
        named = {name: torch.from_numpy(np.asarray(array)) for name, array in named.items()}
        source = pytest.importorskip("torch_geometric.data").Data(
            edge_index=torch.from_numpy(RING), num_nodes=3, **named
        )
    result = convert(source, tmp_path / "store", options, plan=PLAN)
    data = load_dataset(str(tmp_path / "store"), split=int(case == "columns of masks"))
    assert (data.train_idx.tolist(), data.val_idx.tolist(), data.test_idx.tolist()) == ([0], [1], [2])
    assert result.not_read == ()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"train_idx": [0], "val_idx": [1], "valid_idx": [1], "test_idx": [2]}, "both val_idx and valid_idx"),
        ({"train_mask": [0, 1, 2], "val_mask": [0, 1, 0], "test_mask": [0, 0, 1]}, "train_mask of dtype int64"),
        ({"train_mask": [True], "val_mask": [True], "test_mask": [True]}, r"train_mask of dtype bool and shape \(1,\)"),
        (
            {"train_masks": np.ones((3, 2), bool), **dict.fromkeys(("val_masks", "test_masks"), np.ones((3, 2), bool))},
            "bool of",
        ),
        ({"train_idx": [0], "valid_idx": [1], "test_idx": [3]}, "test_idx with 3 at position 0"),
        ({"train_idx": [0.0], "valid_idx": [1], "test_idx": [2]}, "train_idx of dtype float64"),
        ({"train_idx": [0], "valid_idx": [0], "test_idx": [2]}, "vertex 0 "),
    ],
)
@pytest.mark.parametrize("form", ["splits", "edge_index"])
def test_splits_that_are_refused(tmp_path, form, arrays, message):
    source, options = saved(tmp_path, edge_index=RING, num_nodes=3, **arrays), ConvertOptions()
    if form == "splits":
        np.save(tmp_path / "e.npy", RING)
        source, options = tmp_path / "e.npy", ConvertOptions(splits=saved(tmp_path, **arrays))
    with pytest.raises(DataError, match=message):
        convert(source, tmp_path / "store", options, plan=PLAN)


# ------------------------------------------------------------------------------------------------- .npz with edge_index


def test_npz_with_edge_index(tmp_path):
    weights, x = np.array([0.5, 1.5, 2.5]), np.eye(4, dtype=np.float32)
    path = saved(tmp_path, edge_index=RING, edge_weight=weights, x=x, y=[0, 1, 1, 0], times=[1, 2])
    result = convert(path, tmp_path / "store", plan=PLAN)
    wanted = Graph.from_edge_index(RING, num_nodes=4, edge_weight=weights)
    graph, data = Graph.open(tmp_path / "store"), load_dataset(str(tmp_path / "store"))
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(graph, name), getattr(wanted, name))
    assert (data.x.tolist(), data.y.tolist(), result.not_read) == (x.tolist(), [0, 1, 1, 0], ("times",))
    path = saved(tmp_path, edge_index=RING, w=weights.astype(np.float32))
    convert(path, tmp_path / "other", ConvertOptions(weights="w", symmetrise=True), plan=PLAN)
    assert (Graph.open(tmp_path / "other").num_nodes, Graph.open(tmp_path / "other").num_edges) == (3, 6)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"edge_index": RING, "indptr": [0, 1], "indices": [0]}, "edge_index and indptr"),
        ({"edge_index": RING - 1}, "-1 -> 0|-1 at position"),
        ({"edge_index": RING.T}, r"shape \(3, 2\)"),
        ({"edge_index": RING.astype(float)}, "dtype float64"),
        ({"edge_index": RING, "num_nodes": 2}, "the edge 1 -> 2"),
        ({"edge_index": RING, "num_nodes": [3, 3]}, "num_nodes of dtype int64"),
        ({"edge_index": RING, "edge_weight": [1.0, 2.0]}, "2 weights"),
        (
            {"edge_index": RING, "num_nodes": 5, "x": np.eye(3)},
            r"^x of .*data.npz: got features of dtype float64 and shape \(3, 3\)",
        ),
    ],
)
def test_npz_with_edge_index_that_is_refused(tmp_path, arrays, message):
    with pytest.raises(SpSampleError, match=message):
        convert(saved(tmp_path, **arrays), tmp_path / "store", plan=PLAN)
    assert not (tmp_path / "store").exists()


# --------------------------------------------------------------------------------------------------------- OGB's folder

OGB = {
    "raw/edge": "0,1\n2,0\n2,3\n",
    "raw/num-node-list": "4\n",
    "raw/num-edge-list": "3\n",
    "raw/node-feat": "1,-2.5\n3,4e-1\n5,6\n7,8\n",
    "raw/node-label": "0\n2\nnan\n1\n",
    "split/time/train": "1\n0\n",
    "split/time/valid": "3\n",
    "split/time/test": "2\n",
}


def ogb(folder: Path, **changes: str | None) -> Path:
    """An imitation of a folder of OGB; names in `changes` have _ for / and -."""
    named = {name.replace("/", "_").replace("-", "_"): name for name in OGB}
    files = {**OGB, **{named.get(name, f"raw/{name.replace('_', '-')}"): text for name, text in changes.items()}}
    for name, text in files.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_bytes(gzip.compress(text.encode()))
    return folder


@pytest.mark.parametrize("given", ["folder", "raw", "relative"])
def test_ogb_by_its_path_alone(tmp_path, monkeypatch, given):
    pytest.importorskip("pyarrow")
    folder = ogb(tmp_path / "ogbn_tiny", edge_feat="1\n2\n3\n", node_year="1\n2\n3\n4\n")
    monkeypatch.chdir(folder)
    source = {"folder": folder, "raw": folder / "raw", "relative": "."}[given]
    result = convert(source, tmp_path / "store", plan=PLAN)
    graph, data = Graph.open(tmp_path / "store"), load_dataset(str(tmp_path / "store"))
    wanted = Graph.from_edge_index([[0, 2, 2], [1, 0, 3]], num_nodes=4)
    np.testing.assert_array_equal(graph.indptr, wanted.indptr)
    np.testing.assert_array_equal(graph.indices, wanted.indices)
    np.testing.assert_array_equal(data.x, np.array([[1, -2.5], [3, 0.4], [5, 6], [7, 8]], np.float32))
    assert (data.y.tolist(), data.num_classes, data.name) == ([0, 2, -1, 1], 3, "store")
    assert (data.train_idx.tolist(), data.val_idx.tolist(), data.test_idx.tolist()) == ([1, 0], [3], [2])
    assert result.notes[0].endswith("edge-feat.csv.gz, node-year.csv.gz")
    assert "--symmetrise adds the other" in result.notes[1]


def test_ogb_with_less_and_with_other_files(tmp_path):
    pytest.importorskip("pyarrow")
    bare = ogb(tmp_path / "bare", raw_node_feat=None, raw_node_label=None, split_time_train=None)
    result = convert(bare, tmp_path / "first", ConvertOptions(symmetrise=True), plan=PLAN)
    assert (Graph.open(tmp_path / "first").num_edges, result.notes) == (6, ())
    assert load_dataset(str(tmp_path / "first")).x is None
    np.save(tmp_path / "y.npy", np.array([1, 1, 0, 0]))
    np.save(tmp_path / "x.npy", np.zeros((4, 7)))
    broken = ogb(tmp_path / "broken", raw_node_feat="x\n", raw_node_label="x\n")
    options = ConvertOptions(labels=tmp_path / "y.npy", features=tmp_path / "x.npy")
    convert(broken, tmp_path / "second", options, plan=PLAN)
    assert load_dataset(str(tmp_path / "second")).y.tolist() == [1, 1, 0, 0]
    several = ogb(tmp_path / "several", raw_node_label="1,0,nan\n0,0,1\n1,1,1\n0,1,0\n")
    convert(several, tmp_path / "third", plan=PLAN)
    assert load_dataset(str(tmp_path / "third")).y.tolist()[0] == [1, 0, -1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"raw_node_feat": "1,2\n3,4\n5,6\n"}, "3 rows; expected 4, one per vertex"),
        ({"raw_node_feat": "1,2\n3,4\n5,6\n7,8\n9,9\n"}, "at least 5 rows; expected 4"),
        ({"raw_node_feat": "1,2\n3,x\n5,6\n7,8\n"}, "'x' in column 1 of row 2"),
        ({"raw_node_feat": "1,2\n3,nan\n5,6\n7,8\n"}, "got nan in column 1 of row 2"),
        ({"raw_node_feat": "1,2\n3\n5,6\n7,8\n"}, "row 2: Expected 2 columns, got 1"),
        ({"raw_node_label": "0\n1\n2\n"}, "shape (3, 1); expected numbers in 4 rows"),
        ({"raw_node_label": "0\n1\n2\n0.5\n"}, "0.5 at position 3"),
        ({"raw_num_node_list": "3\n"}, "shape (4, 1); expected numbers in 3 rows"),
        ({"raw_num_node_list": "2\n2\n"}, "2 graphs in num-node-list.csv.gz"),
        ({"raw_num_node_list": None}, "no file there"),
        ({"split_time_test": "9\n"}, "test_idx with 9 at position 0"),
        ({"split_time_test": "0\n"}, "vertex 0 in train_idx and test_idx"),
        ({"split_time_valid": None}, "split/time: got no valid.csv.gz"),
        ({"raw_edge": "0,1\n2\n"}, "'2' in line 2"),
        ({"triplet_type_list": "a,b,c\n"}, "several types of vertices"),
    ],
)
def test_ogb_folders_that_are_refused(tmp_path, changes, message):
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError) as caught:
        convert(ogb(tmp_path / "ogbn", **changes), tmp_path / "store", plan=PLAN)
    assert message in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_ogb_of_two_splits_or_in_another_form(tmp_path):
    pytest.importorskip("pyarrow")
    folder = ogb(tmp_path / "ogbn")
    (folder / "split" / "random").mkdir()
    (folder / "split" / "random" / "train.csv").write_text("1\n")
    with pytest.raises(DataError, match=r"2 splits: random, time; expected one split, or --splits"):
        convert(folder, tmp_path / "store", plan=PLAN)
    np.savez(tmp_path / "s.npz", train_idx=[0], val_idx=[1], test_idx=[2])
    convert(folder, tmp_path / "store", ConvertOptions(splits=tmp_path / "s.npz"), plan=PLAN)
    assert load_dataset(str(tmp_path / "store")).val_idx.tolist() == [1]
    (tmp_path / "papers" / "raw").mkdir(parents=True)
    np.savez(tmp_path / "papers" / "raw" / "data.npz", edge_index=RING)
    with pytest.raises(DataError, match=r"arrays in data.npz; expected edges in edge.csv.gz. spsample convert ogbn"):
        convert(tmp_path / "papers", tmp_path / "other", plan=PLAN)


# -------------------------------------------------------------------------------------------------------------- names


def test_names_of_strings(tmp_path):
    store, _ = made(tmp_path, 'src,dst\nzoe,"a, b"\nÉa,zoe\n', "id\nzoe\n", **NAMED)
    assert store.vertices.names(np.array([1, 2, 1], np.int32)).tolist() == ["a, b", "Éa", "a, b"]
    assert store.vertices.ids(["Éa", "zoe", "Éa"]).tolist() == [2, 0, 2]
    assert store.vertices.ids(np.array(["zoe"])).tolist() == [0]
    assert (store.vertices.names([]).tolist(), store.vertices.ids([]).tolist()) == ([], [])


def test_names_of_integers_and_of_a_store_without(tmp_path):
    store, _ = made(tmp_path, "9,5\n-0,9\n".replace("-0", "0"), "id\n9\n", renumber="sorted")
    assert store.vertices.names([2, 0]).tolist() == [9, 0]
    assert store.vertices.ids([5, 9, 5]).tolist() == [1, 2, 1]
    Graph.from_edge_index(RING).save(tmp_path / "ring")
    plain = GraphStore.open(tmp_path / "ring").vertices
    assert (plain.names([2, 0]).tolist(), plain.ids([1]).tolist()) == ([2, 0], [1])


@pytest.mark.parametrize(
    ("kind", "names", "message"),
    [
        ("strings", ["bob", "eve"], "'eve' at position 1"),
        ("strings", ["bob", ""], "'' at position 1"),
        ("strings", "bob", "'bob'; expected a sequence of strings"),
        ("strings", ["bob", 3], "expected a sequence of strings"),
        ("strings", 3, "expected a sequence of strings"),
        ("strings", np.array(3), "expected a sequence of strings"),
        ("integers", [5, 6], "6 at position 1"),
        ("integers", [10**6], "1000000 at position 0"),
        ("integers", ["5"], "names: got"),
        ("integers", [2.5], "dtype float64"),
        ("plain", [0, 3], "3 at position 1"),
        ("plain", [-1], "-1 at position 0"),
    ],
)
def test_names_that_no_vertex_has(tmp_path, kind, names, message):
    edges, options = {
        "strings": (BOB, NAMED), "integers": ("5,9\n9,7\n", {"renumber": "sorted"}), "plain": ("0,1\n1,2\n", {}),
    }[kind]  # fmt: skip
    write(tmp_path, e_csv=edges)
    convert(tmp_path / "e.csv", tmp_path / "store", ConvertOptions(**options), plan=PLAN)
    vertices = GraphStore.open(tmp_path / "store").vertices
    with pytest.raises(InputError) as caught:
        vertices.ids(names)
    assert message in str(caught.value)
    for ids in ([3], [-1], [0.5], "a"):
        with pytest.raises(InputError, match=r"^ids: got"):
            vertices.names(ids)


def test_names_after_rows_have_moved(tmp_path):
    """Names are of vertices, wherever their rows lie."""
    from spsample.reorder import reorder

    made(tmp_path, BOB, "id,a\nann,1\nbob,2\ncid,3\n", **NAMED)
    for relabel in (False, True):
        moved = reorder(tmp_path / "store", tmp_path / f"moved-{relabel}", np.array([1, 2, 3]), relabel=relabel)
        store = GraphStore.open(moved.path)
        names = store.vertices.names(range(3)).tolist()
        x = np.asarray(store.features("x")[np.arange(3)])[:, 0].tolist()
        assert dict(zip(names, x, strict=True)) == {"ann": 1, "bob": 2, "cid": 3}
        assert store.vertices.ids(names).tolist() == [0, 1, 2]


# ------------------------------------------------------------------------------------- one rule for names, x and tables


def parquet_file(path: Path, **columns) -> Path:
    parquet = pytest.importorskip("pyarrow.parquet")
    path.parent.mkdir(exist_ok=True)
    parquet.write_table(arrow(**columns), path)
    return path


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files as Linux lists them")
def test_parts_are_opened_one_at_a_time(tmp_path):
    resource = pytest.importorskip("resource")
    for i in range(60):
        parquet_file(tmp_path / "edges" / f"{i:02}.parquet", src=([i],), dst=([i + 1],))
        parquet_file(tmp_path / "nodes" / f"{i:02}.parquet", id=([i + 1 if i else 0, 60 - i + 100],), a=([1.0, 2.0],))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir()) + 40
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    try:
        options = ConvertOptions(nodes=tmp_path / "nodes", features="a", renumber="sorted")
        with pytest.raises(DataError, match=r"no row for vertices of the graph: 1 \(1\)"):  # all parts have been read
            convert(tmp_path / "edges", tmp_path / "store", options, plan=PLAN)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


NAME_COLUMNS = {
    "string": (["b ", "\u00a0a", "\tb"], "string"),
    "large_string": (["b ", "\u00a0a", "\tb"], "large_string"),
    "binary": ([b"b ", "\u00a0a".encode(), b"\tb"], "binary"),
    "fixed": ([b"b  ", "\u00a0a".encode(), b"\tb "], "bytes"),
    "dictionary": (["b ", "\u00a0a", "\tb"], "dictionary"),
}


@pytest.mark.parametrize("form", NAME_COLUMNS)
def test_names_in_edges_and_in_tables_are_made_alike(tmp_path, form):
    pyarrow = pytest.importorskip("pyarrow")
    values, kind = NAME_COLUMNS[form]
    kinds = {"bytes": pyarrow.binary(3), "dictionary": pyarrow.dictionary(pyarrow.int32(), pyarrow.string())}
    kind = kinds.get(kind, kind)
    edges = parquet_file(tmp_path / "e.parquet", src=(values, kind), dst=(values[1:] + values[:1], kind))
    write(tmp_path, n_csv="id,a,label\n\u00a0a,1, cat\nb\t,2,\u00a0cat\n")
    rows = parquet_file(tmp_path / "n.parquet", id=(values[:2], kind), a=([2.0, 1.0],), label=(["\u00a0cat", "cat "],))
    for nodes in (tmp_path / "n.csv", rows):
        convert(edges, tmp_path / "store", ConvertOptions(string_ids=True, nodes=nodes, overwrite=True), plan=PLAN)
        store = GraphStore.open(tmp_path / "store")
        assert by_name(store, "x") == {"b": [2], "\u00a0a": [1]}
        assert store.meta["class_names"] == ["cat", "\u00a0cat"]


def test_names_that_are_integers_or_no_text(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    edges = parquet_file(tmp_path / "e.parquet", src=([7, 40], "uint8"), dst=(["40", "007"],))
    nodes = parquet_file(tmp_path / "n.parquet", id=([b"007", b"7", b"40"],), a=([1, 2, 3],))
    convert(edges, tmp_path / "store", ConvertOptions(string_ids=True, nodes=nodes), plan=PLAN)
    assert by_name(GraphStore.open(tmp_path / "store"), "x") == {"7": [2], "40": [3], "007": [1]}
    latin = pyarrow.Array.from_buffers(pyarrow.string(), 2, pyarrow.array([b"\xe9", b"a"]).buffers())
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"src": latin, "dst": latin}), tmp_path / "latin.parquet")
    with pytest.raises(DataError, match=r"got b'\\xe9' in column src, which is no UTF-8; expected names in UTF-8"):
        convert(tmp_path / "latin.parquet", tmp_path / "latin", ConvertOptions(string_ids=True), plan=PLAN)


@pytest.mark.parametrize("column", [([1.0, 2.0],), ([[1], [2]],), ([True, False],), ([{"a": 1}, {"a": 2}],)])
def test_names_of_other_types_are_refused(tmp_path, column):
    edges = parquet_file(tmp_path / "e.parquet", src=column, dst=(["a", "b"],))
    nodes = parquet_file(tmp_path / "n.parquet", id=column, a=([1, 2],))
    with pytest.raises(DataError, match=r"column src of type .*; expected ids that are names or integers"):
        convert(edges, tmp_path / "store", ConvertOptions(string_ids=True), plan=PLAN)
    write(tmp_path, e_csv=BOB)
    with pytest.raises(DataError, match=r"column id of type .*; expected ids that are names or integers"):
        convert(tmp_path / "e.csv", tmp_path / "store", ConvertOptions(**NAMED, nodes=nodes), plan=PLAN)
    with pytest.raises(DataError, match=r"column src of type .*expected integers of at most 63 bits") as caught:
        convert(edges, tmp_path / "store", plan=PLAN)
    assert "--string-ids" not in str(caught.value)


def pyg_file(folder: Path, **attributes) -> Path:
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").Data(edge_index=torch.from_numpy(RING), num_nodes=3)
    for name, value in attributes.items():
        setattr(data, name, value if isinstance(value, torch.Tensor) else torch.as_tensor(np.asarray(value)))
    torch.save(data, folder / "data.pt")
    return folder / "data.pt"


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("form", ["pt", "sparse pt", "edge_index", "data set", "npy", "sparse npz"])
def test_features_that_are_not_finite(tmp_path, form, bad):
    x, options = np.array([[0, 1], [2, 3], [4, bad]]), ConvertOptions()
    if form.endswith("pt"):
        torch = pytest.importorskip("torch")
        source = pyg_file(tmp_path, x=torch.from_numpy(x).to_sparse() if "sparse" in form else x)
    elif form == "edge_index":
        source = saved(tmp_path, edge_index=RING, num_nodes=3, x=x)
    elif form == "data set":
        source = Dataset("ours", Graph.from_edge_index(RING), x, np.full(3, -1), *[np.empty(0, np.int64)] * 3, 0)
    else:
        path = tmp_path / ("x.npy" if form == "npy" else "x.npz")
        np.save(path, x) if form == "npy" else scipy.sparse.save_npz(path, scipy.sparse.csr_array(x))
        np.save(tmp_path / "e.npy", RING)
        source, options = tmp_path / "e.npy", ConvertOptions(features=path)
    with pytest.raises(DataError, match="a value that is not finite in row 2; expected finite features"):
        convert(source, tmp_path / "store", options, plan=PLAN)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("bad", ["1,5", "x", "3 cm", "true", "-", "1e"])
def test_a_column_of_numbers_but_for_one_value(tmp_path, bad):
    nodes = f'id,a,b\nann,1,1\nbob,"{bad}",2\ncid,2.5,3\n'
    with pytest.raises(DataError) as caught:
        made(tmp_path, BOB, nodes, **NAMED)
    assert f"got {bad!r} in row 2 of column a, of which most values are numbers" in str(caught.value)
    store, notes = made(tmp_path, BOB, nodes, **NAMED, features="b")
    assert by_name(store, "x") == {"bob": [2], "ann": [1], "cid": [3]}
    assert notes[0].endswith("not read: a")


@pytest.mark.parametrize("values", [("1", "x", "y"), ("", "", "x"), ("2020-01-01", "x", "1"), ("v1", "v2", "v3")])
def test_columns_of_words_are_not_read(tmp_path, values):
    rows = "".join(
        f"{name},{value},{i}\n" for i, (name, value) in enumerate(zip(("ann", "bob", "cid"), values, strict=True))
    )
    _, notes = made(tmp_path, BOB, f"id,title,b\n{rows}", **NAMED)
    assert notes[0].endswith("1 features in b; not read: title")


@pytest.mark.parametrize("form", ["splits", "edge_index", "pyg"])
@pytest.mark.parametrize("forms", [("idx", "mask"), ("masks", "idx"), ("mask", "masks")])
def test_a_split_in_two_forms_is_refused(tmp_path, form, forms):
    held = {"idx": [[1], [0], [2]], "mask": np.eye(3, dtype=bool), "masks": np.eye(3, dtype=bool)[:, None]}
    arrays = {f"{part}_{kind}": held[kind][i] for kind in forms for i, part in enumerate(("train", "val", "test"))}
    source, options = (
        (pyg_file if form == "pyg" else saved)(
            tmp_path, **({} if form == "pyg" else {"edge_index": RING, "num_nodes": 3}), **arrays
        ),
        ConvertOptions(),
    )
    if form == "splits":
        np.save(tmp_path / "e.npy", RING)
        source, options = tmp_path / "e.npy", ConvertOptions(splits=source)
    with pytest.raises(DataError, match=r"got train_\w+ and train_\w+.*; expected a split in one form"):
        convert(source, tmp_path / "store", options, plan=PLAN)


HEADERS = {
    '"id"\t"x"\nann\t1\nbob\t2\ncid\t3\n': "1 features in x",
    '"id"\nann\nbob\ncid\n': "ids are in id",
    'id;"x, y"\nann;1\nbob;2\ncid;3\n': "1 features in x, y",
    '"x; y",id\n1,ann\n2,bob\n3,cid\n': "1 features in x; y",
    '"two\nlines",id\r\n1,ann\r\n2,bob\r\n3,cid\r\n': "1 features in two\nlines",
    '"a ""b""",id\n1,ann\n2,bob\n3,cid\n': '1 features in a "b"',
    "\ufeffid,x\nann,1\nbob,2\ncid,3\n": "1 features in x",
}


@pytest.mark.parametrize("nodes", HEADERS)
def test_headers_in_quotes(tmp_path, nodes):
    _, notes = made(tmp_path, BOB, nodes, **NAMED)
    assert notes[0].endswith(HEADERS[nodes])


@pytest.mark.parametrize(
    ("nodes", "given"),
    [
        ("id x\nann 1\n", "the first line 'id x'; expected names of columns, between commas, semicolons or tabs"),
        ("id  label\nann 1\n", "the first line 'id  label'"),
        ("1,2\n3,4\n", "the first line '1,2'; expected names of columns"),
        ("0\t1.5\t-2e3\n", "Put a line with the names of the columns before the rows."),
        ("17\n18\n", "the first line '17'"),
        ('"id,x\nann,1\n', "a quote that is not closed"),
    ],
)
def test_first_lines_that_name_no_columns(tmp_path, nodes, given):
    with pytest.raises(DataError) as caught:
        made(tmp_path, BOB, nodes, **NAMED)
    assert given in str(caught.value)


def test_an_order_mark_counts_at_the_beginning_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_BLOCK", 4)
    names = ["ann", "\ufeffbob", "cid"]
    _, notes = made(tmp_path, "src,dst\nann,\ufeffbob\ncid,ann\n", "\ufeffid\n" + "\n".join(names), **NAMED)
    assert notes == ["n.csv: ids are in id"]  # none without an edge, none without a row


def test_parts_of_other_types_and_labels_that_are_lists(tmp_path):
    parquet_file(tmp_path / "parts" / "a.parquet", id=(["ann"],), a=([1.0],))
    parquet_file(tmp_path / "parts" / "b.parquet", id=(["bob", "cid"],), a=(["1", "x"],))
    write(tmp_path, e_csv=BOB)
    with pytest.raises(DataError, match=r"b.parquet: got column a of type string; expected numbers, as in other parts"):
        convert(tmp_path / "e.csv", tmp_path / "store", ConvertOptions(**NAMED, nodes=tmp_path / "parts"), plan=PLAN)
    for values in ([[1], [2], [3]], [{"a": 1}] * 3):
        nodes = parquet_file(tmp_path / "n.parquet", id=(["ann", "bob", "cid"],), label=(values,))
        with pytest.raises(DataError, match=r"column label of .*: got a column of type .*expected names or numbers"):
            convert(tmp_path / "e.csv", tmp_path / "store", ConvertOptions(**NAMED, nodes=nodes), plan=PLAN)


@pytest.mark.parametrize("kind", ["gradient", "bfloat16", "column"])
def test_weights_of_tensors_of_every_kind(tmp_path, kind):
    torch = pytest.importorskip("torch")
    weights = torch.tensor([0.5, 1.5, 2.5], requires_grad=kind == "gradient")
    weights = weights.to(torch.bfloat16) if kind == "bfloat16" else weights[:, None] if kind == "column" else weights
    data = pytest.importorskip("torch_geometric.data").Data(
        edge_index=torch.from_numpy(RING), num_nodes=3, edge_weight=weights
    )
    convert(data, tmp_path / "store", plan=PLAN)
    assert sorted(Graph.open(tmp_path / "store").data.tolist()) == [0.5, 1.5, 2.5]


def test_tables_by_their_content(tmp_path):
    write(tmp_path, e_csv=BOB)
    nodes = parquet_file(tmp_path / "nodes", id=(["ann", "bob", "cid"],), a=([1, 2, 3],))
    convert(tmp_path / "e.csv", tmp_path / "store", ConvertOptions(**NAMED, nodes=nodes), plan=PLAN)
    assert by_name(GraphStore.open(tmp_path / "store"), "x") == {"bob": [2], "ann": [1], "cid": [3]}
    for content, form in ((b"PK\x03\x04....", "zip archive"), (b"\xff\xfei\0d\0", "UTF-16"), (b"id\0a", "binary")):
        (tmp_path / "n.csv").write_bytes(content)
        with pytest.raises(DataError, match=f"n.csv: got a file that is .*{form}"):
            convert(
                tmp_path / "e.csv", tmp_path / "other", ConvertOptions(**NAMED, nodes=tmp_path / "n.csv"), plan=PLAN
            )


def test_the_path_that_is_advised_is_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "a.npy", np.array([7.0, 8.0, 9.0]))
    nodes = "id,a.npy\nann,1\nbob,2\ncid,3\n"
    with pytest.raises(InputError, match=r"'a.npy', a file and a column of") as caught:
        made(tmp_path, BOB, nodes, **NAMED, features="a.npy")
    advised = str(caught.value).split("give the path as ")[1].split(",")[0]
    store, _ = made(tmp_path, BOB, nodes, **NAMED, features=Path(advised))
    assert by_name(store, "x") == {"bob": 8, "ann": 7, "cid": 9}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_errors_name_the_file_and_the_folder(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=r"^x of .*data.pt: got features of dtype float64 and shape \(2, 2\)"):
        convert(pyg_file(tmp_path, x=np.ones((2, 2))), tmp_path / "store", plan=PLAN)
    with pytest.raises(DataError, match=r"data.pt: got train_mask of dtype float64"):
        convert(
            pyg_file(tmp_path, **dict.fromkeys(("train_mask", "val_mask", "test_mask"), np.ones(3))),
            tmp_path / "store",
            plan=PLAN,
        )
    with pytest.raises(DataError, match=r"split.time: got vertex 0 in train_idx and test_idx"):
        convert(ogb(tmp_path / "ogbn", split_time_test="0\n"), tmp_path / "store", plan=PLAN)
    data = pytest.importorskip("torch_geometric.data").Data(adj_t=torch.eye(3).to_sparse_csr(), num_nodes=3)
    torch.save(data, tmp_path / "adj.pt")
    for source in (data, tmp_path / "adj.pt"):
        with pytest.raises(DTypeError, match=r"Graph.from_pyg\(data\).save\(path\) takes adj_t"):
            convert(source, tmp_path / "store", plan=PLAN)


def test_all_splits_of_data_sets_and_stores_are_disjoint(tmp_path):
    masks = {f"{part}_masks": np.eye(3, dtype=bool)[[i, 0]] for i, part in enumerate(("train", "val", "test"))}
    source = saved(tmp_path, indptr=[0, 1, 2, 3], indices=[2, 0, 1], **masks)
    given = "vertex 0 in train_masks and val_masks and test_masks of split 1"
    for read in (lambda: load_dataset(str(source)), lambda: convert(source, tmp_path / "store", plan=PLAN)):
        with pytest.raises(DataError, match=f"data.npz: got {given}"):
            read()
    with StoreWriter(tmp_path / "held") as writer:
        for name, array in {"indptr": [0, 1, 2, 3], "indices": [2, 0, 1], **masks}.items():
            writer.write(name, np.asarray(array))
    with pytest.raises(DataError, match=given):
        convert(tmp_path / "held", tmp_path / "store", plan=PLAN)
    ids = [np.array([0]), np.array([0]), np.array([1])]
    data = Dataset("ours", Graph.from_edge_index(RING), None, np.full(3, -1), *ids, 0)
    with pytest.raises(DataError, match="ours: got vertex 0 in train_idx and val_idx"):
        convert(data, tmp_path / "store", plan=PLAN)
