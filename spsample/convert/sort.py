"""The external sort: edges to the arrays of a graph, in order (target, source, position in the input).

1. every chunk of edges is grouped by bucket (a range of targets) and written behind the last one: one sequential write;
2. every bucket is read, sorted in memory by radix, and written where it belongs in the arrays of the store.

A bucket too large for the memory is cut by (target, source) and spilled once more, as often as it takes; entries that
are all the same pair of vertices need no sort.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
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
from spsample.convert.options import ConvertOptions
from spsample.errors import CapacityError, InputError
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
    total = _total(budget)
    held = anonymous_bytes()
    room = total - held - _SLACK
    if room < _MIN_ROOM:
        expected = f"at least {format_bytes(held + _SLACK + _MIN_ROOM)}"
        hint = f"This process holds {format_bytes(held)} already."
        raise InputError(argument="memory_budget", given=format_bytes(total), expected=expected, hint=hint)
    share = room // (threads + 1)  # one share for what waits between threads and for memory that the kernels keep
    chunk = min(_MAX_CHUNK, share // (64 + 4 * weight_bytes))
    capacity = min(1 << 31, share // (56 + 2 * weight_bytes))
    return SortPlan(chunk, capacity, min(capacity, _BUCKET), threads)


def require_budget(budget: Any, needed: int) -> None:
    """Refuse a generated graph, parts of which are made in memory, where they take more bytes than the budget.

    Raises
    ------
    CapacityError
    """
    total = _total(budget)
    if needed > total:
        expected = f"at least {format_bytes(needed)} for a generated graph of this size"
        raise CapacityError(
            argument="memory_budget", given=format_bytes(total), expected=expected, hint="Raise --memory-budget."
        )


def _total(budget: Any) -> int:
    return default_budget() if budget is None else require_bytes("memory_budget", budget)


def anonymous_bytes() -> int:
    """Bytes of anonymous resident memory of this process (Linux), or a cautious constant."""
    try:
        match = re.search(r"^RssAnon:\s+(\d+) kB$", Path("/proc/self/status").read_text("ascii"), re.MULTILINE)
    except OSError:
        match = None
    return int(match[1]) << 10 if match else _UNKNOWN_BASE


class RecordFormat(NamedTuple):
    """The form of a record: see ``kernels/cpu/edge_records.h``."""

    head_bytes: int
    position_bits: int
    weight_bytes: int

    @property
    def size(self) -> int:
        """Bytes of a record."""
        return self.head_bytes + self.weight_bytes


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
        self.path, self.format, self.nbytes = path, record_format, 0
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
        with system_errors(self.path.parent, "room on the disk for edges that are sorted"):
            while done < len(view):
                done += os.pwrite(self._descriptor, view[done:], at + done)

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
_SPLIT_BITS = 12


class TargetHistogram:
    """Counts of targets in at most 65536 ranges of equal length 2^shift, which grow with the largest id."""

    def __init__(self, options: ConvertOptions) -> None:
        self.bins: NDArray[np.int64] = np.zeros(_BINS, np.int64)
        self.shift, self.largest = 0, -1
        self._options = options
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
        core().edge_histogram(*edges, bins, shift, self._options.symmetrise, self._options.drop_self_loops)
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
    source_bits: int
    """Of a vertex id."""


def make_buckets(histogram: TargetHistogram, num_nodes: int, most: int, position_bits: int) -> Buckets:
    """Cut the targets into buckets of about `most` edges where ranges allow.

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
    return Buckets(bucket_of, shift, bounds, np.add.reduceat(bins[:used], starts), source_bits)


def record_format(buckets: Buckets, position_bits: int, weight_bytes: int) -> RecordFormat:
    """Return the smallest records that hold (target - first target of its bucket, source), a position and a weight."""
    widest = int(np.diff(buckets.bounds).max())
    bits = (widest - 1).bit_length() + buckets.source_bits + position_bits
    return RecordFormat(next(size for size in _HEADS if 8 * size >= bits), position_bits, weight_bytes)


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


class SortedArrays(NamedTuple):
    """Arrays of the store for the result, with room for every entry; ids and weights may be None."""

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    edge_ids: NDArray[np.int64] | None
    data: NDArray[Any] | None


