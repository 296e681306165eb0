"""Visits of a run that was recorded: the best set of that very run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends import backend_for
from spsample.backends.protocol import Int64Array
from spsample.comm import collective
from spsample.common.checks import require_iterable
from spsample.features.scores.visits import add_visits
from spsample.sampling import Sampler
from spsample.store.base_graph import BaseGraph
from spsample.store.validation import validate_ids

__all__ = ["count_trace"]

PHASE = "scores"


def count_trace(
    graph: BaseGraph, seeds: Int64Array, sampler: Sampler, batch_size: int, *, trace: Iterable[Any]
) -> NDArray[np.float64]:
    """(n,) batches of a recorded run that needed a vertex.

    Parameters
    ----------
    graph, seeds, sampler, batch_size
        Only the number of vertices is looked at.
    trace : iterable
        For each batch of the run its minibatch, or the ids of the vertices whose features it needed; a bulk, or what a
        loader gives, too. It is read once. On several ranks each gives the batches that it had.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[1, 2, 2, 0], [0, 0, 1, 2]], num_nodes=3)
    >>> sampler = sp.GraphSAGE([-1])
    >>> bulk = sp.bulk_sample(graph, [0, 1, 2], sampler, batch_size=1)
    >>> sp.features.score("trace", graph, [0, 1, 2], sampler, batch_size=1, trace=bulk)
    array([2., 2., 3.])
    """
    counts = np.zeros(graph.num_nodes, np.int64)
    with collective(graph.comm, call="the reading of a trace"):
        for i, batch in enumerate(require_iterable("trace", trace, "minibatches, or arrays of vertex ids")):
            add_visits(counts, [_visited(batch, i, graph.num_nodes)])
    return graph.comm.all_reduce(counts, phase=PHASE).astype(np.float64)


def _visited(batch: Any, i: int, num_nodes: int) -> Int64Array:
    """Distinct vertices that a batch of the trace needed."""
    ids = getattr(batch, "src_nodes", batch)
    if hasattr(batch, "src_nodes"):
        ids = backend_for(ids).on_host(ids)
    return np.unique(validate_ids(ids, num_nodes, f"trace[{i}]"))
