"""Data, ranks and devices of a run, and where its features lie: behind a cache, or in tiers on a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from spsample.comm import Communicator, collective
from spsample.common.checks import require_choice, require_type
from spsample.data import Dataset, Part
from spsample.data.part_stores import require_part_of, require_reach
from spsample.errors import InputError
from spsample.features import CachedFeatures, DeviceFeatures, FeatureSource, FeatureStore, PartitionedFeatures, score
from spsample.features.scores import score_names, usual_score
from spsample.loading.copies import require_device
from spsample.loading.local_order import local_batches_of
from spsample.nn.blocks import BlockMaker
from spsample.nn.tensors import as_tensor, device_of
from spsample.sampling import Sampler
from spsample.settings.training import PIPELINES, TrainConfig
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
    comm : Communicator
        All ranks, also of a rank that samples its own part without the others.
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
    comm: Communicator
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

    def on_part(self, part: Part) -> TrainingSetup:
        """Return the set-up of a rank that trains on its own part of the data set; collective.

        Its random numbers are its own: else all ranks would take their vertices in the same order.

        Raises
        ------
        InputError
            On every rank, if a part is one of other data, has fewer hops than there are layers, or does not go with
            the settings.
        """
        config, comm = self.config, self.comm
        with collective(comm, call="a look at the parts"):
            require_type("part", part, Part, "a Part, as of read_part or part_dataset")
            own, ids = part.dataset, part.original_ids
            require_reach(own, self.sampler)
            require_part_of(part, self.dataset)
            _require_on_parts(config, self.parts)
            x: Any = own.x
            features = x if isinstance(x, FeatureSource) else FeatureStore(x)
            some = np.linspace(0, len(ids) - 1, num=min(64, len(ids))).astype(np.int64)
            mine = as_tensor(features.gather(some)).cpu().numpy()
        seeds = int(comm.all_reduce(np.array([len(own.train_idx)], np.int64), phase="set-up")[0])
        theirs = as_tensor(self.features.gather(ids[some])).cpu().numpy()
        with collective(comm, call="a look at the parts"):
            expected, hint = f"those of {self.dataset.name!r}", "Make the parts of this data set, split and scaling."
            if seeds != len(self.dataset.train_idx):
                given = f"parts with {seeds} train vertices of {len(self.dataset.train_idx)}"
                raise InputError(argument="parts", given=given, expected=expected, hint=hint)
            if self.features.stored_dtype == features.stored_dtype and not np.array_equal(mine, theirs):
                given = f"part {own.meta.get('part')} with other features"
                raise InputError(argument="parts", given=given, expected=expected, hint=hint)
        return replace(
            self,
            dataset=own,
            features=features,
            graph=own.graph if self.graph is self.dataset.graph else own.graph.normalized("row"),
            config=replace(config, random_seed=_seed_of(config.random_seed, comm.rank)),
            blocks=self.blocks.of_part(ids),
        )


def _require_on_parts(config: TrainConfig, parts: ArrayLike | None) -> None:
    """Refuse settings that do not go with a part of its own on each rank."""
    possible = [name for name, rules in PIPELINES.items() if rules.on_parts]
    if config.pipeline not in possible:
        given, expected = f"{config.pipeline!r} with a part for each rank", " or ".join(map(repr, possible))
        raise InputError(argument="pipeline", given=given, expected=expected)
    if config.batches != "shuffled" or parts is not None:
        given, expected = f"{config.batches!r} with a part for each rank", "'shuffled': of the seeds of its part"
        raise InputError(argument="batches", given=given, expected=expected)


def _seed_of(random_seed: int, rank: int) -> int:
    """Return the random seed of one rank's part."""
    words = b"".join(number.to_bytes(8, "little") for number in (random_seed, rank))
    return int.from_bytes(sha256(words).digest()[:8], "little")


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


def device_for(config: TrainConfig, comm: Communicator, *, samples_there: bool = False) -> Devices:
    """Return the device of the settings, and whether batches have to be copied there: not where they are made there.

    Parameters
    ----------
    config : TrainConfig
        Its ``device`` and ``backend``.
    comm : Communicator
        The ranks.
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
    >>> from spsample.comm import LocalCommunicator
    >>> from spsample.training import TrainConfig
    >>> device_for(TrainConfig(device="cpu"), LocalCommunicator())
    Devices(model=device(type='cpu'), batches=device(type='cpu'))
    """
    name = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else None
    if name is None:
        return Devices(device_of(config.backend), None)
    device = require_device("device", name)
    if comm.name == "nccl" and device.type == "cuda" and device.index != torch.cuda.current_device():
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