def spill_chunk(
    number: int, task: Callable[[], EdgeChunk], buckets: Buckets, options: ConvertOptions, spill: Spill
) -> int:
    """Make a chunk and spill it; return its number of edges."""
    chunk = task()
    edges = chunk.sources, chunk.targets, chunk.step, chunk.count, chunk.weights
    ranges = buckets.bucket_of, buckets.bounds[:-1], buckets.shift
    bits = buckets.source_bits, spill.format.position_bits, spill.format.head_bytes
    drops_loops = options.drop_self_loops and not chunk.added
    records, offsets = core().edge_partition(*edges, *ranges, *bits, options.symmetrise, drops_loops)
    spill.add(number, chunk.first, records, offsets)
    return chunk.count


def sort_buckets(
    spill: Spill, buckets: Buckets, options: ConvertOptions, arrays: SortedArrays, plan: SortPlan
) -> Iterator[int]:
    """Sort every bucket into the arrays; yield the records of each as it is done, and at last the entries written."""
    work = _BucketSort(buckets, arrays, plan.capacity, options.merge)
    arrays.indptr[0] = 0
    try:
        yield from in_order((partial(work.run, spill, bucket) for bucket in range(len(buckets.counts))), plan.threads)
    finally:
        work.stop(InterruptedError("the conversion ended early"))
    yield work.end


class _BucketSort:
    """Sorts the buckets on several threads: their common state, and the place at which each begins to write.

    Without merging every bucket writes as many entries as were counted. With it, a bucket writes behind the one before
    it: buckets must be begun in order then, or they would wait for ever.
    """

    def __init__(self, buckets: Buckets, arrays: SortedArrays, capacity: int, merge: int) -> None:
        self.buckets, self.arrays, self.capacity, self.merge = buckets, arrays, capacity, merge
        self._starts = np.cumsum(buckets.counts) - buckets.counts
        self.end = 0 if merge else int(buckets.counts.sum())
        """Behind the last entry."""
        self._next = 0
        self._failure: BaseException | None = None
        self._change = renewed(Condition())

    def begin(self, bucket: int) -> int:
        """Return the first entry of a bucket; where edges merge, wait for the bucket before."""
        if not self.merge:
            return int(self._starts[bucket])
        with self._change:
            self._change.wait_for(lambda: self._next == bucket or self._failure is not None)
            if self._failure is not None:
                raise self._failure
            return self.end

    def stop(self, failure: BaseException) -> None:
        """End all waiting: those that wait raise the first failure."""
        with self._change:
            self._failure = self._failure or failure
            self._change.notify_all()

    def run(self, spill: Spill, number: int) -> int:
        """Sort a bucket and write it; return its number of records."""
        try:
            bucket = _Bucket(self, number)
            bits = (bucket.last_row - bucket.first_row - 1).bit_length() + self.buckets.source_bits
            size = int(self.buckets.counts[number])
            bucket.sort(spill, spill.segments(number), KeyRange(0, bits, size))
            if self.merge:
                with self._change:
                    self._next, self.end = number + 1, bucket.place
                    self._change.notify_all()
        except BaseException as error:
            self.stop(error)
            raise
        return size


class KeyRange(NamedTuple):
    """Keys of a bucket: those from `base` on, `bits` wide, in `size` records."""

    base: int
    bits: int
    size: int


