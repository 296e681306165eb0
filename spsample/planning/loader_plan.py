"""`plan_bulk` and `plan_loader`: memory predicted from pilots, on every rank too, and how many batches a bulk gets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spsample.backends import get_backend
from spsample.common.checks import require_int, require_type, short
from spsample.common.units import format_bytes, require_bytes
from spsample.errors import InputError
from spsample.planning.budget import MAX_BATCHES, BudgetedPlan, Buffers
from spsample.planning.bulk_counts import BulkCounts, Trial, most_counts
from spsample.planning.bulk_plan import (
    AVAILABLE_SHARE,
    BulkPlan,
    available_bytes,
    default_budget,
    first_fitting,
    plan_of,
)
from spsample.planning.scratch import CALL_BYTES, device_scratch
from spsample.sampling.arguments import check_arguments
from spsample.sampling.sampler import Sampler, require_bool
from spsample.sampling.workload import Workload

PILOTS_PER_RANK = 2
MARGIN = 1.5  # factor of the largest pilot: batches differ, and blocks of memory are larger than their arrays
WORKING_COPIES = 2  # copies of a bulk's arrays while it is made: requests, answers and stacked arrays


@dataclass(frozen=True)
class RankPlan(BudgetedPlan):
    """Memory of bulks on the rank that has least, predicted from a bulk of pilot batches.

    It is simpler than `spsample.planning.BulkPlan`: arrays of the largest pilot batch, with a margin, once for each
    bulk that exists at a time and twice more while one is made. Where ranks share each batch, these are the arrays
    that a rank has of it, and those of the batches that it samples come on top. Nothing is capped while it is sampled.

    Attributes
    ----------
    memory_budget : int
        Bytes of the rank that has least.
    batch_size : int
        Seeds of a batch.
    bytes_per_batch : int
        Bytes of the arrays of the largest pilot batch of all ranks, margin included. Where ranks share batches: what
        the rank that has most has of p mean ones.
    copies : int
        How many times these exist at a time.
    fixed_bytes : int
        For features of batches that are ready.
    ranks : int
        p.
    sources : int
        Vertices whose features the largest pilot batch of all ranks needs, margin included; of p shared batches.
    sampled_bytes : int
        Bytes of the arrays of the largest pilot batch before ranks share it out, margin included; 0 where they do not.
    """

    bytes_per_batch: int
    copies: int
    fixed_bytes: int
    ranks: int
    sources: int = 0
    sampled_bytes: int = 0

    _single_batches = "one batch at a time on each rank"

    @property
    def bulk_size(self) -> int:
        """The largest number of batches of a bulk over all ranks; 0 where a batch per rank does not fit."""
        return self.largest(MAX_BATCHES) // self.ranks * self.ranks

    def peak(self, bulk_size: int) -> int:
        """Bytes of a rank at the peak with bulks of `bulk_size` batches over all ranks."""
        features = self.ahead.nbytes(self.sources_of(bulk_size))
        batches = -(-bulk_size // self.ranks)
        return self.fixed_bytes + features + (self.copies * self.bytes_per_batch + self.sampled_bytes) * batches

    def sources_of(self, bulk_size: int) -> int:
        """Vertices of a rank whose features its batches of a bulk need, margin included."""
        return self.sources * -(-bulk_size // self.ranks)

    def most_entries(self, batches: int) -> None:
        """Nothing limits the entries of a bulk on several ranks."""
        return

    @property
    def _budget(self) -> str:
        return f"{format_bytes(self.memory_budget)} of the rank that has least"


def plan_ranks(work: Workload, buffers: Buffers, memory_budget: int | None) -> RankPlan:
    """Sample two batches per rank, and predict from the largest; collective, the same plan on every rank.

    A replicated graph on devices is planned with their free memory.
    """
    comm = work.graph.comm
    bulk = Trial.of(work.pilots(PILOTS_PER_RANK * comm.size)).bulk
    host = work.graph.host
    device = host.to_device("cuda") if work.backend == "cuda" and host is not None else None
    budget = default_budget(device) if memory_budget is None else memory_budget
    each, id_bytes = list(BulkCounts.of_each(bulk)), bulk.layers[0].src.itemsize
    sampled = max((counts.result_bytes(id_bytes) for counts in each), default=0)
    sources = max((counts.layers[0].sources for counts in each), default=0)
    copies = 1 + buffers.finished + WORKING_COPIES
    if device is not None and len(bulk):
        scratch = device_scratch(device, BulkCounts.of(bulk)) - CALL_BYTES
        sampled += scratch // (copies * len(bulk))  # it exists once
    kept, per_step, before = sampled, sources, 0
    if buffers.share is not None:
        shared = buffers.share(bulk)
        kept = -(-shared.nbytes * comm.size // max(len(shared), 1))  # what a rank has of p batches
        sources = max((len(batch.src_nodes) for batch in shared), default=0)
        per_step, before = comm.size * sources, sampled
    own = np.array([-budget, kept, before, sources * buffers.feature_bytes, per_step], np.int64)
    least, kept, before, features, per_step = comm.all_reduce(own, "max", phase="set-up").tolist()
    return RankPlan(
        memory_budget=-least,
        batch_size=work.largest_batch,
        bytes_per_batch=int(MARGIN * kept),
        copies=copies,
        fixed_bytes=int(MARGIN * buffers.feature_batches * features),
        ranks=comm.size,
        sources=int(MARGIN * per_step),
        ahead=buffers.ahead,
        sampled_bytes=int(MARGIN * before),
    )


PILOT_SHARE, MIN_PILOTS, MAX_PILOTS = 1 / 16, 2, 32  # share of the batches of an epoch, and numbers of batches
MAX_AHEAD = 64  # bulks that a loader samples ahead: each is kept in memory

FEATURE_BATCHES = 4
"""Batches of a loader that hold features: two gathered ahead, the one in use, and the next while it takes its place.
Or as many chunks of small ones."""

USUAL_BULK_SIZE = 64
"""Batches of a bulk by default."""

BULKS_PER_EPOCH = 8
"""At least, where the bulk size is chosen here and bulks are made ahead: sampling and the loop can then overlap."""


def plan_bulk(
    graph: Any,
    seeds: Any,
    sampler: Sampler,
    *,
    batch_size: int,
    memory_budget: int | str | None = None,
    prefetch: int = 0,
    edge_ids: bool = False,
    features: tuple[int, int] = (0, 0),
    shuffle: bool = True,
    backend: str | None = None,
) -> BulkPlan:
    """Predict what bulks take, from a few batches that are sampled for it.

    The pilots are one batch in 16 of an epoch, at least 2 and at most 32: the first ones of a fixed order, or evenly
    spaced ones where seeds come in the order given. They decide nothing but sizes, and equal calls give equal plans.

    Parameters
    ----------
    graph, seeds, sampler, batch_size, edge_ids, backend
        As of `bulk_sample`, with the seeds of a whole epoch.
    memory_budget : int, str or None
        Bytes, or such as "2GiB"; None is half of what is available.
    prefetch : int
        Bulks that a loader samples ahead. One finished bulk at least exists while one is made: in a loop the last one
        is in use until the next is there.
    features : (int, int)
        How many batches hold features at a time, and the bytes of a vertex's.
    shuffle : bool
        Whether epochs shuffle the seeds.

    Returns
    -------
    BulkPlan

    Raises
    ------
    CapacityError
        If not even single batches fit.
    InputError, DTypeError
        If an argument cannot be used.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:10,8").graph
    >>> plan = plan_bulk(graph, range(1024), sp.GraphSAGE([5, 5]), batch_size=64, memory_budget="64MiB")
    >>> plan.bulk_size, plan.peak(plan.bulk_size) <= plan.memory_budget
    (16, True)
    """
    ids, batch_size = check_arguments(graph, seeds, sampler, batch_size)
    expected = "two integers: how many batches hold features, and the bytes of a vertex's"
    require_type("features", features, tuple, expected)
    if len(features) != 2:
        raise InputError(argument="features", given=short(features), expected=expected)
    feature_batches, feature_bytes = (
        require_int(f"features[{i}]", number, minimum=0) for i, number in enumerate(features)
    )
    budget = default_budget(graph) if memory_budget is None else require_bytes("memory_budget", memory_budget)
    work = Workload(
        graph,
        ids,
        sampler,
        batch_size,
        backend=None if backend is None else get_backend(backend).name,
        shuffle=require_bool("shuffle", shuffle),
        edge_ids=require_bool("edge_ids", edge_ids),
    )
    prefetch = require_int("prefetch", prefetch, minimum=0, maximum=MAX_AHEAD)
    plan = plan_epochs(work, Buffers(prefetch, feature_batches, feature_bytes), budget)
    plan.require(min(1, plan.num_batches))
    return plan


def plan_epochs(work: Workload, buffers: Buffers, memory_budget: int) -> BulkPlan:
    """The plan of a loader on one rank, from pilots that are sampled for it.

    Raises
    ------
    CapacityError
        If these do not fit in the memory that is available.
    """
    full = len(work.seeds) // work.largest_batch
    pilots = work.pilots(min(max(int(PILOT_SHARE * full), MIN_PILOTS), MAX_PILOTS))
    trial = Trial.of(first_fitting(pilots))
    return plan_of(work, trial.counts.with_edges(), memory_budget, buffers, trial.seconds)


def plan_loader(
    work: Workload, buffers: Buffers, *, num_batches: int, bulk_size: int | None, memory_budget: int | str | None
) -> tuple[BudgetedPlan | None, int]:
    """The plan of a loader, None where any bulk fits, and its bulk size; collective on several ranks.

    Parameters
    ----------
    work : Workload
    buffers : Buffers
    num_batches : int
        Batches of an epoch, of all ranks.
    bulk_size : int or None
        Batches of a bulk, of all ranks; None: as many as fit, and with prefetch no more than an eighth of an epoch.
    memory_budget : int, str or None
        Bytes of a rank. None, for a bulk size that is chosen: half of what is available; or all of it, for bulks of 64
        at most, where half is too little for these. None, for one that is given: all of it; on several ranks nothing
        is planned then.

    Raises
    ------
    CapacityError
        If bulks of that size do not fit, or not even single batches.
    """
    ranks = work.graph.comm.size
    epoch = _in_steps(max(num_batches, 1), ranks)
    if bulk_size is None:
        plan = _plan_within(work, buffers, memory_budget)
        share = num_batches if buffers.prefetch == 0 else -(-num_batches // BULKS_PER_EPOCH)
        usual = min(share, USUAL_BULK_SIZE)
        if memory_budget is None and not plan.fits(_in_steps(usual, ranks)):
            plan, share = replace(plan, memory_budget=int(plan.memory_budget / AVAILABLE_SHARE)), usual
        plan.require(min(1, work.num_batches))
        return plan, _in_steps(max(min(plan.largest(epoch), share), 1), ranks)
    size = _in_steps(bulk_size, ranks)
    largest = min(size, epoch)
    has_budget = memory_budget is not None
    needed = _plan_within(work, buffers, memory_budget) if has_budget else _plan_where_needed(work, buffers, largest)
    if needed is not None:
        needed.require(largest)
    return needed, size


def needed_by_loader(work: Workload, buffers: Buffers) -> int:
    """Bytes of a rank that a loader with default arguments takes at its peak; collective on several ranks.

    Raises
    ------
    CapacityError
        As `plan_epochs`.
    """
    ranks = work.graph.comm.size
    if work.graph.is_distributed:
        plan: BudgetedPlan = plan_ranks(work, buffers, None)
    else:
        plan = plan_epochs(work, buffers, available_bytes(work.graph))
    return plan.peak(_in_steps(min(USUAL_BULK_SIZE, max(work.num_batches, 1)), ranks))


def _in_steps(batches: int, ranks: int) -> int:
    """The batches, or a few more: whole steps of all ranks."""
    return -(-batches // ranks) * ranks


def _plan_within(work: Workload, buffers: Buffers, memory_budget: int | str | None) -> BudgetedPlan:
    """The plan of a budget; of half of what is available where none is given."""
    budget = None if memory_budget is None else require_bytes("memory_budget", memory_budget)
    if work.graph.is_distributed:
        return plan_ranks(work, buffers, budget)
    return plan_epochs(work, buffers, default_budget(work.graph) if budget is None else budget)


def _plan_where_needed(work: Workload, buffers: Buffers, bulk_size: int) -> BulkPlan | None:
    """The plan of bulks of a given size against all memory that is available.

    None where none is needed: the largest bulk that the sampler could ever draw fits. There is none on several ranks,
    and always one on a device.
    """
    if work.graph.is_distributed:
        return None
    available = available_bytes(work.graph)
    if not work.graph.is_on_device:
        counts = most_counts(work.graph, work.sampler, work.largest_batch, work.edge_ids)
        if plan_of(work, counts, available, buffers).fits(bulk_size):
            return None
    return plan_epochs(work, buffers, available)
