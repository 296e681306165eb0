"""Checks that a call fits in the memory that is available, the cheapest first."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import lru_cache
from traceback import clear_frames

from spsample.common.memory import available_memory, most_memory
from spsample.common.units import count, format_bytes
from spsample.errors import CapacityError
from spsample.planning.budget import TooManyEntriesError
from spsample.planning.bulk_counts import BulkCounts, Trial, most_bytes, most_counts
from spsample.planning.bulk_plan import BulkPlan, plan_of
from spsample.sampling.workload import Workload
from spsample.sparse import get_num_threads
from spsample.store.base_graph import BaseGraph

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
    available = available_memory()
    for counts_of in (_most_counts, _kept_pilots, _pilots_of_call):
        counts = counts_of(call, available)
        plan = None if counts is None else plan_of(call, counts, available)
        if plan is not None and plan.fits(plan.num_batches):
            return None
    return plan


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


def _most_counts(work: Workload, available: int) -> BulkCounts:
    return most_counts(work.graph, work.sampler, work.largest_batch, work.edge_ids)


def _kept_pilots(work: Workload, available: int) -> BulkCounts | None:
    """Counts of the pilots of an earlier call like this one, if there was one."""
    return _kept(work).get(_likeness(work.pilots(CALL_PILOTS)))


def _pilots_of_call(work: Workload, available: int) -> BulkCounts:
    """Counts of its pilots, which the graph keeps."""
    pilots = work.pilots(CALL_PILOTS)
    counts = _counts_within(pilots, available)
    _kept(work).setdefault(_likeness(pilots), counts)
    return counts


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


def _kept(work: Workload) -> dict[Hashable, BulkCounts]:
    """Counts of pilots that the graph keeps."""
    kept: dict[Hashable, BulkCounts] = work.graph.host.kept.setdefault("pilots", {})
    return kept


def _likeness(pilots: Workload) -> Hashable:
    """A key that calls which share pilots have in common: sampler, batch size, and seeds with about as many edges."""
    indptr, seeds, sampler = pilots.graph.host.indptr, pilots.seeds, pilots.sampler
    edges = int((indptr[seeds + 1] - indptr[seeds]).sum())
    return type(sampler), repr(sampler), pilots.batch_size, pilots.edge_ids, edges.bit_length()
