"""A loader on several ranks: the assignment of batches, and threads that communicate and work in step."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from spsample.comm import Communicator, collective
from spsample.comm.objects import comm_of
from spsample.distributed.cooperative import VertexOwners, owners_of, require_targets, share_out
from spsample.errors import BackendError, CommunicationError, RankError, SpSampleError
from spsample.planning.bulk_plan import bulk_ranges
from spsample.sampling.bulk import empty_minibatch

if TYPE_CHECKING:
    from spsample.features import FeatureSource
    from spsample.sampling import BulkSample, Sampler
    from spsample.store.base_graph import BaseGraph


class BatchAssignment:
    """The assignment of an epoch's batches to ranks, which take as many steps.

    Whole batches: in each step, the p next ones go to the ranks in order. Cooperative ones: all ranks share a batch in
    each step, of which a rank has the rows of the vertices that it owns.

    Parameters
    ----------
    rank, ranks : int
        r and p.
    owners : VertexOwners, optional
        The same on all ranks; None: batches are whole.

    Attributes
    ----------
    stride : int
        Batches of a step.
    identity : str
        The same on ranks that work together.

    Examples
    --------
    >>> whole = BatchAssignment(0, 4)
    >>> whole.steps(9), list(BatchAssignment(0, 2).bulk_ranges(3, 14, 8, warm_up=2))
    (3, [(3, 7), (7, 14)])
    """

    def __init__(self, rank: int, ranks: int, owners: VertexOwners | None = None) -> None:
        self._rank, self._ranks, self._owners = rank, ranks, owners
        self.stride = ranks if owners is None else 1
        self.identity = "batches of their own" if owners is None else f"cooperative batches, {owners.identity}"

    @property
    def gives_whole_batches(self) -> bool:
        """True where a rank has all rows of the minibatches that it gets."""
        return self._owners is None

    def steps(self, batches: int) -> int:
        """Return the number of steps that the batches take, the same on every rank."""
        return -(-batches // self.stride)

    def bulk_ranges(self, first: int, last: int, size: int, warm_up: int) -> Iterator[tuple[int, int]]:
        """Yield first and end of each bulk from batch `first` on, in whole steps, and as many batches for each rank."""
        steps = -(-size // self._ranks) * self._ranks // self.stride
        for begin, end in bulk_ranges(0, self.steps(last - first), steps, warm_up):
            yield first + begin * self.stride, min(first + end * self.stride, last)

    def of_rank(self, bulk: BulkSample, comm: Communicator) -> Any:
        """Return the batches that this rank sampled, or its rows of all batches of the ranks; then it is collective."""
        return bulk if self._owners is None else share_out(bulk, self._owners, comm)

    def minibatches(self, bulk: Any, first: int, batches: int) -> Iterator[Any]:
        """Yield the minibatches of one rank from a bulk whose first batch is `first`: one for each step.

        Where the last step has fewer batches than there are ranks, some get a minibatch without seeds. A batch of no
        seeds that a sampler draws for (FastGCN: vertices do not depend on the seeds) is such a one too.
        """
        if self._owners is not None:
            yield from bulk
            return
        for minibatch in bulk:
            yield minibatch if minibatch.num_seeds else empty_minibatch(bulk, minibatch.batch_id)
        for step in range(len(bulk), self.steps(batches)):
            yield empty_minibatch(bulk, first + step * self.stride + self._rank)


def assignment_of(batches: Any, parts: Any, graph: BaseGraph, sampler: Sampler) -> BatchAssignment:
    """Return the assignment of batches for ``batches`` of a loader: each rank has its own, or all share each of them.

    Raises
    ------
    InputError
        If the parts do not fit, or the sampler leaves targets out of the sources of cooperative batches.
    """
    owners = None
    if batches == "cooperative":
        require_targets(sampler)
        owners = owners_of(graph, parts)
    return BatchAssignment(graph.comm.rank, graph.comm.size, owners)


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


class Lockstep:
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
        self._generator: Generator[Any, None, None] | None = None
        self._is_over = comm is None

    def over(self, generator: Generator[Any, None, None]) -> Any:
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

    def __next__(self) -> Any:
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
