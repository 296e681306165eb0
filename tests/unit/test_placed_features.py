"""Where the features of a training lie, as its settings say."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import spsample as sp  # noqa: E402
from spsample.data import planted  # noqa: E402
from spsample.features import CachedFeatures, FeatureStore  # noqa: E402
from spsample.pipelines import TrainingSetup  # noqa: E402
from spsample.pipelines.setup import placed_features  # noqa: E402
from spsample.timeline import Phases  # noqa: E402
from spsample.training import BlockMaker, TrainConfig  # noqa: E402


@pytest.mark.parametrize("backend", ["cuda", "reference"])
def test_an_array_is_kept_by_its_next_use_whatever_samples(backend):
    """On the host: a device keeps rows by their scores alone."""
    data, sampler = planted(400), sp.GraphSAGE([5])
    config = TrainConfig(backend=backend, cache_budget="20KiB", cache_replacement="lookahead")
    features, blocks = FeatureStore(data.x), BlockMaker(data.graph, sampler)
    placed = placed_features(TrainingSetup(data, features, data.graph, sampler, config, blocks, Phases()))
    assert isinstance(placed, CachedFeatures)
