"""`BulkPlan`: the memory of bulks by the number of their batches, predicted from the counts of a few."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import sqrt

from spsample.common.checks import require_int
from spsample.common.lazily import lazily
from spsample.planning.budget import MAX_BATCHES, BudgetedPlan, largest_fitting
from spsample.planning.buffers import NO_BUFFERS, Buffers
from spsample.planning.bulk_counts import BulkCounts
from spsample.planning.scratch import scratch_on
from spsample.sampling.workload import Workload
from spsample.sparse import get_num_threads

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
        bulk_size = require_int("bulk_size", bulk_size, minimum=0, maximum=MAX_BATCHES)
        return self.scratch(self.counts.scaled(bulk_size, 1 + self._deviation(bulk_size)))

    def result_bytes(self, bulk_size: int) -> int:
        """Bytes of the arrays of such a bulk, margin included."""
        bulk_size = require_int("bulk_size", bulk_size, minimum=0, maximum=MAX_BATCHES)
        return self.counts.scaled(bulk_size, self._margin(bulk_size)).result_bytes(self.id_bytes)

    def sources_of(self, bulk_size: int) -> int:
        """Vertices whose features the batches of a bulk need, margin included."""
        bulk_size = require_int("bulk_size", bulk_size, minimum=0, maximum=MAX_BATCHES)
        layers = self.counts.scaled(bulk_size, 1 + self._deviation(bulk_size)).layers
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
        features = self.known_bytes(made) + self.fetched_bytes(made)
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
        return self.counts.scaled(fitting, self._margin(fitting)).entries if fitting else 0

    @lazily
    def _steady_bulk_size(self) -> int:
        """Batches of the largest bulk of which `held` more fit beside it, in an epoch of any length."""
        return largest_fitting(MAX_STEADY_BATCHES, lambda k: self._peak(k, self.held * k) <= self.memory_budget)

    def _margin(self, bulk_size: int) -> float:
        """The most that the arrays of `bulk_size` batches may take, over what those of the pilots promise."""
        return 1 + MODEL_MARGIN + self._deviation(bulk_size)

    def _deviation(self, bulk_size: int) -> float:
        """Return by how much the mean of `bulk_size` batches may pass the mean of the pilots."""
        pilots = max(self.counts.batches, 1)
        return DEVIATIONS * self.spread * sqrt(1 / pilots + 1 / max(bulk_size, 1))


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
