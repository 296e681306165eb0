"""`Timeline`: a trace of the work of each thread of each rank."""

from __future__ import annotations

import platform
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.comm import Channel, Communicator, LocalCommunicator, Sent, collective
from spsample.comm.objects import all_gather_object
from spsample.common.checks import require_choice, require_int, require_number, require_path, require_type
from spsample.common.locks import renewed
from spsample.errors import DataError, InputError, SpSampleError
from spsample.store.folder import only_recorded
from spsample.timeline.clocks import ClockMap, clock_offset
from spsample.timeline.spans import NO_BATCH, SPAN, SPANS_IN_MEMORY, RankRows, Span, SpanFile, trace_file

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Timeline:
    """A file of the work of each thread of each rank, with its times, in Chrome's trace format; Perfetto opens it.

    Give one to `BulkLoader` or `Trainer`, and record the work of a loop of one's own with `span`. The file is written
    when the ``with`` block is left, with the ranks' clocks aligned. Where an error leaves it, each rank writes its own
    spans: rank 0 into ``path``, rank r into ``NAME-rank-r.json`` beside it. A process that is killed writes nothing.

    Spans wait in a temporary file, 32 bytes each, and in memory 4096 of them at most; a rank's is in its folder of
    temporary files, that of rank 0 beside ``path``. The trace has about 120 bytes for each.

    Parameters
    ----------
    path
        The file, replaced where it is there. On several ranks rank 0's counts.
    comm
        The ranks; None for one. Making a timeline is collective, and so is `close`. Both are calls of the thread that
        uses the communicator. The phase is "timeline".

    Attributes
    ----------
    left_out : int
        Spans of all ranks that a full disk had no room for.
    is_written : bool
        True where the file is there, once it is closed.

    Raises
    ------
    InputError
        On all ranks, if rank 0 cannot write there: no such folder, no permission, a folder of that name.

    Examples
    --------
    >>> import json, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "timeline.json"
    >>> with Timeline(path) as timeline:
    ...     with timeline.span("training", batch=3):
    ...         total = sum(range(1000))
    >>> events = json.loads(path.read_text())["traceEvents"]
    >>> [(event["name"], event["args"]) for event in events if event["ph"] == "X"]
    [('training', {'batch': 3})]
    """

    def __init__(self, path: str | Path, comm: Communicator | None = None) -> None:
        if comm is not None:
            require_type("comm", comm, Communicator, "a communicator, as spsample.init() makes")
        self.comm = LocalCommunicator() if comm is None else comm
        with collective(self.comm, call="the making of a timeline"):
            self.path = require_path("path", path)
            self._spans: SpanFile | None = SpanFile(_temporary(self.path, self.comm.rank))
        self._rows = _ThreadRows()
        self._names: dict[tuple[str, str], int] = {}
        self._lock = renewed(threading.Lock())
        self._offset = clock_offset(self.comm)
        self.left_out, self.is_written = 0, False

    def span(self, name: str, batch: int | None = None, *, category: str = "phase") -> AbstractContextManager[None]:
        """Return a context that records a block of work by its name, and its batch.

        Categories are "phase" and "part", a part being within a phase of the same thread.

        Raises
        ------
        InputError, DTypeError
            If the name is no text, the batch no number from 0 on, or there is no such category.
        """
        _check_span(name, batch, category)
        return Span(partial(self.add, category=category), name, batch)

    def add(self, name: str, begin: float, end: float, batch: int | None = None, *, category: str = "phase") -> None:
        """Record work of the calling thread between two times of `time.perf_counter`; nothing once it is closed.

        Arguments and errors are those of `span`; times are seconds.
        """
        _check_span(name, batch, category)
        for argument, value in (("begin", begin), ("end", end)):
            require_number(argument, value, lambda seconds: abs(seconds) < _MAX_SECONDS, "seconds of time.perf_counter")
        spans = self._spans
        if spans is None:
            return
        with self._lock:
            number = self._names.setdefault((name, category), len(self._names))
        spans.add((begin, end, number, self._rows.number(), NO_BATCH if batch is None else batch))

    def close(self) -> None:
        """Gather the spans of all ranks, and let rank 0 write the file; collective. A second call does nothing.

        Where the file cannot be written rank 0 warns: a run does not fail for its timeline.
        """
        spans = self._ended()
        if spans is None:
            return
        refused = only_recorded(self.path) if self.comm.rank == 0 else suppress(DataError, OSError)
        with closing(spans):
            try:
                with refused:
                    self._write_together(spans)
                    self.is_written = True
            except SpSampleError:
                self._write_alone(spans)
                raise

    def __enter__(self) -> Timeline:
        """Return itself."""
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        """Write the file; after an error each rank its own, since others may be gone."""
        if kind is None:
            self.close()
        elif (spans := self._ended()) is not None:
            with closing(spans):
                self._write_alone(spans)

    def _ended(self) -> SpanFile | None:
        """Return the spans, to which none are added from now on; None the second time."""
        spans, self._spans = self._spans, None
        if spans is not None:
            spans.finish()
        return spans

    def _write_together(self, spans: SpanFile) -> None:
        """Send the spans to rank 0, which writes them."""
        clock = ClockMap(self._offset, clock_offset(self.comm))
        ranks = all_gather_object(self.comm, (spans.written, self._described(spans, clock.error)))
        counts, described = [count for count, _ in ranks], [rows for _, rows in ranks]
        self.left_out = sum(rows.left_out for rows in described)
        channel = Channel(self.comm)
        with collective(self.comm, channel, call="the writing of a timeline"):
            gathered = _gathered(channel, spans, clock, max(counts))
            if self.comm.rank != 0:
                for _ in gathered:
                    pass
                return
            with trace_file(self.path, described, self.comm.size) as write:
                for blocks in gathered:
                    for block, of in zip(blocks, described, strict=True):
                        write(block, of)

    def _described(self, spans: SpanFile, clock_error: float) -> RankRows:
        rank, names = self.comm.rank, list(self._names)
        return RankRows(rank, platform.node(), names, self._rows.names, clock_error, spans.left_out)

    def _write_alone(self, spans: SpanFile) -> None:
        """Write this rank's spans, without the others; errors are ignored, since another one has ended the run."""
        rank, clock = self.comm.rank, ClockMap(self._offset, self._offset)
        path = self.path if rank == 0 else self.path.with_name(f"{self.path.stem}-rank-{rank}{self.path.suffix}")
        described = self._described(spans, self._offset.error)
        with suppress(DataError, OSError), trace_file(path, [described], self.comm.size) as write:
            for block in spans.blocks():
                write(clock.aligned(block), described)


