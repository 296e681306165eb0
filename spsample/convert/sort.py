"""The external sort: edges to the arrays of a graph, in order (target, source, position in the input).

1. every chunk of edges is grouped by bucket (a range of targets) and written behind the last one: one sequential write;
2. every bucket is read, sorted in memory by radix, and written where it belongs in the arrays of the store.

A bucket too large for the memory is cut by (target, source) and spilled once more, as often as it takes; entries that
are all the same pair of vertices need no sort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.convert.buckets import Buckets, cut
from spsample.convert.chunks import EdgeChunk
from spsample.convert.core import core
from spsample.convert.memory import SortPlan
from spsample.convert.pool import in_order
from spsample.convert.spill import Segment, Spill
from spsample.convert.turns import KnownPlaces, Places, StoppedError, Turns

__all__ = ["EdgeRules", "SortedArrays", "partition", "sort_buckets"]

_SPLIT_BITS = 12


@dataclass(frozen=True)
class EdgeRules:
    """What is done to edges while they are sorted: see `ConvertOptions`; `source_bits` are those of a vertex id."""

    mirror: bool
    drop_loops: bool
    merge: int
    source_bits: int


class SortedArrays(NamedTuple):
    """Where the result goes: arrays of the store, with room for every entry; ids and weights may be None."""

    indptr: NDArray[np.int64]
    indices: NDArray[Any]
    edge_ids: NDArray[np.int64] | None
    data: NDArray[Any] | None


Progress = Callable[[int], None]


def partition(
    tasks: Iterable[Callable[[], EdgeChunk]], buckets: Buckets, rules: EdgeRules, spill: Spill, threads: int
) -> Iterator[int]:
    """Spill the chunks that `tasks` make; yield the number of edges of each as it is done."""
    numbered = (partial(_spill_chunk, number, task, buckets, rules, spill) for number, task in enumerate(tasks))
    yield from in_order(numbered, threads)


def _spill_chunk(number: int, task: Callable[[], EdgeChunk], buckets: Buckets, rules: EdgeRules, spill: Spill) -> int:
    chunk = task()
    record_format = spill.format
    records, offsets = core().edge_partition(
        chunk.sources,
        chunk.targets,
        chunk.step,
        chunk.count,
        chunk.weights,
        buckets.bucket_of,
        buckets.bounds[:-1],
        buckets.shift,
        rules.source_bits,
        record_format.position_bits,
        record_format.head_bytes,
        rules.mirror,
        rules.drop_loops and not chunk.added,
    )
    spill.add(number, chunk.first, records, offsets)
    return chunk.count


def sort_buckets(
    spill: Spill, buckets: Buckets, rules: EdgeRules, arrays: SortedArrays, plan: SortPlan
) -> Iterator[int]:
    """Sort every bucket into the arrays; yield the records of each as it is done, and at last the entries written."""
    places: KnownPlaces | Turns = Turns() if rules.merge else KnownPlaces(buckets.counts)
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


class _Range(NamedTuple):
    """Keys of a bucket: those from `base` on, `bits` wide, in `size` records."""

    base: int
    bits: int
    size: int


class _BucketSorter:
    """Sorts one bucket after the other, on several threads."""

    def __init__(self, spill: Spill, buckets: Buckets, rules: EdgeRules, arrays: SortedArrays, capacity: int) -> None:
        self.spill, self.buckets, self.rules, self.arrays, self.capacity = spill, buckets, rules, arrays, capacity
        self.failure: BaseException | None = None
        """What stopped the others."""

    def run(self, bucket: int, places: Places) -> int:
        """Sort a bucket and write it; return its number of records."""
        try:
            width = int(self.buckets.bounds[bucket + 1] - self.buckets.bounds[bucket])
            bits = (width - 1).bit_length() + self.rules.source_bits
            whole = _Range(0, bits, int(self.buckets.counts[bucket]))
            end = _Cursor(self, bucket, places)
            self._sort(self.spill, bucket, whole, end)
            places.done(bucket, end.finish())
        except StoppedError:
            raise
        except BaseException as error:
            self.failure = self.failure or error
            places.stop()
            raise
        return whole.size

    def _sort(self, spill: Spill, bucket: int, keys: _Range, cursor: _Cursor) -> None:
        segments = spill.segments(bucket)
        if keys.size <= self.capacity:
            cursor.write(spill, segments, keys)
        elif keys.bits == 0:
            cursor.write_one_key(spill, _pieces(segments, self.capacity, spill.format.size), keys)
        else:
            self._split(spill, segments, keys, cursor)

    def _split(self, spill: Spill, segments: list[Segment], keys: _Range, cursor: _Cursor) -> None:
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
        smaller = Spill(spill.path.with_name(f"spilled-{cursor.bucket}-{keys.base:x}-{keys.bits}"), record_format)
        try:
            for number, piece in enumerate(pieces):
                records, offsets = kernels.record_partition(spill.read([piece]), *form, bucket_of, len(starts))
                smaller.add(number, piece.first, records, offsets)
            counts = np.add.reduceat(bins, starts)
            for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
                width = ((end - start) << shift) - 1
                range_ = _Range(keys.base + (start << shift), width.bit_length(), int(counts[number]))
                self._sort(smaller, number, range_, cursor)
        finally:
            smaller.close()


class _Cursor:
    """Where one bucket is being written."""

    def __init__(self, sorter: _BucketSorter, bucket: int, places: Places) -> None:
        self._rules, self._arrays = sorter.rules, sorter.arrays
        self.bucket, self._places = bucket, places
        self._first_row, self._last_row = (int(bound) for bound in sorter.buckets.bounds[bucket : bucket + 2])
        self._at: int | None = None

    def finish(self) -> int:
        """Where the bucket ends."""
        return self._begin()

    def _begin(self) -> int:
        if self._at is None:
            self._at = self._places.begin(self.bucket)
        return self._at

    def write(self, spill: Spill, segments: list[Segment], keys: _Range) -> None:
        """Sort and write records that fit in memory."""
        edges = _sorted_edges(spill, segments, keys)
        room = edges.distinct() if self._rules.merge else edges.count()
        at = self._begin()
        self._at = at + self._put(edges, keys, slice(at, at + room), self._rules.merge)

    def write_one_key(self, spill: Spill, pieces: Iterable[Segment], keys: _Range) -> None:
        """Write records that all join the same two vertices: they are in order."""
        if self._rules.merge:
            self._merge_one_key(spill, list(pieces), keys)
            return
        for piece in pieces:
            at = self._begin()
            edges = _sorted_edges(spill, [piece], keys)
            self._at = at + self._put(edges, keys, slice(at, at + piece.size), 0)

    def _merge_one_key(self, spill: Spill, pieces: list[Segment], keys: _Range) -> None:
        at = self._begin()
        total: float | None = None
        for piece in pieces if self._arrays.data is not None else pieces[:1]:
            records = spill.read([piece]).reshape(piece.size, spill.format.size)
            if total is None:  # the first of all tells source and edge id
                edges = _sorted_edges(spill, [piece._replace(size=1)], keys)
                self._put(edges, keys, slice(at, at + 1), 0)
            if self._arrays.data is not None:
                weights = np.ascontiguousarray(records[:, spill.format.head_bytes :]).view(self._arrays.data.dtype)
                total = _merged(weights.ravel().astype(np.float64), total, self._rules.merge)
        if self._arrays.data is not None:
            self._arrays.data[at] = total
        self._at = at + 1

    def _put(self, edges: Any, keys: _Range, room: slice, merge: int) -> int:
        arrays, bits = self._arrays, self._rules.source_bits
        first = self._first_row + (keys.base >> bits)
        last = min(self._first_row + ((keys.base + (1 << keys.bits) - 1) >> bits) + 1, self._last_row)
        return int(
            edges.write(
                arrays.indices[room],
                None if arrays.edge_ids is None else arrays.edge_ids[room],
                None if arrays.data is None else arrays.data[room],
                arrays.indptr[first + 1 : last + 1],
                first - self._first_row,
                room.start,
                bits,
                merge,
            )
        )


def _sorted_edges(spill: Spill, segments: list[Segment], keys: _Range) -> Any:
    """The records of segments, sorted by key and position."""
    record_format = spill.format
    return core().EdgeBucket(
        spill.read(segments),
        record_format.head_bytes,
        record_format.weight_bytes,
        record_format.position_bits,
        np.cumsum([0] + [segment.size for segment in segments], dtype=np.int64),
        np.array([segment.first for segment in segments], np.int64),
        keys.base,
        keys.bits,
    )


def _pieces(segments: list[Segment], capacity: int, size: int) -> Iterator[Segment]:
    """Cut segments into such as fit in memory."""
    for segment in segments:
        for begin in range(0, segment.size, capacity):
            yield Segment(segment.first, segment.offset + begin * size, min(capacity, segment.size - begin))


def _merged(weights: NDArray[np.float64], before: float | None, merge: int) -> float:
    """One weight of several, in the order of the input: 1 the first, 2 the sum, 3 the largest."""
    values = weights if before is None else np.concatenate([[before], weights])
    if merge == 1:
        return float(values[0])
    return float(np.cumsum(values)[-1]) if merge == 2 else float(values.max())
