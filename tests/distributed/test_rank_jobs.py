"""Partitioned graphs over mpirun and torchrun: edge cases, bad input of one rank, a rank that is killed."""

from __future__ import annotations

import re
import time
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
def test_a_sampler_or_a_trainer_is_killed(backend):
    """One over each; the others say in which call they were and who does what, the launcher who was lost."""
    killed = {
        "mpi": (3, "letters of samplers and trainers", 60),
        "gloo": (1, "backward", 9),
    }
    status, output = run_job(backend, HERE / "killed_role.py", backend, *killed[backend])
    ended = re.search(r"the end at ([0-9.]+)", output)
    assert ended, output
    assert time.time() - float(ended.group(1)) < 60
    assert status != 0
    assert "has done all" not in output
    assert "signal 9" in output.lower(), output
    assert "letters of samplers and trainers (rank 3 samples, ranks 0 to 2 train)" in output, output


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("phase", "number"), [("extraction", 5), ("gradients", 6), ("batch gradients", 3)])
def test_a_rank_is_killed(backend, phase, number):
    """bench/lost_ranks.py goes through all phases."""
    status, output = run_job(backend, HERE / "killed_rank.py", backend, phase, number)
    killed = re.search(r"the end at ([0-9.]+)", output)
    assert killed, output
    assert time.time() - float(killed.group(1)) < 60
    assert status != 0
    assert "has done all" not in output
    assert "signal 9" in output.lower(), output  # the launcher says what was lost
