"""Compiled kernels are kept in a folder that other processes use too."""

from __future__ import annotations

import os
import threading

import pytest

from spsample.backends.cuda import sources
from spsample.backends.cuda.sources import Variant, cubin, cubins
from spsample.errors import BackendError


@pytest.fixture
def compiler(monkeypatch):
    """Stands in for NVRTC: what was compiled."""
    compiled = []
    monkeypatch.setattr(sources, "_version", lambda: "13")
    monkeypatch.setattr(sources, "compile_source", lambda source, options: compiled.append(source) or b"cubin")
    return compiled


def test_a_source_is_compiled_once(compiler, monkeypatch, tmp_path):
    monkeypatch.setenv("SPSAMPLE_CACHE_DIR", str(tmp_path / "new"))
    paths = {cubin("row_law", Variant(), "sm_90") for _ in range(2)}
    assert compiler == ["row_law"]
    (path,) = paths
    assert path.read_bytes() == b"cubin"
    assert os.listdir(path.parent) == [path.name]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask  # other users of the folder read it, where theirs do


def test_several_sources_are_compiled_at_the_same_time(compiler, monkeypatch, tmp_path):
    monkeypatch.setenv("SPSAMPLE_CACHE_DIR", str(tmp_path))
    together = threading.Barrier(3, timeout=30)  # broken where one waits for another

    def compile_together(source, options):
        together.wait()
        return source.encode()

    monkeypatch.setattr(sources, "compile_source", compile_together)
    paths = cubins(["row_law", "values", "row_law", "quantisation"], Variant(), "sm_90")
    assert {name: path.read_bytes() for name, path in paths.items()} == {
        name: name.encode() for name in ("row_law", "values", "quantisation")
    }


def test_a_folder_that_cannot_be_written_is_named(compiler, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPSAMPLE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(BackendError, match=r"cannot be kept in .*file.*Set SPSAMPLE_CACHE_DIR to a folder"):
        cubin("row_law", Variant(), "sm_90")
