"""Jobs of several processes in tests: by mpirun, by torchrun."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from spsample.cli.launch import ranks_environment, with_launcher
from spsample.errors import MissingDependencyError

HERE = Path(__file__).resolve().parent


def why_not(backend: str) -> str:
    """Why no job can run; empty if one can."""
    try:
        with_launcher([], 1, backend)
    except MissingDependencyError as error:
        return str(error)
    return ""


def needs(backend: str) -> pytest.MarkDecorator:
    reason = why_not(backend)
    return pytest.mark.skipif(bool(reason), reason=reason or f"{backend} is here")


BACKENDS = [pytest.param(backend, marks=needs(backend)) for backend in ("mpi", "gloo")]


# Refusals are the same over both, and test_what_the_command_refuses_is_said_once has both.
EITHER = [next((backend for backend in BACKENDS if not why_not(backend.values[0])), BACKENDS[0])]


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
