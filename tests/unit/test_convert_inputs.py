"""Files as users have them: each is read as it was meant, or refused with the line to type. None is read wrongly."""

from __future__ import annotations

import bz2
import gzip
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from spsample.convert import ConvertOptions, convert
from spsample.errors import SpSampleError
from spsample.store import GraphStore

RING = [(0, 1), (1, 2), (2, 0)]
PAIRS = np.array(RING)


class Input(NamedTuple):
    """A file, how it is asked for, and the edges that are meant, or words of the error."""

    name: str
    content: bytes | str | Callable[[Path], None]
    meant: Any
    options: Mapping[str, Any] = MappingProxyType({})
    weights: list[float] | None = None
    notes: str = ""


def table(**columns: Any) -> Callable[[Path], None]:
    """A Parquet file."""

    def write(path: Path) -> None:
        pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        path.parent.mkdir(exist_ok=True)
        parquet.write_table(pa.table(columns), path)

    return write


def parts(**columns: Any) -> Callable[[Path], None]:
    """A folder of two Parquet files, and what Spark puts beside them."""

    def write(path: Path) -> None:
        path.mkdir()
        (path / "_SUCCESS").touch()
        half = {name: np.array_split(values, 2) for name, values in columns.items()}
        for i in range(2):
            table(**{name: values[i] for name, values in half.items()})(path / f"part-{i}.parquet")

    return write


def array(values: Any) -> bytes:
    """The bytes of an ``.npy`` file."""
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def market(text: str, kind: str = "pattern general") -> str:
    return f"%%MatrixMarket matrix coordinate {kind}\n{text}"


def saved(make: Callable[[Any, Any], Any]) -> Callable[[Path], None]:
    """What ``torch.save`` writes of an object made from (torch, torch_geometric.data)."""

    def write(path: Path) -> None:
        torch, data = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")
        torch.save(make(torch, data), path)

    return write


def ring_data(torch: Any, data: Any) -> Any:
    return data.Data(edge_index=torch.from_numpy(PAIRS.T.copy()), num_nodes=3)


def hetero(torch: Any, data: Any) -> Any:
    typed = data.HeteroData()
    typed["a"].num_nodes = typed["b"].num_nodes = 3
    typed["a", "to", "b"].edge_index = torch.from_numpy(PAIRS.T.copy())
    return typed


PLAIN = "0,1\n1,2\n2,0\n"
UTF16 = PLAIN.encode("utf-16")

