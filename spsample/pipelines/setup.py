"""Data, ranks and devices of a run, and where its features lie: behind a cache, or in tiers on a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from spsample.comm import collective
from spsample.common.checks import require_choice
from spsample.data import Dataset
from spsample.errors import InputError
from spsample.features import CachedFeatures, DeviceFeatures, FeatureSource, PartitionedFeatures, score
from spsample.features.scores import score_names, usual_score
from spsample.loading.copies import require_device
from spsample.loading.local_order import local_batches_of
from spsample.nn.blocks import BlockMaker
from spsample.nn.tensors import device_of
from spsample.sampling import Sampler
from spsample.settings.training import TrainConfig
from spsample.store.base_graph import BaseGraph
from spsample.timeline import Phases


@dataclass(frozen=True, eq=False)
class TrainingSetup:
    """Data and ranks of a run.

    Attributes
    ----------
    dataset : Dataset
    features : FeatureSource
        Of the data set.
    graph : BaseGraph
        The graph that batches are sampled from.
    sampler : Sampler
    config : TrainConfig
    blocks : BlockMaker
        Makes the layers' inputs of a batch.
    phases : Phases
        Counter of the seconds of training.
    parts : array-like (vertices,), optional
        Of local seeds, as of `BulkLoader`.
    """

    dataset: Dataset
    features: FeatureSource
    graph: BaseGraph
    sampler: Sampler
    config: TrainConfig
    blocks: BlockMaker
    phases: Phases
    parts: ArrayLike | None = None

    @property
    def workload(self) -> dict[str, Any]:
        """The workload of a run, as scores of vertices take it."""
        return {
            "graph": self.graph.host if self.graph.is_on_device else self.graph,
            "seeds": self.dataset.train_idx,
            "sampler": self.sampler,
            "batch_size": self.config.batch_size,
        }


class Devices(NamedTuple):
    """The devices of a training.

    Attributes
    ----------
    model : torch.device
    batches : torch.device or None
        Where a loader is to copy them; None: they are left where they are made.
    """

    model: torch.device
    batches: torch.device | None


def device_for(config: TrainConfig, graph: BaseGraph, *, samples_there: bool = False) -> Devices:
    """Return the device of the settings, and whether batches have to be copied there: not where they are made there.

    Parameters
    ----------
    config : TrainConfig
        Its ``device`` and ``backend``.
    graph : BaseGraph
        That batches are sampled from.
    samples_there
        Whether batches are made on a device.

    Raises
    ------
    InputError
        If another device makes the batches, or NCCL has to serve several ranks on one GPU.
    BackendError
        If there is no GPU.

    Examples
    --------
    >>> import spsample
    >>> from spsample.training import TrainConfig
    >>> device_for(TrainConfig(device="cpu"), spsample.Graph([0, 0], []))
    Devices(model=device(type='cpu'), batches=device(type='cpu'))
    """
    name = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else None
    if name is None:
        return Devices(device_of(config.backend), None)
    device = require_device("device", name)
    if graph.comm.name == "nccl" and device.type == "cuda" and device.index != torch.cuda.current_device():
        given = f"{config.device!r} on a rank of NCCL, whose GPU is cuda:{torch.cuda.current_device()}"
        raise InputError(argument="device", given=given, expected="'cuda': of each rank its own")
    made_on = device_of("cuda") if config.backend == "cuda" else device
    if device != made_on:
        given = f"{config.device!r} with backend='cuda', which samples on {made_on}"
        raise InputError(argument="device", given=given, expected=f"'{made_on}', or none")
    return Devices(device, None if samples_there else device)


# ------------------------------------------------------------------------------------------------------ features


def placed_features(setup: TrainingSetup) -> FeatureSource:
    """Return the source that a loader gathers from; collective where graph or features lie on several ranks.

    Without a budget for a cache it is that of the data set. An array that is trained on with the backend "cuda" lies
    on the device, as much of it as half of its memory or the budget holds, and the rest in memory that the device
    reads. Of other features (on a disk, on several ranks) the device keeps as many rows as the budget holds. Rows that
    are to be kept by their next use (``cache_replacement="lookahead"``) are kept in the memory of the host, whatever
    the features are.
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
    is_array = graph.host is not None and not isinstance(x, FeatureSource)
    if is_array and (_is_kept_on_device(config) or (config.backend == "cuda" and budget is None)):
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
