"""What tests need of a machine beside packages: each need is tried once in a process, where the first test has it.

A test with ``@pytest.mark.needs("mpi", "gloo")`` is skipped where one of them is not met, with what was said; a fixture
calls `require`. Programs that are there and do not work are so no failures of tests. Nothing here runs code of the
package: its faults must not skip its tests.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
import warm

COMPILER = os.environ.get("CXX", "g++")
"""The C++ compiler of the tests."""

LEAST_SHARED = 256 << 20

_FOR_ROOT = dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
_SHARED_CORES = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
_MPI = """
from mpi4py import MPI
assert MPI.COMM_WORLD.Get_size() == 4
for _ in range(10):
    assert MPI.COMM_WORLD.alltoall([b"." * 100_000] * 4) == [b"." * 100_000] * 4
"""
_GLOO = (
    "import torch.distributed as dist; dist.init_process_group('gloo'); dist.barrier(); dist.destroy_process_group()"
)
_PROGRAM = 'extern "C" int answer() { return 42; }\nint main() { return answer() - 42; }\n'


def require(*needs: str) -> None:
    """Skip the test that calls this where a need is not met."""
    for need in needs:
        if reason := why_not(need):
            pytest.skip(f"{need}: {reason}")


@cache
def why_not(need: str) -> str:
    """Why a need is not met; empty where it is."""
    return _TRIALS[need]()


def refusal(line: list[str], seconds: float = 60, **variables: str) -> str:
    """How a program that cannot run says so, in a line; empty where it ends well."""
    if shutil.which(line[0]) is None:
        return f"no {line[0]}"
    clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    try:
        done = subprocess.run(line, env=clean | variables, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{line[0]}: {error}"
    said = told(done.stderr + done.stdout) or f"exit status {done.returncode}"
    return f"{line[0]}: {said}" if done.returncode else ""


def told(text: str) -> str:
    """The line of a program's last words that tells most: the first one with an error, or the first."""
    lines = [line for given in text.splitlines() if (line := given.strip(" -"))]
    return next((line for line in lines if "rror" in line), next(iter(lines), ""))


def _compiler() -> str:
    """A library for this process is compiled, and loaded."""
    with tempfile.TemporaryDirectory() as folder:
        if reason := _compiled(Path(folder, "answer.so"), "-std=c++17", "-shared", "-fPIC"):
            return reason
        try:
            return "" if ctypes.CDLL(str(Path(folder, "answer.so"))).answer() == 42 else "what it compiles is wrong"
        except OSError as error:
            return str(error)


def _compiled(path: Path, *options: str) -> str:
    source = path.with_suffix(".cpp")
    source.write_text(_PROGRAM)
    return refusal([COMPILER, *options, str(source), "-o", str(path)])


def _thread_sanitizer() -> str:
    """A program runs under it, with memory at fixed addresses."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program")
        reason = _compiled(program, "-fsanitize=thread", "-pthread")
        return reason or refusal(["setarch", platform.machine(), "-R", str(program)])


def _watched_python() -> str:
    """A Python under ThreadSanitizer."""
    return refusal([sys.executable, str(Path(__file__).parents[1] / "cuda_emulator" / "races.py"), "-c", ""])


def _mpi() -> str:
    """mpirun starts four ranks that exchange some bytes."""
    if importlib.util.find_spec("mpi4py") is None:
        return "no mpi4py"
    return refusal(["mpirun", "-n", "4", sys.executable, "-c", _MPI], **_FOR_ROOT, **_SHARED_CORES)


def _gloo() -> str:
    """A rank opens a socket."""
    if importlib.util.find_spec("torch") is None:
        return "no torch"
    done = warm.run_job(["-c", _GLOO], 1, env=os.environ)
    return told(done.stderr) or "it failed" if done.returncode else ""


def _shared_memory() -> str:
    """Some of it is free, where it is a folder: containers often have 64 MiB."""
    folder = "/dev/shm"
    free = shutil.disk_usage(folder).free if os.path.isdir(folder) else LEAST_SHARED
    return f"{folder} has {free >> 20} MiB free of {LEAST_SHARED >> 20}" if free < LEAST_SHARED else ""


def _make() -> str:
    """GNU's: the Makefile is written for it."""
    if reason := refusal(["make", "--version"]):
        return reason
    said = subprocess.run(["make", "--version"], capture_output=True, text=True, check=True).stdout
    return "" if said.startswith("GNU Make") else f"not GNU Make: {said.splitlines()[0]}"


_TRIALS = {
    "c++": _compiler,
    "thread sanitizer": _thread_sanitizer,
    "python under thread sanitizer": _watched_python,
    "mpi": _mpi,
    "gloo": _gloo,
    "make": _make,
    "shared memory": _shared_memory,
    "bash": lambda: refusal(["bash", "-c", "true"]),
}
