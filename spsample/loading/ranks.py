"""A loader on several ranks: the assignment of batches, and threads that communicate and work in step."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from spsample.comm import Communicator, collective
from spsample.comm.objects import comm_of
from spsample.distributed.cooperative import (
    CooperativeBulk,
    CooperativeMiniBatch,
    VertexOwners,
    owners_of,
    require_targets,
    share_out,
)
from spsample.errors import BackendError, CommunicationError, RankError, SpSampleError
from spsample.planning.bulk_plan import bulk_ranges
from spsample.sampling.bulk import empty_minibatch

if TYPE_CHECKING:
    from spsample.features import FeatureSource
    from spsample.sampling import BulkSample, MiniBatch, Sampler
    from spsample.store.base_graph import BaseGraph

T = TypeVar("T")


@dataclass(frozen=True)
class RankSlice:
    """The assignment of whole batches: in each step, the `size` next batches go to the ranks in order.

    Attributes
    ----------
    rank, size : int
        r and p.
    """

    rank: int
    size: int

    identity: ClassVar[str] = "batches of their own"
    """Text that is the same on ranks that work together."""
    gives_whole_batches: ClassVar[bool] = True
    """True: a rank has all rows of the minibatches that it gets."""

    @property
    def stride(self) -> int:
        """Batches of a step."""
        return self.size

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


@dataclass(frozen=True)
class SharedByRanks:
    """The assignment of one batch to all ranks in each step: each has the rows of the vertices that it owns.

    Attributes
    ----------
    owners : VertexOwners
        The same on all ranks.

    Examples
    --------
    >>> import spsample
    >>> from spsample.distributed.cooperative import owners_of
    >>> shared = SharedByRanks(owners_of(spsample.Graph([0, 0], [])))
    >>> shared.steps(9), list(shared.bulk_ranges(3, 14, 8, warm_up=2))
    (9, [(3, 7), (7, 14)])
    """

    owners: VertexOwners

    stride: ClassVar[int] = 1
    """Batches of a step."""
    gives_whole_batches: ClassVar[bool] = False
    """False: a rank has some rows of the minibatches that it gets."""

    @property
    def identity(self) -> str:
        """Text that is the same on ranks that work together."""
        return f"cooperative batches, {self.owners.identity}"

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


BatchAssignment: TypeAlias = "RankSlice | SharedByRanks"
"""The assignment of an epoch's batches to ranks, which take as many steps."""


def assignment_of(batches: str, parts: Any, graph: BaseGraph, sampler: Sampler) -> BatchAssignment:
    """Return the assignment of batches for ``batches`` of a loader: each rank has its own, or all share each of them.

    Raises
    ------
    InputError
        If the parts do not fit, or the sampler leaves targets out of the sources of cooperative batches.
    """
    if batches != "cooperative":
        return RankSlice(graph.comm.rank, graph.comm.size)
    require_targets(sampler)
    return SharedByRanks(owners_of(graph, parts))


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
        self.graph: BaseGraph = duplicated(graph, "Without threads: prefetch=0.")
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


def duplicated(shared: Any, hint: str) -> Any:
    """Duplicate a graph or a communicator for another thread; an error ends with the hint."""
    try:
        return shared.duplicate()
    except BackendError as error:
        raise BackendError(f"{error} {hint}") from error


class Lockstep(Generic[T]):
    """The items of a generator whose work is collective: one generator on each rank, in a thread of its own.

    Before each piece of collective work, and once after the last, the generator calls `synchronize`, which waits for
    the other ranks. A rank that stops earlier leaves no rank waiting: when it is closed it joins the others' next
    `synchronize` and reports its error, or that it left, and they raise there. An error reaches its own rank's consumer
    before that, so that the report never delays it.

    Parameters
    ----------
    comm
        The ranks; used by the thread that runs this one alone. None: there is nobody to wait for.
    failures
        Errors of this rank, the first one first: in this generator, or in another one of the same pass.
    timed
        Returns a context manager that counts the time for which it waits for the others.
    """

    def __init__(
        self,
        comm: Communicator | None = None,
        failures: Sequence[Exception] = (),
        timed: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.comm: Any = comm
        self._failures, self._timed = failures, timed
        self._generator: Generator[T, None, None] | None = None
        self._is_over = comm is None

    def over(self, generator: Generator[T, None, None]) -> Lockstep[T] | Generator[T, None, None]:
        """Set the generator, which calls `synchronize`; return its items."""
        self._generator = generator
        return generator if self.comm is None else self

    def synchronize(self) -> None:
        """Wait until all ranks are here.

        Raises
        ------
        SpSampleError
            The error of another rank, or that it left.
        """
        if self.comm is None:
            return
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
        left = RankError(self.comm.rank, "it left the loop over the batches, which all ranks go through together")
        with suppress(SpSampleError):  # raised by ranks that go on
            self._agree(self._failures[0] if self._failures else left)

    def _agree(self, failure: Exception | None) -> None:
        with collective(self.comm, call="the next batches of a loader"):
            if failure is not None:
                raise failure