class _Bucket:
    """Sorts and writes one bucket: that of the targets from `first_row` up to `last_row`."""

    def __init__(self, work: _BucketSort, number: int) -> None:
        self.work, self.number = work, number
        self.first_row, self.last_row = (int(bound) for bound in work.buckets.bounds[number : number + 2])
        self._at: int | None = None

    @property
    def place(self) -> int:
        """Place of the next entry, and at last the end of the bucket; it is known once those before it are."""
        if self._at is None:
            self._at = self.work.begin(self.number)
        return self._at

    def sort(self, spill: Spill, segments: list[Segment], keys: KeyRange) -> None:
        """Sort and write the records of a range of keys, by smaller ranges where they do not fit in memory."""
        capacity, merge = self.work.capacity, self.work.merge
        if keys.size <= capacity:
            edges = _sorted_edges(spill, segments, keys)
            self._put(edges, keys, edges.distinct() if merge else edges.count())
            return
        size = spill.format.size
        pieces = [
            Segment(segment.first, segment.offset + begin * size, min(capacity, segment.size - begin))
            for segment in segments
            for begin in range(0, segment.size, capacity)
        ]
        if keys.bits:
            self._split(spill, pieces, keys)
        elif merge:
            self._merge_one_key(spill, pieces, keys)
        else:
            for piece in pieces:
                self._put(_sorted_edges(spill, [piece], keys), keys, piece.size)

    def _split(self, spill: Spill, pieces: list[Segment], keys: KeyRange) -> None:
        """Cut a range by its keys, and sort the smaller ones."""
        kernels, form = core(), spill.format
        bits = min(keys.bits, _SPLIT_BITS)
        shift = keys.bits - bits
        bins = np.zeros(1 << bits, np.int64)
        record = (form.size, form.head_bytes, form.position_bits, keys.base, shift)
        for piece in pieces:
            kernels.record_histogram(spill.read([piece]), *record, bins)
        starts = cut(bins, self.work.capacity, 1 << bits)
        ends = np.append(starts[1:], 1 << bits)
        bucket_of = np.repeat(np.arange(len(starts), dtype=np.uint32), ends - starts)
        smaller = Spill(spill.path.with_name(f"spilled-{self.number}-{keys.base:x}-{keys.bits}"), form)
        try:
            for number, piece in enumerate(pieces):
                records, offsets = kernels.record_partition(spill.read([piece]), *record, bucket_of, len(starts))
                smaller.add(number, piece.first, records, offsets)
            counts = np.add.reduceat(bins, starts).tolist()
            for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
                width = ((end - start) << shift) - 1
                range_ = KeyRange(keys.base + (start << shift), width.bit_length(), counts[number])
                self.sort(smaller, smaller.segments(number), range_)
        finally:
            smaller.close()

    def _merge_one_key(self, spill: Spill, pieces: list[Segment], keys: KeyRange) -> None:
        """Write one entry for records that all join the same two vertices: they are in order."""
        at, weights = self.place, self.work.arrays.data
        self._put(_sorted_edges(spill, [pieces[0]._replace(size=1)], keys), keys, 1)  # source and id of the first
        if weights is None:
            return
        total = np.empty(0)
        for piece in pieces:
            records = spill.read([piece]).reshape(piece.size, spill.format.size)
            held = np.ascontiguousarray(records[:, spill.format.head_bytes :]).view(weights.dtype)
            total = _merged(np.append(total, held.astype(np.float64)), self.work.merge)
        weights[at] = total[0]

    def _put(self, edges: Any, keys: KeyRange, room: int) -> None:
        """Write sorted edges at the next place, which has room for `room` entries."""
        arrays, bits, at = self.work.arrays, self.work.buckets.source_bits, self.place
        first = self.first_row + (keys.base >> bits)
        last = min(self.first_row + ((keys.base + (1 << keys.bits) - 1) >> bits) + 1, self.last_row)
        values = (arrays.indices, arrays.edge_ids, arrays.data)
        entries = (None if array is None else array[at : at + room] for array in values)
        rows = arrays.indptr[first + 1 : last + 1]
        self._at = at + int(edges.write(*entries, rows, first - self.first_row, at, bits, self.work.merge))


def _sorted_edges(spill: Spill, segments: list[Segment], keys: KeyRange) -> Any:
    """The records of segments, sorted by key and position."""
    form = spill.format.head_bytes, spill.format.weight_bytes, spill.format.position_bits
    bounds = np.cumsum([0] + [segment.size for segment in segments], dtype=np.int64)
    firsts = np.array([segment.first for segment in segments], np.int64)
    return core().EdgeBucket(spill.read(segments), *form, bounds, firsts, keys.base, keys.bits)


def _merged(weights: NDArray[np.float64], merge: int) -> NDArray[np.float64]:
    """One weight of several, in the order of the input: 1 the first, 2 the sum, 3 the largest."""
    if merge == 1:
        return weights[:1]
    return np.cumsum(weights)[-1:] if merge == 2 else weights.max(keepdims=True)
