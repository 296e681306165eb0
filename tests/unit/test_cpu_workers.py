"""The threads of the compiled core in a program of their own: under ThreadSanitizer, and where the system is short."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from needs import COMPILER

KERNELS = Path(__file__).parents[2] / "kernels" / "cpu"
PROGRAM = Path(__file__).with_name("workers_program.cpp")
SOURCES = [str(PROGRAM), str(KERNELS / "parallel.cpp"), str(KERNELS / "workers.cpp")]
# Not under `make sanitize`, whose library is loaded before all programs.
pytestmark = [
    pytest.mark.needs("c++"),
    pytest.mark.skipif(sys.platform != "linux" or "LD_PRELOAD" in os.environ, reason="needs Linux"),
]


def compiled(folder: Path, *options: str) -> Path:
    program = folder / "workers"
    command = [COMPILER, "-std=c++17", "-O1", "-g1", "-pthread", f"-I{KERNELS}", *options, *SOURCES, "-o"]
    done = subprocess.run([*command, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": ""}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return compiled(tmp_path_factory.mktemp("workers"))


@pytest.mark.parametrize("case", ["many callers", "no memory for threads", "fault", "more processors than a set holds"])
def test_threads(program, case):
    done = run(str(program), case)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("thread sanitizer")
def test_many_callers_do_not_race(tmp_path):
    program = compiled(tmp_path, "-fsanitize=thread")
    done = run("setarch", platform.machine(), "-R", str(program), "many callers")
    assert done.returncode == 0, done.stdout + done.stderr
