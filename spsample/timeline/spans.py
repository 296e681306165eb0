"""Spans of one rank, written to a temporary file as they come, so that memory stays bounded."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.common.locks import renewed

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPAN = np.dtype(
    [("begin", np.float64), ("end", np.float64), ("name", np.int32), ("row", np.int32), ("batch", np.int64)]
)
"""A span: seconds of the rank's clock, the numbers of its name and of its thread's row, and its batch."""

SPANS_IN_MEMORY = 4096
"""Spans of a rank that are not in its file yet, at most; and spans that are read at once."""

NO_BATCH = -1


class Span:
    """A block of work that is under way: `add` is called with its name, its begin and end, and its batch."""

    __slots__ = ("_add", "_batch", "_begin", "_name")

    def __init__(self, add: Callable[[str, float, float, int | None], None], name: str, batch: int | None) -> None:
        self._add, self._name, self._batch = add, name, batch

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._add(self._name, self._begin, time.perf_counter(), self._batch)


class SpanFile:
    """Spans in a file that is removed with the process, however it ends.

    Where the disk is full the spans that follow are left out, and counted: a run does not fail for its timeline. Spans
    of a forked process are dropped.

    Parameters
    ----------
    file
        Unbuffered, binary, empty, for reading and writing.

    Attributes
    ----------
    written, left_out : int
        Spans in the file, and those that it had no room for.

    Examples
    --------
    >>> from tempfile import TemporaryFile
    >>> spans = SpanFile(TemporaryFile(buffering=0))
    >>> spans.add((0.5, 0.75, 0, 0, NO_BATCH))
    >>> spans.finish()
    >>> spans.written, [float(span["begin"]) for block in spans.blocks() for span in block]
    (1, [0.5])
    """

    def __init__(self, file: Any) -> None:
        self.written = self.left_out = 0
        self._file = file
        self._close = weakref.finalize(self, file.close)
        self._is_finished = False
        self._process = os.getpid()
        self._waiting: list[tuple[float, float, int, int, int]] = []
        self._lock = renewed(Lock())

    def add(self, span: tuple[float, float, int, int, int]) -> None:
        """Keep a span, whose numbers are those of `SPAN`; any thread may."""
        with self._lock:
            if self._is_finished or self._process != os.getpid():
                return
            self._waiting.append(span)
            if len(self._waiting) >= SPANS_IN_MEMORY:
                self._write()

    def finish(self) -> None:
        """Write the spans in memory. Spans that threads add from now on are dropped."""
        with self._lock:
            self._is_finished = True
            self._write()

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield all spans, once they are finished, in the order of their ends: at most `SPANS_IN_MEMORY` at a time."""
        left = self.written
        self._file.seek(0)
        while left:
            count = min(left, SPANS_IN_MEMORY)
            yield np.frombuffer(self._file.read(count * SPAN.itemsize), SPAN).copy()
            left -= count

    def close(self) -> None:
        """Close the file; so does the end of this object."""
        self._close()

    def _write(self) -> None:
        """Move the spans in memory to the file; once it is full they are dropped."""
        spans, self._waiting = np.array(self._waiting, SPAN), []
        try:
            is_whole = not self.left_out and self._file.write(spans.tobytes()) == spans.nbytes
        except OSError:
            is_whole = False
        if is_whole:
            self.written += len(spans)
        else:
            self.left_out += len(spans)
