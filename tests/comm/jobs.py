"""Jobs of several processes in tests: by mpirun, by torchrun."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from spsample.cli.launch import ranks_environment, with_launcher
from spsample.cli.machine import find_program

HERE = Path(__file__).resolve().parent

BACKENDS = [pytest.param(backend, marks=pytest.mark.needs(backend)) for backend in ("mpi", "gloo")]

# Refusals are the same over both, and test_what_the_command_refuses_is_said_once has both.
EITHER = BACKENDS[:1] if find_spec("mpi4py") and find_program("mpirun") else BACKENDS[1:]


def run_ranks(backend, ranks, *words, timeout=300, **environment):
    """Run a Python program as so many ranks: a finished process, with what it said."""
    line = with_launcher([sys.executable, *map(str, words)], ranks, backend)
    variables = ranks_environment(ranks) | {"OMP_NUM_THREADS": "1"} | environment
    for _ in range(3):
        done = subprocess.run(line, env=variables, timeout=timeout, capture_output=True, text=True)
        if "listener thread failed to start" not in done.stdout + done.stderr:  # of mpirun, before any rank runs
            break
    return done


def run_job(backend, script, *arguments, ranks=4, timeout=300, **environment):
    """Run a script of this folder as so many ranks; its exit status and what it said.

    A script may write its errors to files in the folder SAID: `mpirun` drops some of what ranks write as it ends them.
    """
    with tempfile.TemporaryDirectory() as said:
        done = run_ranks(backend, ranks, HERE / script, *arguments, timeout=timeout, SAID=said, **environment)
        written = [path.read_text() for path in sorted(Path(said).iterdir())]
    return done.returncode, "".join([done.stdout, done.stderr, *written])
