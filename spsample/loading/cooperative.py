"""A loader whose ranks share every batch: the batches that a rank samples, and its part of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.distributed.cooperative import (
    CooperativeBulk,
    CooperativeMiniBatch,
    Owners,
    owners_of,
    require_targets,
    share_out,
)
from spsample.loading.ranks import BatchAssignment, RankSlice
from spsample.planning.bulk_plan import bulk_ranges

if TYPE_CHECKING:
    from spsample.comm import Communicator
    from spsample.sampling import BulkSample, Sampler
    from spsample.store.base_graph import BaseGraph

__all__ = ["SharedByRanks", "assignment_of"]


class SharedByRanks(NamedTuple):
    """The assignment of one batch to all ranks in each step: each has the rows of the vertices that it owns.

    Attributes
    ----------
    owners : Owners
        The same on all ranks.

    Examples
    --------
    >>> import spsample
    >>> from spsample.distributed.cooperative import owners_of
    >>> shared = SharedByRanks(owners_of(spsample.Graph([0, 0], [])))
    >>> shared.steps(9), list(shared.bulk_ranges(3, 14, 8, warm_up=2))
    (9, [(3, 7), (7, 14)])
    """

    owners: Owners

    @property
    def identity(self) -> str:
        """Text that is the same on ranks that work together."""
        return f"cooperative batches, {self.owners.identity}"

    @property
    def stride(self) -> int:
        """Batches of a step."""
        return 1

    @property
    def gives_whole_batches(self) -> bool:
        """False: a rank has some rows of the minibatches that it gets."""
        return False

    def steps(self, batches: int) -> int:
        """Return the steps that the batches take: one each."""
        return batches

    def bulk_ranges(self, first: int, last: int, size: int, warm_up: int) -> Iterator[tuple[int, int]]:
        """Yield first and end of each bulk from batch `first` on, with as many batches for each rank to sample."""
        ranks = self.owners.ranks
        for begin, end in bulk_ranges(0, last - first, -(-size // ranks) * ranks, warm_up):
            yield first + begin, first + end

    def of_rank(self, bulk: BulkSample, comm: Communicator) -> CooperativeBulk:
        """Return a rank's rows of all batches, from those that it sampled; collective."""
        return share_out(bulk, self.owners, comm)

    def minibatches(self, bulk: CooperativeBulk, first: int, batches: int) -> Iterator[CooperativeMiniBatch]:
        """Return the minibatches of a bulk: one for each step."""
        return iter(bulk)


def assignment_of(batches: str, parts: Any, graph: BaseGraph, sampler: Sampler) -> BatchAssignment:
    """Return the assignment of batches for ``batches`` of a loader: each rank has its own, or all share each of them.

    Raises
    ------
    InputError
        If the parts do not fit, or the sampler leaves targets out of the sources of cooperative batches.
    """
    if batches != "cooperative":
        return RankSlice.of(graph.comm)
    require_targets(sampler)
    return SharedByRanks(owners_of(graph, parts))
