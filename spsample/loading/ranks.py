"""A loader on several ranks: the assignment of batches, and threads that communicate and work in step."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from spsample.comm import Communicator, collective
from spsample.comm.objects import comm_of
from spsample.errors import BackendError, CommunicationError, RankError, SpSampleError
from spsample.planning.bulk_plan import bulk_ranges
from spsample.sampling.bulk import empty_minibatch

if TYPE_CHECKING:
    from spsample.features import FeatureSource
    from spsample.sampling import BulkSample, MiniBatch
    from spsample.store.base_graph import BaseGraph

__all__ = ["BatchAssignment", "Duplicates", "Lockstep", "RankSlice"]

T = TypeVar("T")


class BatchAssignment(Protocol):
    """The assignment of an epoch's batches to ranks, which take as many steps."""

    @property
    def identity(self) -> str:
        """Text that is the same on ranks that work together."""
        ...

    @property
    def stride(self) -> int:
        """Batches of a step."""
        ...

    @property
    def gives_whole_batches(self) -> bool:
        """True where a rank has all rows of the minibatches that it gets."""
        ...

    def steps(self, batches: int) -> int:
        """Return the number of steps that the batches take."""
        ...

    def bulk_ranges(self, first: int, last: int, size: int, warm_up: int) -> Iterator[tuple[int, int]]:
        """Yield first and end of each bulk from batch `first` on."""
        ...

    def of_rank(self, bulk: BulkSample, comm: Communicator) -> Any:
        """Return the part of a bulk that this rank has, from the batches that it sampled; collective."""
        ...

    def minibatches(self, bulk: Any, first: int, batches: int) -> Iterator[Any]:
        """Return a minibatch for each step."""
        ...


class RankSlice(NamedTuple):
    """The assignment of whole batches: in each step, the `size` next batches go to the ranks in order.

    Attributes
    ----------
    rank, size : int
        r and p.
    """

    rank: int
    size: int

    @classmethod
    def of(cls, comm: Communicator) -> RankSlice:
        """Make the slice of a rank."""
        return cls(comm.rank, comm.size)

    @property
    def identity(self) -> str:
        """Text that is the same on ranks that work together."""
        return "batches of their own"

    @property
    def stride(self) -> int:
        """Batches of a step."""
        return self.size

    @property
    def gives_whole_batches(self) -> bool:
        """True: a rank has all rows of the minibatches that it gets."""
        return True

    def of_rank(self, bulk: BulkSample, comm: Communicator) -> BulkSample:
        """Return the batches that this rank sampled."""
        return bulk

    def steps(self, batches: int) -> int:
        """Return the number of steps that the batches take, the same on every rank.

        Examples
        --------
        >>> RankSlice(0, 4).steps(9)
        3
        """
        return -(-batches // self.size)

    def bulk_ranges(self, first: int, last: int, size: int, warm_up: int) -> Iterator[tuple[int, int]]:
        """Yield first and end of each bulk from batch `first` on, in whole steps.

        Examples
        --------
        >>> list(RankSlice(0, 2).bulk_ranges(3, 14, 8, warm_up=2))
        [(3, 7), (7, 14)]
        """
        for begin, end in bulk_ranges(0, self.steps(last - first), self.steps(size), warm_up):
            yield first + begin * self.size, min(first + end * self.size, last)

    def minibatches(self, bulk: BulkSample, first: int, batches: int) -> Iterator[MiniBatch]:
        """Yield the minibatches of one rank from a bulk whose first batch is `first`: one for each step.

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
        For the thread that gathers; the given object where that does not communicate.
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
    """Return the graph over communicators of its own."""
    try:
        return graph.duplicate()
    except BackendError as error:
        raise BackendError(f"{error} Without threads: prefetch=0.") from error


class Lockstep(Generic[T]):
    """The items of a generator whose work is collective: one generator on each rank, in a thread of its own.

    Before each piece of collective work, and once after the last, the generator calls `synchronize`, which waits for
    the other ranks. A rank that stops earlier leaves no rank waiting: when it is closed it joins the others' next
    `synchronize` and reports its error, or that it left, and they raise there. An error reaches its own rank's consumer
    before that, so that the report never delays it.

    Parameters
    ----------
    comm
        The ranks; used by the thread that runs this one alone.
    failures
        Errors of this rank, the first one first: in this generator, or in another one of the same pass.
    timed
        Returns a context manager that counts the time for which it waits for the others.
    """

    def __init__(
        self,
        comm: Communicator,
        failures: Sequence[Exception],
        timed: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._comm = comm
        self._timed = timed
        self._failures = failures
        self._generator: Generator[T, None, None] | None = None
        self._is_over = False

    def over(self, generator: Generator[T, None, None]) -> Lockstep[T]:
        """Set the generator, which calls `synchronize`; return itself."""
        self._generator = generator
        return self

    def synchronize(self) -> None:
        """Wait until all ranks are here.

        Raises
        ------
        SpSampleError
            The error of another rank, or that it left.
        """
        try:
            with self._timed():
                self._agree(None)
        except BaseException:
            self._is_over = True
            raise

    def __iter__(self) -> Lockstep[T]:
        """Return itself."""
        return self

    def __next__(self) -> T:
        """Return the next item."""
        if self._generator is None:
            raise StopIteration
        try:
            return next(self._generator)
        except (StopIteration, CommunicationError):
            self._is_over = True
            raise

    def close(self) -> None:
        """Make no more items, and report that to the others, unless they know."""
        if self._generator is not None:
            self._generator.close()
        if self._is_over:
            return
        self._is_over = True
        left = RankError(self._comm.rank, "it left the loop over the batches, which all ranks go through together")
        with suppress(SpSampleError):  # raised by ranks that go on
            self._agree(self._failures[0] if self._failures else left)

    def _agree(self, failure: Exception | None) -> None:
        with collective(self._comm, call="the next batches of a loader"):
            if failure is not None:
                raise failure
