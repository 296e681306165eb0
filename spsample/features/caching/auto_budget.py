"""The budget "auto" of a cache: the memory that is left beside a trial batch, and batches like it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.comm import collective
from spsample.comm.objects import all_gather_object
from spsample.common.memory import available_memory
from spsample.sampling.arguments import check_arguments
from spsample.sampling.call import sample_batches
from spsample.sparse import keys

if TYPE_CHECKING:
    from spsample.backends.protocol import Int64Array
    from spsample.comm import Communicator
    from spsample.features.protocol import FeatureSource
    from spsample.sampling import BulkSample, Sampler
    from spsample.store.base_graph import BaseGraph

__all__ = ["left_beside_batches"]

BATCHES = 192
"""Batches for which memory is left: three bulks of 64, as a loader has them that samples one ahead."""

FEATURE_BATCHES = 4
"""Batches of a loader that hold features at a time."""

RESERVE = 8
"""One part of so many of the memory is left for all else: models, gradients, other programs."""


def left_beside_batches(source: FeatureSource, workload: Mapping[str, Any], ranks: Communicator) -> int:
    """Bytes that a cache may take: what is available while a trial batch is there, less what batches take.

    A batch of each rank is sampled, and its features gathered. Memory is left for 192 batches like it, the features of
    4 and an eighth of what is available. Ranks of one machine share what is left. Collective on the ranks of the graph
    and of the source.

    Parameters
    ----------
    source : FeatureSource
    workload : dict
        Graph, seeds, sampler and batch_size.
    ranks : Communicator
        Of the graph or the source.

    Raises
    ------
    InputError, DTypeError
        If the workload cannot be sampled.

    References
    ----------
    Lin et al., "PaGraph: scaling GNN training on large graphs via computation-aware caching", SoCC 2020: total less
    used less reserved memory, after a trial batch.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:8,4").graph
    >>> batches = {"graph": graph, "seeds": range(64), "sampler": sp.GraphSAGE([3, 3]), "batch_size": 16}
    >>> store = sp.FeatureStore(np.zeros((256, 4), np.float32))
    >>> 0 < left_beside_batches(store, batches, graph.comm) < available_memory()
    True
    """
    with collective(ranks, call="the checks of a trial batch"):
        ids, size = check_arguments(**workload)
    bulk = _trial(workload["graph"], ids, workload["sampler"], size)
    ids = np.concatenate([minibatch.src_nodes for minibatch in bulk.to_host()] or [np.zeros(0, np.int64)])
    with collective(ranks, call="the features of a trial batch"):
        rows = source.gather(ids)
        available = available_memory()
    sizes: list[Any] = all_gather_object(ranks, (socket.gethostname(), _bytes_of(bulk), int(rows.nbytes)))
    here = [one for host, *one in sizes if host == socket.gethostname()]
    batch, features = (int(max(one)) for one in zip(*here, strict=True))
    needed = BATCHES * batch + FEATURE_BATCHES * features
    return max(available * (RESERVE - 1) // RESERVE // len(here) - needed, 0)


def _trial(graph: BaseGraph, seeds: Int64Array, sampler: Sampler, batch_size: int) -> BulkSample:
    """The first batch of each rank in an epoch that is none of the training's."""
    random_seed = keys.trial_seed(0)
    first = keys.shuffle(len(seeds), random_seed, 0)[: batch_size * graph.comm.size]
    return sample_batches(graph, seeds[first], sampler, batch_size=batch_size, random_seed=random_seed)


def _bytes_of(bulk: BulkSample) -> int:
    """Bytes of all arrays of a bulk."""
    arrays = (getattr(layer, name) for layer in bulk.layers for name in ("src", "indptr", "indices", "data"))
    return sum(int(array.nbytes) for array in arrays if array is not None)
