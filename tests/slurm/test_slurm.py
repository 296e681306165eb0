"""Ranks that a real Slurm starts, on two nodes of this machine: by srun and PMIx, mpirun, torchrun, and without MPI."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path

import pytest
from loopback import LoopbackSlurm, missing

ROOT = Path(__file__).resolve().parents[2]
RUN = str(ROOT / "scripts" / "slurm" / "run.sh")
PYTHON = shlex.quote(sys.executable)
CHECK = [sys.executable, "-m", "spsample.cli.main", "doctor", "--comm"]
FAULTY = [sys.executable, str(ROOT / "tests" / "comm" / "faulty_rank.py")]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing() or "Slurm is here"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="no mpi4py"),
]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with LoopbackSlurm(tmp_path_factory.mktemp("slurm")) as cluster:
        bin_folder = str(Path(sys.executable).parent)
        cluster.environment |= {
            "PATH": f"{bin_folder}:{cluster.environment['PATH']}",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "MASTER_ADDR": "127.0.0.1",  # the nodes' names are not known to the resolver
            "SPSAMPLE_TIMEOUT": "60",
        }
        yield cluster


def submitted(slurm, *job):
    return slurm.submit([RUN, *job], "--nodes=2", "--ntasks-per-node=2")


def expect_ranks(result, backend):
    status, output = result
    assert status == 0, output
    assert f"4 ranks over {backend} on 2 machines: every exchange is right" in output


def test_srun_with_pmix(slurm):
    expect_ranks(submitted(slurm, *CHECK), "mpi")


def test_mpirun(slurm):
    expect_ranks(submitted(slurm, "--launcher", "mpirun", "--per", "core", *CHECK), "mpi")


def test_torchrun(slurm):
    expect_ranks(submitted(slurm, "--launcher", "torchrun", *CHECK), "gloo")


def test_torch_from_the_variables_of_slurm(slurm):
    expect_ranks(submitted(slurm, *CHECK, "--backend", "gloo"), "gloo")


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
