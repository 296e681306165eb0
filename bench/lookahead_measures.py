"""What `lookahead.py` measures: hits of what is kept by next use, its bookkeeping, and fetches by the bulk on ranks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import spsample as sp
from spsample.comm import Communicator, Recorder, run_threads
from spsample.common.threads import set_num_threads
from spsample.distributed import ProcessGrid
from spsample.distributed.replicated import ReplicatedGraph
from spsample.features import CachedFeatures, FeatureStore, PartitionedFeatures, score
from spsample.features.caching.cached_lookahead import map_bytes
from spsample.features.caching.lookahead import Lookahead
from spsample.features.gathering import row_reader
from spsample.features.score_order import highest
from traces import Cell

Batches = Sequence[NDArray[Any]]
SCORES = ("trace", "posterior")
DIM, NARROW = 128, 16
TIMEOUT = 3600.0


@dataclass(frozen=True)
class Hits:
    """Hits of a run over all rows that it gathers; `misses` are those of lookahead over those of the static set."""

    graph: str
    sampler: str
    score: str
    share: float
    bulk_size: int
    static: float
    lookahead: float
    misses: float


@dataclass(frozen=True)
class Loaded:
    """Misses of a loader whose cache looks ahead, over those of the best static set, and batches of an epoch."""

    graph: str
    sampler: str
    share: float
    bulk_size: int
    batches: int
    misses: float


@dataclass(frozen=True)
class Bookkeeping:
    """Nanoseconds of one thread for a row: gathering it and deciding on it, `turn` batches in turn; and their ratio."""

    graph: str
    sampler: str
    bulk_size: int
    turn: int
    round: int
    gather: float
    decide: float
    share: float


@dataclass(frozen=True)
class Exchange:
    """Bytes and messages of features that a rank receives in an epoch, beside the forecast of another epoch."""

    graph: str
    ranks: int
    batches_per_bulk: int
    rank: int
    bytes: int
    messages: int
    forecast_bytes: float
    forecast_messages: int
    over_forecast: float


class Trace(NamedTuple):
    """The batches of a run, and how many need each vertex."""

    batches: Batches
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, cell: Cell, epochs: int) -> Trace:
        """Of the first epochs, one after the other."""
        batches = list(cell.batches(epochs))
        counts = np.zeros(cell.graph.num_nodes, np.int64)
        for vertices in batches:
            counts[vertices] += 1
        return cls(batches, counts)

    def scores(self, name: str, cell: Cell) -> NDArray[np.float64]:
        """(n,) those of the run itself, or those of a trial."""
        if name == "trace":
            return self.counts.astype(np.float64)
        return score(name, cell.graph, cell.seeds, cell.sampler, cell.batch_size)


def decisions(lookahead: Lookahead, batches: Batches, bulk_size: int) -> Iterator[int]:
    """Decide on each batch, when all of its bulk and of the next one are known; gives the misses."""
    for first in range(0, len(batches), bulk_size):
        begin = first + bulk_size if first else 0
        lookahead.announce(batches[begin : first + 2 * bulk_size])
        for ids in batches[first : first + bulk_size]:
            if not lookahead.is_next(ids):
                raise AssertionError("another batch than was announced")
            yield len(lookahead.step().misses)


def measure_hits(
    name: tuple[str, str], cell: Cell, trace: Trace, shares: Sequence[float], bulk_sizes: Sequence[int]
) -> Iterator[Hits]:
    """By score, share of the rows that are kept, and batches of a bulk."""
    rows = int(trace.counts.sum())
    for by in SCORES:
        scores = trace.scores(by, cell)
        for share in shares:
            capacity = int(share * len(scores))
            kept = highest(scores, capacity)
            static = rows - int(trace.counts[kept].sum())
            for bulk_size in bulk_sizes:
                misses = sum(decisions(Lookahead(scores, capacity, kept), trace.batches, bulk_size))
                yield Hits(*name, by, share, bulk_size, 1 - static / rows, 1 - misses / rows, misses / max(static, 1))


def measure_loader(name: tuple[str, str], cell: Cell, trace: Trace, bulk_size: int, share: float = 0.1) -> Loaded:
    """The epochs of the trace, as a loader with prefetch announces and gathers them."""
    n, capacity = len(trace.counts), int(share * len(trace.counts))
    x = np.zeros((n, NARROW), np.float32)
    of_all, of_each = map_bytes(n)
    budget = of_all + capacity * (x.itemsize * NARROW + of_each)
    cached = CachedFeatures(FeatureStore(x), budget, trace.counts.astype(np.float64), replacement="lookahead")
    loader = cell.loader(bulk_size, features=cached)
    for _ in range(len(trace.batches) // len(loader)):
        for _batch in loader:
            pass
    static = int(trace.counts.sum()) - int(trace.counts[highest(trace.counts, capacity)].sum())
    return Loaded(*name, share, bulk_size, len(loader), cached.counts.misses / max(static, 1))


def measure_bookkeeping(
    name: tuple[str, str], trace: Trace, bulk_size: int, rounds: int, share: float = 0.1
) -> Iterator[Bookkeeping]:
    """Gathering the rows of some batches and deciding on them, in turn: processor time of one thread, which does both.

    A turn is a batch, as in a loader, or a bulk. The first round is a discarded warm-up, and so is a run over all
    batches before each.
    """
    set_num_threads(1)
    reader = row_reader(np.random.default_rng(0).random((len(trace.counts), DIM), np.float32))
    scores, capacity = trace.counts.astype(np.float64), int(share * len(trace.counts))
    kept, rows = highest(scores, capacity), sum(map(len, trace.batches)) / 1e9
    for round_, turn in product(range(rounds + 1), (1, bulk_size)):
        lookahead = Lookahead(scores, capacity, kept)
        deque(decisions(lookahead, trace.batches, bulk_size), maxlen=0)  # so that there is room for what is known
        deciding = decisions(lookahead, trace.batches, bulk_size)
        gathered = decided = 0.0
        for first in range(0, len(trace.batches), turn):
            batches = trace.batches[first : first + turn]
            start = time.thread_time()
            for ids in batches:
                reader.gather(ids)
            between = time.thread_time()
            for _ in batches:
                next(deciding)
            gathered, decided = gathered + between - start, decided + time.thread_time() - between
        if round_:
            yield Bookkeeping(*name, bulk_size, turn, round_, gathered / rows, decided / rows, decided / gathered)


def measure_exchange(name: str, cell: Cell, ranks: int, bulk_sizes: Sequence[int]) -> list[Exchange]:
    """An epoch with `fetch="bulk"` on ranks as threads, each with its own part of the rows."""
    x = np.zeros((cell.graph.num_nodes, DIM), np.float32)

    def body(comm: Communicator, bulk_size: int) -> Exchange:
        recorder = Recorder(comm)
        source = PartitionedFeatures.of(x, ProcessGrid(recorder))
        seen = _loader(comm, cell, bulk_size, features=source, fetch="bulk", random_seed=1)
        forecast = _forecast(comm, cell, bulk_size, source)
        recorder.traffic.clear()
        for _ in seen:
            pass
        counts = recorder.traffic.phases["features"]
        bulks = -(-len(seen) // bulk_size)
        return Exchange(
            *(name, comm.size, bulk_size, comm.rank, counts.bytes_received, counts.messages_received),
            forecast_bytes=forecast,
            forecast_messages=bulks * (comm.size - 1),
            over_forecast=counts.bytes_received / max(forecast, 1),
        )

    results = []
    for bulk_size in bulk_sizes:
        results += run_threads(ranks, lambda comm, k=bulk_size: body(comm, k), TIMEOUT)
    return results


def _loader(comm: Communicator, cell: Cell, bulk_size: int, **options: Any) -> sp.BulkLoader:
    graph, rank_bulk = ReplicatedGraph(cell.graph, comm), bulk_size * comm.size
    return sp.BulkLoader(
        graph, cell.seeds, cell.sampler, batch_size=cell.batch_size, bulk_size=rank_bulk, prefetch=0, **options
    )


def _forecast(comm: Communicator, cell: Cell, bulk_size: int, source: PartitionedFeatures) -> float:
    """Bytes of the rows on other ranks that the bulks of an epoch need which is not the one that is run."""
    first, rows = source.blocks.first_row, 0
    for bulk in _loader(comm, cell, bulk_size, random_seed=2).bulks(0):
        is_needed = np.zeros(source.num_rows, np.bool_)
        for batch in bulk:
            is_needed[batch.src_nodes] = True
        is_needed[first : first + source.block_rows] = False
        rows += int(np.count_nonzero(is_needed))
    return float(rows * source.row_bytes)
