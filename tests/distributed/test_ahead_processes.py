"""Caches that look ahead and fetches by the bulk over MPI and gloo, in processes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from jobs import MANY_CALLS
from test_training_processes import run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("backend", MANY_CALLS)
def test_batches_are_those_of_one_process(backend):
    status, output, errors = run(backend, 4, Path(__file__).with_name("ahead_over_ranks.py"), backend)
    assert status == 0, output + errors
    assert "all the same" in output
