"""Where the features of a factored run lie: a rank that samples keeps the graph, too, and caches fewer rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.common.memory import available_memory
from spsample.common.units import format_bytes, require_bytes
from spsample.features import score
from spsample.features.budget import left_beside_loader, rows_beside
from spsample.features.caching.replacement import replacement_named
from spsample.training.loaders import QUEUE_MEMORY
from spsample.training.placing import in_front, placed_features, score_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from spsample.data import Dataset
    from spsample.features import FeatureSource
    from spsample.sampling import Sampler
    from spsample.settings.training import TrainConfig
    from spsample.store.base_graph import BaseGraph

__all__ = ["PlacedByRole", "placed_by_role"]


@dataclass(frozen=True)
class PlacedByRole:
    """Makes the source that a rank gathers from, by whether it samples.

    Attributes
    ----------
    trainer, sampler : function
        Make the source of a rank of that role, which is not collective.
    remark : str
        What a rank that samples caches; nothing where roles make no difference.
    """

    trainer: Callable[[], FeatureSource]
    sampler: Callable[[], FeatureSource]
    remark: str = ""

    def __call__(self, samples: bool) -> FeatureSource:
        """The source of a rank that samples, or of one that trains only."""
        return self.sampler() if samples else self.trainer()


def placed_by_role(
    features: FeatureSource, dataset: Dataset, graph: BaseGraph, sampler: Sampler, config: TrainConfig
) -> PlacedByRole:
    """Return where ranks of a factored run gather from; collective: they score vertices and look at memory together.

    A rank that samples keeps the graph, too: its cache has what is left of the budget; with ``"auto"`` what memory its
    queue leaves. Where that is less than a row, or where it never trains, it has none.

    Parameters
    ----------
    features, dataset, graph, sampler, config
        As of `placed_features`.

    Raises
    ------
    InputError
        If vertices cannot be scored so.
    """
    if config.cache_budget is None or config.backend == "cuda":
        placed = placed_features(features, dataset, graph, sampler, config)
        return PlacedByRole(lambda: placed, lambda: placed)
    workload: dict[str, Any] = {
        "graph": graph,
        "seeds": dataset.train_idx,
        "sampler": sampler,
        "batch_size": config.batch_size,
    }
    budget, taken, by_what = _budget(features, workload, config)
    left = max(budget - taken, 0) if config.switches else 0
    map_bytes = replacement_named(config.cache_replacement).map_bytes(features.num_rows, features.stored_row_bytes)
    kept = rows_beside(features, left, map_bytes)
    is_chosen = np.array([rows_beside(features, budget, map_bytes) < features.num_rows or 0 < kept < features.num_rows])
    scores: Any = np.zeros(features.num_rows)
    if graph.comm.all_reduce(is_chosen.astype(np.int64), "max", phase="set-up")[0]:
        scores = score(config.cache_score, **workload, **score_options(config))

    is_measured = config.cache_budget == "auto"

    def cache_of(size: int, is_asked_for: bool) -> FeatureSource:
        size = min(size, available_memory()) if is_measured else size  # less may be left by now
        if not is_asked_for and rows_beside(features, size, map_bytes) == 0:
            return features
        return in_front(features, size, scores, config, {})

    remark = ""
    if config.switches:
        has = f"{format_bytes(left)} for its cache" if kept else "no cache"
        remark = f"a rank that samples has {has}: {by_what} takes {format_bytes(taken)} of {format_bytes(budget)}"
    return PlacedByRole(lambda: cache_of(budget, not is_measured), lambda: cache_of(left, False), remark)


def _budget(features: FeatureSource, workload: dict[str, Any], config: TrainConfig) -> tuple[int, int, str]:
    """Bytes for a cache, how many of them a rank that samples needs otherwise, and for what."""
    graph = workload["graph"]
    if config.cache_budget == "auto":  # measured beside the graph
        queue = require_bytes("queue_memory", config.queue_memory or QUEUE_MEMORY)
        replacement = replacement_named(config.cache_replacement)
        return left_beside_loader(features, workload, graph.comm, replacement), queue, "the queue"
    graph_bytes = 0 if graph.host is None else graph.host.nbytes
    return require_bytes("cache_budget", config.cache_budget), graph_bytes, "the graph"
