"""`RankPlan`: how many minibatches fit in the memory of every rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spsample.common.units import format_bytes
from spsample.planning.budget import MAX_BATCHES, BudgetedPlan
from spsample.planning.buffers import Buffers, SharedBulk
from spsample.planning.bulk_counts import BulkCounts, Trial
from spsample.planning.memory_check import default_budget
from spsample.planning.scratch import CALL_BYTES, device_scratch
from spsample.sampling import BulkSample
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
        features = self.known_bytes(bulk_size) + self.fetched_bytes(bulk_size)
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
    sampled, sources = _largest(bulk)
    copies = 1 + buffers.finished + WORKING_COPIES
    if device is not None and len(bulk):
        scratch = device_scratch(device, BulkCounts.of(bulk)) - CALL_BYTES
        sampled += scratch // (copies * len(bulk))  # it exists once
    kept, per_step, before = sampled, sources, 0
    if buffers.share is not None:
        kept, sources = _shared(buffers.share(bulk), comm.size)
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


def _largest(bulk: BulkSample) -> tuple[int, int]:
    """Bytes of the largest batch's arrays, and the most sources of layer 1."""
    id_bytes = bulk.layers[0].src.itemsize
    sizes = [(counts.result_bytes(id_bytes), counts.layers[0].sources) for counts in BulkCounts.of_each(bulk)]
    return max((arrays for arrays, _ in sizes), default=0), max((sources for _, sources in sizes), default=0)


def _shared(bulk: SharedBulk, ranks: int) -> tuple[int, int]:
    """Bytes of what a rank has of p batches that ranks share, and the most vertices of one whose features it needs."""
    return -(-bulk.nbytes * ranks // max(len(bulk), 1)), max((len(batch.src_nodes) for batch in bulk), default=0)
