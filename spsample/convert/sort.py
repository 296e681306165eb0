"""The external sort: edges to the arrays of a graph, in order (target, source, position in the input).

1. every chunk of edges is grouped by bucket (a range of targets) and written behind the last one: one sequential write;
2. every bucket is read, sorted in memory by radix, and written where it belongs in the arrays of the store.

A bucket too large for the memory is cut by (target, source) and spilled once more, as often as it takes; entries that
are all the same pair of vertices need no sort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np

from spsample.convert.bucket_writer import (
    BucketWriter,
    EdgeRules,
    KeyRange,
    Places,
    PlacesInTurn,
    SortedArrays,
    StoppedError,
)
from spsample.convert.buckets import Buckets, cut
from spsample.convert.chunks import EdgeChunk
from spsample.convert.resources import SortPlan, core, in_order
from spsample.convert.spill import Segment, Spill

__all__ = ["partition", "sort_buckets"]

_SPLIT_BITS = 12


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
    places = PlacesInTurn() if rules.merge else Places(buckets.counts)
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
        """What stopped the others."""

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
