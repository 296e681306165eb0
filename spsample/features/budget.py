"""Rows that a cache in the memory of the host keeps: as many as fit in its budget, or beside a loader."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from spsample.comm import LocalCommunicator, collective
from spsample.comm.objects import all_gather_object
from spsample.common.checks import require_int
from spsample.common.memory import available_memory
from spsample.common.units import format_bytes, require_bytes
from spsample.errors import CapacityError, InputError
from spsample.planning.buffers import USE_BYTES, Buffers, FeaturesAhead
from spsample.planning.loader_plan import FEATURE_BATCHES, needed_by_loader
from spsample.sampling.arguments import check_arguments
from spsample.sampling.workload import Workload

if TYPE_CHECKING:
    from spsample.comm import Communicator
    from spsample.features.caching.replacement import ChosenRows
    from spsample.features.keeper import KeptRows
    from spsample.features.source import FeatureSource

RESERVE = 8
"""One part in so many of the memory is left for all else: models, gradients, other programs."""


def budget_bytes(budget: Any) -> int:
    """Return the budget of a cache in bytes; 0 is one, too.

    Raises
    ------
    InputError, DTypeError
        If it is no amount of memory.

    Examples
    --------
    >>> budget_bytes("2KiB"), budget_bytes(0)
    (2048, 0)
    """
    return require_bytes("budget", budget) if isinstance(budget, str) else require_int("budget", budget, minimum=0)


def rows_within(source: FeatureSource, budget: int, map_bytes: tuple[int, int]) -> int:
    """Return the number of rows that a cache of the source keeps within a budget in bytes, the map included.

    `map_bytes` are those of the map: for all vertices, and beside each row.

    Raises
    ------
    InputError
        If the budget is above 0, and less than one row and the map.
    CapacityError
        If so much memory is not available.

    Examples
    --------
    >>> import numpy as np
    >>> from spsample.features.memory import FeatureStore
    >>> rows_within(FeatureStore(np.ones((100, 4), np.float32)), 832, (32, 0))
    50
    """
    row_bytes, (of_all, of_each) = source.stored_row_bytes, map_bytes
    count = rows_beside(source, budget, map_bytes)
    if count < min(budget, source.num_rows, 1):
        expected = f"0, or at least one row of {row_bytes + of_each} bytes and {of_all} bytes for the map"
        raise InputError(argument="budget", given=format_bytes(budget), expected=expected)
    size = count * row_bytes
    require_available("budget", size, lambda: f"{format_bytes(budget)}, which {format_bytes(size)} of rows would take")
    return count


def require_available(argument: str, size: int, given: Callable[[], str]) -> None:
    """Refuse what takes more bytes than are available.

    Raises
    ------
    CapacityError
    """
    free = available_memory()
    if size > free:
        expected = f"at most the {format_bytes(free)} that are available"
        raise CapacityError(argument=argument, given=given(), expected=expected)


def rows_beside(source: FeatureSource, free: int, map_bytes: tuple[int, int]) -> int:
    """Return the number of rows that a cache of the source keeps in free memory, with the map; 0 where none fits.

    Examples
    --------
    >>> import numpy as np
    >>> from spsample.features.memory import FeatureStore
    >>> store = FeatureStore(np.ones((100, 4), np.float32))
    >>> rows_beside(store, 832, (32, 0)), rows_beside(store, 10, (32, 0))
    (50, 0)
    """
    row_bytes, (of_all, of_each) = source.stored_row_bytes, map_bytes
    if free > 0 and free >= source.num_rows * row_bytes:
        return source.num_rows
    return max(free - of_all, 0) // max(row_bytes + of_each, 1)


def left_beside_loader(
    source: FeatureSource, workload: Mapping[str, Any], ranks: Communicator, replacement: type[KeptRows | ChosenRows]
) -> int:
    """Return the bytes that a cache may take: those available, less what a loader needs that gathers from it.

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
    replacement : class of rows
        Of the cache: see `replacement_named`.

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
    )
    buffers = Buffers(
        prefetch=1,
        feature_batches=FEATURE_BATCHES,
        feature_bytes=4 * source.dim,
        ahead=FeaturesAhead(int(replacement.may_look_ahead or source.looks_ahead), USE_BYTES),
    )
    with collective(LocalCommunicator() if graph.comm.size > 1 else ranks, call="the plan of a loader"):
        needed = needed_by_loader(work, buffers)
    with collective(ranks, call="the features of a trial batch"):
        source.gather(seeds[:batch_size])
        available = available_memory()
    everyone: list[tuple[str, int]] = all_gather_object(ranks, (socket.gethostname(), needed))
    here = [size for host, size in everyone if host == socket.gethostname()]
    return max(available * (RESERVE - 1) // RESERVE // len(here) - max(here), 0)
