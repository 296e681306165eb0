"""`same_bulks.py`, and by it whole bulks over threads, mpirun and torchrun."""

from __future__ import annotations

import pytest
import same_bulks
from jobs import run_job
from partitioned_cases import ALGORITHMS, divisors
from same_bulks import ALL_ALGORITHMS, ONE_PROCESS, Result
from typer.testing import CliRunner

SMALL = ["run", "--graph", "rmat:8,6", "--batches", "9", "--batch-size", "8", "--hubs", "8KiB"]


def folders(path):
    return ["--graph-cache", str(path / "graphs"), "--out", str(path / "results")]


def number_of_bulks(ranks, algorithms=ALL_ALGORITHMS):
    """Three samplers, with weights and without, with hub rows and without."""
    return 12 * len(divisors(ranks)) * len(algorithms)


def result_of(digest, launcher="mpi", p=2):
    return Result("g", False, "LADIES", launcher, p, 1, "column", "", digest)


def test_reports_what_differs():
    results = [result_of("a", ONE_PROCESS, 1), result_of("a"), result_of("b"), result_of("a", p=4)]
    assert same_bulks.different(results) == [results[2]]
    lines = same_bulks.report(results).splitlines()
    assert lines[2] == "| g | LADIES | no | **1 of 2 differ** | 1 equal | `a` |"
    assert "2 of 3 bulks are those of one process, bit for bit." in lines
    assert lines[-1] == f"different: {results[2]}"


def test_threads(tmp_path):
    done = CliRunner().invoke(same_bulks.app, [*SMALL, *folders(tmp_path), "--threads", "1,2"])
    assert done.exit_code == 0, done.output
    for number in (number_of_bulks(1), number_of_bulks(2)):
        assert f"{number} of {number} bulks are those of one process" in done.output


def test_a_difference_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(same_bulks, "bulk_digest", lambda bulk, comm=None: str(comm is None))
    done = CliRunner().invoke(same_bulks.app, [*SMALL, *folders(tmp_path), "--threads", "1", "--algorithm", "column"])
    assert done.exit_code == 1
    assert "0 of 12 bulks" in done.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "ranks", "algorithms"),
    [
        pytest.param("mpi", 4, list(ALGORITHMS), marks=pytest.mark.needs("mpi")),
        pytest.param("gloo", 4, ["column"], marks=pytest.mark.needs("gloo")),
        pytest.param("gloo", 2, ["stages"], marks=pytest.mark.needs("gloo")),
    ],
)
def test_processes(backend, ranks, algorithms, tmp_path):
    only = [f"--algorithm={name}" for name in algorithms]
    status, output = run_job(
        backend, same_bulks.__file__, *SMALL, *only, *folders(tmp_path), "--backend", backend, ranks=ranks
    )
    assert status == 0, output
    number = number_of_bulks(ranks, algorithms)
    assert f"{number} of {number} bulks are those of one process, bit for bit." in output
