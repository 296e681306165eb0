"""Visits of epochs that will be run: a minibatch is a function of its key, so they are known before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spsample.backends.protocol import Int64Array
from spsample.common.checks import require_type
from spsample.features.scores.visits import EpochVisits
from spsample.sampling import Sampler
from spsample.store.base_graph import BaseGraph

__all__ = ["replay"]


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
