"""Layers by PyG's names are PyG's on all rows, at the seeds: values, gradients, state, copies."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from layer_cases import CASES, Case, both, worst_of


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_are_pygs(case: Case) -> None:
    assert worst_of(case, seed=CASES.index(case), batches=4) < 1e-12


@pytest.mark.parametrize("case", CASES, ids=str)
def test_state_representation_and_copies_are_pygs(case: Case) -> None:
    theirs, mine = both(case, 2)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert repr(mine) == repr(theirs)
    theirs.load_state_dict(mine.state_dict())
    for made in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        assert repr(made) == repr(mine)
        for name, value in mine.state_dict().items():
            assert torch.equal(made.state_dict()[name], value)
