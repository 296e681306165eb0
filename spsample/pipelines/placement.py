"""Placement of the features of a run: behind a cache, in tiers on a device, or in copies on ranks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spsample.comm import collective
from spsample.common.checks import require_choice
from spsample.distributed import ProcessGrid
from spsample.errors import DataError, InputError
from spsample.features import (
    CachedFeatures,
    DeviceFeatures,
    FeatureSource,
    PartitionedFeatures,
    RoutedFeatures,
    plan_copies,
    score,
)
from spsample.features.copies import EQUAL_FOR_ALL
from spsample.features.gathering import slot_map_bytes
from spsample.features.keeper import budget_bytes, rows_within
from spsample.features.scores import score_names, usual_score
from spsample.loading.local_order import local_batches_of
from spsample.pipelines.setup import TrainingSetup
from spsample.sampling import Biased
from spsample.settings.training import TrainConfig


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
        scores = _scores(setup)
        if isinstance(features, PartitionedFeatures):
            scores[features.block_vertices()] = 0.0  # they are in this rank's memory as it is
    known = {**workload, **options} if isinstance(scores, str) else {}
    if budget == "auto" and not _is_kept_on_device(config):
        known |= workload
    return in_front(features, budget, scores, config, known)


def placed_copies(setup: TrainingSetup, grid: ProcessGrid) -> tuple[RoutedFeatures, str]:
    """Return the features with copies of rows on all ranks, by a plan, and what is expected of them; collective.

    A rank's copies are of rows that its batches need and that it does not have: not in its block of features, and with
    local batches by its own seeds, where the method takes scores that differ by rank.

    Parameters
    ----------
    setup : TrainingSetup
    grid : ProcessGrid
        Of all ranks.

    Raises
    ------
    InputError, DataError, CapacityError
        As of `plan_copies` and `RoutedFeatures`, or if the file of link costs is no matrix of numbers.
    """
    config, features, comm = setup.config, setup.features, setup.comm
    method, budget = str(config.copies), config.cache_budget
    scores = np.asarray(_scores(setup), np.float64)
    with collective(comm, call="a look at copies"):
        alpha = _link_costs(config.alpha)
        map_bytes = slot_map_bytes(features.num_rows) + features.num_rows * np.min_scalar_type(comm.size + 1).itemsize
        rows = rows_within(features, budget_bytes(budget), (map_bytes, 0))
    for_all = scores
    if "scores" in EQUAL_FOR_ALL.get(method, ()):
        for_all = comm.all_reduce(scores, phase="set-up")
    elif config.batches == "local" or isinstance(features, PartitionedFeatures):
        elsewhere = scores.copy()
        elsewhere[features.block_vertices()] = 0.0
        for_all = comm.all_gather(elsewhere, phase="set-up")
    with collective(comm, call="a plan of copies"):
        plan = plan_copies(for_all, comm.size, rows, alpha, method=method)
    routed = RoutedFeatures(features, plan, alpha, grid)
    expected = routed.expected_counts(scores)
    of_ranks = comm.all_gather(np.array([expected.hits, expected.peer_hits, expected.misses, expected.cost]))
    rows_of_ranks = np.maximum(of_ranks[:, :3].sum(axis=1), 1e-300)
    hits, peers, misses, cost = of_ranks.sum(axis=0) / rows_of_ranks.sum()
    note = (
        f"copies by {method}, {rows:,} rows on each rank: {hits:.1%} of the rows that batches need are expected here, "
        f"{peers:.1%} on other ranks, {misses:.1%} at the source; cost {cost:.3f} of all from the source, "
        f"{(of_ranks[:, 3] / rows_of_ranks).max():.3f} for the rank that pays most"
    )
    return routed, note


def biased_sampler(setup: TrainingSetup, features: Any) -> Biased:
    """Return the sampler that prefers vertices whose features this rank keeps; collective.

    Parameters
    ----------
    setup : TrainingSetup
    features : CachedFeatures or RoutedFeatures
        As they are placed.

    Raises
    ------
    InputError
        As of `Biased`, or of a sampler that draws for whole batches.
    """
    config, comm, sampler = setup.config, setup.comm, setup.sampler
    kept, factor, weights = features.cached_vertices, config.biased or 1.0, config.importance_weights
    counts = comm.all_gather(np.array([len(kept)], np.int64), phase="set-up")[:, 0]
    of_ranks = np.split(comm.all_gather_v(kept, counts, phase="set-up"), np.cumsum(counts)[:-1])
    with collective(comm, call="a preference for cached vertices"):
        if sampler.kind != "node-wise":
            given = f"{factor:g} with {sampler!r}, which draws for whole batches"
            raise InputError(argument="biased", given=given, expected="none, or a node-wise sampler, such as GraphSAGE")
        if setup.graph.comm.size == 1:  # ids are those of its part, where ranks have one each
            return Biased(sampler, kept, factor, importance_weights=weights)
        return Biased(sampler, of_ranks, factor, rank=comm.rank, importance_weights=weights)


def _scores(setup: TrainingSetup) -> NDArray[Any]:
    """(vertices,) how much the batches of this rank want each vertex; collective."""
    config, workload, options = setup.config, setup.workload, score_options(setup.config)
    with collective(setup.comm, call="a look at the score"):
        require_choice("score", config.cache_score, score_names())
    if config.batches == "local" and setup.graph.comm.size > 1:
        return _own_scores(config.cache_score, setup.parts, workload, options)
    return score(config.cache_score, **workload, **options)


def _link_costs(alpha: float | str | None) -> Any:
    """The number, or the matrix of a file."""
    if not isinstance(alpha, str):
        return alpha
    try:
        lines = Path(alpha).read_text("utf-8").splitlines()
        return np.array([line.replace(",", " ").split() for line in lines if line.strip()], np.float64)
    except (OSError, ValueError) as error:
        expected = "a number, or a text file with a row of numbers for each rank"
        raise DataError(argument="alpha", given=f"{alpha!r} ({error})", expected=expected) from error


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
