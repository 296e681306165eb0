"""A loader on several ranks: which batches are whose, and what its threads communicate over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from spsample.comm import Communicator
from spsample.comm.objects import comm_of
from spsample.errors import BackendError
from spsample.planning.bulk_plan import bulk_ranges
from spsample.sampling.bulk import empty_minibatch

if TYPE_CHECKING:
    from spsample.features import FeatureSource
    from spsample.sampling import BulkSample, MiniBatch
    from spsample.store.base_graph import BaseGraph

__all__ = ["Deal", "Duplicates", "RankSlice"]


class Deal(Protocol):
    """How the batches of an epoch are dealt out to ranks, which take as many steps."""

    @property
    def identity(self) -> str:
        """What ranks that work together must have in common."""
        ...

    @property
    def stride(self) -> int:
        """Batches of a step."""
        ...

    @property
    def gives_whole_batches(self) -> bool:
        """Whether a rank has all rows of the minibatches that it gets."""
        ...

    def steps(self, batches: int) -> int:
        """Steps that the batches take."""
        ...

    def bulk_ranges(self, first: int, last: int, size: int, warm_up: int) -> Iterator[tuple[int, int]]:
        """First and end of each bulk from batch `first` on."""
        ...

    def of_rank(self, bulk: BulkSample, comm: Communicator) -> Any:
        """What this rank has of a bulk, from the batches that it sampled."""
        ...

    def minibatches(self, bulk: Any, first: int, batches: int) -> Iterator[Any]:
        """One for each step."""
        ...


class RankSlice(NamedTuple):
    """Which batches are this rank's: in each step, the `size` next batches go to the ranks in order.

    Attributes
    ----------
    rank, size : int
        r and p.
    """

    rank: int
    size: int

    @classmethod
    def of(cls, comm: Communicator) -> RankSlice:
        """That of a rank."""
        return cls(comm.rank, comm.size)

    @property
    def identity(self) -> str:
        """What ranks that work together must have in common."""
        return "batches of their own"

    @property
    def stride(self) -> int:
        """Batches of a step."""
        return self.size

    @property
    def gives_whole_batches(self) -> bool:
        """Whether a rank has all rows of the minibatches that it gets: yes."""
        return True

    def of_rank(self, bulk: BulkSample, comm: Communicator) -> BulkSample:
        """What this rank has of a bulk: the batches that it sampled."""
        return bulk

    def steps(self, batches: int) -> int:
        """Steps that the batches take, the same number on every rank.

        Examples
        --------
        >>> RankSlice(0, 4).steps(9)
        3
        """
        return -(-batches // self.size)

    def bulk_ranges(self, first: int, last: int, size: int, warm_up: int) -> Iterator[tuple[int, int]]:
        """`spsample.planning.bulk_plan.bulk_ranges` of whole steps from batch `first` on.

        Examples
        --------
        >>> list(RankSlice(0, 2).bulk_ranges(3, 14, 8, warm_up=2))
        [(3, 7), (7, 14)]
        """
        for begin, end in bulk_ranges(0, self.steps(last - first), self.steps(size), warm_up):
            yield first + begin * self.size, min(first + end * self.size, last)

    def minibatches(self, bulk: BulkSample, first: int, batches: int) -> Iterator[MiniBatch]:
        """Minibatches of one rank from a bulk whose first batch is `first`: one for each step.

        Where the last step has fewer batches than there are ranks, some get a minibatch without seeds. A batch of no
        seeds that a sampler draws for (FastGCN: vertices do not depend on the seeds) is such a one too.
        """
        for minibatch in bulk:
            yield minibatch if minibatch.num_seeds else empty_minibatch(bulk, minibatch.batch_id)
        for step in range(len(bulk), self.steps(batches)):
            yield empty_minibatch(bulk, first + step * self.size + self.rank)


class Duplicates:
    """The graph and the features once more, over communicators of their own: for the threads that work ahead.

    Making them is collective; the order is fixed, graph first.

    Attributes
    ----------
    graph
        For the thread that samples.
    features
        For the thread that gathers; the same object as was given where that communicates with nobody.
    comms : tuple of Communicator
        Of the two threads; of the second one None where it needs none.

    Raises
    ------
    BackendError
        If only one thread of a rank may communicate.
    """

    def __init__(self, graph: BaseGraph, features: FeatureSource | None) -> None:
        self.graph = _for_threads(graph)
        self._made: list[Any] = [self.graph]
        self.features: Any = features
        gathering = None
        if comm_of(features).size > 1:
            self.features = features.duplicate()  # type: ignore[union-attr]
            self._made.append(self.features)
            gathering = comm_of(self.features)
        self.comms = self.graph.comm, gathering

    def close(self) -> None:
        """Free the communicators; collective."""
        for duplicate in self._made:
            duplicate.close()


def _for_threads(graph: BaseGraph) -> BaseGraph:
    """The graph over communicators of its own."""
    try:
        return graph.duplicate()
    except BackendError as error:
        raise BackendError(f"{error} Without threads: prefetch=0.") from error
