"""Where the features of a training lie, as its settings say."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import spsample as sp
from spsample.data import planted
from spsample.features import CachedFeatures, FeatureStore
from spsample.pipelines import TrainingSetup
from spsample.pipelines.placement import placed_features
from spsample.timeline import Phases
from spsample.training import BlockMaker, TrainConfig


@pytest.mark.parametrize("backend", ["cuda", "reference"])
def test_an_array_is_kept_by_its_next_use_whatever_samples(backend):
    """On the host: a device keeps rows by their scores alone."""
    data, sampler = planted(400), sp.GraphSAGE([5])
    config = TrainConfig(backend=backend, cache_budget="20KiB", cache_replacement="lookahead")
    features, blocks = FeatureStore(data.x), BlockMaker(data.graph, sampler)
    setup = TrainingSetup(data, features, data.graph, sampler, config, blocks, Phases(), data.graph.comm)
    placed = placed_features(setup)
    assert isinstance(placed, CachedFeatures)
