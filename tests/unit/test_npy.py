"""The reader of .npy files: damaged headers by all that read them, and arrays of every form."""

from __future__ import annotations

import ast
import io
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import spsample as sp
from spsample.cli.main import app
from spsample.cli.ranks import integers_of
from spsample.convert import convert
from spsample.errors import DataError, InputError
from spsample.features import DiskFeatures
from spsample.store.npy import map_npy, read_header, read_npz

PACKAGE = Path(sp.__file__).parent


def written(
    path: Path, shape: str, descr: str = "'<f4'", more: str = "", version: bytes = b"\1\0", size: int = 60
) -> Path:
    """A file with that text for a shape in its header."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, {more}}}".encode("latin-1")
    header += b" " * ((-(11 + len(header))) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY" + version + struct.pack("<H", len(header)) + header + b"\0" * 60)
    return path


DAMAGED = {
    "a negative number of rows": {"shape": "(-5, 3)"},
    "a negative number of columns": {"shape": "(5, -3)"},
    "two negative numbers": {"shape": "(-5, -3)"},
    "an open bracket": {"shape": "((5, 3)"},
    "a fraction": {"shape": "(5.0, 3)"},
    "a text": {"shape": "('5', 3)"},
    "a call": {"shape": "(int('5'), 3)"},
    "deep brackets": {"shape": "(" * 300 + "5" + ")" * 300},
    "a large number": {"shape": "(5, 30000000000000000000000)"},
    "no rows of too many columns": {"shape": "(0, 9223372036854775808)"},
    "no rows of a large product": {"shape": "(0, 4611686018427387904, 4611686018427387904)"},
    "a truth value": {"shape": "(True, 3)"},
    "elements of no bytes": {"shape": "(99999999999999,)", "descr": "'|S0'"},
    "too many dimensions": {"shape": "(" + "1," * 70 + ")"},
    "more than there is": {"shape": "(5, 30)"},
    "no dtype": {"shape": "(5, 3)", "descr": "'<q9'"},
    "objects": {"shape": "(5, 3)", "descr": "'|O'"},
    "another key": {"shape": "(5, 3)", "more": "'x': 1"},
    "a version to come": {"shape": "(5, 3)", "version": b"\x09\0"},
    "a long header": {"shape": "(5, 3)" + " " * 20_000},
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_header_is_named_by_whoever_reads_it(how, tmp_path):
    path = written(tmp_path / "x.npy", **DAMAGED[how])
    graph = sp.Graph([0, 1, 2], [1, 0])
    graph.save(tmp_path / "store")
    readers = [
        lambda: map_npy(path),
        lambda: DiskFeatures(path, budget=4096),
        lambda: integers_of(path),
        lambda: convert(str(path), tmp_path / "out"),
    ]
    for read in readers:
        with pytest.raises(DataError, match=r"x\.npy"):
            read()
    done = CliRunner().invoke(
        app, ["reorder", str(tmp_path / "store"), "--out", str(tmp_path / "new"), "--score", str(path)]
    )
    assert done.exit_code == 2
    assert "error: --score: got " in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("how", [how for how in DAMAGED if how not in ("a long header", "more than there is")])
def test_a_damaged_array_of_a_store_or_an_archive(how, tmp_path):
    graph = sp.Graph([0, 1, 2], [1, 0])
    graph.save(tmp_path / "store")
    written(tmp_path / "store" / "indices.npy", **DAMAGED[how])
    with pytest.raises(DataError, match=r"indices\.npy"):
        sp.Graph.open(tmp_path / "store")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.write(written(tmp_path / "x.npy", **DAMAGED[how]), "x.npy")
    with pytest.raises(DataError, match=r"a\.npz: got an unreadable file"):
        read_npz(tmp_path / "a.npz", "an array")


ARRAYS = [
    np.arange(12, dtype=np.int32).reshape(3, 4),
    np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    np.float16(3.5).reshape(()),
    np.zeros((0, 4), np.float32),
    np.zeros((3, 0), np.uint8),
    np.array([True, False]),
    np.arange(3, dtype=">i8"),
    np.array(["a", "bcd"]),
    np.arange(600_000, dtype=np.float64).reshape(2, 3, -1),
]


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype.str}{array.shape}")
def test_arrays_are_what_numpy_wrote(array, version, tmp_path):
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, array, version)
    with (tmp_path / "b.npz").open("wb") as file:
        np.savez_compressed(file, x=array)
    for found in (map_npy(tmp_path / "a.npy"), read_npz(tmp_path / "b.npz", "an array")["x"]):
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found, array)
        assert found.flags.f_contiguous == array.flags.f_contiguous


def test_what_is_no_file_of_an_array(tmp_path):
    np.savez(tmp_path / "a.npz", x=[1])
    (tmp_path / "folder.npy").mkdir()
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "empty.npy").write_bytes(b"")
    said = {
        "a.npz": "several arrays",
        "folder.npy": "no regular file",
        "pipe.npy": "no regular file",
        "none.npy": "No such file",
        "empty.npy": "a damaged header",
    }
    for name, words in said.items():
        with pytest.raises(DataError, match=words):
            map_npy(tmp_path / name)
        with pytest.raises((DataError, InputError)):
            DiskFeatures(tmp_path / name, 0)


def test_a_map_cannot_be_written_to(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    assert not map_npy(tmp_path / "a.npy").flags.writeable


def test_a_header_is_read_from_any_file():
    file = io.BytesIO()
    np.save(file, np.ones((3, 2), np.float16))
    file.seek(0)
    assert read_header(file).shape == (3, 2)
    assert len(file.read()) == 12


def test_nobody_else_reads_headers():
    """All else goes through the one reader: NumPy's raises what Python's parser does."""
    names = {"load", "read_magic", "read_array", "open_memmap", "read_array_header_1_0", "read_array_header_2_0"}
    found = {
        (path.relative_to(PACKAGE).as_posix(), node.attr)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in names and ast.unparse(node.value) in ("np", "np.lib.format")
    }
    assert {path for path, _ in found} == {"store/npy.py"}
