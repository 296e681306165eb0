"""The program that compares conversions by other engines (bench/conversion_engines.py), without those engines."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

import conversion_engines
from conversion_engines import Job, app, content_of, write_sorted
from spsample.convert import ConvertOptions, convert
from spsample.store import StoreWriter


def test_a_store_of_sorted_batches_is_that_of_convert(tmp_path):
    sources, targets = pairs = np.random.default_rng(0).integers(0, 50, (2, 1000))
    np.save(tmp_path / "edges.npy", pairs)
    order = np.lexsort((sources, targets))
    keys = (targets << 32 | sources)[order]
    batches = ((keys[part], order[part]) for part in (slice(0, 300), slice(300, 301), slice(301, 1000)))
    job = Job(tmp_path / "edges.npy", tmp_path, memory=1 << 30, threads=1)
    with StoreWriter(tmp_path / "engine") as writer:
        write_sorted(writer, batches, job)
    convert(tmp_path / "edges.npy", tmp_path / "own", ConvertOptions(threads=1))
    assert content_of(tmp_path / "engine") == content_of(tmp_path / "own")


def test_edges_are_counted(tmp_path):
    (tmp_path / "edges.csv").write_text("0,1\n1,0\n")
    np.array([[0, 1], [1, 0], [2, 0]]).tofile(tmp_path / "edges.int64")
    counts = [Job(tmp_path / name, tmp_path, 1 << 30, 1).count() for name in ("edges.csv", "edges.int64")]
    assert counts == [2, 3]


@pytest.mark.parametrize(("engine", "packages"), [("duckdb", "duckdb pyarrow"), ("polars", "polars")])
def test_a_missing_engine_is_named(tmp_path, monkeypatch, engine, packages):
    monkeypatch.setattr(conversion_engines, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["compare", "edges.npy", str(tmp_path), "--engine", engine])
    assert result.exit_code == 2
    assert f"pip install {packages}," in result.output
