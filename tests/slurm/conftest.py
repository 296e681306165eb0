"""Lets the tests of this folder import its modules by name; a Slurm that they share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from loopback import LoopbackSlurm


@pytest.fixture(scope="session")
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
