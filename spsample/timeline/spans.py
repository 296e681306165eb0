"""Spans of one rank, in a temporary file as they come, so that memory stays bounded; and traces that are made of them.

Traces are in Chrome's format, which Perfetto and chrome://tracing open: a JSON object with ``traceEvents``. An event of
``ph`` "X" is a span: ``name``, ``cat``, ``ts`` and ``dur`` in microseconds, ``pid`` (here the rank), ``tid`` (the
thread's row) and ``args``. One of ``ph`` "M" names a rank or a thread.
Source: "Trace Event Format", Google (2016).
"""

from __future__ import annotations

import json
import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.common.locks import renewed
from spsample.store.folder import system_errors, whole_file

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


# -------------------------------------------------------------------------------------------------------- traces


class RankRows(NamedTuple):
    """Names that the numbers in the spans of a rank stand for.

    Attributes
    ----------
    rank : int
    host : str
        The machine.
    names : list of (str, str)
        Name and category of a span.
    rows : list of str
        Names of threads.
    clock_error : float
        Seconds by which the rank's spans may be misplaced beside those of rank 0.
    left_out : int
        Spans for which the disk had no room.
    """

    rank: int
    host: str
    names: list[tuple[str, str]]
    rows: list[str]
    clock_error: float
    left_out: int


def _names(of: RankRows) -> Iterator[dict[str, Any]]:
    """Yield events that name a rank and its threads."""
    yield from _name("process", f"rank {of.rank} ({of.host})", place=of.rank, ids={"pid": of.rank, "tid": 0})
    for row, name in enumerate(of.rows):
        yield from _name("thread", name, place=row, ids={"pid": of.rank, "tid": row})


def _name(kind: str, name: str, place: int, ids: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield the events that give a process or a thread its name, and its place among the others."""
    yield {"ph": "M", **ids, "name": f"{kind}_name", "args": {"name": name}}
    yield {"ph": "M", **ids, "name": f"{kind}_sort_index", "args": {"sort_index": place}}


def _event(span: tuple[float, float, int, int, int], of: RankRows) -> dict[str, Any]:
    """Return a span as an event: rounded to nanoseconds, which keeps nested spans nested."""
    begin, end = (round(seconds * 1e9) for seconds in span[:2])
    name, category = of.names[span[2]]
    args = {} if span[4] == NO_BATCH else {"batch": span[4]}
    times = {"ts": begin / 1e3, "dur": (end - begin) / 1e3}
    return {"ph": "X", "name": name, "cat": category, **times, "pid": of.rank, "tid": span[3], "args": args}


@contextmanager
def trace_file(path: Path, ranks: list[RankRows], of_ranks: int) -> Iterator[Callable[[NDArray[Any], RankRows], None]]:
    """Write a trace, by a function that takes spans, their times in seconds of the timeline, and their rank.

    It gets its name when the block is left, and is not there where it cannot be finished.

    Parameters
    ----------
    path
        The file.
    ranks
        Those whose spans are in it.
    of_ranks
        Number of ranks of the run.

    Raises
    ------
    DataError
        If the system refuses.
    """
    facts = {
        "ranks": of_ranks,
        "ranks in this file": [rows.rank for rows in ranks],
        "clock error, us": round(1e6 * max(rows.clock_error for rows in ranks), 3),
        "spans left out": sum(rows.left_out for rows in ranks),
    }
    with system_errors(path, "a file that can be written"), whole_file(path) as file:
        file.write(b'{"displayTimeUnit": "ms", "otherData": ' + json.dumps(facts).encode() + b', "traceEvents": [')
        names = ",\n".join(json.dumps(event) for rank in ranks for event in _names(rank))
        file.write(b"\n" + names.encode())

        def write(spans: NDArray[Any], rank: RankRows) -> None:
            file.write("".join(",\n" + json.dumps(_event(span, rank)) for span in spans.tolist()).encode())

        yield write
        file.write(b"\n]}\n")
