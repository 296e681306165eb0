"""A pass of a loader over its batches: sampled in bulks, given features and copied; ahead of the loop, or serially."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.common.checks import require_bulk_size, require_int
from spsample.common.stage_threads import require_stage_threads
from spsample.common.threads import get_num_threads
from spsample.common.units import require_bytes
from spsample.errors import InputError
from spsample.loading.copies import COPIES, COPIES_AHEAD
from spsample.loading.fetching import calls_of, known_ahead, with_rows
from spsample.loading.order import Delivered
from spsample.loading.prefetch import MAX_BATCHES, Ahead, Chunk, Prefetcher, StageChain, chunks, one_by_one
from spsample.loading.ranks import Lockstep
from spsample.planning.bulk_plan import warm_up_divisor
from spsample.planning.loader_plan import MAX_AHEAD
from spsample.timeline import waiting_for

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spsample.features import FeatureSource
    from spsample.loading.loader import BulkLoader
    from spsample.sampling import MiniBatch

FEATURES_AHEAD = 2
"""Batches, or chunks of small ones, whose features may be gathered before they are asked for."""

Make = Callable[["MiniBatch", "NDArray[np.int64]", Any], tuple[Any, "int | None"]]
"""Makes a batch of a minibatch, the positions of its seeds and the features of its sources; and the bytes that are held
for it, None where they are unknown."""


class AheadGroup:
    """Options of `BulkLoader`: work at once and ahead, its memory and its threads.

    Attributes
    ----------
    most_batches : int or None
        ``bulk_size`` as a number; None: as many as the budget allows.
    queue_bytes : int or None
        Bytes of bulks that wait, and as many of batches: half of ``prefetch_budget``, where there is none of
        ``memory_budget``; None for no limit.
    """

    def __init__(
        self, bulk_size: Any, memory_budget: Any, prefetch: Any, prefetch_budget: Any, stage_threads: Any
    ) -> None:
        self.bulk_size, self.memory_budget = bulk_size, memory_budget
        self.most_batches = require_bulk_size("bulk_size", bulk_size)
        self.prefetch = require_int("prefetch", prefetch, minimum=0, maximum=MAX_AHEAD)
        memory_bytes = None if memory_budget is None else require_bytes("memory_budget", memory_budget)
        ahead_bytes = None if prefetch_budget is None else require_bytes("prefetch_budget", prefetch_budget)
        budget = memory_bytes if ahead_bytes is None else ahead_bytes
        self.queue_bytes = None if budget is None else budget // 2
        nothing = "None: nothing is prepared ahead"
        in_turn = "None: all is done in the thread of the loop, as set_num_threads says"
        ahead = {"stage_threads": (stage_threads, in_turn), "prefetch_budget": (prefetch_budget, nothing)}
        for name, (value, expected) in ahead.items():
            if value is not None and self.prefetch == 0:
                raise InputError(argument=name, given=f"{value!r} with prefetch=0", expected=expected)
        self.stage_threads = None if stage_threads is None else require_stage_threads("stage_threads", stage_threads)

    def threads_of(self, stage: str) -> int:
        """Return the threads of sampling or of features."""
        return get_num_threads() if self.stage_threads is None else int(getattr(self.stage_threads, stage))


class RankBulk(NamedTuple):
    """A rank's batches of a bulk, or of a part of one.

    Attributes
    ----------
    bulk
    first, batches : int
        Of all ranks.
    """

    bulk: Any
    first: int
    batches: int


class Pass:
    """A pass of a loader over the batches of an epoch."""

    def __init__(self, loader: BulkLoader, epoch: int) -> None:
        self._loader, self._epoch = loader, epoch
        self._phases, self._copies, self._num_batches = loader.phases, loader._copies, loader.num_batches
        self._positions = loader._positions(epoch)

    def batches(self, first: int, make: Make) -> Generator[Delivered, None, None]:
        """Yield batches from ``first`` on. At most ``prefetch`` bulks and the one in use exist."""
        choice = self._loader._serial_choice
        if choice is None:
            yield from (self._ahead if self._loader.ahead.prefetch else self._serial)(first, make)
            return
        while first < self._num_batches:
            with closing((self._serial if choice.is_serial else self._ahead)(first, make)) as items:
                choice.begin()
                for item in items:
                    first = item.next_batch
                    choice.delivered(ends_bulk=item.ends_bulk)
                    yield item
                    if choice.asks():
                        break
                else:
                    return

    @property
    def _looks(self) -> bool:
        """True while bulks are timed: with threads a small one, and in both ways one of twice its size."""
        choice = self._loader._serial_choice
        return choice is not None and not choice.is_settled

    def _serial(self, first: int, make: Make) -> Generator[Delivered, None, None]:
        """Yield batches from ``first`` on, each made when it is asked for."""
        alone = Lockstep()
        bulks = self.bulks(first, warm_up_divisor(self._loader.ahead.prefetch) if self._looks else 1, alone)
        made = self._made(bulks, make, self._loader.features, alone)
        if self._copies.device is not None:
            made = self._copies.over(made, self._phases)
        with closing(made):
            while (item := next(made, None)) is not None:
                yield self._copies.received(item)
                del item

    def _ahead(self, first: int, make: Make) -> Generator[Delivered, None, None]:
        """Yield batches from ``first`` on, made by threads."""
        loader = self._loader
        if loader._left is not None:
            loader._left.join()
        with StageChain(waits=loader._duplicates is None, phases=self._phases) as chain:
            loader._left = chain if loader._duplicates is not None else None
            sampled, last = self._prefetchers(chain, first, make)
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

    def _prefetchers(self, chain: StageChain, first: int, make: Make) -> tuple[Prefetcher[RankBulk], Prefetcher[Chunk]]:
        """Start threads that sample bulks and make batches; on several ranks each works in step with its peers."""
        loader, phases, ahead = self._loader, self._phases, self._loader.ahead
        duplicates = loader._duplicates
        comms = (None, None) if duplicates is None else duplicates.comms
        sampling, gathering = (
            Lockstep(comm, chain.failures, partial(phases.timed, waiting_for("ranks", stage)))
            for comm, stage in zip(comms, ("sampling", "features"), strict=True)
        )
        bulks = self.bulks(first, (1 + self._looks) * warm_up_divisor(ahead.prefetch), sampling)
        of_bulks = Ahead(ahead.prefetch + loader._looks_ahead, ahead.queue_bytes, lambda bulk: int(bulk.bulk.nbytes))
        sampled = chain.prefetch(sampling.over(bulks), of_bulks, "sampling", ahead.threads_of("sampling"))
        to_come = phases.over(waiting_for("input", "features"), sampled)
        features = loader.features if duplicates is None else duplicates.features
        made = gathering.over(self._made(to_come, make, features, gathering))
        is_bounded = duplicates is not None or ahead.queue_bytes is not None
        in_chunk = 1 if is_bounded else MAX_BATCHES  # ranks in step make as many of them
        of_items = Ahead(FEATURES_AHEAD, ahead.queue_bytes, lambda chunk: chunk.nbytes)
        items = chain.prefetch(chunks(made, in_chunk), of_items, "features", ahead.threads_of("features"))
        if self._copies.device is not None:
            batches = phases.over(waiting_for("input", COPIES), one_by_one(items))
            copied = chunks(self._copies.over(batches, phases), in_chunk)
            items = chain.prefetch(copied, of_items._replace(items=COPIES_AHEAD), COPIES)
        return sampled, items

    def _made(
        self, bulks: Iterator[RankBulk], make: Make, features: FeatureSource | None, lockstep: Lockstep
    ) -> Generator[Delivered, None, None]:
        """Yield the batches of bulks, with features; distributed features are gathered in step.

        Where features of a rank look ahead, all ranks take each bulk after the next one is sampled.
        """
        loader, phases, cut = self._loader, self._phases, self._loader._cut
        around = (lockstep.synchronize, partial(phases.timed, "features"), self._copies.rows)
        if loader._looks_ahead:
            bulks = known_ahead(bulks, features, lambda bulk: calls_of(self._minibatches(bulk), loader._fetch))
        for bulk in bulks:
            next_batch = bulk.first
            for minibatch, x in with_rows(self._minibatches(bulk), features, loader._fetch, *around):
                number = minibatch.batch_id
                with phases.timed("features", number), phases.part("collate"):
                    batch, size = make(minibatch, self._positions[cut.places(number, number + 1)], x)
                begins, next_batch = next_batch == bulk.first, next_batch + loader._assignment.stride
                nbytes, ends = 0 if x is None else int(x.nbytes), next_batch >= bulk.first + bulk.batches
                yield Delivered(min(next_batch, self._num_batches), begins, batch, nbytes, ends, size, number)
                del batch, minibatch, x
            del bulk
        lockstep.synchronize()

    def _minibatches(self, bulk: RankBulk) -> Iterator[Any]:
        """Return the minibatches that this rank has of a bulk, one for each step."""
        return self._loader._assignment.minibatches(bulk.bulk, bulk.first, bulk.batches)

    def bulks(self, first: int, warm_up: int, lockstep: Lockstep) -> Generator[RankBulk, None, None]:
        """Yield bulks from batch ``first`` on; two or more in place of one that would pass the memory budget."""
        loader, assignment, duplicates = self._loader, self._loader._assignment, self._loader._duplicates
        graph = loader.graph if lockstep.comm is None or duplicates is None else duplicates.graph
        for begin, end in assignment.bulk_ranges(first, self._num_batches, loader.bulk_size, warm_up):
            lockstep.synchronize()
            bulks = loader._sampled_bulks(graph, self._positions, self._epoch, begin, end)
            while True:
                with self._phases.timed("sampling", begin):
                    sampled = next(bulks, None)
                    if sampled is None:
                        break
                    shares = nullcontext() if assignment.gives_whole_batches else self._phases.part("sharing out")
                    with shares:
                        bulk = assignment.of_rank(sampled, graph.comm)
                    del sampled
                batches = len(bulk) if loader.comm.size == 1 else end - begin
                yield RankBulk(bulk, begin, batches)
                begin += batches
                del bulk
        lockstep.synchronize()
