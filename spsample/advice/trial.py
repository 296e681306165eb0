"""Trials: which vertices the batches of some epochs need, none of which is an epoch of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.features import score
from spsample.features.scores import usual_score
from spsample.loading import BulkLoader
from spsample.sampling import Sampler
from spsample.sparse import keys
from spsample.store import Graph

__all__ = ["Trial", "Workload", "default_scores", "run_trial"]

Ids = NDArray[np.int64]
MOST_IDS = 1 << 27
"""Vertices that a trial keeps, of all batches together; it ends after the epoch that passes it."""


@dataclass(frozen=True, eq=False)
class Workload:
    """What is sampled: the arguments of a loader.

    Attributes
    ----------
    graph : Graph
        In memory, or a memory map.
    seeds : int64 array
        Of an epoch.
    sampler : Sampler
    batch_size : int
    row_bytes : int
        Bytes of a row of features.
    bulk_size : int
        Batches that are sampled at once: what lookahead knows.
    random_seed : int
        Of training: trials draw by seeds of their own.
    """

    graph: Graph
    seeds: Ids
    sampler: Sampler
    batch_size: int
    row_bytes: int
    bulk_size: int = 64
    random_seed: int = 0


class Trial(NamedTuple):
    """The batches of a trial.

    Attributes
    ----------
    batches : list of int64 arrays
        The src vertices of each batch, in the order of the epochs.
    epochs : int
        How many epochs these are.
    num_edges : int
        Sampled edges of all batches.
    """

    batches: list[Ids]
    epochs: int
    num_edges: int

    @property
    def num_rows(self) -> int:
        """Rows that all batches need, one by one."""
        return sum(len(batch) for batch in self.batches)

    def counts(self, num_nodes: int) -> Ids:
        """(num_nodes,) how many batches need each vertex."""
        counts = np.zeros(num_nodes, np.int64)
        for batch in self.batches:
            counts[batch] += 1
        return counts


def run_trial(workload: Workload, epochs: int, *, seeds: Ids | None = None, sampler: Sampler | None = None) -> Trial:
    """Sample some epochs and keep what their batches need.

    The epochs are others than those of training, and than those that the scores `presc` and `posterior` count by
    themselves: what is forecast is not measured on what chose the cache.

    Parameters
    ----------
    workload : Workload
    epochs : int
        At most; a trial of very many vertices ends earlier.
    seeds, sampler : optional
        In place of those of the workload.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph([0, 1, 2], [1, 0])
    >>> trial = run_trial(Workload(graph, np.array([0, 1]), sp.GraphSAGE([-1]), 1, row_bytes=4), epochs=2)
    >>> trial.epochs, len(trial.batches), trial.num_rows, trial.counts(2).tolist()
    (2, 4, 8, [4, 4])
    """
    loader = BulkLoader(
        workload.graph,
        workload.seeds if seeds is None else seeds,
        workload.sampler if sampler is None else sampler,
        batch_size=workload.batch_size,
        bulk_size=workload.bulk_size,
        random_seed=keys.trial_seed(keys.trial_seed(workload.random_seed)),
        prefetch=0,
    )
    batches: list[Ids] = []
    num_edges = rows = epoch = 0
    while epoch < epochs and rows < MOST_IDS:
        for bulk in loader.bulks(epoch):
            num_edges += bulk.num_edges
            batches += [np.array(batch.src_nodes, np.int64) for batch in bulk]
            rows += sum(len(batch.src_nodes) for batch in bulk)
        epoch += 1
    return Trial(batches, epoch, num_edges)


def default_scores(workload: Workload, seeds: Ids | None = None) -> NDArray[np.float64]:
    """Return (n,) the scores that a cache takes unless told otherwise, for all seeds or for some."""
    return score(
        usual_score(workload.graph, workload.sampler),
        workload.graph,
        workload.seeds if seeds is None else seeds,
        workload.sampler,
        workload.batch_size,
        random_seed=workload.random_seed,
    )
