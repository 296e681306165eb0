"""The external sort: edges to the arrays of a graph, in order (target, source, position in the input).

1. every chunk of edges is grouped by bucket (a range of targets) and written behind the last one: one sequential write;
2. every bucket is read, sorted in memory by radix, and written where it belongs in the arrays of the store.

A bucket too large for the memory is cut by (target, source) and spilled once more, as often as it takes; entries that
are all the same pair of vertices need no sort.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Condition, Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.common.locks import renewed
from spsample.common.threads import in_order
from spsample.common.units import format_bytes, require_bytes
from spsample.convert.columns import core
from spsample.convert.edges import EdgeChunk
from spsample.errors import InputError
from spsample.planning.bulk_plan import default_budget
from spsample.store.folder import file_error, system_errors

_MIN_ROOM = 24 * 2**20
_SLACK = 48 * 2**20
_MAX_CHUNK = 1 << 22
_BUCKET = 1 << 20
_UNKNOWN_BASE = 160 * 2**20
_HEADS = range(4, 13)


@dataclass(frozen=True)
class SortPlan:
    """Sizes that keep a conversion within its memory.

    `chunk`: edges that one thread reads at a time; `capacity`: entries that one thread sorts at a time; `bucket`:
    entries of a bucket where they can be had (few enough for a processor's cache).
    """

    chunk: int
    capacity: int
    bucket: int
    threads: int


def make_plan(budget: Any, threads: int, weight_bytes: int) -> SortPlan:
    """Return the sizes for a budget in bytes, of which the process already holds some.

    Raises
    ------
    InputError
        If there is too little.
    """
    total = default_budget() if budget is None else require_bytes("memory_budget", budget)
    held = anonymous_bytes()
    room = total - held - _SLACK
    if room < _MIN_ROOM:
        raise InputError(
            argument="memory_budget",
            given=format_bytes(total),
            expected=f"at least {format_bytes(held + _SLACK + _MIN_ROOM)}",
            hint=f"This process holds {format_bytes(held)} already.",
        )
    share = room // (threads + 1)  # one share for what waits between threads and for memory that the kernels keep
    chunk = min(_MAX_CHUNK, share // (64 + 4 * weight_bytes))
    capacity = min(1 << 31, share // (56 + 2 * weight_bytes))
    return SortPlan(chunk, capacity, min(capacity, _BUCKET), threads)


def anonymous_bytes() -> int:
    """Bytes of anonymous resident memory of this process (Linux), or a cautious constant."""
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except OSError:
        return _UNKNOWN_BASE
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return _UNKNOWN_BASE


class RecordFormat(NamedTuple):
    """The form of a record: see ``kernels/cpu/edge_records.h``."""

    head_bytes: int
    position_bits: int
    weight_bytes: int

    @property
    def size(self) -> int:
        """Bytes of a record."""
        return self.head_bytes + self.weight_bytes

    @classmethod
    def for_bits(cls, key_bits: int, position_bits: int, weight_bytes: int) -> RecordFormat:
        """Return the smallest records that hold keys and positions of these widths in bits."""
        head = next(size for size in _HEADS if 8 * size >= key_bits + position_bits)
        return cls(head, position_bits, weight_bytes)


class Segment(NamedTuple):
    """Records of one bucket that came from one chunk, whose first edge is number `first`."""

    first: int
    offset: int
    size: int


class Spill:
    """One file of records: the chunks one after the other, each grouped by bucket.

    Writes are sequential and as long as a chunk; a bucket is read in as many pieces as there are chunks.
    """

    def __init__(self, path: Path, record_format: RecordFormat) -> None:
        self.format = record_format
        self.nbytes = 0
        self.path = path
        with system_errors(path, "a temporary file that can be made"):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._chunks: dict[int, tuple[int, int, NDArray[np.int64]]] = {}
        self._lock = renewed(Lock())

    def add(self, number: int, first: int, records: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        """Write the records of chunk `number`; bucket b has those from ``offsets[b]`` to ``offsets[b + 1]``."""
        with self._lock:
            at = self.nbytes
            self.nbytes += len(records)
            self._chunks[number] = (first, at, offsets)
        view, done = records.data, 0
        while done < len(view):
            try:
                done += os.pwrite(self._descriptor, view[done:], at + done)
            except OSError as error:
                given = f"{error.strerror} while edges were sorted"
                raise file_error(self.path.parent, given, "room on the disk") from error

    def segments(self, bucket: int) -> list[Segment]:
        """Return the segments of a bucket, in the order of the input."""
        result = []
        for number in sorted(self._chunks):
            first, at, offsets = self._chunks[number]
            begin, end = int(offsets[bucket]), int(offsets[bucket + 1])
            if end > begin:
                result.append(Segment(first, at + begin * self.format.size, end - begin))
        return result

    def read(self, segments: list[Segment]) -> NDArray[np.uint8]:
        """Return the records of segments, one after the other."""
        size = self.format.size
        records = np.empty(size * sum(segment.size for segment in segments), np.uint8)
        view, done = records.data, 0
        for segment in segments:
            end, at = done + segment.size * size, segment.offset
            while done < end:
                got = os.preadv(self._descriptor, [view[done:end]], at)
                if got == 0:
                    raise file_error(self.path, "a temporary file that was cut short", "the records written to it")
                done, at = done + got, at + got
        return records

    def close(self) -> None:
        """Remove the file."""
        os.close(self._descriptor)
        self.path.unlink(missing_ok=True)


_BINS = 1 << 16
_MAX_BUCKETS = 4096
_KEY_BITS = 64
_SMALL_RECORD = 64


class TargetHistogram:
    """Counts of targets in at most 65536 ranges of equal length 2^shift, which grow with the largest id.

    Parameters
    ----------
    mirror, drop_loops
        Which edges count: see `ConvertOptions`.
    """

    def __init__(self, *, mirror: bool, drop_loops: bool) -> None:
        self.bins: NDArray[np.int64] = np.zeros(_BINS, np.int64)
        self.shift = 0
        self.largest = -1
        self._mirror = mirror
        self._drop_loops = drop_loops
        self._lock = renewed(Lock())

    def reach(self, largest: int) -> None:
        """Let ids up to `largest` be counted."""
        with self._lock:
            self.largest = max(self.largest, largest)
            while self.largest >> self.shift >= _BINS:
                self.bins = _folded(self.bins)
                self.shift += 1

    def count(self, chunk: EdgeChunk) -> None:
        """Count the edges of a chunk; their ids were given to `reach`. Several threads may call it at once."""
        bins, shift = np.zeros(_BINS, np.int64), self.shift
        edges = chunk.sources, chunk.targets, chunk.step, chunk.count
        core().edge_histogram(*edges, bins, shift, self._mirror, self._drop_loops)
        with self._lock:
            while shift < self.shift:
                bins = _folded(bins)
                shift += 1
            self.bins += bins

    def add_loops(self, num_nodes: int) -> None:
        """Count one more edge to each vertex."""
        starts = np.arange(_BINS, dtype=np.int64) << self.shift
        self.bins += np.clip(num_nodes - starts, 0, 1 << self.shift)


def _folded(bins: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts in ranges of twice the length."""
    return np.concatenate([bins.reshape(-1, 2).sum(axis=1), np.zeros(_BINS // 2, np.int64)])


class Buckets(NamedTuple):
    """The bucket of target t is ``bucket_of[t >> shift]``; bucket b begins at target ``bounds[b]``."""

    bucket_of: NDArray[np.uint32]
    shift: int
    bounds: NDArray[np.int64]
    counts: NDArray[np.int64]

    def key_bits(self, source_bits: int) -> int:
        """Bits of the largest (target - first target of its bucket, source)."""
        widest = int(np.diff(self.bounds).max())
        return (widest - 1).bit_length() + source_bits


def make_buckets(histogram: TargetHistogram, num_nodes: int, most: int, position_bits: int) -> tuple[Buckets, int]:
    """Cut the targets into buckets of about `most` edges where ranges allow; also return the bits of a source.

    There are some thousands at most, so that the pieces in which a bucket is read do not become too small: one that
    does not fit in memory then is cut again. Buckets are cut where a record would need more than 64 bits, too, unless
    that made many more of them; keys never need more than 64.
    """
    bins, shift = histogram.bins, histogram.shift
    source_bits = max(1, (num_nodes - 1).bit_length())
    used = ((num_nodes - 1) >> shift) + 1
    total = int(bins.sum())
    size = max(most, total // _MAX_BUCKETS)
    wanted = _SMALL_RECORD - source_bits - position_bits
    if wanted < 0 or (num_nodes >> wanted) > max(2 * total // size, 16):
        wanted = _KEY_BITS - source_bits
    starts = cut(bins[:used], size, 1 << max(wanted - shift, 0))
    bounds = np.minimum(np.append(starts, used).astype(np.int64) << shift, num_nodes)
    bucket_of = np.repeat(np.arange(len(starts), dtype=np.uint32), np.diff(np.append(starts, used)))
    counts = np.add.reduceat(bins[:used], starts)
    return Buckets(bucket_of, shift, bounds, counts), source_bits


def cut(counts: NDArray[np.int64], size: int, widest: int) -> NDArray[np.int64]:
    """Return where groups of consecutive bins begin: at most `widest` bins, and at most `size` edges or one bin.

    Examples
    --------
    >>> cut(np.array([1, 2, 9, 0, 1, 1]), 3, 4)
    array([0, 2, 3])
    """
    ends = np.cumsum(counts)
    starts, begin = [], 0
    while begin < len(counts):
        starts.append(begin)
        before = int(ends[begin - 1]) if begin else 0
        stop = int(np.searchsorted(ends, before + size, side="right"))
        begin = min(max(stop, begin + 1), begin + widest)
    return np.array(starts, dtype=np.int64)


@dataclass(frozen=True)
class EdgeRules:
    """Changes of edges while they are sorted: see `ConvertOptions`; `source_bits` are those of a vertex id."""

    mirror: bool
    drop_loops: bool
    merge: int
    source_bits: int


class SortedArrays(NamedTuple):
    """Arrays of the store for the result, with room for every entry; ids and weights may be None."""

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    edge_ids: NDArray[np.int64] | None
    data: NDArray[Any] | None


class KeyRange(NamedTuple):
    """Keys of a bucket: those from `base` on, `bits` wide, in `size` records."""

    base: int
    bits: int
    size: int


class StoppedError(Exception):
    """Another thread failed; its error is the one to report."""


class Places:
    """First entries of the buckets.

    With counts every bucket writes as many entries as were counted. Without, a bucket writes behind the one before it:
    buckets must be begun in order then, or they would wait for ever.
    """

    def __init__(self, counts: NDArray[np.int64] | None) -> None:
        self._starts = None if counts is None else np.cumsum(counts) - counts
        self.end = 0 if counts is None else int(counts.sum())
        """Behind the last entry."""
        self._next, self._stopped = 0, False
        self._change = renewed(Condition())

    def begin(self, bucket: int) -> int:
        """Return the first entry of a bucket; without counts, wait for the bucket before."""
        if self._starts is not None:
            return int(self._starts[bucket])
        with self._change:
            self._change.wait_for(lambda: self._next == bucket or self._stopped)
            if self._stopped:
                raise StoppedError
            return self.end

    def done(self, bucket: int, end: int) -> None:
        """Take note of the end of a bucket."""
        if self._starts is None:
            with self._change:
                self._next, self.end = bucket + 1, end
                self._change.notify_all()

    def stop(self) -> None:
        """End all waiting."""
        with self._change:
            self._stopped = True
            self._change.notify_all()


class BucketWriter:
    """Writes one bucket: that of the targets from the first of `rows` up to the second."""

    def __init__(
        self, bucket: int, rows: tuple[int, int], places: Places, rules: EdgeRules, arrays: SortedArrays
    ) -> None:
        self.bucket, self._places, self._rules, self._arrays = bucket, places, rules, arrays
        self._first_row, self._last_row = rows
        self._at: int | None = None

    @property
    def place(self) -> int:
        """Place of the next entry, and at last the end of the bucket; it is known once those before it are."""
        if self._at is None:
            self._at = self._places.begin(self.bucket)
        return self._at

    def write(self, spill: Spill, segments: list[Segment], keys: KeyRange) -> None:
        """Sort and write records that fit in memory."""
        edges = _sorted_edges(spill, segments, keys)
        room = edges.distinct() if self._rules.merge else edges.count()
        at = self.place
        self._at = at + self._put(edges, keys, slice(at, at + room), self._rules.merge)

    def write_one_key(self, spill: Spill, pieces: Iterable[Segment], keys: KeyRange) -> None:
        """Write records that all join the same two vertices: they are in order."""
        if self._rules.merge:
            self._merge_one_key(spill, list(pieces), keys)
            return
        for piece in pieces:
            at = self.place
            edges = _sorted_edges(spill, [piece], keys)
            self._at = at + self._put(edges, keys, slice(at, at + piece.size), 0)

    def _merge_one_key(self, spill: Spill, pieces: list[Segment], keys: KeyRange) -> None:
        at = self.place
        total: float | None = None
        for piece in pieces if self._arrays.data is not None else pieces[:1]:
            records = spill.read([piece]).reshape(piece.size, spill.format.size)
            if total is None:  # source and edge id are those of the first
                edges = _sorted_edges(spill, [piece._replace(size=1)], keys)
                self._put(edges, keys, slice(at, at + 1), 0)
            if self._arrays.data is not None:
                weights = np.ascontiguousarray(records[:, spill.format.head_bytes :]).view(self._arrays.data.dtype)
                total = _merged(weights.ravel().astype(np.float64), total, self._rules.merge)
        if self._arrays.data is not None:
            self._arrays.data[at] = total
        self._at = at + 1

    def _put(self, edges: Any, keys: KeyRange, room: slice, merge: int) -> int:
        arrays, bits = self._arrays, self._rules.source_bits
        first = self._first_row + (keys.base >> bits)
        last = min(self._first_row + ((keys.base + (1 << keys.bits) - 1) >> bits) + 1, self._last_row)
        values = (arrays.indices, arrays.edge_ids, arrays.data)
        entries = (None if array is None else array[room] for array in values)
        rows = arrays.indptr[first + 1 : last + 1]
        return int(edges.write(*entries, rows, first - self._first_row, room.start, bits, merge))


def _sorted_edges(spill: Spill, segments: list[Segment], keys: KeyRange) -> Any:
    """The records of segments, sorted by key and position."""
    form = spill.format.head_bytes, spill.format.weight_bytes, spill.format.position_bits
    bounds = np.cumsum([0] + [segment.size for segment in segments], dtype=np.int64)
    firsts = np.array([segment.first for segment in segments], np.int64)
    return core().EdgeBucket(spill.read(segments), *form, bounds, firsts, keys.base, keys.bits)


def _merged(weights: NDArray[np.float64], before: float | None, merge: int) -> float:
    """One weight of several, in the order of the input: 1 the first, 2 the sum, 3 the largest."""
    values = weights if before is None else np.concatenate([[before], weights])
    if merge == 1:
        return float(values[0])
    return float(np.cumsum(values)[-1]) if merge == 2 else float(values.max())


_SPLIT_BITS = 12


def partition(
    tasks: Iterable[Callable[[], EdgeChunk]], buckets: Buckets, rules: EdgeRules, spill: Spill, threads: int
) -> Iterator[int]:
    """Spill the chunks that `tasks` make; yield the number of edges of each as it is done."""
    numbered = (partial(_spill_chunk, number, task, buckets, rules, spill) for number, task in enumerate(tasks))
    yield from in_order(numbered, threads)


def _spill_chunk(number: int, task: Callable[[], EdgeChunk], buckets: Buckets, rules: EdgeRules, spill: Spill) -> int:
    chunk = task()
    edges = chunk.sources, chunk.targets, chunk.step, chunk.count, chunk.weights
    ranges = buckets.bucket_of, buckets.bounds[:-1], buckets.shift
    bits = rules.source_bits, spill.format.position_bits, spill.format.head_bytes
    drops_loops = rules.drop_loops and not chunk.added
    records, offsets = core().edge_partition(*edges, *ranges, *bits, rules.mirror, drops_loops)
    spill.add(number, chunk.first, records, offsets)
    return chunk.count


def sort_buckets(
    spill: Spill, buckets: Buckets, rules: EdgeRules, arrays: SortedArrays, plan: SortPlan
) -> Iterator[int]:
    """Sort every bucket into the arrays; yield the records of each as it is done, and at last the entries written."""
    places = Places(None if rules.merge else buckets.counts)
    sorter = _BucketSorter(spill, buckets, rules, arrays, plan.capacity)
    tasks = (partial(sorter.run, bucket, places) for bucket in range(len(buckets.counts)))
    arrays.indptr[0] = 0
    try:
        yield from in_order(tasks, plan.threads)
    except StoppedError:
        if sorter.failure is not None:
            raise sorter.failure from None
        raise
    finally:
        places.stop()
    yield places.end


class _BucketSorter:
    """Sorts one bucket after the other, on several threads."""

    def __init__(self, spill: Spill, buckets: Buckets, rules: EdgeRules, arrays: SortedArrays, capacity: int) -> None:
        self.spill, self.buckets, self.rules, self.arrays, self.capacity = spill, buckets, rules, arrays, capacity
        self.failure: BaseException | None = None
        """The error that stopped the others."""

    def run(self, bucket: int, places: Places) -> int:
        """Sort a bucket and write it; return its number of records."""
        try:
            first, last = (int(bound) for bound in self.buckets.bounds[bucket : bucket + 2])
            bits = (last - first - 1).bit_length() + self.rules.source_bits
            whole = KeyRange(0, bits, int(self.buckets.counts[bucket]))
            writer = BucketWriter(bucket, (first, last), places, self.rules, self.arrays)
            self._sort(self.spill, bucket, whole, writer)
            places.done(bucket, writer.place)
        except StoppedError:
            raise
        except BaseException as error:
            self.failure = self.failure or error
            places.stop()
            raise
        return whole.size

    def _sort(self, spill: Spill, bucket: int, keys: KeyRange, writer: BucketWriter) -> None:
        segments = spill.segments(bucket)
        if keys.size <= self.capacity:
            writer.write(spill, segments, keys)
        elif keys.bits == 0:
            writer.write_one_key(spill, _pieces(segments, self.capacity, spill.format.size), keys)
        else:
            self._split(spill, segments, keys, writer)

    def _split(self, spill: Spill, segments: list[Segment], keys: KeyRange, writer: BucketWriter) -> None:
        """Cut a bucket that does not fit by its keys, and sort the smaller ones."""
        kernels, record_format = core(), spill.format
        bits = min(keys.bits, _SPLIT_BITS)
        shift = keys.bits - bits
        bins = np.zeros(1 << bits, np.int64)
        form = (record_format.size, record_format.head_bytes, record_format.position_bits, keys.base, shift)
        pieces = list(_pieces(segments, self.capacity, record_format.size))
        for piece in pieces:
            kernels.record_histogram(spill.read([piece]), *form, bins)
        starts = cut(bins, self.capacity, 1 << bits)
        ends = np.append(starts[1:], 1 << bits)
        bucket_of = np.repeat(np.arange(len(starts), dtype=np.uint32), ends - starts)
        smaller = Spill(spill.path.with_name(f"spilled-{writer.bucket}-{keys.base:x}-{keys.bits}"), record_format)
        try:
            for number, piece in enumerate(pieces):
                records, offsets = kernels.record_partition(spill.read([piece]), *form, bucket_of, len(starts))
                smaller.add(number, piece.first, records, offsets)
            counts = np.add.reduceat(bins, starts)
            for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
                width = ((end - start) << shift) - 1
                range_ = KeyRange(keys.base + (start << shift), width.bit_length(), int(counts[number]))
                self._sort(smaller, number, range_, writer)
        finally:
            smaller.close()


def _pieces(segments: list[Segment], capacity: int, size: int) -> Iterator[Segment]:
    """Cut segments into such as fit in memory."""
    for segment in segments:
        for begin in range(0, segment.size, capacity):
            yield Segment(segment.first, segment.offset + begin * size, min(capacity, segment.size - begin))
