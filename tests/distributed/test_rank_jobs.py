"""Partitioned graphs over mpirun and torchrun: edge cases, bad input of one rank, a rank that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import BACKENDS, run_job

HERE = Path(__file__).resolve().parent

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("backend", BACKENDS)
def test_edge_cases_and_faults(backend, tmp_path):
    status, output = run_job(backend, HERE / "over_ranks.py", backend, tmp_path)
    assert status == 0, output
    assert output.count(": right") == 5, output


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("job", "rank", "phase", "number"),
    [
        ("sampling", 2, "extraction", 5),
        ("overlap", 2, "gradients", 6),
        ("cooperative", 2, "batch gradients", 3),
        ("factored", 3, "messages of samplers and trainers", 60),
        ("asynchronous", 1, "backward", 9),
    ],
)
def test_a_rank_is_killed(backend, job, rank, phase, number):
    """`by_hand/lost_ranks.py` does so in all phases, and resumes. The launcher says what was lost, the others where."""
    status, output = run_job(  # their own time-out is beyond the job's
        backend, HERE / "killed_rank.py", backend, job, rank, phase, number, timeout=200
    )
    assert "the end at" in output, output
    assert status != 0
    assert "has done all" not in output
    assert "signal 9" in output.lower(), output
    if job in ("factored", "asynchronous"):
        assert "messages of samplers and trainers (rank 3 samples, ranks 0 to 2 train)" in output, output
