"""How many minibatches fit in the memory of every rank, from one bulk of pilots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.comm import Communicator
from spsample.common.units import format_bytes, require_bytes
from spsample.distributed import ReplicatedGraph
from spsample.errors import CapacityError
from spsample.planning.bulk_sample import bulk_sample
from spsample.planning.device_memory import CALL_BYTES, device_scratch
from spsample.planning.memory import BulkCounts
from spsample.planning.planner import FEATURE_BATCHES, default_budget

if TYPE_CHECKING:
    from spsample.sampling import BulkSample
    from spsample.store.device_graph import DeviceGraph

__all__ = ["RankPlan", "plan_ranks"]

PILOTS_PER_RANK = 2
MARGIN = 1.5  # over the largest pilot: batches differ, and blocks of memory are larger than their arrays
WORKING_COPIES = 2  # of a bulk's arrays, while it is made: what is asked, answered and stacked


@dataclass(frozen=True)
class RankPlan:
    """What bulks take on the rank that has least room, predicted from a bulk of pilot batches.

    It is simpler than `spsample.planning.planner.BulkPlan`: arrays of the largest pilot batch, with a margin, once for
    each bulk that exists at a time and twice more while one is made. Nothing is capped while it is sampled.

    Attributes
    ----------
    memory_budget : int
        Bytes of the rank that has least.
    bytes_per_batch : int
        Of the arrays of the largest pilot batch of all ranks, margin included.
    copies : int
        How many times these exist at a time.
    fixed_bytes : int
        For features of batches that are ready.
    ranks : int
        p.
    """

    memory_budget: int
    bytes_per_batch: int
    copies: int
    fixed_bytes: int
    ranks: int

    @property
    def bulk_size(self) -> int:
        """The largest number of batches of a bulk over all ranks; 0 where a batch per rank does not fit."""
        room = self.memory_budget - self.fixed_bytes
        return self.ranks * max(room // max(self.copies * self.bytes_per_batch, 1), 0)

    def require(self, bulk_size: int) -> None:
        """Refuse a bulk size that does not fit.

        Raises
        ------
        CapacityError
            It names the largest one that does.
        """
        budget = f"the memory budget of {format_bytes(self.memory_budget)} of the rank that has least"
        if self.bulk_size == 0:
            least = self.fixed_bytes + self.copies * self.bytes_per_batch
            raise CapacityError(
                argument="memory_budget",
                given=budget,
                expected=f"at least {format_bytes(least)}, which one batch at a time on each rank takes",
                hint="Give more, or use smaller batches, fanouts or layer sizes.",
            )
        if bulk_size > self.bulk_size:
            raise CapacityError(
                argument="bulk_size", given=str(bulk_size), expected=f"at most {self.bulk_size} within {budget}"
            )


def plan_ranks(loader: Any, memory_budget: int | str | None, comm: Communicator) -> RankPlan:
    """Sample two batches per rank, and predict from the largest; collective, the same plan on every rank.

    A replicated graph on devices is planned with their free memory.
    """
    given = None if memory_budget is None else require_bytes("memory_budget", memory_budget)
    pilots = loader.seeds[: PILOTS_PER_RANK * comm.size * loader.batch_size]
    options: dict[str, Any] = {"edge_ids": loader.edge_ids, "backend": loader.backend}
    bulk = bulk_sample(loader.graph, pilots, loader.sampler, batch_size=loader.batch_size, **options)
    device = _device_graph(loader)
    budget = default_budget(device) if given is None else given
    largest, sources = _largest(bulk)
    copies = 1 + max(loader.prefetch, 1) + WORKING_COPIES
    if device is not None and len(bulk):
        scratch = device_scratch(device, BulkCounts.of(bulk)) - CALL_BYTES
        largest += scratch // (copies * len(bulk))  # it is there once
    row_bytes = 0 if loader.features is None else 4 * loader.features.dim
    told = np.array([-budget, largest, sources * row_bytes], np.int64)
    least, largest, features = comm.all_reduce(told, "max", phase="set-up").tolist()
    return RankPlan(-least, int(MARGIN * largest), copies, int(MARGIN * FEATURE_BATCHES * features), comm.size)


def _device_graph(loader: Any) -> DeviceGraph | None:
    """Where this rank's bulks lie, if not on the host."""
    if loader.backend != "cuda" or not isinstance(loader.graph, ReplicatedGraph):
        return None
    graph: DeviceGraph = loader.graph.graph.on_device()
    return graph


def _largest(bulk: BulkSample) -> tuple[int, int]:
    """Bytes of the largest batch's arrays, and the most sources of layer 1."""
    alone = [bulk.copy_batch(position) for position in range(len(bulk))]
    sizes = [sum(layer.nbytes for layer in one.layers) for one in alone]
    return max(sizes, default=0), max((len(one.layers[0].src) for one in alone), default=0)
