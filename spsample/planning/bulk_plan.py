"""`BulkPlan`: the memory of bulks, predicted from the counts of a few batches; and checks that a call fits in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from math import sqrt
from traceback import clear_frames

from spsample.common.checks import require_int
from spsample.common.lazily import lazily
from spsample.common.memory import available_memory, most_memory
from spsample.common.units import count, format_bytes
from spsample.errors import CapacityError
from spsample.planning.budget import (
    MAX_BATCHES,
    NO_BUFFERS,
    BudgetedPlan,
    Buffers,
    TooManyEntriesError,
    largest_fitting,
)
from spsample.planning.bulk_counts import BulkCounts, Trial, most_bytes, most_counts
from spsample.planning.scratch import scratch_on
from spsample.sampling.workload import Workload
from spsample.sparse import get_num_threads
from spsample.store.base_graph import BaseGraph

MODEL_MARGIN = 0.35  # share of the arrays, measured: blocks of memory are larger than their arrays, and some are kept
DEVIATIONS = 1.5  # standard deviations by which the mean of batches may pass that of the pilots
CALL_BYTES = 8 << 20  # small arrays, stacks of threads
SEED_BYTES = 48  # bytes of a seed of a bulk: in the order given, as ids, sorted, and its place
ORDER_BYTES = 16  # bytes of a seed of an epoch: its id and its place in the order
FEATURE_MARGIN = 1.1
MAX_STEADY_BATCHES = 1 << 24  # no larger steady size is looked for


@dataclass(frozen=True)
class BulkPlan(BudgetedPlan):
    """Memory of bulks of a sampler, and how many batches fit.

    Attributes
    ----------
    memory_budget : int
        Bytes.
    batch_size, num_batches : int
        Seeds of a batch, and batches of an epoch.
    bulk_size : int
        The largest k whose peak is within the budget; at most an epoch.
    counts : BulkCounts
        What the pilot batches hold.
    held : int
        Finished bulks that exist while one is made.
    warm_up : int
        An epoch begins with a bulk of the bulk size divided by this, then of twice as many batches, and so on.
    feature_bytes : int
        For features gathered ahead, and those in use.
    kept_bytes : int
        Kept with the graph for the sampler.
    id_bytes : int
        Bytes of a vertex id.
    scratch : function
        Bytes that making a bulk takes beside its arrays, by its counts.
    pilot_seconds : float
        Time that the pilot batches took.
    """

    num_batches: int
    counts: BulkCounts
    held: int
    warm_up: int
    feature_bytes: int
    kept_bytes: int
    id_bytes: int
    scratch: Callable[[BulkCounts], int]
    pilot_seconds: float = 0.0

    @property
    def spread(self) -> float:
        """Standard deviation of the sizes of pilot batches over their mean."""
        return self.counts.spread

    @property
    def bulk_size(self) -> int:
        """The largest k that fits in the budget; at most an epoch, at least 1."""
        return max(self.largest(self.num_batches), 1)

    @property
    def bytes_per_batch(self) -> int:
        """Bytes of the arrays of a batch, in the mean of the pilots."""
        return self.counts.scaled(1).result_bytes(self.id_bytes)

    @property
    def fixed_bytes(self) -> int:
        """Bytes that do not grow with k: scratch of threads, features, the seeds' order, and what the graph keeps."""
        return self.scratch_bytes(0) + self._other_bytes

    @property
    def _other_bytes(self) -> int:
        """Bytes that do not depend on k at all."""
        order = ORDER_BYTES * self.num_batches * self.batch_size
        return order + CALL_BYTES + self.feature_bytes + self.kept_bytes

    def scratch_bytes(self, bulk_size: int) -> int:
        """Bytes beside the arrays, while a bulk of `bulk_size` batches is made."""
        return self.scratch(self._at_most(bulk_size))

    def result_bytes(self, bulk_size: int) -> int:
        """Bytes of the arrays of such a bulk, margin included."""
        return self._at_most(bulk_size, MODEL_MARGIN).result_bytes(self.id_bytes)

    def sources_of(self, bulk_size: int) -> int:
        """Vertices whose features the batches of a bulk need, margin included."""
        layers = self._at_most(bulk_size).layers
        return layers[0].sources if layers else 0

    def peak(self, bulk_size: int) -> int:
        """Bytes at the peak with bulks of `bulk_size` batches, beyond the graph and the features themselves.

        Each bulk of an epoch is made while the `held` ones before it exist, wherever the pass before it ended.
        """
        bulk_size = require_int("bulk_size", bulk_size, minimum=0, maximum=MAX_BATCHES)
        return max(self._peak(made, held) for made, held in self._steps(bulk_size))

    def _peak(self, made: int, held: int) -> int:
        """Bytes while a bulk of `made` batches is made and finished ones of `held` batches in all exist."""
        result = self.result_bytes(made) + SEED_BYTES * self.batch_size * made
        result += result * held // max(made, 1)
        features = self.ahead.nbytes(self.sources_of(made))
        return result + features + self.scratch_bytes(made) + self._other_bytes

    def _steps(self, bulk_size: int) -> list[tuple[int, int]]:
        """Batches of the bulk that is made, and of those held, for each bulk of an epoch.

        It begins while a batch of the largest bulk is in use: of the epoch before, or of a pass that was left early.
        In an epoch of many bulks only where all have the full size, which is the most.
        """
        ranges = bulk_ranges(0, self.num_batches, bulk_size, self.warm_up) if bulk_size else iter(())
        many = self.warm_up.bit_length() + self.held + 1
        sizes = [end - begin for begin, end in islice(ranges, many + 1)]
        if len(sizes) > many or not sizes:
            return [(bulk_size, self.held * bulk_size)]
        sizes = [max(sizes), *sizes]
        return [(sizes[i], sum(sizes[max(i - self.held, 0) : i])) for i in range(1, len(sizes))]

    def most_entries(self, batches: int) -> int:
        """Entries that a bulk of `batches` batches may have.

        As many as the largest bulk of which `held` more fit beside it. In an epoch of few bulks, the first of which are
        smaller, a larger one may be planned: it may have as many as its batches promise.
        """
        batches = require_int("batches", batches, minimum=0, maximum=MAX_BATCHES)
        fitting = self._steady_bulk_size
        if batches > fitting and self._peak(batches, batches // 2) <= self.memory_budget:
            fitting = batches
        return self._at_most(fitting, MODEL_MARGIN).entries if fitting else 0

    @lazily
    def _steady_bulk_size(self) -> int:
        """Batches of the largest bulk of which `held` more fit beside it, in an epoch of any length."""
        return largest_fitting(MAX_STEADY_BATCHES, lambda k: self._peak(k, self.held * k) <= self.memory_budget)

    def _at_most(self, bulk_size: int, margin: float = 0.0) -> BulkCounts:
        """The most that `bulk_size` batches may hold: their mean may pass that of the pilots, and a margin it."""
        bulk_size = require_int("bulk_size", bulk_size, minimum=0, maximum=MAX_BATCHES)
        deviation = DEVIATIONS * self.spread * sqrt(1 / max(self.counts.batches, 1) + 1 / max(bulk_size, 1))
        return self.counts.scaled(bulk_size, 1 + margin + deviation)


def plan_of(
    work: Workload, counts: BulkCounts, memory_budget: int, buffers: Buffers = NO_BUFFERS, pilot_seconds: float = 0.0
) -> BulkPlan:
    """The plan of a workload whose batches are like those of the counts."""
    return BulkPlan(
        memory_budget=memory_budget,
        batch_size=work.largest_batch,
        num_batches=work.num_batches,
        counts=counts,
        held=buffers.finished,
        warm_up=warm_up_divisor(buffers.prefetch or 0),
        feature_bytes=feature_bytes_of(buffers.feature_batches, buffers.feature_bytes, counts),
        kept_bytes=work.graph.kept_nbytes,
        id_bytes=work.graph.index_dtype.itemsize,
        scratch=scratch_on(work.graph, get_num_threads()),
        pilot_seconds=pilot_seconds,
        ahead=buffers.ahead,
    )


def feature_bytes_of(batches: int, vertex_bytes: int, counts: BulkCounts) -> int:
    """Bytes of the features of `batches` batches, each as large as the largest counted."""
    largest = max((layer.largest_sources for layer in counts.layers), default=0)
    return int(FEATURE_MARGIN * batches * vertex_bytes * largest)


# ------------------------------------------------------------------------------------ into which bulks an epoch is cut


def warm_up_divisor(prefetch: int) -> int:
    """The divisor of the bulk size for the first bulk of a pass: with prefetch the loop has something to do soon.

    Examples
    --------
    >>> warm_up_divisor(0), warm_up_divisor(1)
    (1, 8)
    """
    return 1 if prefetch == 0 else 8


def bulk_ranges(first: int, last: int, size: int, warm_up: int = 1) -> Iterator[tuple[int, int]]:
    """Yield the begin and the end of each bulk of the batches from `first` to `last`.

    They have `size` batches, the first ones fewer: ``size // warm_up``, then twice that, and so on.

    Examples
    --------
    >>> list(bulk_ranges(0, 20, 8, warm_up=4))
    [(0, 2), (2, 6), (6, 14), (14, 20)]
    """
    ahead = max(size // warm_up, 1)
    while first < last:
        yield first, min(first + ahead, last)
        first += ahead
        ahead = min(2 * ahead, size)


AVAILABLE_SHARE = 0.5  # share of the available memory, where no budget is given
CALL_PILOTS = 4  # pilots of a call that may not fit
NAMED_SHARE = 15 / 16  # share of the memory: a call of the suggested size has other pilots
MIN_CHECKED_BYTES = 24 << 20  # about a million entries; smaller calls are not checked
PEAK_PER_RESULT_BYTE = 4  # bytes at the peak for a byte of the result, estimated high
THREAD_BYTES_PER_VERTEX = 32  # bytes at the peak for each thread and vertex, estimated high
MACHINE_SHARE = 1 / 16  # share of all memory: smaller calls are not compared with the available memory
READING_SECONDS = 0.25  # time for which a reading of the available memory is used
READING_SHARE = 0.5  # share of that reading: smaller calls need no new one


def default_budget(graph: BaseGraph | None = None) -> int:
    """Half of the memory that is available now: of the graph's device, or here, limits of control groups respected."""
    return max(int(AVAILABLE_SHARE * available_bytes(graph)), 1)


def available_bytes(graph: BaseGraph | None) -> int:
    """Bytes that bulks of the graph may take: of its device, or of the host."""
    return available_memory() if graph is None or not graph.is_on_device else graph.free_bytes()


def require_memory(call: Workload) -> None:
    """Refuse a call of `bulk_sample` whose bulk does not fit in the memory that is available.

    Graphs on a device or on several ranks are not looked at: see `out_of_memory`.

    Raises
    ------
    CapacityError
        It names how many of the batches fit.
    """
    plan = _plan_beyond_memory(call)
    if plan is not None:
        raise _beyond_memory(call, plan)


def out_of_memory(call: Workload, error: CapacityError) -> CapacityError:
    """The error of a call that failed with another: how many batches fit, where a device's memory ran out.

    What the call had made is let go of. An error of another kind is returned as it is, and so is that of a call of one
    batch, or of which four batches do not fit either.
    """
    if not call.graph.is_on_device or not isinstance(error.__cause__, MemoryError) or call.num_batches < 2:
        return error
    clear_frames(error.__cause__.__traceback__)
    available = call.graph.free_bytes()
    try:
        plan = plan_of(call, _counts_within(call.pilots(CALL_PILOTS), available), available)
    except CapacityError:
        return error
    return _beyond_memory(call, plan)


def _beyond_memory(call: Workload, plan: BulkPlan) -> CapacityError:
    """The error of a call that does not fit: how many of its batches do, fewer than it has."""
    named = replace(plan, memory_budget=int(NAMED_SHARE * plan.memory_budget)).largest(plan.num_batches)
    peak = format_bytes(plan.peak(plan.num_batches))
    batches = count(plan.num_batches, "batch", "batches")
    return CapacityError(
        argument="seeds",
        given=f"{batches} of up to {plan.batch_size} seeds for {call.sampler!r}, which take {peak}",
        expected=f"at most {min(named, plan.num_batches - 1)} of these batches within the "
        f"{format_bytes(plan.memory_budget)} that are available",
        hint="Sample fewer batches in a call (bulk_size of BulkLoader), or with smaller fanouts or layer sizes.",
    )


def first_fitting(work: Workload) -> Workload:
    """The first batches of a call that fit in the memory that is available.

    Raises
    ------
    CapacityError
        If not even one does.
    """
    plan = _plan_beyond_memory(work)
    if plan is None:
        return work
    fitting = work.part(0, max(plan.largest(plan.num_batches), 1))
    require_memory(fitting)
    return fitting


def _plan_beyond_memory(call: Workload) -> BulkPlan | None:
    """The plan of a call that does not fit in the memory that is available; None for one that does.

    Each check costs more than the one before it, and is made only where that one did not decide:

    1. *Sizes* of the sampler and of the graph bound the bytes of the arrays, in microseconds. Few of them fit, and so
       does what is little beside the machine, or beside what was available a moment ago.
    2. *The largest bulk that could be drawn* is planned as any other, against what is available now: 0.3 ms.
    3. *Pilots that were kept*, four batches of an earlier call with the same sampler and batch size whose seeds have
       about as many edges, are planned with: 0.2 ms.
    4. *Pilots of this very call* are sampled, and kept: as long as four batches take. Nothing is refused but for these:
       those of other seeds say little where few vertices have most edges.
    """
    if call.graph.host is not call.graph or call.backend == "cuda" or _surely_fits(call):
        return None
    available, batches = available_memory(), call.num_batches
    most = most_counts(call.graph, call.sampler, call.largest_batch, call.edge_ids)
    if plan_of(call, most, available).fits(batches):
        return None
    pilots = call.pilots(CALL_PILOTS)
    kept: dict[Hashable, BulkCounts] = pilots.graph.host.kept.setdefault("pilots", {})
    likeness = _likeness(pilots)
    if likeness in kept and plan_of(call, kept[likeness], available).fits(batches):
        return None
    counts = _counts_within(pilots, available)
    kept.setdefault(likeness, counts)
    plan = plan_of(call, counts, available)
    return None if plan.fits(batches) else plan


def _surely_fits(call: Workload) -> bool:
    """Return whether a call takes so little that the available memory need not be read now, which takes 0.1 ms."""
    arrays = call.num_batches * most_bytes(call.graph, call.sampler, min(call.batch_size, len(call.seeds)))
    if arrays <= MIN_CHECKED_BYTES:
        return True
    most = PEAK_PER_RESULT_BYTE * arrays + THREAD_BYTES_PER_VERTEX * get_num_threads() * call.graph.num_nodes
    if most <= MACHINE_SHARE * most_memory():
        return True
    reading = _kept_reading(int(time.monotonic() / READING_SECONDS), available_memory)
    return bool(most <= READING_SHARE * reading)


@lru_cache(maxsize=1)
def _kept_reading(interval: int, read: Callable[[], int]) -> int:
    """Bytes that were available when they were first asked for in this interval of time."""
    return read()


def _counts_within(pilots: Workload, available: int) -> BulkCounts:
    """Counts of pilots, for which no more entries are drawn than ids of them fit."""
    most = available // pilots.graph.index_dtype.itemsize
    try:
        return Trial.of(pilots, most).counts
    except TooManyEntriesError:
        raise CapacityError(
            argument="batch_size",
            given=f"{count(pilots.num_batches, 'batch', 'batches')} of up to {pilots.batch_size} seeds, "
            f"with more than {most} sampled edges",
            expected=f"batches that fit in the {format_bytes(available)} that are available",
            hint="Use smaller batches, fanouts or layer sizes.",
        ) from None


def _likeness(pilots: Workload) -> Hashable:
    """A key that calls which share pilots have in common: sampler, batch size, and seeds with about as many edges."""
    indptr, seeds, sampler = pilots.graph.host.indptr, pilots.seeds, pilots.sampler
    edges = int((indptr[seeds + 1] - indptr[seeds]).sum())
    return type(sampler), repr(sampler), pilots.batch_size, pilots.edge_ids, edges.bit_length()
