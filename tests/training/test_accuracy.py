"""What training reaches: real data at published levels, a planted problem at its Bayes rate.

The real graphs are trained for fewer epochs than their presets say, tolokers on one of its ten splits;
docs/api/training.md has the commands of the full runs.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import spsample as sp  # noqa: E402
from spsample.data import load_dataset, rewire, scale_features  # noqa: E402
from spsample.training import Trainer, preset_for  # noqa: E402

pytestmark = pytest.mark.slow


def train(dataset, kind="graphsage", **settings):
    """Train with the data set's preset; `settings` replace some of the training's."""
    preset = preset_for(dataset.name)
    samplers = {
        "graphsage": lambda: sp.GraphSAGE(preset.fanouts),
        "ladies": lambda: sp.LADIES(preset.layer_sizes),
        "fastgcn": lambda: sp.FastGCN(preset.layer_sizes),
    }
    config = dataclasses.replace(preset.train, **settings)
    return Trainer(scale_features(dataset, preset.scaling), samplers[kind](), preset.model, config).fit()


@pytest.mark.parametrize("kind", ["graphsage", "ladies", "fastgcn"])
def test_digits(kind):
    pytest.importorskip("sklearn")
    assert train(load_dataset("digits"), kind).test >= 0.97


@pytest.mark.parametrize("kind", ["graphsage", "ladies", "fastgcn"])
def test_planted_reaches_its_bayes_rate(kind):
    result = train(load_dataset("planted:20000"), kind)
    assert abs(result.test - result.bayes_rate) <= 0.015


def test_planted_learns_nothing_once_rewired():
    data = load_dataset("planted:20000")
    chance = 1 / data.num_classes
    error = np.sqrt(chance * (1 - chance) / len(data.test_idx))
    assert abs(train(rewire(data)).test - chance) < 5 * error


@pytest.mark.realdata
@pytest.mark.parametrize("kind", ["graphsage", "ladies"])
def test_cora(data_dir, kind):
    data = load_dataset(str(data_dir / "planetoid_cora.npz"))
    results = [train(data, kind, random_seed=seed, epochs=60).test for seed in range(3)]
    assert np.mean(results) >= 0.78


@pytest.mark.realdata
def test_tolokers(data_dir):
    data = load_dataset(str(data_dir / "tolokers.npz"))
    sage, ladies = (train(data, kind, epochs=45).test for kind in ("graphsage", "ladies"))
    assert sage >= 0.80
    assert ladies >= sage - 0.015
