"""A pass of a loader over its batches: sampled in bulks, given features and copied; ahead of the loop, or serially."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.common.checks import require_bulk_size, require_int
from spsample.common.stage_threads import StageThreads, require_stage_threads
from spsample.common.threads import get_num_threads
from spsample.common.units import require_bytes
from spsample.errors import InputError
from spsample.loading.copies import COPIES, COPIES_AHEAD
from spsample.loading.fetching import calls_of, known_ahead, with_rows
from spsample.loading.order import Delivered
from spsample.loading.prefetch import MAX_BATCHES, Ahead, Chunk, Prefetcher, StageChain, chunks, one_by_one
from spsample.loading.ranks import Duplicates, Lockstep
from spsample.loading.serial import SerialChoice
from spsample.planning.bulk_plan import warm_up_divisor
from spsample.planning.loader_plan import MAX_AHEAD, USUAL_BULK_SIZE
from spsample.timeline import waiting_for

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from spsample.features import FeatureSource
    from spsample.loading.loader import BulkLoader
    from spsample.loading.ranks import BatchAssignment
    from spsample.sampling import MiniBatch
    from spsample.store.base_graph import BaseGraph
    from spsample.timeline import Timeline

FEATURES_AHEAD = 2
"""Batches, or chunks of small ones, whose features may be gathered before they are asked for."""

Make = Callable[["MiniBatch", "NDArray[np.int64]", Any], tuple[Any, "int | None"]]
"""Makes a batch of a minibatch, the positions of its seeds and the features of its sources; and the bytes that are held
for it, None where they are unknown."""


@dataclass(frozen=True)
class AheadGroup:
    """Options of `BulkLoader`: work at once and ahead, its memory and its threads."""

    bulk_size: int | str = USUAL_BULK_SIZE
    memory_budget: int | str | None = None
    prefetch: int = 1
    prefetch_budget: int | str | None = None
    stage_threads: StageThreads | str | Sequence[int] | None = None
    timeline: Timeline | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefetch", require_int("prefetch", self.prefetch, minimum=0, maximum=MAX_AHEAD))
        require_bulk_size("bulk_size", self.bulk_size)
        for name in ("memory_budget", "prefetch_budget"):
            if getattr(self, name) is not None:
                require_bytes(name, getattr(self, name))
        in_turn = {
            "stage_threads": "None: all is done in the thread of the loop, as set_num_threads says",
            "prefetch_budget": "None: nothing is prepared ahead",
        }
        for name, expected in in_turn.items():
            value = getattr(self, name)
            if value is not None and self.prefetch == 0:
                raise InputError(argument=name, given=f"{value!r} with prefetch=0", expected=expected)
        if self.stage_threads is not None:
            object.__setattr__(self, "stage_threads", require_stage_threads("stage_threads", self.stage_threads))

    @property
    def queue_bytes(self) -> int | None:
        """Bytes of bulks that wait, and as many of batches: half of the budget; None for no limit."""
        budget = self.memory_budget if self.prefetch_budget is None else self.prefetch_budget
        return None if budget is None else require_bytes("prefetch_budget", budget) // 2

    def threads_of(self, stage: str) -> int:
        """Return the threads of sampling or of features."""
        threads = self.stage_threads
        return int(getattr(threads, stage)) if isinstance(threads, StageThreads) else get_num_threads()


class PassStages:
    """The stages of a loader, and the state that one of its passes leaves to the next.

    Parameters
    ----------
    loader : BulkLoader
    graph : BaseGraph
        As given. On several ranks with prefetch it is duplicated, which is collective.
    fetch : str
    assignment : BatchAssignment
    looks_ahead : bool
        True where the features of a rank look ahead.

    Attributes
    ----------
    duplicates : Duplicates or None
        Of graph and features, for threads that communicate.
    left : StageChain or None
        Of the last pass: its threads end once those of the other ranks do.
    serial_choice : SerialChoice or None
        None where a pass always has threads, or never.
    """

    def __init__(
        self,
        loader: BulkLoader,
        graph: BaseGraph,
        fetch: str,
        assignment: BatchAssignment,
        *,
        looks_ahead: bool,
    ) -> None:
        self.fetch, self.assignment, self.looks_ahead = fetch, assignment, looks_ahead
        is_alone, ahead = graph.comm.size == 1, loader.ahead
        self.duplicates = None if is_alone or ahead.prefetch == 0 else Duplicates(graph, loader.features)
        self.left: StageChain | None = None
        may_choose = is_alone and ahead.prefetch > 0 and ahead.stage_threads is None
        has_choice = may_choose and not looks_ahead and loader.device is None
        self.serial_choice = SerialChoice() if has_choice else None

    def close(self) -> None:
        """End the threads of the last pass, and free communicators; collective."""
        if self.left is not None:
            self.left.join()
        if self.duplicates is not None:
            self.duplicates.close()
            self.duplicates = None


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
        self._loader, self._stages, self._epoch = loader, loader._stages, epoch
        self._phases, self._copies, self._num_batches = loader.phases, loader._copies, loader.num_batches
        self._positions = loader._positions(epoch)

    def batches(self, first: int, make: Make) -> Generator[Delivered, None, None]:
        """Yield batches from ``first`` on. At most ``prefetch`` bulks and the one in use exist."""
        choice = self._stages.serial_choice
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
        choice = self._stages.serial_choice
        return choice is not None and not choice.is_settled

    def _serial(self, first: int, make: Make) -> Generator[Delivered, None, None]:
        """Yield batches from ``first`` on, each made when it is asked for."""
        alone = Lockstep[Any]()
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
        stages = self._stages
        if stages.left is not None:
            stages.left.join()
        with StageChain(waits=stages.duplicates is None, phases=self._phases) as chain:
            stages.left = chain if stages.duplicates is not None else None
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
        stages, phases, ahead = self._stages, self._phases, self._loader.ahead
        duplicates = stages.duplicates
        comms = (None, None) if duplicates is None else duplicates.comms
        sampling, gathering = (
            Lockstep[Any](comm, chain.failures, partial(phases.timed, waiting_for("ranks", stage)))
            for comm, stage in zip(comms, ("sampling", "features"), strict=True)
        )
        bulks = self.bulks(first, (1 + self._looks) * warm_up_divisor(ahead.prefetch), sampling)
        of_bulks = Ahead(ahead.prefetch + stages.looks_ahead, ahead.queue_bytes, lambda bulk: int(bulk.bulk.nbytes))
        sampled = chain.prefetch(sampling.over(bulks), of_bulks, "sampling", ahead.threads_of("sampling"))
        to_come = phases.over(waiting_for("input", "features"), sampled)
        features = self._loader.features if duplicates is None else duplicates.features
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
        self, bulks: Iterator[RankBulk], make: Make, features: FeatureSource | None, lockstep: Lockstep[Any]
    ) -> Generator[Delivered, None, None]:
        """Yield the batches of bulks, with features; distributed features are gathered in step.

        Where features of a rank look ahead, all ranks take each bulk after the next one is sampled.
        """
        stages, phases, cut = self._stages, self._phases, self._loader._cut
        around = (lockstep.synchronize, partial(phases.timed, "features"), self._copies.rows)
        if stages.looks_ahead:
            bulks = known_ahead(bulks, features, lambda bulk: calls_of(self._minibatches(bulk), stages.fetch))
        for bulk in bulks:
            next_batch = bulk.first
            for minibatch, x in with_rows(self._minibatches(bulk), features, stages.fetch, *around):
                number = minibatch.batch_id
                with phases.timed("features", number), phases.part("collate"):
                    batch, size = make(minibatch, self._positions[cut.places(number, number + 1)], x)
                begins, next_batch = next_batch == bulk.first, next_batch + stages.assignment.stride
                nbytes, ends = 0 if x is None else int(x.nbytes), next_batch >= bulk.first + bulk.batches
                yield Delivered(min(next_batch, self._num_batches), begins, batch, nbytes, ends, size, number)
                del batch, minibatch, x
            del bulk
        lockstep.synchronize()

    def _minibatches(self, bulk: RankBulk) -> Iterator[Any]:
        """Return the minibatches that this rank has of a bulk, one for each step."""
        return self._stages.assignment.minibatches(bulk.bulk, bulk.first, bulk.batches)

    def bulks(self, first: int, warm_up: int, lockstep: Lockstep[Any]) -> Generator[RankBulk, None, None]:
        """Yield bulks from batch ``first`` on; two or more in place of one that would pass the memory budget."""
        loader, assignment, duplicates = self._loader, self._stages.assignment, self._stages.duplicates
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
