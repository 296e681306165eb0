"""The GPU of the tests, and where their modules are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]

from the_gpu import the_gpu  # noqa: E402


@pytest.fixture(scope="session")
def gpu():
    """The GPU; tests that ask for it are skipped where there is none."""
    found = the_gpu()
    if isinstance(found, str):
        pytest.skip(found)
    return found
