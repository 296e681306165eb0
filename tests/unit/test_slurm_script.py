"""`scripts/slurm/run.sh` on a Slurm that is made up: what it starts and refuses. `tests/slurm` has a real one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JOB = {"SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS": "4", "SLURM_CPUS_ON_NODE": "2", "SLURM_JOB_ID": "7"}
# srun runs the command on one node; what it starts says how it was called.
PROGRAMS = {
    "srun": 'echo "srun $1 $2 $3"; while [[ $1 == --* ]]; do shift; done; exec "$@"',
    "torchrun": 'echo "torchrun $*"',
    "mpirun": 'echo "mpirun $*"',
    "spsample": 'echo "spsample $*"',
    "scontrol": "echo n1",
    "getent": '[ "$2" = n1 ] || [ "$2" = 10.0.0.1 ]',
}

pytestmark = pytest.mark.needs("bash")


@pytest.fixture
def submitted(tmp_path):
    for name, program in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{program}\n")
        (tmp_path / name).chmod(0o755)

    def run(*words, **variables):
        path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
        environment = {**os.environ, **JOB, "SLURM_JOB_NODELIST": "n[1-2]", "PATH": path, **variables}
        line = ["bash", str(ROOT / "scripts" / "slurm" / "run.sh"), *words, "spsample", "doctor"]
        return subprocess.run(line, env=environment, capture_output=True, text=True)

    return run


def test_torchrun_asks_slurm_for_no_mpi(submitted):
    done = submitted("--launcher", "torchrun", SLURM_MPI_TYPE="pmix")
    assert done.returncode == 0, done.stderr
    srun, torchrun = done.stdout.splitlines()
    assert "--mpi=none" in srun.split()
    assert torchrun.endswith("--rdzv-endpoint=n1:20007 --no-python spsample doctor")


@pytest.mark.parametrize(
    ("words", "asked"), [((), "--mpi=pmix"), (("--mpi", "none"), "--mpi=none"), (("--mpi", "pmi2"), "--mpi=pmi2")]
)
def test_srun_asks_for_what_is_said(submitted, words, asked):
    done = submitted(*words)
    srun, rank = done.stdout.splitlines()
    assert asked in srun.split()
    assert rank == "spsample doctor"


@pytest.mark.parametrize("address", ["no.such.machine", "n2 n1", "$(true)"])
def test_a_first_machine_that_is_not_known_is_told_in_a_line(submitted, address):
    done = submitted("--launcher", "torchrun", MASTER_ADDR=address, SLURMD_NODENAME="n2")
    assert done.returncode == 2
    said = f"n2 cannot resolve MASTER_ADDR={address}: set it to an address of the first node"
    assert done.stderr.splitlines() == [said]
    assert done.stdout.splitlines() == ["srun --kill-on-bad-exit=1 --nodes=2 --mpi=none"]


def test_others_do_not_look_for_it(submitted):
    """MPI finds its ranks by itself."""
    for launcher in ("srun", "mpirun"):
        assert submitted("--launcher", launcher, MASTER_ADDR="no.such.machine").returncode == 0


def test_an_address_is_taken(submitted):
    done = submitted("--launcher", "torchrun", MASTER_ADDR="10.0.0.1", MASTER_PORT="5")
    assert "--rdzv-endpoint=10.0.0.1:5" in done.stdout
