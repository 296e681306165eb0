"""Records of edges on the disk: written chunk by chunk, read bucket by bucket."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spsample.common.locks import renewed
from spsample.errors import DataError
from spsample.store.folder import system_errors

__all__ = ["RecordFormat", "Segment", "Spill"]

_HEADS = range(4, 13)


class RecordFormat(NamedTuple):
    """What a record is: see ``kernels/cpu/edge_records.h``."""

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
                raise DataError(argument=str(self.path.parent), given=given, expected="room on the disk") from error

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
                    given = "a temporary file that was cut short"
                    raise DataError(argument=str(self.path), given=given, expected="the records written to it")
                done, at = done + got, at + got
        return records

    def close(self) -> None:
        """Remove the file."""
        os.close(self._descriptor)
        self.path.unlink(missing_ok=True)
