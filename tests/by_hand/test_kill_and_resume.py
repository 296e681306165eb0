"""Training runs that are killed and resumed, in processes of their own (`kill_and_resume.py` does many more)."""

from __future__ import annotations

import dataclasses
import os

import pytest

pytest.importorskip("torch")

from kill_and_resume import CASES, run_case


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_losses_are_those_of_an_uninterrupted_run():
    case = dataclasses.replace(CASES["graphsage"], dataset="planted:1000,6", epochs=6)
    outcome = run_case("graphsage", case, kills=1, random_seed=1)
    assert outcome.equal
    assert outcome.steps == 30
