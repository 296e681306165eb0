"""Ranks that a real Slurm starts on two nodes of this machine, and what goes wrong there.

`test_documented_lines.py` has the ways that work: srun and PMIx, mpirun, torchrun, torch from Slurm's variables.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path

import pytest
from loopback import missing

ROOT = Path(__file__).resolve().parents[2]
RUN = str(ROOT / "scripts" / "slurm" / "run.sh")
CHECK = [sys.executable, "-m", "spsample.cli.main", "doctor", "--comm"]
FAULTY = [sys.executable, str(ROOT / "tests" / "comm" / "faulty_rank.py")]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing() or "Slurm is here"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="no mpi4py"),
]


def submitted(slurm, *job):
    return slurm.submit([RUN, *job], "--nodes=2", "--ntasks-per-node=2")


def test_a_batch_script_itself_is_no_rank(slurm):
    status, output = slurm.run(f"{shlex.join(CHECK)} --json", "--nodes=2", "--ntasks-per-node=2")
    assert status == 0
    assert '"backend": "local"' in output


def test_a_world_of_the_wrong_size(slurm):
    """MPI that does not speak with srun sees one rank, in each task."""
    status, output = submitted(slurm, "--mpi", "pmi2", *CHECK)
    assert status != 0
    assert "mpi connects 1 rank, but srun started 4 (SLURM_STEP_NUM_TASKS=4)" in output
    assert "srun --mpi=pmix" in output


@pytest.mark.parametrize("backend", ["mpi", "gloo"])
def test_a_rank_is_killed(slurm, backend):
    status, output = submitted(slurm, *FAULTY, backend, "kill", "20")
    assert status != 0
    assert "has done all" not in output
    assert "Killed" in output
    if backend == "gloo":  # with PMIx Slurm kills all tasks itself, at once
        assert "in all_to_all_v in phase 'feature rows'" in output
        assert "nothing was heard of rank 2" in output or "by SIGTERM" in output


def test_arguments_of_the_script(slurm):
    for words, said in (
        ([], "no command"),
        (["--per", "rack", "true"], "task, core or gpu"),
        (["--x", "1"], "unknown"),
    ):
        status, output = submitted(slurm, *words)
        assert status == 2
        assert said in output
