"""Ranks that a real Slurm starts on two nodes of this machine, and what goes wrong there.

`test_documented_lines.py` has the ways that work: srun and PMIx, mpirun, torchrun, torch from Slurm's variables.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = str(ROOT / "scripts" / "slurm" / "run.sh")
CHECK = [sys.executable, "-m", "spsample.cli.main", "doctor", "--comm"]
FAULTY = [sys.executable, str(ROOT / "tests" / "comm" / "faulty_rank.py")]

pytestmark = pytest.mark.slow


def submitted(slurm, *job):
    return slurm.submit([RUN, *job], "--nodes=2", "--ntasks-per-node=2")


def test_a_batch_script_itself_is_no_rank(slurm):
    status, output = slurm.run(f"{shlex.join(CHECK)} --json", "--nodes=2", "--ntasks-per-node=2")
    assert status == 0
    assert '"backend": "local"' in output


@pytest.mark.needs("mpi")
def test_a_world_of_the_wrong_size(pmi2):
    """MPI that does not speak with srun sees one rank, in each task."""
    status, output = submitted(pmi2, "--mpi", "pmi2", *CHECK)
    assert status != 0
    assert "mpi connects 1 rank, but srun started 4 (SLURM_STEP_NUM_TASKS=4)" in output
    assert "srun --mpi=pmix" in output


@pytest.mark.needs("mpi")
def test_a_rank_is_killed(pmix):
    """Slurm kills all tasks itself, at once."""
    killed(*submitted(pmix, *FAULTY, "mpi", "kill", "20"))


@pytest.mark.needs("gloo")
def test_a_rank_that_exchanges_over_gloo_is_killed(slurm):
    output = killed(*submitted(slurm, "--mpi", "none", *FAULTY, "gloo", "kill", "20"))
    assert "in all_to_all_v in phase 'feature rows'" in output
    assert "nothing was heard of rank 2" in output or "by SIGTERM" in output


def killed(status, output):
    assert status != 0
    assert "has done all" not in output
    assert "Killed" in output
    return output


@pytest.fixture
def variables(slurm):
    """Environment variables of what is submitted; as they were after the test."""
    before = dict(slurm.environment)
    yield slurm.environment
    slurm.environment.clear()
    slurm.environment.update(before)


@pytest.mark.needs("gloo")
def test_torchrun_needs_no_mpi_plugin(slurm, variables):
    """The default of this Slurm is one that it has not."""
    variables["SLURM_MPI_TYPE"] = "none_such"
    status, output = slurm.run("srun true")
    assert status != 0
    assert "none_such" in output
    status, output = submitted(slurm, "--launcher", "torchrun", *CHECK)
    assert status == 0, output
    assert "4 ranks over gloo on 2 machines: every exchange is right" in output


@pytest.mark.needs("gloo")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--launcher", "torchrun"], r"n[12] cannot resolve MASTER_ADDR=no\.such\.machine: set it to an address"),
        (["--mpi", "none"], r"rank \d: error: MASTER_ADDR: got 'no\.such\.machine', which \S+ cannot resolve"),
    ],
)
def test_a_first_machine_that_nobody_knows(slurm, variables, options, said):
    variables["MASTER_ADDR"] = "no.such.machine"
    command = [*CHECK, "--backend", "gloo"] if "none" in options else CHECK
    status, output = submitted(slurm, *options, *command)
    assert status != 0
    assert re.search(said, output), output
    assert "Traceback" not in output


def test_arguments_of_the_script(slurm):
    for words, said in (
        ([], "no command"),
        (["--per", "rack", "true"], "task, core or gpu"),
        (["--x", "1"], "unknown"),
    ):
        status, output = submitted(slurm, *words)
        assert status == 2
        assert said in output
