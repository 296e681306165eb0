"""Pilots: a few batches of a `Workload`, sampled to see what the others hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.planning.entry_limit import MostEntries
from spsample.planning.features_ahead import NOTHING_AHEAD, FeaturesAhead
from spsample.sampling.bulk import BulkSample
from spsample.sampling.call import sample_batches
from spsample.sampling.sampler import Sampler
from spsample.sparse import keys
from spsample.store.base_graph import BaseGraph


@dataclass(frozen=True, eq=False)
class Workload:
    """Batches that are sampled: those of a call of `bulk_sample`, or of every epoch of a loader.

    Attributes
    ----------
    graph : Graph, or another that `bulk_sample` takes
    seeds : int64 array
        Checked; consecutive runs of `batch_size` make the batches, in this order or shuffled.
    sampler : Sampler
    batch_size : int
        Seeds of a batch; of fewer seeds all of them.
    edge_ids, backend
        As of `bulk_sample`.
    shuffle : bool
        Whether every epoch draws a new order.
    prefetch : int or None
        Bulks that a loader samples ahead; None for a call, while which no other bulk exists.
    feature_batches, feature_bytes : int
        How many batches hold features at a time, and the bytes of a vertex's.
    ahead : FeaturesAhead
        Features beside those of batches, and how many more bulks are sampled for them.
    """

    graph: BaseGraph
    seeds: NDArray[np.int64]
    sampler: Sampler
    batch_size: int
    edge_ids: bool = False
    backend: str | None = None
    shuffle: bool = False
    prefetch: int | None = None
    feature_batches: int = 0
    feature_bytes: int = 0
    ahead: FeaturesAhead = NOTHING_AHEAD

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_size", min(self.batch_size, max(len(self.seeds), 1)))

    @property
    def num_batches(self) -> int:
        """Batches of all seeds, the last one perhaps smaller."""
        return -(-len(self.seeds) // self.batch_size)

    def first(self, batches: int) -> Workload:
        """Only the first batches, in the order of the seeds."""
        return replace(self, seeds=self.seeds[: batches * self.batch_size])

    def pilots(self, most: int) -> Workload:
        """A call for up to `most` full batches that stand for all.

        Where epochs are shuffled, they are the first ones of a fixed order, else evenly spaced ones. They decide
        nothing but sizes, and are the same ones every time.

        Examples
        --------
        >>> import spsample
        >>> graph = spsample.Graph([0] * 10, [])
        >>> Workload(graph, np.arange(9), spsample.GraphSAGE([2]), batch_size=2).pilots(2).seeds.tolist()
        [0, 1, 6, 7]
        """
        full = len(self.seeds) // self.batch_size
        pilots = min(most, full)
        if self.shuffle:
            positions = keys.shuffle(len(self.seeds), 0, 0)[: pilots * self.batch_size]
        else:
            first = np.linspace(0, max(full - 1, 0), pilots).astype(np.int64) * self.batch_size
            positions = (first[:, None] + np.arange(self.batch_size)).ravel()
        options: dict[str, Any] = {"batch_size": self.batch_size, "edge_ids": self.edge_ids, "backend": self.backend}
        return Workload(self.graph, self.seeds[positions], self.sampler, **options)

    def sample(self, most_entries: int | None = None) -> BulkSample:
        """One bulk of all batches, collective on a graph of several ranks; it ends where it has more entries.

        Raises
        ------
        TooManyEntriesError
            If it would have more than `most_entries`.
        """
        limit = None if most_entries is None else MostEntries(most_entries)
        options: dict[str, Any] = {"batch_size": self.batch_size, "edge_ids": self.edge_ids, "backend": self.backend}
        return sample_batches(self.graph, self.seeds, self.sampler, limit=limit, **options)


__all__ = ["Workload"]
