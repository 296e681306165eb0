"""Sources of the features of batches in a training: a cache in front of them, or tiers on a device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spsample.comm import collective
from spsample.common.checks import require_choice
from spsample.features import CachedFeatures, DeviceFeatures, FeatureSource, PartitionedFeatures, score
from spsample.features.scores import score_names, usual_score
from spsample.loading.local_order import local_batches_of
from spsample.pipelines.setup import TrainingSetup
from spsample.settings.training import TrainConfig


def placed_features(setup: TrainingSetup) -> FeatureSource:
    """Return the source that a loader gathers from; collective where graph or features lie on several ranks.

    Without a budget for a cache it is that of the data set. An array that is trained on with the backend "cuda" lies
    on the device, as much of it as half of its memory or the budget holds, and the rest in memory that the device
    reads. Of other features (on a disk, on several ranks) the device keeps as many rows as the budget holds, unless
    they are to be kept by their next use: that is done in the memory of the host.
    Where the batches of a rank hold seeds of its own part, its cache has the rows that these need from elsewhere.

    Parameters
    ----------
    setup : TrainingSetup

    Raises
    ------
    InputError, CapacityError
        As of `CachedFeatures`.
    """
    config, graph, features, workload = setup.config, setup.graph, setup.features, setup.workload
    budget = config.cache_budget
    options = score_options(config)
    x: Any = setup.dataset.x
    if config.backend == "cuda" and graph.host is not None and not isinstance(x, FeatureSource):
        name = usual_score(graph, setup.sampler) if budget is None else config.cache_score
        ranking = partial(score, name, **{**workload, "graph": graph.host}, **options)
        return DeviceFeatures(x, _hot(budget), ranking)
    if budget is None:
        return features  # the batches of a partitioned graph pass through the host
    scores: Any = config.cache_score
    if config.batches == "local" and graph.comm.size > 1:
        scores = _own_scores(config.cache_score, setup.parts, workload, options)
        if isinstance(features, PartitionedFeatures):
            scores[features.block_vertices()] = 0.0  # they are in this rank's memory as it is
    known = {**workload, **options} if isinstance(scores, str) else {}
    if budget == "auto" and not _is_kept_on_device(config):
        known |= workload
    return in_front(features, budget, scores, config, known)


def in_front(
    features: FeatureSource, budget: int | str, scores: Any, config: TrainConfig, known: Mapping[str, Any]
) -> FeatureSource:
    """Return the source that keeps rows of another one on the device, or in the memory of the host.

    Parameters
    ----------
    features : FeatureSource
    budget : int or str
        For the rows, as in the settings.
    scores : str or array (vertices,)
        By which they are chosen.
    config : TrainConfig
    known : dict
        What scores with a name are computed from.

    Raises
    ------
    InputError, CapacityError
        As of `CachedFeatures` and `DeviceFeatures`.
    """
    if _is_kept_on_device(config):
        return DeviceFeatures(features, _hot(budget), scores, **known)
    return CachedFeatures(features, budget, scores, replacement=config.cache_replacement, **known)


def _is_kept_on_device(config: TrainConfig) -> bool:
    return config.backend == "cuda" and config.cache_replacement == "static"


def _own_scores(
    name: str, parts: ArrayLike | None, workload: dict[str, Any], options: dict[str, Any]
) -> NDArray[np.float64]:
    """(vertices,) how much batches of this rank's own seeds want each vertex; collective, one part after the other."""
    graph, seeds = workload["graph"], np.asarray(workload["seeds"])
    with collective(graph.comm, call="a look at local seeds"):
        require_choice("score", name, score_names())
        local = local_batches_of(parts, graph, seeds, workload["batch_size"])
    own = np.zeros(graph.num_nodes)
    for part in range(local.num_parts):
        scores = score(name, **{**workload, "seeds": seeds[local.seeds_of(part)]}, **options)
        if part == local.part_of(graph.comm.rank):
            own = scores.copy()
    return own


def score_options(config: TrainConfig) -> dict[str, Any]:
    """Return the facts about the epochs to come for a score; a trial has random numbers of its own.

    Parameters
    ----------
    config : TrainConfig
    """
    if config.cache_score != "replay":
        return {}
    return {"epochs": range(config.epochs), "random_seed": config.random_seed}


def _hot(budget: int | str | None) -> str:
    """Return the part of the features that a device keeps for a budget, as `DeviceFeatures` takes it."""
    if budget is None:
        return "auto"
    return budget if isinstance(budget, str) else f"{budget}B"
