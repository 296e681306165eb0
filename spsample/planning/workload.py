"""Pilots: a few batches of a `Workload`, sampled to see what the others hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spsample.planning.entry_limit import MostEntries
from spsample.planning.features_ahead import NOTHING_AHEAD, FeaturesAhead
from spsample.sampling.bulk import BulkSample
from spsample.sampling.call import sample_batches
from spsample.sampling.sampler import Sampler
from spsample.sparse import keys
from spsample.store.base_graph import BaseGraph


class SharedBulk(Protocol):
    """What a rank has of minibatches that ranks share: an iterable of these.

    Attributes
    ----------
    nbytes : int
        Bytes of their arrays.
    """

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


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
    batch_ptr : int64 array (num_batches + 1,) or None
        Where batches of several sizes begin among the seeds, and the last ends. Pilots are then the first of them.
    ahead : FeaturesAhead
        Features beside those of batches, and how many more bulks are sampled for them.
    share : function or None
        What a rank has of a bulk once ranks have shared out its batches, collective; None where each keeps its own.
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
    batch_ptr: NDArray[np.int64] | None = None
    ahead: FeaturesAhead = NOTHING_AHEAD
    share: Callable[[BulkSample], SharedBulk] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_size", min(self.batch_size, max(len(self.seeds), 1)))

    @property
    def num_batches(self) -> int:
        """Batches of all seeds, the last one perhaps smaller."""
        return -(-len(self.seeds) // self.batch_size) if self.batch_ptr is None else len(self.batch_ptr) - 1

    def first(self, batches: int) -> Workload:
        """Only the first batches, in the order of the seeds."""
        if self.batch_ptr is None:
            return replace(self, seeds=self.seeds[: batches * self.batch_size])
        bounds = self.batch_ptr[: batches + 1]
        return replace(self, seeds=self.seeds[: bounds[-1]], batch_ptr=bounds)

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
        options: dict[str, Any] = {"batch_size": self.batch_size, "edge_ids": self.edge_ids, "backend": self.backend}
        if self.batch_ptr is not None:
            first = self.first(most)
            return Workload(self.graph, first.seeds, self.sampler, **options, batch_ptr=first.batch_ptr)
        full = len(self.seeds) // self.batch_size
        pilots = min(most, full)
        if self.shuffle:
            positions = keys.shuffle(len(self.seeds), 0, 0)[: pilots * self.batch_size]
        else:
            starts = np.linspace(0, max(full - 1, 0), pilots).astype(np.int64) * self.batch_size
            positions = (starts[:, None] + np.arange(self.batch_size)).ravel()
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
        return sample_batches(self.graph, self.seeds, self.sampler, limit=limit, batch_ptr=self.batch_ptr, **options)


__all__ = ["SharedBulk", "Workload"]
