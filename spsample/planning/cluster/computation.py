"""Seconds that a rank computes for a bulk: measured on small grids whose ranks are threads of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from spsample.backends.protocol import Int64Array
from spsample.comm import run_threads
from spsample.comm.communicator import Communicator
from spsample.common.memory import available_memory
from spsample.common.threads import kernel_threads
from spsample.common.units import format_bytes
from spsample.distributed import PartitionedGraph, ProcessGrid
from spsample.errors import CapacityError
from spsample.planning.bulk_sampling import bulk_sample
from spsample.planning.cluster.exchanges import Algorithm, Exchange
from spsample.planning.cluster.grid_shape import GridShape
from spsample.planning.cluster.pilot import Pilot
from spsample.planning.cluster.traffic import bulk_traffic
from spsample.planning.cluster.wire_widths import WireWidths
from spsample.planning.memory_check import PEAK_PER_RESULT_BYTE

MOST_TRIAL_RANKS = 4
MOST_TRIAL_BATCHES = 16  # of a rank, in the bulks of a trial
MOST_TRIAL_BYTES = 2 << 30  # that all ranks send and receive in one of them, but for the smallest
ROUNDS = 3


class Timed(NamedTuple):
    """A bulk of a trial: batches of a rank, bytes that it sends and receives, seconds of a core of each rank."""

    batches: float
    num_bytes: float
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Computation:
    """What a bulk takes of one core of a rank.

    Attributes
    ----------
    per_bulk, per_batch, per_byte : float
        Seconds for a bulk, for each batch of the rank, and for each byte that it sends or receives.
    unevenness : float
        Of the rank that has most, over the mean.
    """

    per_bulk: float
    per_batch: float
    per_byte: float
    unevenness: float = 1.0

    @classmethod
    def fitted(cls, timed: Sequence[Timed]) -> Computation:
        """Fit non-negative costs to the ranks' mean: the least squares of relative errors.

        A mean that is less than a tick of the clock counts as one.

        Examples
        --------
        >>> timed = [Timed(k, 10 * k**0.5, (0.5 + 2 * k, 1.5 + 2 * k)) for k in (1, 4, 9)]
        >>> fitted = Computation.fitted(timed)
        >>> round(fitted.per_bulk, 6), round(fitted.per_batch, 6), round(fitted.unevenness, 3)
        (1.0, 2.0, 1.026)
        """
        tick = time.get_clock_info("thread_time").resolution
        means = np.array([max(np.mean(one.seconds), tick) for one in timed])
        columns = np.array([(1.0, one.batches, one.num_bytes) for one in timed])
        sizes = np.maximum(columns.max(axis=0), 1.0)
        costs, _ = nnls(columns / sizes / means[:, None], np.ones(len(timed)))
        per_bulk, per_batch, per_byte = (costs / sizes).tolist()
        largest = timed[-1].seconds
        return cls(per_bulk, per_batch, per_byte, max(*largest, tick) / float(means[-1]))

    def seconds(self, batches: float, num_bytes: float, *, threads: int, cores: float) -> float:
        """Time of a bulk on a rank of `threads` threads that has `cores` cores, a fraction where ranks share them.

        The ranks wait for the one that has most, and the cores do what all of them have. What a bulk takes in any case
        is of one thread; the rest is divided among the threads.

        Examples
        --------
        >>> cost = Computation(per_bulk=1.0, per_batch=2.0, per_byte=0.5, unevenness=1.5)
        >>> cost.seconds(3, 2, threads=1, cores=4), cost.seconds(3, 2, threads=1, cores=0.5)
        (12.0, 16.0)
        """
        kernels = self.per_batch * batches + self.per_byte * num_bytes
        alone = self.per_bulk + kernels / min(threads, max(cores, 1.0))
        return max(self.unevenness * alone, (self.per_bulk + kernels) / cores)


@dataclass(frozen=True, eq=False)
class Trials:
    """Measures what an algorithm computes, on grids of at most four ranks.

    Attributes
    ----------
    pilot : Pilot
    algorithm : str
    wire : WireWidths
    """

    pilot: Pilot
    algorithm: Algorithm
    wire: WireWidths

    def __call__(self, shape: GridShape) -> Computation:
        """Measure on a grid like it; on the smaller graph, with the same batches, where the planned one is not here.

        Raises
        ------
        CapacityError
            If there is no memory for the smallest bulks of a trial: ranks may be sent all of A, but by "column".
        """
        small, free = trial_shape(shape), available_memory()
        least = self._memory(small, 1)
        if least > free:
            raise _no_memory(free, least, small.ranks)
        most = -(-self.pilot.num_batches // shape.ranks)
        sizes = trial_batches(most, lambda m: self._fits(small, m, free))
        order = np.random.default_rng(0).permutation(self.pilot.seeds)
        bulks = [np.resize(order, m * small.ranks * self.pilot.batch_size) for m in sizes]
        found = self._timed(small, bulks)
        return Computation.fitted([Timed(m, self._bytes(small, m), one) for m, one in zip(sizes, found, strict=True)])

    def _fits(self, shape: GridShape, batches: int, free: int) -> bool:
        """Whether bulks with as many batches a rank move no more bytes than a trial may, and have the memory."""
        moved = self._bytes(shape, batches) * shape.ranks
        return moved <= MOST_TRIAL_BYTES and self._memory(shape, batches) <= free

    def _memory(self, shape: GridShape, batches: int) -> int:
        """Bytes that all ranks take for a bulk with as many batches a rank, estimated high."""
        pilot = self.pilot
        rows = 0 if self.algorithm == "column" else pilot.graph.num_edges * self.wire.entry_bytes
        batch = PEAK_PER_RESULT_BYTE * pilot.scale * pilot.bulk.nbytes / len(pilot.bulk)
        return round(shape.ranks * (rows + batch * batches + self._bytes(shape, batches)))

    def _bytes(self, shape: GridShape, batches: int) -> float:
        """Mean bytes of a rank, of a bulk with as many batches a rank."""
        pilot = self.pilot
        law = pilot.sampler.draw_law(pilot.profile.weighting)
        counts = pilot.counts(shape, batches * shape.ranks, with_stages=self.algorithm != "column")
        return moved_bytes(bulk_traffic(counts, pilot.sampler, law, self.wire, self.algorithm))

    def _timed(self, shape: GridShape, bulks: list[Int64Array]) -> list[tuple[float, ...]]:
        """For each bulk the seconds of each rank, in the round that was the median in the ranks' mean."""
        pilot, algorithm, edge_ids = self.pilot, self.algorithm, self.wire.edge_id_bytes > 0

        def body(comm: Communicator) -> list[list[float]]:
            grid = ProcessGrid(comm, replication=shape.replication)
            parts = PartitionedGraph.from_graph(pilot.graph, grid, algorithm=algorithm)
            return [[sampled(parts, seeds) for _ in range(ROUNDS)] for seeds in bulks]

        def sampled(parts: PartitionedGraph, seeds: Int64Array) -> float:
            begin = time.thread_time()  # what a thread waits for does not count
            bulk_sample(parts, seeds, pilot.sampler, batch_size=pilot.batch_size, edge_ids=edge_ids)
            return time.thread_time() - begin

        with kernel_threads(1):
            by_rank = np.array(run_threads(shape.ranks, body))  # rank, bulk, round
        medians = by_rank.mean(axis=0).argsort(axis=1)[:, ROUNDS // 2]
        return [tuple(by_rank[:, i, r].tolist()) for i, r in enumerate(medians)]


def _no_memory(free: int, need: int, ranks: int) -> CapacityError:
    return CapacityError(
        argument="computation",
        given=f"{format_bytes(free)} of memory",
        expected=f"{format_bytes(need)}, which a trial on {ranks} ranks may take",
        hint="Plan without it: --no-computation, or computation=False.",
    )


def trial_shape(shape: GridShape) -> GridShape:
    """A grid of at most four ranks that replicates as the other one does: not at all, partly, or all.

    Examples
    --------
    >>> [str(trial_shape(GridShape(p, c))) for p, c in ((3, 1), (64, 1), (64, 8), (64, 64))]
    ['3 x 1', '4 x 1', '2 x 2', '1 x 4']
    """
    p, c = shape.ranks, shape.replication
    if p <= MOST_TRIAL_RANKS:
        return shape
    return GridShape(MOST_TRIAL_RANKS, 1 if c == 1 else MOST_TRIAL_RANKS if c == p else 2)


def trial_batches(most: int, fits: Callable[[int], bool]) -> list[int]:
    """How many batches of a rank the bulks of a trial have: one, those of a large bulk, and a number between.

    What many batches take is not known from few: their data are in no cache, and bytes that grow with the batches alone
    tell nothing of those that do not.

    Parameters
    ----------
    most : int
        Batches of a rank in an epoch.
    fits : callable
        Whether a trial may have that number.

    Examples
    --------
    >>> trial_batches(24, lambda m: True), trial_batches(24, lambda m: m < 5), trial_batches(3, lambda m: True)
    ([1, 4, 16], [1, 2, 4], [1, 3])
    """
    largest = min(most, MOST_TRIAL_BATCHES)
    while largest > 1 and not fits(largest):
        largest //= 2
    return sorted({1, isqrt(largest), largest})


def moved_bytes(traffic: Iterable[Exchange]) -> float:
    """Bytes that a rank sends and receives, in the mean."""
    return float(sum((one.sent + one.received).mean() for one in traffic))


__all__ = ["Computation", "Timed", "Trials", "moved_bytes", "trial_batches", "trial_shape"]
