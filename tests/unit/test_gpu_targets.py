"""What is run on a machine with a GPU, as far as it can be looked at without one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs("make")

ROOT = Path(__file__).resolve().parents[2]

# As from a shell: a make that runs these tests hands its own variables on.
OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "PYTEST_ARGS", "GPU_MARK", "GPU_PYTHON")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in OF_MAKE}


def commands(*arguments):
    """The commands that make would run."""
    done = subprocess.run(
        ["make", "-n", *arguments, "GPU_PYTHON=python3"],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if line.startswith(("python3", "compute-sanitizer"))]


def test_gpu_test_leaves_slow_tests_out():
    assert commands("gpu-test") == ['python3 -m pytest -m "gpu and not slow" tests/cuda ']
    slow = commands("gpu-test", "GPU_MARK=gpu", "PYTEST_ARGS=-k full_size")
    assert slow == ['python3 -m pytest -m "gpu" tests/cuda -k full_size']


def test_the_folder_of_real_graphs_is_handed_on(tmp_path):
    (tmp_path / "python3").write_text('#!/bin/sh\necho "data: $SPSAMPLE_DATA"\n')
    (tmp_path / "python3").chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = subprocess.run(
        ["make", "gpu-test", f"GPU_PYTHON={tmp_path / 'python3'}", "SPSAMPLE_DATA=/graphs"],
        cwd=ROOT,
        env={**ENVIRONMENT, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "data: /graphs" in done.stdout


def test_sanitizers_do_not_report_calls_that_are_meant_to_fail():
    for line in commands("gpu-sanitize"):
        assert "--report-api-errors no " in line
