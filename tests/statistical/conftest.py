"""The two backends as a fixture, each with the number of draws that it can afford."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spsample.backends import available_backends, get_backend

sys.path.insert(0, str(Path(__file__).parent))  # the helpers laws.py, draws.py, checks.py and faults.py

DRAWS = {"reference": 800, "cpu": 150_000}


@pytest.fixture(params=["reference", "cpu"])
def backend(request):
    """Each backend; `cpu` is skipped where the compiled core is missing."""
    if request.param not in available_backends():
        pytest.skip(f"backend {request.param} is not built")
    return get_backend(request.param)


@pytest.fixture
def draws(backend):
    """Number of independent draws: the reference is some thousand times slower."""
    return DRAWS[backend.name]


@pytest.fixture
def calls(draws):
    """Number of minibatches where each costs some microseconds of Python: the public call from end to end."""
    return min(draws, 20_000)
