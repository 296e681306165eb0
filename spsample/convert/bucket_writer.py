"""Where sorted edges go: each bucket to its place in the arrays of the store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from threading import Condition
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.common.locks import renewed
from spsample.convert.resources import core
from spsample.convert.spill import Segment, Spill

__all__ = ["BucketWriter", "EdgeRules", "KeyRange", "Places", "PlacesInTurn", "SortedArrays", "StoppedError"]


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


class KeyRange(NamedTuple):
    """Keys of a bucket: those from `base` on, `bits` wide, in `size` records."""

    base: int
    bits: int
    size: int


class StoppedError(Exception):
    """Another thread failed; its error is the one to report."""


class Places:
    """Where the entries of each bucket begin: every bucket writes as many as were counted."""

    def __init__(self, counts: NDArray[np.int64]) -> None:
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self.end = int(self._starts[-1])
        """Behind the last entry."""

    def begin(self, bucket: int) -> int:
        """Return the first entry of a bucket."""
        return int(self._starts[bucket])

    def done(self, bucket: int, end: int) -> None:
        """Take note of where a bucket ends."""

    def stop(self) -> None:
        """Let nobody wait any longer."""


class PlacesInTurn(Places):
    """A bucket writes behind the one before it. Buckets must be begun in order, or they would wait for ever."""

    def __init__(self) -> None:
        self.end = 0
        self._next = 0
        self._stopped = False
        self._change = renewed(Condition())

    def begin(self, bucket: int) -> int:
        """Wait for the bucket before, and return the first entry."""
        with self._change:
            self._change.wait_for(lambda: self._next == bucket or self._stopped)
            if self._stopped:
                raise StoppedError
            return self.end

    def done(self, bucket: int, end: int) -> None:
        """Take note of where a bucket ends."""
        with self._change:
            self._next, self.end = bucket + 1, end
            self._change.notify_all()

    def stop(self) -> None:
        """Let nobody wait any longer."""
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
        """Where the next entry goes, and at last the bucket ends; known once the places of those before it are."""
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
            if total is None:  # the first of all tells source and edge id
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


def _sorted_edges(spill: Spill, segments: list[Segment], keys: KeyRange) -> Any:
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


def _merged(weights: NDArray[np.float64], before: float | None, merge: int) -> float:
    """One weight of several, in the order of the input: 1 the first, 2 the sum, 3 the largest."""
    values = weights if before is None else np.concatenate([[before], weights])
    if merge == 1:
        return float(values[0])
    return float(np.cumsum(values)[-1]) if merge == 2 else float(values.max())
