"""The difference between locality-aware sampling and the sampler that it changes, and the rows that it saves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import require_int, require_type
from spsample.features.scores.visits import EpochVisits
from spsample.sampling import Biased
from spsample.sampling.arguments import check_arguments
from spsample.sparse import keys
from spsample.store import Graph


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
