"""How many minibatches fit in how much memory: predicted from a few pilot batches, and kept to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends import get_backend
from spsample.common.checks import require_int, require_type, short
from spsample.common.memory import available_memory, most_memory
from spsample.common.units import format_bytes, require_bytes
from spsample.errors import CapacityError, InputError
from spsample.planning.bounds import most_bytes, most_counts
from spsample.planning.capped import CappedGraph, TooManyEntriesError
from spsample.planning.device_memory import available_for, index_dtype
from spsample.planning.epoch_bulks import bulk_ranges, ramp_of
from spsample.planning.memory import BulkCounts, scratch_of
from spsample.sampling.arguments import check_arguments
from spsample.sampling.bulk import BulkSample
from spsample.sampling.call import sample_batches
from spsample.sampling.sampler import Sampler, require_bool
from spsample.sparse import get_num_threads, keys
from spsample.store import Graph
from spsample.store.device_graph import DeviceGraph

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BulkPlan", "default_budget", "plan_bulk"]

AVAILABLE_SHARE = 0.5  # of the memory that is available, where no budget is given
PILOT_SHARE, FEWEST_PILOTS, MOST_PILOTS = 16, 2, 32  # a batch in so many of an epoch
MODEL_MARGIN = 0.25  # of arrays: blocks of memory are up to an eighth larger than their arrays, and some are kept
DEVIATIONS = 1.5  # of the mean of the batches, from what the pilots show
CALL_BYTES = 8 << 20  # small arrays, stacks of threads
SEED_BYTES = 48  # of a seed of a bulk: in the order given, as ids, sorted, and its place
ORDER_BYTES = 16  # of a seed of an epoch: its id and its place in the order
MOST_BATCHES = 1 << 24
MOST_ASKED = 1 << 62
MOST_AHEAD = 64  # bulks that a loader samples ahead: each is kept in memory
FEATURE_MARGIN = 1.1
CALL_PILOTS = 4  # batches of a call that may not fit
NAMED_SHARE = 15 / 16  # of the memory: a call of as many batches as were named has other pilots
ROUGHLY, ROUGHLY_A_VERTEX = 4, 32  # bytes of a peak for a byte of a result, and for a vertex on each thread
SURELY_SHARE = 16  # of all memory: what takes less is not held against what is available
LATELY = 0.25  # seconds for which a reading of what is available serves
LATELY_SHARE = 2  # of that reading: what takes less is not held against a new one


@dataclass(frozen=True)
class BulkPlan:
    """What bulks of a sampler take, and how many batches fit.

    Attributes
    ----------
    memory_budget : int
        Bytes.
    num_batches : int
        Of an epoch.
    bulk_size : int
        The largest k whose peak is within the budget; at most an epoch.
    counts : BulkCounts
        Of the pilot batches.
    spread : float
        Standard deviation of the bytes of a pilot batch over their mean.
    held : int
        Finished bulks that exist while one is made.
    ramp : int
        An epoch begins with a bulk of a so many-th of the bulk size, then of twice as many batches, and so on.
    feature_bytes : int
        For features gathered ahead, and those in use.
    kept_bytes : int
        Kept with the graph for the sampler.
    pilot_seconds : float
        Time that the pilot batches took.
    """

    memory_budget: int
    num_batches: int
    batch_size: int
    counts: BulkCounts
    spread: float
    held: int
    ramp: int
    feature_bytes: int
    kept_bytes: int
    pilot_seconds: float
    graph: Any
    threads: int

    @property
    def bulk_size(self) -> int:
        """The largest k that fits in the budget; at most an epoch, at least 1."""
        return max(self.largest(self.num_batches), 1)

    @property
    def bytes_per_batch(self) -> int:
        """Of the arrays of a batch, in the mean of the pilots."""
        return self.counts.scaled(1).result_bytes(self._itemsize)

    @property
    def fixed_bytes(self) -> int:
        """What does not grow with k: scratch of threads, features, the seeds' order, what is kept with the graph."""
        return self.scratch_bytes(0) + self._other_bytes

    @property
    def _other_bytes(self) -> int:
        """What does not depend on k at all."""
        order = ORDER_BYTES * self.num_batches * self.batch_size
        return order + CALL_BYTES + self.feature_bytes + self.kept_bytes

    def scratch_bytes(self, bulk_size: int) -> int:
        """Beside the arrays, while a bulk of so many batches is made."""
        require_int("bulk_size", bulk_size, minimum=0, maximum=MOST_ASKED)
        margin = 1 + self._deviation(bulk_size)
        return scratch_of(self.graph, self.counts.scaled(bulk_size, margin), self.threads)

    def result_bytes(self, bulk_size: int) -> int:
        """Of the arrays of such a bulk, margin included."""
        require_int("bulk_size", bulk_size, minimum=0, maximum=MOST_ASKED)
        return self.counts.scaled(bulk_size, self._margin(bulk_size)).result_bytes(self._itemsize)

    def peak(self, bulk_size: int) -> int:
        """Bytes at the peak with bulks of so many batches, beyond the graph and the features themselves.

        Each bulk of an epoch is made while the `held` ones before it exist, wherever the pass before it ended.
        """
        require_int("bulk_size", bulk_size, minimum=0, maximum=MOST_ASKED)
        return max(self._peak(made, held) for made, held in self._steps(bulk_size))

    def _peak(self, made: int, held: int) -> int:
        """Bytes while a bulk of `made` batches is made and finished ones of `held` batches in all exist."""
        result = self.result_bytes(made) + SEED_BYTES * self.batch_size * made
        result += result * held // max(made, 1)
        return result + self.scratch_bytes(made) + self._other_bytes

    def _steps(self, bulk_size: int) -> list[tuple[int, int]]:
        """Batches of the bulk that is made, and of those held, for each bulk of an epoch.

        It begins while a batch of the largest bulk is in use: of the epoch before, or of a pass that was left early.
        In an epoch of many bulks only where all have the full size, which is the most.
        """
        ranges = bulk_ranges(0, self.num_batches, bulk_size, self.ramp) if bulk_size else iter(())
        many = self.ramp.bit_length() + self.held + 1
        sizes = [end - begin for begin, end in islice(ranges, many + 1)]
        if len(sizes) > many or not sizes:
            return [(bulk_size, self.held * bulk_size)]
        sizes = [max(sizes), *sizes]
        return [(sizes[i], sum(sizes[max(i - self.held, 0) : i])) for i in range(1, len(sizes))]

    def largest(self, most: int) -> int:
        """The largest k up to `most` whose peak is within the budget; 0 where there is none."""
        require_int("most", most, minimum=0, maximum=MOST_ASKED)
        return self._largest(most, self.peak)

    def _largest(self, most: int, peak: Callable[[int], int]) -> int:
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if peak(middle) <= self.memory_budget else (low, middle - 1)
        return low

    def most_entries(self, batches: int) -> int:
        """Entries that a bulk of so many batches may have.

        As many as the largest bulk of which `held` more fit beside it. In an epoch of few bulks, the first of which are
        smaller, a larger one may be planned: it may have as many as its batches promise.
        """
        require_int("batches", batches, minimum=0, maximum=MOST_ASKED)
        fitting = self._repeatable
        if batches > fitting and self._peak(batches, batches // 2) <= self.memory_budget:
            fitting = batches
        return self.counts.scaled(fitting, self._margin(fitting)).entries if fitting else 0

    @cached_property
    def _repeatable(self) -> int:
        """Batches of the largest bulk of which `held` more fit beside it, in an epoch of any length."""
        return self._largest(MOST_BATCHES, lambda k: self._peak(k, self.held * k))

    def require(self, bulk_size: int) -> None:
        """Refuse a bulk size that does not fit.

        Raises
        ------
        CapacityError
            It names the largest one that does.
        """
        require_int("bulk_size", bulk_size, minimum=0, maximum=MOST_ASKED)
        peak = self.peak(bulk_size)
        if bulk_size == 0 or peak <= self.memory_budget:
            return
        largest = self.largest(bulk_size)
        budget = format_bytes(self.memory_budget)
        if largest == 0:
            raise CapacityError(
                argument="memory_budget",
                given=f"{budget} for batches of {self.batch_size} seeds",
                expected=f"at least {format_bytes(self.peak(1))}, which one at a time takes",
                hint="Give more, or use smaller batches, fanouts or layer sizes.",
            )
        raise CapacityError(
            argument="bulk_size",
            given=f"{bulk_size}, which takes {format_bytes(peak)}",
            expected=f"at most {largest} within the memory budget of {budget}",
            hint="bulk_size='auto' finds it.",
        )

    def _margin(self, bulk_size: int) -> float:
        """What the arrays of so many batches may take, over what those of the pilots promise."""
        return 1 + MODEL_MARGIN + self._deviation(bulk_size)

    def _deviation(self, bulk_size: int) -> float:
        """How much more than the mean of the pilots the mean of so many batches may be."""
        pilots = max(self.counts.batches, 1)
        return DEVIATIONS * self.spread * sqrt(1 / pilots + 1 / max(bulk_size, 1))

    @property
    def _itemsize(self) -> int:
        return int(index_dtype(self.graph).itemsize)


def default_budget(graph: Any = None) -> int:
    """Half of the memory that is available now: of the graph's device, or here, limits of control groups respected."""
    return max(int(AVAILABLE_SHARE * available_for(graph, available_memory())), 1)


def plan_bulk(
    graph: Any,
    seeds: Any,
    sampler: Sampler,
    *,
    batch_size: int,
    memory_budget: int | str | None = None,
    prefetch: int = 0,
    edge_ids: bool = False,
    features: tuple[int, int] = (0, 0),
    shuffle: bool = True,
    backend: str | None = None,
) -> BulkPlan:
    """Predict what bulks take, from a few batches that are sampled for it.

    The pilots are one batch in 16 of an epoch, at least 2 and at most 32: the first ones of a fixed order, or evenly
    spaced ones where seeds come in the order given. They decide nothing but sizes, and equal calls give equal plans.

    Parameters
    ----------
    graph, seeds, sampler, batch_size, edge_ids, backend
        As of `bulk_sample`, with the seeds of a whole epoch.
    memory_budget : int, str or None
        Bytes, or such as "2GiB"; None is half of what is available.
    prefetch : int
        Bulks that a loader samples ahead. One finished bulk at least exists while one is made: in a loop the last one
        is in use until the next is there.
    features : (int, int)
        How many batches hold features at a time, and the bytes of a vertex's.
    shuffle : bool
        Whether epochs shuffle the seeds.

    Returns
    -------
    BulkPlan

    Raises
    ------
    CapacityError
        If not even single batches fit.
    InputError, DTypeError
        If an argument cannot be used.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.load_dataset("rmat:10,8").graph
    >>> plan = plan_bulk(graph, range(1024), sp.GraphSAGE([5, 5]), batch_size=64, memory_budget="64MiB")
    >>> plan.bulk_size, plan.peak(plan.bulk_size) <= plan.memory_budget
    (16, True)
    """
    ids, batch_size = check_arguments(graph, seeds, sampler, batch_size)
    batch_size = min(batch_size, max(len(ids), 1))
    features = _checked_features(features)
    budget = default_budget(graph) if memory_budget is None else require_bytes("memory_budget", memory_budget)
    prefetch = require_int("prefetch", prefetch, minimum=0, maximum=MOST_AHEAD)
    backend = None if backend is None else get_backend(backend).name
    shuffle = require_bool("shuffle", shuffle)
    edge_ids = require_bool("edge_ids", edge_ids)
    num_batches = -(-len(ids) // batch_size)
    start = time.perf_counter()
    options: dict[str, Any] = {"batch_size": batch_size, "edge_ids": edge_ids, "backend": backend}
    pilots = _pilot_seeds(ids, batch_size, shuffle)
    room = _plan_of_call(graph, pilots, sampler, options) if isinstance(graph, Graph) and backend != "cuda" else None
    if room is not None:
        pilots = pilots[: max(room.largest(room.num_batches), 1) * batch_size]
    if room is not None:
        require_room(graph, pilots, sampler, **options)
    pilot = sample_batches(graph, pilots, sampler, **options)
    seconds = time.perf_counter() - start
    plan = plan_of(
        graph,
        BulkCounts.of(pilot).of_edges(),
        memory_budget=budget,
        num_batches=num_batches,
        batch_size=batch_size,
        prefetch=prefetch,
        features=features,
        spread=_spread(pilot),
        pilot_seconds=seconds,
    )
    plan.require(min(1, num_batches))
    return plan


def _checked_features(features: Any) -> tuple[int, int]:
    expected = "two integers: how many batches hold features, and the bytes of a vertex's"
    require_type("features", features, tuple, expected)
    if len(features) != 2:
        raise InputError(argument="features", given=short(features), expected=expected)
    batches, row_bytes = features
    return require_int("features[0]", batches, minimum=0), require_int("features[1]", row_bytes, minimum=0)


def plan_of(
    graph: Any,
    counts: BulkCounts,
    *,
    memory_budget: int,
    num_batches: int,
    batch_size: int,
    prefetch: int | None = None,
    features: tuple[int, int] = (0, 0),
    spread: float = 0.0,
    pilot_seconds: float = 0.0,
) -> BulkPlan:
    """The plan for batches of these counts. ``prefetch`` is None for one bulk that is made while no other exists."""
    batches, row_bytes = features
    largest = max((layer.largest_sources for layer in counts.layers), default=0)
    return BulkPlan(
        memory_budget=memory_budget,
        num_batches=num_batches,
        batch_size=batch_size,
        counts=counts,
        spread=spread,
        held=0 if prefetch is None else max(prefetch, 1),
        ramp=1 if prefetch is None else ramp_of(prefetch),
        feature_bytes=int(FEATURE_MARGIN * batches * row_bytes * largest),
        kept_bytes=int(getattr(graph, "kept_nbytes", 0)),
        pilot_seconds=pilot_seconds,
        graph=graph,
        threads=get_num_threads(),
    )


def plan_for(loader: Any, memory_budget: int | str | None) -> BulkPlan:
    """The plan of a loader: what it holds ahead, and its features."""
    return plan_bulk(
        loader.graph,
        loader.seeds,
        loader.sampler,
        batch_size=loader.batch_size,
        memory_budget=memory_budget,
        prefetch=loader.prefetch,
        edge_ids=loader.edge_ids,
        features=_features_of(loader),
        shuffle=loader.shuffle,
        backend=loader.backend,
    )


def plan_given(loader: Any, bulk_size: int) -> BulkPlan | None:
    """The plan of a loader with a bulk size and no budget, against all memory that is available.

    None where none is needed: the largest bulk that its sampler could ever draw fits. Nor is there one for a graph that
    is not the library's own, of which that largest bulk is not known. On a device there always is one.
    """
    if isinstance(loader.graph, DeviceGraph):
        return plan_for(loader, loader.graph.free_bytes())
    if not isinstance(loader.graph, Graph):
        return None
    available = available_memory()
    batch_size = min(loader.batch_size, max(len(loader.seeds), 1))
    largest = plan_of(
        loader.graph,
        most_counts(loader.graph, loader.sampler, batch_size, loader.edge_ids),
        memory_budget=available,
        num_batches=len(loader),
        batch_size=batch_size,
        prefetch=loader.prefetch,
        features=_features_of(loader),
    )
    return None if largest.peak(bulk_size) <= available else plan_for(loader, available)


def require_room(graph: Graph, ids: NDArray[np.int64], sampler: Sampler, **options: Any) -> None:
    """Refuse a call of `bulk_sample` whose bulk does not fit in the memory that is available.

    A bulk that is surely small beside the machine costs no look at its memory. One that may not fit is predicted from
    four pilot batches, sampled once for a graph, a sampler, a batch size and seeds with about as many edges. Nothing is
    refused but for pilots of the very call: those of other seeds say little where few vertices have most edges.

    Parameters
    ----------
    graph, ids, sampler, options
        As of `bulk_sample`, checked; in ``options`` the batch size, whether there are edge ids, and the backend.

    Raises
    ------
    CapacityError
        It names how many of the batches fit.
    """
    plan = _plan_of_call(graph, ids, sampler, options)
    if plan is not None and not _fits(plan):
        plan = _plan_of_call(graph, ids, sampler, options, anew=True)
    if plan is None or _fits(plan):
        return
    available, named = format_bytes(plan.memory_budget), int(NAMED_SHARE * plan.memory_budget)
    fitting = replace(plan, memory_budget=named).largest(plan.num_batches)
    peak = format_bytes(plan.peak(plan.num_batches))
    raise CapacityError(
        argument="seeds",
        given=f"{plan.num_batches} batches of up to {plan.batch_size} seeds for {sampler!r}, which take {peak}",
        expected=f"at most {fitting} of these batches within the {available} that are available",
        hint="Sample fewer batches in a call (bulk_size of BulkLoader), or with smaller fanouts or layer sizes.",
    )


def _fits(plan: BulkPlan) -> bool:
    return plan.peak(plan.num_batches) <= plan.memory_budget


def _surely_fits(nbytes: int) -> bool:
    """Whether an amount is so small that what is available need not be read now, which takes 0.1 ms."""
    if nbytes <= most_memory() // SURELY_SHARE:
        return True
    return nbytes <= _available_lately(int(time.monotonic() / LATELY), available_memory) // LATELY_SHARE


@lru_cache(maxsize=1)
def _available_lately(moment: int, read: Callable[[], int]) -> int:
    return read()


def _plan_of_call(
    graph: Graph, ids: NDArray[np.int64], sampler: Sampler, options: dict[str, Any], *, anew: bool = False
) -> BulkPlan | None:
    """The plan of one bulk, against the memory that is available; None where it surely fits.

    Its pilots may be those of an earlier call, unless it is made ``anew``.
    """
    size = min(options["batch_size"], max(len(ids), 1))
    batches = -(-len(ids) // size)
    roughly = _roughly(graph, sampler, size, batches)
    if _surely_fits(roughly) or roughly <= (available := available_memory()):
        return None
    one: dict[str, Any] = {"memory_budget": available, "num_batches": batches, "batch_size": size}
    if _fits(plan_of(graph, most_counts(graph, sampler, size, options["edge_ids"]), **one)):
        return None
    pilots = _spaced_seeds(ids, size, min(CALL_PILOTS, len(ids) // size))

    def find() -> tuple[BulkCounts, float]:
        return _counts_of_pilots(graph, pilots, sampler, options, available)

    edges = int((graph.indptr[pilots + 1] - graph.indptr[pilots]).sum())
    key = ("pilots", type(sampler), repr(sampler), size, options["edge_ids"], edges.bit_length())
    counts, spread = find() if anew else graph.known(key, find)
    return plan_of(graph, counts, spread=spread, **one)


def _counts_of_pilots(
    graph: Graph, seeds: NDArray[np.int64], sampler: Sampler, options: dict[str, Any], available: int
) -> tuple[BulkCounts, float]:
    """What pilot batches hold, and their spread; no more entries are drawn than ids of them fit."""
    most = available // index_dtype(graph).itemsize
    try:
        pilot = sample_batches(CappedGraph(graph, most), seeds, sampler, **options)
    except TooManyEntriesError:
        size = options["batch_size"]
        raise CapacityError(
            argument="batch_size",
            given=f"{-(-len(seeds) // size)} batches of up to {size} seeds, with more than {most} sampled edges",
            expected=f"batches that fit in the {format_bytes(available)} that are available",
            hint="Use smaller batches, fanouts or layer sizes.",
        ) from None
    return BulkCounts.of(pilot), _spread(pilot)


def _roughly(graph: Graph, sampler: Sampler, batch_size: int, batches: int) -> int:
    """More than any bulk of so many batches can take, told in some microseconds."""
    result = batches * most_bytes(graph, sampler, batch_size)
    return ROUGHLY * result + ROUGHLY_A_VERTEX * get_num_threads() * graph.num_nodes


def _features_of(loader: Any) -> tuple[int, int]:
    """Batches that hold features at a time, and the bytes of a vertex's."""
    return (0, 0) if loader.features is None else (FEATURE_BATCHES, 4 * loader.features.dim)


FEATURE_BATCHES = 4
"""Batches of a loader that hold features: two gathered ahead, the one in use, and the next while it takes its place."""


def _pilot_seeds(ids: NDArray[np.int64], batch_size: int, shuffle: bool) -> NDArray[np.int64]:
    """Seeds of the pilot batches, one after the other."""
    full = len(ids) // batch_size
    pilots = min(max(full // PILOT_SHARE, FEWEST_PILOTS), MOST_PILOTS, full)
    if shuffle and pilots:
        return ids[keys.shuffle(len(ids), 0, 0)[: pilots * batch_size]]
    return _spaced_seeds(ids, batch_size, pilots)


def _spaced_seeds(ids: NDArray[np.int64], batch_size: int, pilots: int) -> NDArray[np.int64]:
    """Of so many full batches, evenly spaced; all seeds where there is not one."""
    full = len(ids) // batch_size
    if pilots == 0:
        return ids
    first = np.linspace(0, full - 1, pilots).astype(np.int64) * batch_size
    chosen: NDArray[np.int64] = ids[(first[:, None] + np.arange(batch_size)).ravel()]
    return chosen


def _spread(pilot: BulkSample) -> float:
    """Standard deviation of the batches' sizes over their mean."""
    sizes = sum((layer.entry_ranges.size + layer.src_ranges.size for layer in pilot.layers), np.zeros(len(pilot)))
    return float(sizes.std(ddof=1) / sizes.mean()) if len(sizes) > 1 and sizes.mean() > 0 else 0.0
