"""Partitioned graphs over mpirun and torchrun: edge cases, bad input of one rank, a rank that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import run_job
from over_ranks import EVERY

HERE = Path(__file__).resolve().parent

pytestmark = pytest.mark.slow


MPI, GLOO = pytest.mark.needs("mpi"), pytest.mark.needs("gloo")


@pytest.mark.parametrize(
    ("backend", "cases"),
    [
        pytest.param("mpi", EVERY, marks=MPI),
        pytest.param("gloo", EVERY[3:], marks=GLOO),
    ],
)
def test_edge_cases_and_faults(backend, cases, tmp_path):
    status, output = run_job(backend, HERE / "over_ranks.py", backend, tmp_path, *cases)
    assert status == 0, output
    assert output.count(": right") == len(cases), output


@pytest.mark.parametrize(
    ("backend", "job", "rank", "phase", "number"),
    [
        pytest.param("mpi", "sampling", 2, "extraction", 5, marks=MPI),
        pytest.param("gloo", "overlap", 2, "gradients", 6, marks=GLOO),
        pytest.param("gloo", "cooperative", 2, "batch gradients", 3, marks=GLOO),
        pytest.param("mpi", "factored", 3, "messages of samplers and trainers", 60, marks=MPI),
        pytest.param("gloo", "asynchronous", 1, "backward", 9, marks=GLOO),
    ],
)
def test_a_rank_is_killed(backend, job, rank, phase, number):
    """`by_hand/lost_ranks.py` does so in all phases, and resumes; test_processes.py has what launchers say."""
    status, output = run_job(  # their own time-out is beyond the job's
        backend, HERE / "killed_rank.py", backend, job, rank, phase, number, timeout=200
    )
    assert "the end at" in output, output
    assert status != 0
    assert "has done all" not in output
    if job in ("factored", "asynchronous"):
        assert "messages of samplers and trainers (rank 3 samples, ranks 0 to 2 train)" in output, output
