"""`Trial`: a few batches of a workload that are sampled to learn what the others hold, and how long they take."""

from __future__ import annotations

import time
from dataclasses import dataclass

from spsample.planning.budget import MostEntries
from spsample.planning.bulk_counts import BulkCounts
from spsample.sampling.bulk import BulkSample
from spsample.sampling.workload import Workload

__all__ = ["Trial"]


@dataclass(frozen=True, eq=False)
class Trial:
    """Batches that were sampled.

    Attributes
    ----------
    bulk : BulkSample
    seconds : float
    """

    bulk: BulkSample
    seconds: float

    @classmethod
    def of(cls, pilots: Workload, most_entries: int | None = None) -> Trial:
        """Sample them all at once; collective on a graph of several ranks.

        Raises
        ------
        TooManyEntriesError
            If they would have more than `most_entries`.

        Examples
        --------
        >>> import numpy as np
        >>> import spsample as sp
        >>> work = Workload(sp.load_dataset("rmat:8,4").graph, np.arange(64), sp.GraphSAGE([2]), batch_size=16)
        >>> Trial.of(work.pilots(2)).counts.batches
        2
        """
        start = time.perf_counter()
        bulk = pilots.run(None if most_entries is None else MostEntries(most_entries))
        return cls(bulk, time.perf_counter() - start)

    @property
    def counts(self) -> BulkCounts:
        """Sizes that decide the memory of bulks of such batches."""
        return BulkCounts.of(self.bulk)
