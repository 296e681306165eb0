"""Jobs of several processes in tests: by mpirun, by torchrun."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import warm

from spsample.cli.launch import ranks_environment, with_launcher

HERE = Path(__file__).resolve().parent

BACKENDS = [pytest.param(backend, marks=pytest.mark.needs(backend)) for backend in ("mpi", "gloo")]

# What is the same over both: over gloo, which starts sooner, or over MPI, whose calls take a tenth of the time.
EITHER = BACKENDS[1:] if find_spec("torch") else BACKENDS[:1]
MANY_CALLS = BACKENDS[:1] if find_spec("mpi4py") else BACKENDS[1:]


def run_ranks(backend, ranks, *words, timeout=300, launched=False, **environment):
    """Run a Python program as so many ranks: a finished process, with what it said; of gloo by torchrun if asked."""
    variables = ranks_environment(ranks) | {"OMP_NUM_THREADS": "1"} | environment
    if backend == "gloo" and not launched and warm.AVAILABLE:
        return warm.run_job(words, ranks, env=variables, timeout=timeout)
    line = with_launcher([sys.executable, *map(str, words)], ranks, backend)
    for _ in range(3):
        done = subprocess.run(line, env=variables, timeout=timeout, capture_output=True, text=True)
        if "listener thread failed to start" not in done.stdout + done.stderr:  # of mpirun, before any rank runs
            break
    return done


def run_job(backend, script, *arguments, ranks=4, timeout=300, launched=False, **environment):
    """Run a script of this folder as so many ranks; its exit status and what it said.

    A script may write its errors to files in the folder SAID: `mpirun` drops some of what ranks write as it ends them.
    """
    with tempfile.TemporaryDirectory() as said:
        more = {"timeout": timeout, "launched": launched, "SAID": said, **environment}
        done = run_ranks(backend, ranks, HERE / script, *arguments, **more)
        written = [path.read_text() for path in sorted(Path(said).iterdir())]
    return done.returncode, "".join([done.stdout, done.stderr, *written])
