"""The loader of a training run, by its pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spsample.loading import BulkLoader
from spsample.loading.factored import FactoredLoader

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from numpy.typing import ArrayLike

    from spsample.data import Dataset
    from spsample.features import FeatureSource
    from spsample.sampling import Sampler
    from spsample.settings.training import TrainConfig
    from spsample.store.base_graph import BaseGraph
    from spsample.timeline import Timeline

__all__ = ["loader_for"]

QUEUE_MEMORY = "1GiB"
"""Of a sampler, where none is given."""

ASYNCHRONOUS_BATCHES = 16
"""Batches of a step for each rank, where they are trained asynchronously."""


def loader_for(
    dataset: Dataset,
    graph: BaseGraph,
    sampler: Sampler,
    config: TrainConfig,
    features: FeatureSource | Callable[[bool], FeatureSource],
    parts: ArrayLike | None,
    timeline: Timeline | None = None,
    device: torch.device | None = None,
) -> BulkLoader | FactoredLoader:
    """Make the loader of the train vertices; collective on several ranks.

    Parameters
    ----------
    dataset : Dataset
    graph : BaseGraph
        That batches are sampled from.
    sampler : Sampler
    config : TrainConfig
    features : FeatureSource or function
        That they get their rows from; of a factored pipeline by the role of the rank, as of `FactoredLoader`.
    parts : array-like (vertices,), optional
    timeline : Timeline, optional
    device : torch.device, optional
        As of `BulkLoader`.

    Raises
    ------
    InputError, CapacityError
        As of the loader.
    """
    common: dict[str, Any] = {
        "bulk_size": config.bulk_size,
        "memory_budget": config.memory_budget,
        "features": features,
        "random_seed": config.random_seed,
        "backend": config.backend,
        "device": device,
        "timeline": timeline,
    }
    if config.pipeline == "factored":
        return FactoredLoader(
            graph,
            dataset.train_idx,
            sampler,
            batch_size=config.batch_size,
            sampler_ranks=config.sampler_ranks or 1,
            step_batches=config.step_batches or _step_batches(graph.comm.size, config),
            queue_memory=config.queue_memory or QUEUE_MEMORY,
            switches=config.switches,
            **common,
        )
    return BulkLoader(
        graph,
        dataset.train_idx,
        sampler,
        batch_size=config.batch_size * (graph.comm.size if config.shares_batches else 1),
        prefetch=0 if config.pipeline == "sync" else config.prefetch,
        batches="cooperative" if config.shares_batches else config.batches,
        parts=parts,
        fetch=config.fetch,
        prefetch_budget=config.prefetch_budget,
        stage_threads=config.stage_threads,
        **common,
    )


def _step_batches(ranks: int, config: TrainConfig) -> int:
    """As many as ranks; where these meet after a step alone, more."""
    return ranks if config.staleness is None else ASYNCHRONOUS_BATCHES * ranks
