"""bench/same_bulks.py, and by it whole bulks over threads, mpirun and torchrun."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import needs, run_job
from typer.testing import CliRunner

import same_bulks
from same_bulks import ONE_PROCESS, Result

BENCH = Path(same_bulks.__file__).resolve()
SMALL = ["run", "--graph", "rmat:8,6", "--batches", "9", "--batch-size", "8", "--hubs", "8KiB"]


def folders(path):
    return ["--graph-cache", str(path / "graphs"), "--out", str(path / "results")]


def result_of(digest, launcher="mpi", p=2):
    return Result("g", False, "LADIES", launcher, p, 1, "column", "", digest)


def test_reports_what_differs():
    results = [result_of("a", ONE_PROCESS, 1), result_of("a"), result_of("b"), result_of("a", p=4)]
    assert same_bulks.different(results) == [results[2]]
    assert same_bulks.table(results)[2] == "| g | LADIES | no | **1 of 2 differ** | 1 equal | `a` |"
    assert "2 of 3 bulks are those of one process, bit for bit." in same_bulks.report(results)


def test_threads(tmp_path):
    done = CliRunner().invoke(same_bulks.app, [*SMALL, *folders(tmp_path), "--threads", "1,2"])
    assert done.exit_code == 0, done.output
    assert "144 of 144 bulks" not in done.output
    assert "48 of 48 bulks are those of one process" in done.output
    assert "96 of 96 bulks are those of one process" in done.output


def test_a_difference_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(same_bulks, "bulk_digest", lambda bulk, comm=None: str(comm is None))
    done = CliRunner().invoke(same_bulks.app, [*SMALL, *folders(tmp_path), "--threads", "1", "--algorithm", "column"])
    assert done.exit_code == 1
    assert "0 of 12 bulks" in done.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "ranks", "bulks"),
    [
        pytest.param("mpi", 4, 144, marks=needs("mpi")),
        pytest.param("gloo", 4, 144, marks=needs("gloo")),
        pytest.param("gloo", 2, 96, marks=needs("gloo")),
    ],
)
def test_processes(backend, ranks, bulks, tmp_path):
    status, output = run_job(backend, BENCH, *SMALL, *folders(tmp_path), "--backend", backend, ranks=ranks)
    assert status == 0, output
    assert f"{bulks} of {bulks} bulks are those of one process, bit for bit." in output
