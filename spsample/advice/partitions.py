"""What ranks receive in an epoch under each partition, with shuffled batches and with batches of local seeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.advice.received import Grid, MissesOf, lookahead_misses, received_bytes, static_misses
from spsample.advice.trial import Trial, Workload, default_scores, run_trial
from spsample.data import partition_vertices
from spsample.errors import MissingDependencyError
from spsample.features.score_order import hottest

__all__ = ["PartitionBytes", "partition_bytes"]

METHODS = ("ranges", "metis-seeds")
"""Partitions that are compared: those that need no more than the graph and its seeds, and spread these evenly."""

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class PartitionBytes:
    """Bytes of features that ranks receive.

    Attributes
    ----------
    method : str
        Of `partition_vertices`.
    batches : {"shuffled", "local"}
    cache : str
        "none", or how its rows are replaced.
    mean, largest : float
        Bytes of a step: of a rank on average, and of the rank that receives most.
    epoch : float
        Bytes of an epoch, of all ranks.
    """

    method: str
    batches: str
    cache: str
    mean: float
    largest: float
    epoch: float


def partition_bytes(
    workload: Workload, trial: Trial, scores: NDArray[np.float64], ranks: int, budget: float
) -> Iterator[PartitionBytes]:
    """For each partition and order of batches: without a cache, with one of the largest scores, with lookahead.

    With local seeds every rank caches by a score of its own. METIS is left out where it is not installed; so are local
    seeds where a part has none.

    Parameters
    ----------
    workload, trial : Workload, Trial
    scores : (n,)
        Of all seeds.
    ranks : int
        p; every rank holds a block row of its own (c = 1).
    budget : float
        Rows of a rank's cache over all rows.
    """
    for method in METHODS:
        try:
            parts = partition_vertices(
                workload.graph, ranks, method, seeds=workload.seeds, random_seed=workload.random_seed
            )
        except MissingDependencyError:
            continue
        grid = Grid(ranks, 1, parts, workload.row_bytes)
        shuffled = Case(method, "shuffled", [trial.batches[r::ranks] for r in range(ranks)], [scores] * ranks)
        yield from _received(workload, grid, shuffled, trial.epochs, budget)
        own = [workload.seeds[parts[workload.seeds] == part] for part in range(ranks)]
        if all(len(seeds) for seeds in own):
            trials = [run_trial(workload, trial.epochs, seeds=seeds).batches for seeds in own]
            local = Case(method, "local", trials, [default_scores(workload, seeds) for seeds in own])
            yield from _received(workload, grid, local, trial.epochs, budget)


class Case(NamedTuple):
    """Batches of each rank in one order, and its scores."""

    method: str
    order: str
    batches: list[list[Ids]]
    scores: list[NDArray[np.float64]]


def _received(workload: Workload, grid: Grid, case: Case, epochs: int, budget: float) -> Iterator[PartitionBytes]:
    """Without a cache, with one that stays, and with lookahead."""
    n = workload.graph.num_nodes
    count = int(budget * n)
    caches: dict[str, list[MissesOf]] = {"none": [static_misses(np.zeros(n, np.bool_))] * grid.ranks}
    if count:
        caches["static"] = [static_misses(_held(one, count)) for one in case.scores]
        per_rank = max(workload.bulk_size // grid.ranks, 1)
        caches["lookahead"] = [lookahead_misses(one, count, per_rank) for one in case.scores]
    steps = min(len(one) for one in case.batches)
    for name, misses in caches.items():
        found = received_bytes(grid, case.batches, misses)
        total = float(found.sum()) * steps / epochs
        yield PartitionBytes(case.method, case.order, name, float(found.mean()), float(found.max()), total)


def _held(scores: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
    held = np.zeros(len(scores), np.bool_)
    held[hottest(scores, count)] = True
    return held