_MAX_SECONDS = 1e9
"""Seconds that no clock has run: 30 years."""


def _check_span(name: str, batch: int | None, category: str) -> None:
    require_type("name", name, str, "a text")
    require_choice("category", category, ("phase", "part"))
    if batch is not None:
        require_int("batch", batch, minimum=0, maximum=2**63 - 1)


def require_writable(argument: str, path: Path) -> Path:
    """Refuse a path at which no file can be written.

    Raises
    ------
    InputError
        Naming the argument.

    Examples
    --------
    >>> require_writable("--trace", Path("/no/such/folder/timeline.json"))
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: --trace: got '/no/such/folder/timeline.json' (No such file or directory); expected ...
    """
    reason = "a folder" if path.is_dir() else ""
    if not reason:
        try:
            with tempfile.TemporaryFile(dir=path.parent):
                return path
        except OSError as error:
            reason = error.strerror or str(error)
    expected = "a file in a folder that exists and can be written to"
    raise InputError(argument=argument, given=f"{str(path)!r} ({reason})", expected=expected)


def _temporary(path: Path, rank: int) -> Any:
    """Open the file in which spans wait: one without a name, which is removed with the process."""
    if rank == 0:
        return tempfile.TemporaryFile(dir=require_writable("path", path).parent, buffering=0)
    try:
        return tempfile.TemporaryFile(buffering=0)
    except OSError as error:
        raise DataError(argument="TMPDIR", given=str(error), expected="a folder that can be written to") from error


def _gathered(channel: Channel, spans: SpanFile, clock: ClockMap, most: int) -> Iterator[list[NDArray[Any]]]:
    """Yield blocks of spans of all ranks, by rank, on rank 0; empty ones on the others. Each round is an exchange."""
    size, blocks = channel.scope.size, spans.blocks()
    for _ in range(-(-most // SPANS_IN_MEMORY)):
        mine = clock.aligned(next(blocks, np.empty(0, SPAN)))
        counts = np.array([len(mine), *[0] * (size - 1)], np.int64)
        received = channel.exchange([Sent(mine, counts)], phase="timeline")[0]
        yield np.split(received.rows, np.cumsum(received.counts)[:-1])


class _ThreadRows:
    """Numbers of the rows in which threads are shown: one for each name of threads that follow each other."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._threads: list[threading.Thread] = []
        self._main = threading.current_thread()
        self._mine = threading.local()
        self._lock = renewed(threading.Lock())

    def number(self) -> int:
        """Return the row of the calling thread."""
        if not hasattr(self._mine, "row"):
            with self._lock:
                self._mine.row = self._row_of(threading.current_thread())
        row: int = self._mine.row
        return row

    def _row_of(self, thread: threading.Thread) -> int:
        """Return the row of a thread of the same name which has ended, or a new one."""
        name = self._named(thread)
        same = [row for row, other in enumerate(self._threads) if self._named(other) == name]
        for row in same:
            if not self._threads[row].is_alive():
                self._threads[row] = thread
                return row
        self._threads.append(thread)
        self.names.append(name if not same else f"{name} {len(same) + 1}")
        return len(self.names) - 1

    def _named(self, thread: threading.Thread) -> str:
        return "main" if thread is self._main else thread.name.removeprefix("spsample ")
