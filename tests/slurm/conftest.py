"""Lets the tests of this folder import its modules by name; a Slurm that they share."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from loopback import LoopbackSlurm, missing


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    if reason := missing():
        pytest.skip(reason)
    cluster = LoopbackSlurm(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.__enter__()
    except RuntimeError as error:
        pytest.skip(f"no Slurm comes up here: {error}")
    with ExitStack() as stack:
        stack.push(cluster)
        bin_folder = str(Path(sys.executable).parent)
        cluster.environment |= {
            "PATH": f"{bin_folder}:{cluster.environment['PATH']}",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "MASTER_ADDR": "127.0.0.1",  # the nodes' names are not known to the resolver
            "SPSAMPLE_TIMEOUT": "60",
        }
        yield cluster


@pytest.fixture(scope="session")
def pmix(slurm):
    """The same, where srun starts tasks that speak PMIx."""
    return speaking(slurm, "pmix")


@pytest.fixture(scope="session")
def pmi2(slurm):
    return speaking(slurm, "pmi2")


def speaking(slurm, mpi):
    if reason := slurm.why_not(mpi):
        pytest.skip(f"srun --mpi={mpi}: {reason}")
    return slurm
