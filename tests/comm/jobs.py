"""Jobs of several processes in tests: by mpirun, by torchrun."""

from __future__ import annotations

import subprocess
import sys
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


def run_job(backend, script, *arguments, ranks=4, timeout=300, **environment):
    """Run a script of this folder as so many ranks; its exit status and what it said."""
    program = [sys.executable, str(HERE / script), *map(str, arguments)]
    line = with_launcher(program, ranks, backend)
    variables = ranks_environment(ranks) | {"OMP_NUM_THREADS": "1"} | environment
    done = subprocess.run(line, env=variables, timeout=timeout, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr
