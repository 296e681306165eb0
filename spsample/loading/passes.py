"""A pass of a loader over its batches: sampled in bulks, given features and copied; ahead of the loop, or serially."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.loading.chunks import MAX_BATCHES, Chunk, chunks, one_by_one
from spsample.loading.copies import COPIES, COPIES_AHEAD
from spsample.loading.fetching import Gathering
from spsample.loading.hints import NextEpoch, Start, known_ahead
from spsample.loading.order import Delivered
from spsample.loading.prefetch import Ahead, Prefetcher, StageChain
from spsample.loading.ranks import Duplicates, Lockstep
from spsample.loading.serial import SerialChoice, follow
from spsample.planning.bulk_plan import warm_up_divisor
from spsample.timeline import waiting_for

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spsample.comm import Communicator
    from spsample.features import FeatureSource
    from spsample.loading.base import Loader
    from spsample.loading.fetching import PerBatch
    from spsample.loading.options import AheadGroup
    from spsample.loading.ranks import BatchAssignment
    from spsample.sampling import BulkSample, MiniBatch
    from spsample.store.base_graph import BaseGraph

FEATURES_AHEAD = 2
"""Batches, or chunks of small ones, whose features may be gathered before they are asked for."""

CollateFn = Callable[["MiniBatch", "NDArray[np.int64]", "NDArray[np.float32] | None"], Any]
SizeOf = Callable[[Any], int | None]


class Collation(NamedTuple):
    """The functions that make batches.

    Attributes
    ----------
    collate
        Makes a batch of a minibatch, the positions of its seeds, and the features of its sources.
    size_of
        Returns the bytes that are held for a batch; None where unknown.
    transform
        Called with each batch; None for no such call.
    """

    collate: CollateFn
    size_of: SizeOf | None
    transform: Callable[[Any], Any] | None

    def batch(self, minibatch: MiniBatch, positions: NDArray[np.int64], x: Any) -> Any:
        """Make the batch of a minibatch that is delivered."""
        batch = self.collate(minibatch, positions, x)
        return batch if self.transform is None else self.transform(batch)

    def size(self, batch: Any) -> int | None:
        """Return the bytes that are held for a batch; None for the result of a transform, of which they are unknown."""
        return None if self.size_of is None or self.transform is not None else self.size_of(batch)


class PassStages:
    """The stages of a loader, and the state that one of its passes leaves to the next.

    Parameters
    ----------
    graph : BaseGraph
        As given. On several ranks with prefetch it is duplicated, which is collective.
    features : FeatureSource or None
    ahead : AheadGroup
    fetch : PerBatch
    assignment : BatchAssignment
    looks_ahead : bool
        True where the features of a rank look ahead.

    Attributes
    ----------
    duplicates : Duplicates or None
        Of graph and features, for threads that communicate.
    left : StageChain or None
        Of the last pass: its threads end once those of the other ranks do.
    next_epoch : NextEpoch
    serial_choice : SerialChoice or None
        None where a pass always has threads, or never.
    """

    def __init__(
        self,
        graph: BaseGraph,
        features: FeatureSource | None,
        ahead: AheadGroup,
        fetch: PerBatch,
        assignment: BatchAssignment,
        *,
        looks_ahead: bool,
    ) -> None:
        self.ahead, self.fetch, self.assignment, self.looks_ahead = ahead, fetch, assignment, looks_ahead
        has_threads = graph.comm.size > 1 and ahead.prefetch > 0
        self.duplicates = Duplicates(graph, features) if has_threads else None
        self.left: StageChain | None = None
        self.next_epoch = NextEpoch(graph.comm)
        self.serial_choice = SerialChoice() if ahead.prefetch > 0 and ahead.stage_threads is None else None

    def close(self) -> None:
        """End the threads of the last pass, and free communicators; collective."""
        if self.left is not None:
            self.left.join()
        if self.duplicates is not None:
            self.duplicates.close()
            self.duplicates = None
        self.next_epoch.drop()


class RankBulk(NamedTuple):
    """A rank's batches of a bulk, or of a part of one.

    Attributes
    ----------
    bulk
    first, batches : int
        Of all ranks.
    opens_next : bool
        True of the first bulk of the next epoch.
    """

    bulk: Any
    first: int
    batches: int
    opens_next: bool = False


class Pass:
    """A pass over the batches of an epoch.

    Parameters
    ----------
    loader : Loader
    stages : PassStages
    epoch : int
    bulk_size : int
        Batches of a bulk of all ranks, at most.
    """

    def __init__(self, loader: Loader, stages: PassStages, epoch: int, bulk_size: int) -> None:
        self._loader, self._stages, self._epoch, self._bulk_size = loader, stages, epoch, bulk_size
        self._phases, self._copies, self._num_batches = loader.phases, loader._copies, loader.num_batches
        self._start = Start(None, goes_on=False)
        self._positions = loader._positions(epoch)

    def batches(self, first: int, collation: Collation) -> Generator[Delivered, None, None]:
        """Yield batches from ``first`` on. At most ``prefetch`` bulks and the one in use exist."""
        loader, stages = self._loader, self._stages
        if stages.looks_ahead:
            drawn_by = (loader.random_seed, loader.shuffle, loader.edge_ids, repr(loader.sampler))
            self._start = stages.next_epoch.begin(self._epoch, first, drawn_by)
        choice = stages.serial_choice
        if choice is None or not self._may_be_serial:
            yield from (self._ahead if stages.ahead.prefetch else self._serial)(first, collation)
            return

        def deliver(begin: int) -> Generator[Delivered, None, None]:
            return (self._serial if choice.is_serial else self._ahead)(begin, collation)

        yield from follow(choice, deliver, first, self._num_batches)

    @property
    def _may_be_serial(self) -> bool:
        """True where a rank alone may choose serial work in place of threads, where that is faster."""
        is_alone = self._loader.comm.size == 1
        return is_alone and not self._stages.looks_ahead and self._copies.device is None

    @property
    def _looks(self) -> bool:
        """True while bulks are timed: with threads a small one, and in both ways one of twice its size."""
        choice = self._stages.serial_choice
        return choice is not None and self._may_be_serial and not choice.is_settled

    def _serial(self, first: int, collation: Collation) -> Generator[Delivered, None, None]:
        """Yield batches from ``first`` on, each made when it is asked for."""
        warm_up = warm_up_divisor(self._stages.ahead.prefetch) if self._looks else 1
        collated = self._collated(self._all_bulks(first, warm_up), collation, self._loader.features)
        with closing(self._copies.over(collated, self._phases)) as items:
            while (item := next(items, None)) is not None:
                yield self._copies.received(item)
                del item

    def _ahead(self, first: int, collation: Collation) -> Generator[Delivered, None, None]:
        """Yield batches from ``first`` on, made by threads."""
        stages = self._stages
        if stages.left is not None:
            stages.left.join()
        with StageChain(waits=stages.duplicates is None, phases=self._phases) as chain:
            stages.left = chain if stages.duplicates is not None else None
            sampled, last = self._prefetchers(chain, first, collation)
            batches = one_by_one(last)
            while True:
                with self._phases.timed("waiting"):
                    item = next(batches, None)
                if item is None:
                    return
                if item.begins_bulk:
                    sampled.release()
                yield self._copies.received(item)
                del item

    def _prefetchers(
        self, chain: StageChain, first: int, collation: Collation
    ) -> tuple[Prefetcher[RankBulk], Prefetcher[Chunk]]:
        """Start threads that sample bulks and make batches; on several ranks each works in step with its peers."""
        stages, phases = self._stages, self._phases
        ahead, duplicates = stages.ahead, stages.duplicates
        comms = (None, None) if duplicates is None else duplicates.comms
        waiting = [partial(phases.timed, waiting_for("ranks", stage)) for stage in ("sampling", "features")]
        sampling, gathering = (
            None if comm is None else Lockstep[Any](comm, chain.failures, timed)
            for comm, timed in zip(comms, waiting, strict=True)
        )
        bulks = self._all_bulks(first, (1 + self._looks) * warm_up_divisor(ahead.prefetch), sampling)
        of_bulks = Ahead(ahead.prefetch + stages.looks_ahead, ahead.queue_bytes, lambda bulk: int(bulk.bulk.nbytes))
        in_step = bulks if sampling is None else sampling.over(bulks)
        sampled = chain.prefetch(in_step, of_bulks, "sampling", ahead.threads_of("sampling"))
        to_come = phases.over(waiting_for("input", "features"), sampled)
        features = self._loader.features if duplicates is None else duplicates.features
        collated = self._collated(to_come, collation, features, gathering)
        fetched = collated if gathering is None else gathering.over(collated)
        is_bounded = duplicates is not None or ahead.queue_bytes is not None
        in_chunk = 1 if is_bounded else MAX_BATCHES  # ranks in step make as many of them
        of_items = Ahead(FEATURES_AHEAD, ahead.queue_bytes, lambda chunk: chunk.nbytes)
        items = chain.prefetch(chunks(fetched, in_chunk), of_items, "features", ahead.threads_of("features"))
        if self._copies.device is not None:
            batches = phases.over(waiting_for("input", COPIES), one_by_one(items))
            copied = chunks(self._copies.over(batches, phases), in_chunk)
            items = chain.prefetch(copied, of_items._replace(items=COPIES_AHEAD), COPIES)
        return sampled, items

    def _collated(
        self,
        bulks: Iterator[RankBulk],
        collation: Collation,
        features: FeatureSource | None,
        lockstep: Lockstep[Any] | None = None,
    ) -> Generator[Delivered, None, None]:
        """Yield the batches of bulks, with features; distributed features are gathered in step."""
        stages, phases, cut = self._stages, self._phases, self._loader._cut
        around = Gathering(partial(_synchronize, lockstep), partial(phases.timed, "features"), self._copies.rows)
        for bulk in self._hinted(bulks, features):
            next_batch = bulk.first
            for minibatch, x in stages.fetch.rows(features, self._minibatches(bulk), around):
                places = cut.places(minibatch.batch_id, minibatch.batch_id + 1)
                with phases.timed("features", minibatch.batch_id), phases.part("collate"):
                    batch = collation.batch(minibatch, self._positions[places], x)
                begins, next_batch = next_batch == bulk.first, next_batch + stages.assignment.stride
                nbytes, ends = 0 if x is None else int(x.nbytes), next_batch >= bulk.first + bulk.batches
                known = {"size": collation.size(batch), "batch_id": minibatch.batch_id}
                yield Delivered(min(next_batch, self._num_batches), begins, batch, nbytes, ends, **known)
                del batch, minibatch, x
            del bulk
        _synchronize(lockstep)

    def _hinted(self, bulks: Iterator[RankBulk], features: FeatureSource | None) -> Iterator[RankBulk]:
        """Yield the bulks; where features of a rank look ahead, on all ranks each after the next one is sampled."""
        if not self._stages.looks_ahead:
            return bulks
        ended = partial(self._stages.next_epoch.end, self._epoch)
        return known_ahead(bulks, features, lambda bulk: self._stages.fetch.calls(self._minibatches(bulk)), ended)

    def _minibatches(self, bulk: RankBulk) -> Iterator[Any]:
        """Return the minibatches that this rank has of a bulk, one for each step."""
        return self._stages.assignment.minibatches(bulk.bulk, bulk.first, bulk.batches)

    def _all_bulks(
        self, first: int, warm_up: int, lockstep: Lockstep[Any] | None = None
    ) -> Generator[RankBulk, None, None]:
        """Yield the bulks of a pass, the first perhaps kept from the pass before, and the first of the next pass."""
        kept, goes_on = self._start
        self._start = Start(None, goes_on)
        if kept is not None:
            first, warm_up = kept.first + kept.batches, 1
            yield kept._replace(opens_next=False)
            del kept
        yield from self.bulks(first, warm_up, lockstep)
        if goes_on and self._epoch + 1 < 2**64:
            following = Pass(self._loader, self._stages, self._epoch + 1, self._bulk_size)
            for bulk in following.bulks(0, 1, lockstep):
                yield bulk._replace(opens_next=True)
                break
            _synchronize(lockstep)

    def bulks(
        self, first: int, warm_up: int = 1, lockstep: Lockstep[Any] | None = None
    ) -> Generator[RankBulk, None, None]:
        """Yield bulks from batch ``first`` on; two or more in place of one that would pass the memory budget."""
        loader, assignment, duplicates = self._loader, self._stages.assignment, self._stages.duplicates
        graph = loader.graph if lockstep is None or duplicates is None else duplicates.graph
        for begin, end in assignment.bulk_ranges(first, self._num_batches, self._bulk_size, warm_up):
            _synchronize(lockstep)
            bulks = loader._sampled_bulks(graph, self._positions, self._epoch, begin, end)
            while True:
                with self._phases.timed("sampling", begin):
                    sampled = next(bulks, None)
                    bulk = None if sampled is None else self._of_rank(sampled, graph.comm)
                    del sampled
                if bulk is None:
                    break
                batches = len(bulk) if loader.comm.size == 1 else end - begin
                yield RankBulk(bulk, begin, batches)
                begin += batches
                del bulk
        _synchronize(lockstep)

    def _of_rank(self, sampled: BulkSample, comm: Communicator) -> Any:
        """Return the batches of a bulk that this rank has."""
        assignment = self._stages.assignment
        if assignment.gives_whole_batches:
            return assignment.of_rank(sampled, comm)
        with self._phases.part("sharing out"):
            return assignment.of_rank(sampled, comm)


def _synchronize(lockstep: Lockstep[Any] | None) -> None:
    """Wait for the other ranks, where there are any that work in step."""
    if lockstep is not None:
        lockstep.synchronize()
