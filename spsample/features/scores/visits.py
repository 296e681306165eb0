"""Visits of vertices in sampled epochs: scores by them, and what locality-aware sampling changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_int, require_type
from spsample.features.scores.column_sums import PHASE
from spsample.sampling import Biased, BulkSample, Sampler
from spsample.sampling.arguments import check_arguments, require_word
from spsample.sampling.sampler import require_bool
from spsample.sampling.workload import sample_batches
from spsample.sparse import keys
from spsample.store import Graph
from spsample.store.base_graph import BaseGraph

ENTRIES_AT_ONCE = 1 << 23
"""Sampled edges of a bulk on a rank, about."""


@dataclass(frozen=True, eq=False)
class EpochVisits:
    """Epochs whose visits can be counted, with the order and the draws that a `BulkLoader` gives them.

    Attributes
    ----------
    graph, seeds, sampler, batch_size
        As of `bulk_sample`, checked.
    random_seed : int
    shuffle, drop_last : bool
        As of `BulkLoader`.
    """

    graph: BaseGraph
    seeds: Int64Array
    sampler: Sampler
    batch_size: int
    random_seed: int = 0
    shuffle: bool = True
    drop_last: bool = False

    def __post_init__(self) -> None:
        require_word("random_seed", self.random_seed)
        require_bool("shuffle", self.shuffle)
        require_bool("drop_last", self.drop_last)

    @property
    def num_batches(self) -> int:
        """Batches of an epoch, of all ranks together."""
        full, rest = divmod(len(self.seeds), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def count(self, epochs: Sequence[int]) -> Int64Array:
        """(n,) how many batches of the epochs have each vertex among their src vertices; collective on ranks.

        Examples
        --------
        >>> import spsample as sp
        >>> graph = sp.Graph.from_edge_index([[1, 2, 2, 0], [0, 0, 1, 2]], num_nodes=3)
        >>> EpochVisits(graph, np.arange(3), sp.GraphSAGE([-1]), batch_size=1).count([0, 1]).tolist()
        [4, 4, 6]
        """
        counts = np.zeros(self.graph.num_nodes, np.int64)
        for epoch in epochs:
            for bulk in self._bulks(require_word("epochs", epoch)):
                for minibatch in bulk.to_host():
                    counts[minibatch.src_nodes] += 1  # distinct within a batch
        return self.graph.comm.all_reduce(counts, phase=PHASE)

    def _bulks(self, epoch: int) -> Iterator[BulkSample]:
        """The minibatches of an epoch: first one of each rank, then as many at once as give `ENTRIES_AT_ONCE`."""
        seeds = keys.shuffle(len(self.seeds), self.random_seed, epoch) if self.shuffle else np.arange(len(self.seeds))
        ordered = self.seeds[seeds]
        first, many = 0, self.graph.comm.size
        while first < self.num_batches:
            end = min(first + many, self.num_batches)
            bulk = sample_batches(
                self.graph,
                ordered[first * self.batch_size : end * self.batch_size],
                self.sampler,
                batch_size=self.batch_size,
                random_seed=self.random_seed,
                epoch=epoch,
                first_batch=first,
            )
            yield bulk
            edges = int(self.graph.comm.all_reduce(np.array([bulk.num_edges]), "max", phase=PHASE)[0])
            many = max(ENTRIES_AT_ONCE * (end - first) // max(edges, 1), self.graph.comm.size)
            first = end


def trial_visits(
    graph: BaseGraph, seeds: Int64Array, sampler: Sampler, batch_size: int, epochs: int, random_seed: int
) -> tuple[Int64Array, int]:
    """(n,) visits of trial epochs, none of which is an epoch of `random_seed`, and the number of their batches.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 2, 0], [0, 0, 1, 2]], num_nodes=3)
    >>> counts, batches = trial_visits(graph, np.arange(3), sp.GraphSAGE([-1]), 1, epochs=2, random_seed=0)
    >>> counts.tolist(), batches
    ([4, 4, 6], 6)
    """
    epochs = require_int("epochs", epochs, minimum=1)
    trial = EpochVisits(graph, seeds, sampler, batch_size, keys.trial_seed(random_seed))
    return trial.count(range(epochs)), epochs * trial.num_batches


def presc(
    graph: BaseGraph, seeds: Int64Array, sampler: Sampler, batch_size: int, *, epochs: int = 3, random_seed: int = 0
) -> NDArray[np.float64]:
    """(n,) batches of `epochs` trial epochs that need a vertex, for any sampler.

    The trial has random numbers of its own: none of its epochs is one of training with `random_seed`.

    References
    ----------
    Yang, Tang, Song, Wang, Yin, Chen, Yu, Zhou, "GNNLab: a factored system for sample-based GNN training over GPUs",
    EuroSys 2022: pre-sampling.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 2, 0], [0, 0, 1, 2]], num_nodes=3)
    >>> sp.features.score("presc", graph, [0, 1, 2], sp.GraphSAGE([-1]), batch_size=1, epochs=2)
    array([4., 4., 6.])
    """
    counts, _ = trial_visits(graph, seeds, sampler, batch_size, epochs, random_seed)
    return counts.astype(np.float64)


def replay(
    graph: BaseGraph,
    seeds: Int64Array,
    sampler: Sampler,
    batch_size: int,
    *,
    epochs: Sequence[int],
    random_seed: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
) -> NDArray[np.float64]:
    """(n,) batches of the epochs of a `BulkLoader` that need a vertex, for any sampler: exact, no forecast.

    Parameters
    ----------
    graph, seeds, sampler, batch_size, random_seed, shuffle, drop_last
        Those of the loader.
    epochs : sequence of int
        Numbers of the epochs, such as ``range(10)``. They are sampled with their own keys, counted and thrown away.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:8,4").graph
    >>> loader = sp.BulkLoader(graph, range(64), sp.GraphSAGE([3, 3]), batch_size=16, shuffle=True)
    >>> scores = sp.features.score("replay", graph, range(64), loader.sampler, batch_size=16, epochs=[0])
    >>> int(scores.sum()) == sum(len(batch.src_nodes) for batch in loader)
    True
    """
    require_type("epochs", epochs, (Sequence, np.ndarray), "numbers of epochs, such as range(10)")
    visits = EpochVisits(graph, seeds, sampler, batch_size, random_seed, shuffle, drop_last)
    return visits.count(list(epochs)).astype(np.float64)


class DrawShift(NamedTuple):
    """The difference that `Biased` makes.

    Attributes
    ----------
    total_variation : float
        Of one draw from a row, the mean over rows as often as batches visit their vertices: the share of the
        probability that goes to other neighbours. 0 for rows that are taken whole.
    largest_total_variation : float
        The total variation of the row that changes most.
    inclusion : float
        The share of the vertices of a batch that are others: half the sum over all vertices of the difference of how
        often batches visit them, over the mean of both visits. What two trials of one sampler differ by is in it.
    rows, biased_rows : float
        Vertices of a batch whose rows are not in the set, and so are fetched: before, and with the preference.
    """

    total_variation: float
    largest_total_variation: float
    inclusion: float
    rows: float
    biased_rows: float


def draw_shift(
    graph: Graph, seeds: Any, sampler: Biased, batch_size: int, *, epochs: int = 1, random_seed: int = 0
) -> DrawShift:
    """Compare a trial of locality-aware sampling with one of the sampler that it changes.

    Parameters
    ----------
    graph : Graph
        In memory.
    seeds : array-like of int
        Of an epoch.
    sampler : Biased
    batch_size : int
        Seeds of a batch.
    epochs : int
        Trial epochs of each; none of them is one of training with `random_seed`.
    random_seed : int

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = Graph([0, 2, 2, 2], [1, 2])
    >>> shift = draw_shift(graph, [0], sp.Biased(sp.GraphSAGE([1]), [2], factor=3), batch_size=1)
    >>> shift.largest_total_variation
    0.25
    """
    require_type("graph", graph, Graph, "a Graph in memory")
    require_type("sampler", sampler, Biased, "a Biased sampler")
    ids, batch_size = check_arguments(graph, seeds, sampler, batch_size)
    epochs = require_int("epochs", epochs, minimum=1)
    seed, counts = keys.trial_seed(random_seed), []
    for drawing in (sampler.sampler, sampler):
        visits = EpochVisits(graph, ids, drawing, batch_size, seed)
        counts.append(visits.count(range(epochs)) / (epochs * max(visits.num_batches, 1)))
    plain, biased = counts
    variation = _row_variation(graph, sampler)
    total = max(float(plain.sum()), 1.0)
    is_fetched = ~sampler.members(graph.num_nodes)
    return DrawShift(
        total_variation=float(variation @ plain) / total,
        largest_total_variation=float(variation.max(initial=0.0)),
        inclusion=float(np.abs(plain - biased).sum()) / max(float(plain.sum() + biased.sum()), 1.0),
        rows=float(plain[is_fetched].sum()),
        biased_rows=float(biased[is_fetched].sum()),
    )


def _row_variation(graph: Graph, sampler: Biased) -> NDArray[np.float64]:
    """(n,) of one draw from each row, of weight w, m of it in the set: |f m / (w + (f - 1) m) - m / w|."""
    proportion = sampler.sampler.proportion(graph.weighting)
    by_weight = proportion is None or proportion.power > 0
    weights = np.ones(graph.num_edges) if graph.data is None or not by_weight else graph.data.astype(np.float64)
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    in_set = np.where(sampler.members(graph.num_nodes)[graph.indices], weights, 0.0)
    w, m = (np.bincount(rows, some, graph.num_nodes).astype(np.float64) for some in (weights, in_set))
    scaled = w + (sampler.factor - 1) * m
    before = np.divide(m, w, out=np.zeros_like(m), where=w > 0)
    after = np.divide(sampler.factor * m, scaled, out=np.zeros_like(m), where=scaled > 0)
    fewest = min((s if s > 0 else graph.num_edges + 1 for s in sampler.sizes), default=0)
    is_drawn = np.diff(graph.indptr) > (0 if sampler.replace else fewest)
    result: NDArray[np.float64] = np.where(is_drawn, np.abs(after - before), 0.0)
    return result