READ = [
    Input("a.csv", PLAIN, RING),
    Input("a.csv", "src,dst\n" + PLAIN, RING),
    Input("a.csv", ",src,dst\n0,0,1\n1,1,2\n2,2,0\n", RING),
    Input("a.csv", "To;note;From\n1;x;0\n2;y;1\n0;z;2\n", RING),
    Input("a.csv", "id_1,id_2\n" + PLAIN, RING),
    Input("a.csv", "source,node\n" + PLAIN, RING),
    Input("a.csv", ",0,1\n0,0,1\n1,1,2\n2,2,0\n", RING, {"columns": ("1", "2")}),
    Input("a.csv", "id,user,item\n7,0,1\n8,1,2\n9,2,0\n", RING, {"columns": ("user", "item")}),
    Input("a.csv", "0,0,1\n1,1,2\n2,2,0\n", RING, {"columns": ("1", "2")}),
    Input("a.csv", "0,1,5\n1,2,6\n2,0,7\n", RING, {"weights": "2"}, [5, 6, 7]),
    Input("a.csv", 'src,dst,w\n0,1,"1.5"\n1,2," 2"\n2,0,3\n', RING, {"weights": "w"}, [1.5, 2, 3]),
    Input("a.csv", 'name,src,dst\n"7, 8",0,1\n"say ""9, 1""",1,2\n"",2,0\n', RING),
    Input("a.txt", "# From To\n0\t1\n1  2\n 2 \t 0\n", RING),
    Input("a.txt", "0 1 2,5\n1 2 3,5\n2 0 4,5\n", RING),
    Input("a.tsv", "city\tfrom\tto\nNew York\t0\t1\nRome\t1\t2\n\t2\t0\n", RING),
    Input("a.txt", "\ufeffu v\r\n0 1\r\n1 2\r\n2 0\r\n", RING),
    Input("names.csv", "src,dst\na,b\nb,c\nc,a\n", RING, {"string_ids": True}),
    Input("names.csv", "a,b\nb,c\nc,a\n", RING, {"string_ids": True, "header": False}),
    Input("names.csv", 'u,w\n"a, 1","b ""2"""\n"b ""2""",c\nc,"a, 1"\n', RING, {"string_ids": True, "header": True}),
    Input("names.csv", "# NA is a name\nsrc,dst\nNA,007\n007,\xfc\n\xfc,NA\n", RING, {"string_ids": True}),
    Input("a.txt", "src\tdst\tcity\n0\t1\tYork\n1\t2\tNew York\n2\t0\t\n", RING),
    Input("a.csv", 'src;dst;"note, more"\n0;1;x\n1;2;"a, b"\n2;0;\n', RING),
    Input("a.csv", "# 0 5\n0,1\n1,2\n%9\n2,0\n# the end, of it\n", RING),
    Input("names.csv", 'a,"b\tc"\n"b\tc","d; e"\n"d; e",a\n', RING, {"string_ids": True, "header": False}),
    Input("names.csv", 'src,dst\n" a",b\nb,"c "\nc,a\n', RING, {"string_ids": True}),
    Input("a.csv.gz", gzip.compress(PLAIN.encode()), RING),
    Input("a.csv", gzip.compress(PLAIN.encode()), RING),
    Input("a.csv.gz", PLAIN, RING),
    Input("a.csv", gzip.compress(b"0,1\n1,2\n") + gzip.compress(b"2,0\n"), RING),
    Input("a.npy", gzip.compress(array(PAIRS)), RING),
    Input("a.parquet", table(src=PAIRS[:, 0], dst=PAIRS[:, 1]), RING),
    Input("a.parquet", table(index=np.arange(3), src=PAIRS[:, 0], dst=PAIRS[:, 1]), RING),
    Input("a.parquet", table(dst=PAIRS[:, 1], w=np.arange(3.0), src=PAIRS[:, 0]), RING, {"weights": "w"}, [0, 1, 2]),
    Input("parts", parts(src=PAIRS[:, 0], dst=PAIRS[:, 1]), RING),
    Input("parts.parquet", parts(u=["a", "b", "c"], v=["b", "c", "a"]), RING, {"string_ids": True}),
    Input("a.npy", array(PAIRS), RING),
    Input("a.npy", array(PAIRS.T.astype(np.uint16)), RING),
    Input("a.mtx", market("3 3 3\n2 1\n3 2\n1 3\n"), RING),
    Input("a.mtx", market("3 3 3\n2 1 1.5\n3 2 2\n1 3 3\n", "real general"), RING, {}, [1.5, 2, 3]),
    Input("a.pt", saved(ring_data), RING),
    Input("a.pt", saved(lambda *args: (ring_data(*args), None)), RING),
]

NOTED = [
    Input("a.csv", PLAIN, RING, notes="the first line, 0,1, is read as an edge"),
    Input("a.csv", "1,0\n1,0\n1,2\n", [(1, 0), (1, 0), (1, 2)], notes="between the same vertices: 1 "),
    Input("a.csv", "0,0\n1,2\n", [(0, 0), (1, 2)], notes="from a vertex to itself: 1 "),
    Input("a.csv", "0,90\n", [(0, 90)], notes="have an edge: 2 of 91 (--renumber"),
    Input("a.mtx", market("3 3 0\n"), [], notes="no edges"),
]

