"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os

import pytest

from spsample.errors import InputError
from spsample.features import FeatureStore
from spsample.loading import load_bulk
from spsample.store import Graph, folder
from spsample.store.folder import sync_folder, whole_file


def test_a_file_that_could_not_be_finished_leaves_the_old_one(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(TypeError), whole_file(tmp_path / "a") as file:
        file.writelines([b"new", None])
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_a_file_that_could_not_be_renamed_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="directory"), whole_file(tmp_path / "a"):
        (tmp_path / "a").mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_is_no_file_is_not_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(FileExistsError, match=f"Not a file.*{name}"), whole_file(tmp_path / name) as file:
            file.write(b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]
    assert (tmp_path / "pipe").is_fifo()


def test_what_is_written_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    seen = []

    def fsync(descriptor):
        seen.append(sorted(path.name for path in tmp_path.iterdir()))

    monkeypatch.setattr(folder.os, "fsync", fsync)
    with whole_file(tmp_path / "a") as file:
        file.write(b"new")
    assert seen == [[".a.partial"], ["a"]]


@pytest.mark.parametrize(("code", "passed"), [(errno.EINVAL, True), (errno.EIO, False)])
def test_file_systems_that_cannot_sync_folders(code, passed, tmp_path, monkeypatch):
    def fsync(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(folder.os, "fsync", fsync)
    if passed:
        sync_folder(tmp_path)
    else:
        with pytest.raises(OSError, match=os.strerror(code)):
            sync_folder(tmp_path)


@pytest.mark.parametrize(
    "name", ["", "a\0b", "x" * 256, "\ud800", "a/" * 4000], ids=["empty", "null", "long", "surrogate", "deep"]
)
def test_what_cannot_be_a_path_is_refused(name):
    for opened in (Graph.open, FeatureStore.open, load_bulk):
        with pytest.raises(InputError, match=r"path: got .*expected a path of at most 4095 bytes"):
            opened(name)
