"""The budget "auto" of a cache: the memory that is left beside a loader of its batches."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spsample.comm import LocalCommunicator, collective
from spsample.comm.objects import all_gather_object
from spsample.common.memory import available_memory
from spsample.planning.features_ahead import USE_BYTES, FeaturesAhead
from spsample.planning.loader_plan import FEATURE_BATCHES, needed_by_loader
from spsample.planning.workload import Workload
from spsample.sampling.arguments import check_arguments

if TYPE_CHECKING:
    from spsample.comm import Communicator
    from spsample.features.caching.replacement import Replacement
    from spsample.features.source import FeatureSource

__all__ = ["left_beside_loader"]

RESERVE = 8
"""One part of so many of the memory is left for all else: models, gradients, other programs."""


def left_beside_loader(
    source: FeatureSource, workload: Mapping[str, Any], ranks: Communicator, replacement: Replacement
) -> int:
    """Bytes that a cache may take: what is available, less what a loader needs that gathers from it.

    That is what `BulkLoader` itself plans for these batches, with its default arguments and the cache as its features.
    An eighth of what is available is left, too. Ranks of one machine share the rest. Collective on the ranks of the
    graph and of the source.

    Parameters
    ----------
    source : FeatureSource
    workload : dict
        Graph, seeds, sampler and batch_size.
    ranks : Communicator
        Of the graph or the source.
    replacement : Replacement
        Of the cache.

    Raises
    ------
    InputError, DTypeError
        If the workload cannot be sampled.
    CapacityError
        If a few of the batches do not fit, without a cache.

    References
    ----------
    Lin et al., "PaGraph: scaling GNN training on large graphs via computation-aware caching", SoCC 2020: total less
    used less reserved memory, after a trial batch.

    Examples
    --------
    >>> import numpy as np
    >>> import spsample as sp
    >>> from spsample.features.caching.replacement import replacement_named
    >>> graph = sp.load_dataset("rmat:8,4").graph
    >>> batches = {"graph": graph, "seeds": range(64), "sampler": sp.GraphSAGE([3, 3]), "batch_size": 16}
    >>> store = sp.FeatureStore(np.zeros((256, 4), np.float32))
    >>> 0 < left_beside_loader(store, batches, graph.comm, replacement_named("static")) < available_memory()
    True
    """
    with collective(ranks, call="the checks of a trial batch"):
        seeds, batch_size = check_arguments(**workload)
    graph = workload["graph"]
    work = Workload(
        graph=graph.host if graph.is_on_device else graph,
        seeds=seeds,
        sampler=workload["sampler"],
        batch_size=batch_size,
        shuffle=True,
        prefetch=1,
        feature_batches=FEATURE_BATCHES,
        feature_bytes=4 * source.dim,
        ahead=FeaturesAhead(int(replacement.looks_ahead or source.looks_ahead), USE_BYTES),
    )
    with collective(LocalCommunicator() if graph.comm.size > 1 else ranks, call="the plan of a loader"):
        needed = needed_by_loader(work)
    with collective(ranks, call="the features of a trial batch"):
        source.gather(seeds[:batch_size])
        available = available_memory()
    everyone: list[tuple[str, int]] = all_gather_object(ranks, (socket.gethostname(), needed))
    here = [size for host, size in everyone if host == socket.gethostname()]
    return max(available * (RESERVE - 1) // RESERVE // len(here) - max(here), 0)