REFUSED = [
    Input("a.csv", "src,dst,name\n0,1,\n1,2\n2,0,x\n", "expected 3 columns"),
    Input("a.csv", "a,1,2\nb,2,3\n", "--header"),
    Input("a.csv", "id,user,item\n7,0,1\n", "--columns SOURCE,TARGET with two of id, user, item."),
    Input("a.csv", ",a,b\n0,5,6\n", "--columns a,b, or b,a"),
    Input("a.csv", "Unnamed: 0,x\n0,5\n1,6\n", "--columns SOURCE,TARGET"),
    Input("a.csv", "src,dst,src\n0,1,2\n", "--columns 0,dst or --columns 2,dst"),
    Input("a.csv", '"x, y",b,c\n0,1,2\n', "two of 0, b, c"),
    Input("a.csv", "0,1,2\n5,6,7\n", "--no-header", {"weights": "2"}),
    Input("a.csv", "label,0,1\n3,16,15\n", "--no-header", {"columns": ("1", "2")}),
    Input("a.csv", "note,src,dst\nfoo,1,2\n#5,3,4\n", "'#5,3,4' in line 3"),
    Input("a.csv", "src,dst\n#9,1\n% a,b\n", "no edges"),
    Input("a.csv", "src,dst\n0,1\n", "'²' for", {"columns": ("²", "1")}),
    Input("a.csv", '1,2,"5" tube"\n3,4,x\n', "in line 1, with a quote"),
    Input("a.tsv", 'a\t"hi" he\nb\tJohn Smith\n', "Quote the whole field", {"string_ids": True, "header": False}),
    Input("a.csv", 'ann,"hi" he\nbob,John Smith\n', "in line 1", {"string_ids": True, "header": False}),
    Input("a.txt", "src\tnote\tdst\ttime\n1\t\t2\t10 30\n", "has the suffix .tsv"),
    Input("a.mtx", market("4 4 4\n2 1\n3 1\n", "pattern symmetric"), "2 entries"),
    Input("a.mtx", market("4 4 3\n2 1\n3 1\n4 1\n4 2\n", "pattern symmetric"), "4 entries"),
    Input("a.csv", "src,source,dst\n7,0,1\n", "--columns src,dst or --columns source,dst"),
    Input("a.csv", "dst,node\n0,1\n", "--columns node,dst, or dst,node where edges lead the other way"),
    Input("a.csv", "0,0,1\n1,1,2\n", "--columns 0,1 where it is the source, --columns 1,2"),
    Input("a.csv", "1,0,1\n2,1,2\n3,2,0\n", "--columns 1,2"),
    Input("a.csv", ",0,1\n0,0,1\n", "Type --columns 1,2 for the columns of these names", {"columns": ("0", "1")}),
    Input("a.csv", "src,dst,w\n0,1,2\n", "a column for each", {"weights": "dst"}),
    Input("a.csv", "src,dst,dst\n0,1,2\n", "2 columns have that name", {"columns": ("src", "dst")}),
    Input("a.csv", 'src,dst,w\n0,1,"1,500.5"\n', "'1,500.5' as the weight of", {"weights": "w"}),
    Input("a.csv", 'src,dst\n"1,234",5\n', "two vertex ids"),
    Input("a.csv", "src,dst\n1,234,5\n", "expected 2 columns, as in the first line"),
    Input("a.csv", "name,src,dst\n7, 8,3,4\n", "stands in quotes"),
    Input("a.txt", "4 2 3\n2 5\n", "Lists of neighbours are not read"),
    Input("a.csv", 'name,src,dst\n"two\nlines",0,1\n', "Line breaks within quotes"),
    Input("a.csv", "0,1\r1,2\r2,0", "carriage return"),
    Input("a.txt", "a;b, c\n", "commas and semicolons", {"string_ids": True, "header": False}),
    Input("names.csv", "ann,bob\n", "--header where it names the columns, or --no-header", {"string_ids": True}),
    Input("names.csv", "u,v\nv,w\n", "--no-header", {"string_ids": True}),
    Input("names.csv", "src,dst\na,b\n#b,c\n", "Put the first column in quotes", {"string_ids": True}),
    Input("a.csv", "a1,5\n0,1\n", "--no-header"),
    Input("a.csv", "x,5\n0,1\n", "'x,5' in line 1", {"header": False}),
    Input("a.csv", bz2.compress(PLAIN.encode()), "bzip2"),
    Input("a.csv", UTF16, "UTF-16"),
    Input("a.csv", array(PAIRS), "an array of NumPy"),
    Input("a.csv.gz", gzip.compress(PLAIN.encode())[:-9], "truncated"),
    Input(
        "a.parquet",
        table(id=PAIRS[:, 0], user=PAIRS[:, 0], item=PAIRS[:, 1]),
        "--columns SOURCE,TARGET with two of id, user, item",
    ),
    Input("a.parquet", table(src=[0, None], dst=[1, 2]), "a null in column src"),
    Input("a.parquet", table(src=[0.5], dst=[1.0]), "integers of at most 63 bits"),
    Input("a.parquet", table(src=[0], dst=[1]), "Parquet file have names", {"header": True}),
    Input("parts", lambda path: path.mkdir(), "without Parquet files"),
    Input("a.mtx", market("3 3 1\n0 1\n"), "row 0 and column 1 in line 3"),
    Input("a.mtx", market("3 3 2\n1 1\n4 1\n"), "row 4 and column 1 in line 4"),
    Input("a.mtx", market("3 3 1\n1 1 2.5\n"), "expected 2 columns."),
    Input("a.pt", saved(hetero), "several types"),
    Input("a.pt", saved(lambda *args: [ring_data(*args)] * 2), "2 graphs"),
    Input("a.pt", saved(lambda torch, data: torch.ones(3)), "type Tensor without edge_index"),
    Input("a.txt", "# nothing\n", "no edges"),
    Input("a.txt", "0 1\n1099511627775 2\n", "--renumber"),
]


