"""`bulk_sample`: all minibatches of a list of seeds at once, where they fit in memory."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.errors import CapacityError
from spsample.planning.budget import BudgetedPlan, MostEntries, TooManyEntriesError
from spsample.planning.bulk_plan import out_of_memory, require_memory
from spsample.sampling.bulk import BulkSample
from spsample.sampling.sampler import Sampler
from spsample.sampling.workload import Workload
from spsample.store.base_graph import BaseGraph
from spsample.store.validation import validate_seeds


def bulk_sample(  # public
    graph: BaseGraph,
    seeds: Any,
    sampler: Sampler,
    *,
    batch_size: int,
    random_seed: int = 0,
    epoch: int = 0,
    first_batch: int = 0,
    edge_ids: bool = False,
    duplicates: str = "merge",
    backend: str | None = None,
) -> BulkSample:
    """Sample all minibatches of `seeds` at once.

    A minibatch depends on the graph, the sampler, `random_seed`, `epoch`, its batch id and its seeds only
    (`docs/law.md`): how many are sampled at once, on how many threads and by which backend never changes it.

    Parameters
    ----------
    graph : Graph
    seeds : array-like of int (any length, empty too)
        Vertex ids. Consecutive runs of `batch_size` make the batches; the last one may be shorter.
    sampler : Sampler
        `GraphSAGE`, `LADIES`, `FastGCN` or your own.
    batch_size : int
        b, seeds per batch.
    random_seed, epoch : int
        In [0, 2^64).
    first_batch : int
        Global id of the first batch, so that an epoch may be sampled in several calls.
    edge_ids : bool
        Also return each entry's position in the edges the user gave (8 bytes an entry).
    duplicates : {"merge", "error"}
        What to do with a seed repeated within one batch: sample it once (`MiniBatch.seed_inverse` leads to it), or
        refuse.
    backend : {None, "cpu", "reference", "cuda"}
        None is the fastest one of the host, and of a `DeviceGraph` "cuda". "cuda" makes a `DeviceGraph` of a `Graph`
        once, and the arrays of the bulk are then on the device (`BulkSample.to_host`).

    Returns
    -------
    BulkSample

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used; the message names it and the first bad entry.
    CapacityError
        If the bulk is known not to fit in memory or a device's memory runs out (it then says how many of its batches
        fit), if memory runs out otherwise, or if a value of a layer-wise sample is too large for its type.

    Examples
    --------
    >>> import spsample
    >>> graph = spsample.Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 1, 3]], num_nodes=4)
    >>> bulk = spsample.bulk_sample(graph, [0, 1, 3], spsample.GraphSAGE([2, 2]), batch_size=2)
    >>> len(bulk), bulk[0].seeds.tolist(), bulk[0].src_nodes.tolist()
    (2, [0, 1], [0, 1, 2, 3])
    """
    work = Workload.checked(
        graph,
        seeds,
        sampler,
        batch_size=batch_size,
        random_seed=random_seed,
        epoch=epoch,
        first_batch=first_batch,
        edge_ids=edge_ids,
        duplicates=duplicates,
        backend=backend,
        as_ids=validate_seeds,
    )
    return _run(work)


def _run(work: Workload) -> BulkSample:
    """The bulk of a workload, where it fits in memory."""
    require_memory(work)
    try:
        return work.run()
    except CapacityError as error:
        raise out_of_memory(work, error) from error.__cause__


def sample_within(
    plan: BudgetedPlan | None, graph: BaseGraph, seeds: NDArray[np.int64], sampler: Sampler, **options: Any
) -> Generator[BulkSample, None, None]:
    """The minibatches of `seeds` as bulks: one, or more where it would have more entries than the plan allows.

    Parameters
    ----------
    plan : BulkPlan, RankPlan or None
        None: no limit.
    graph, seeds, sampler, options
        As of `bulk_sample`, and `batch_ptr` as of `spsample.sampling.workload.Workload.checked`.

    Yields
    ------
    BulkSample

    Raises
    ------
    CapacityError
        If a single batch has more entries.
    """
    yield from _within(plan, Workload.checked(graph, seeds, sampler, **options))


def _within(plan: BudgetedPlan | None, work: Workload) -> Generator[BulkSample, None, None]:
    batches = work.num_batches
    most = None if plan is None else plan.most_entries(batches)
    if most is None:
        yield _run(work)
        return
    try:
        bulk = work.run(MostEntries(most))
    except TooManyEntriesError:
        half = batches // 2
        if half == 0:
            raise CapacityError(
                argument="memory_budget",
                given=f"batch {work.first_batch}, with more than {most} sampled edges",
                expected="batches that fit in the memory budget one at a time",
                hint="Give more memory, or use smaller batches, fanouts or layer sizes.",
            ) from None
        yield from _within(plan, work.part(0, half))
        yield from _within(plan, work.part(half, batches))
        return
    yield bulk