def label(entry: Input) -> str:
    text = repr(entry.content[:24]) if isinstance(entry.content, str) else ""
    return f"{entry.name}{text}"


def write(entry: Input, folder: Path) -> Path:
    path = folder / entry.name
    if callable(entry.content):
        entry.content(path)
    else:
        path.write_bytes(entry.content.encode() if isinstance(entry.content, str) else entry.content)
    return path


def edges_of(path: Path) -> tuple[list[tuple[int, int]], list[float] | None]:
    """The edges of a store, and their weights, in the order of the input."""
    graph = GraphStore.open(path).graph()
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    order = np.arange(graph.num_edges) if graph.edge_ids is None else np.argsort(graph.edge_ids)
    pairs = [(int(graph.indices[i]), int(targets[i])) for i in order]
    return pairs, None if graph.data is None else graph.data[order].tolist()


@pytest.mark.parametrize("entry", READ, ids=label)
def test_read_as_meant(tmp_path, entry):
    convert(write(entry, tmp_path), tmp_path / "store", ConvertOptions(**entry.options))
    assert edges_of(tmp_path / "store") == (entry.meant, entry.weights)


@pytest.mark.parametrize("entry", NOTED, ids=label)
def test_said_with_figures(tmp_path, entry):
    result = convert(write(entry, tmp_path), tmp_path / "store", ConvertOptions(**entry.options))
    assert edges_of(tmp_path / "store")[0] == entry.meant
    assert [note for note in result.notes if entry.notes in note] == list(result.notes)
    assert result.notes


@pytest.mark.parametrize("entry", REFUSED, ids=label)
def test_refused_with_what_to_do(tmp_path, entry):
    with pytest.raises(SpSampleError) as caught:
        convert(write(entry, tmp_path), tmp_path / "store", ConvertOptions(**entry.options))
    message = str(caught.value)
    assert entry.meant in message
    assert "\x1b" not in message
    assert sorted(path.name for path in tmp_path.iterdir()) == [entry.name]  # nothing is left behind


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("2.7,0", False),
        ("1e1,0", False),
        ("1_0,0", False),
        (",0", False),
        ("2", False),
        ("", True),
        ("% a comment", True),
        ("# a comment", True),
        ("9223372036854775807,0", True),
        ("9223372036854775808,0", False),
        ("+1,0", True),
        ('"1","0"', True),
        ("1,0,", True),
    ],
)
def test_lines_that_are_accepted(tmp_path, line, read):
    """The table of the decision to keep the reader of text; a line stands behind an edge, so that it is no header."""
    (tmp_path / "a.csv").write_text(f"0,1\n{line}\n")
    options = ConvertOptions(renumber="sorted")
    if read:
        convert(tmp_path / "a.csv", tmp_path / "store", options)
        return
    with pytest.raises(SpSampleError, match=r"a\.csv: got .* in line 2"):
        convert(tmp_path / "a.csv", tmp_path / "store", options)


def test_columns_are_told(tmp_path):
    (tmp_path / "a.csv").write_text("w,id_1,id_2\n5,0,1\n")
    result = convert(tmp_path / "a.csv", tmp_path / "store", ConvertOptions(weights="w"))
    assert (result.columns, result.not_read) == (("id_1", "id_2"), ())


def test_repeated_edges_are_counted_in_the_store(tmp_path):
    (tmp_path / "a.csv").write_text("0,1\n0,1\n0,1\n2,1\n")
    convert(tmp_path / "a.csv", tmp_path / "store")
    assert GraphStore.open(tmp_path / "store").meta["repeated_edges"] == 2
    convert(tmp_path / "store", tmp_path / "merged", ConvertOptions(deduplicate="first"))
    assert "repeated_edges" not in GraphStore.open(tmp_path / "merged").meta
