"""Timelines as files in Chrome's trace format, which Perfetto and chrome://tracing open.

The format: a JSON object with ``traceEvents``. An event of ``ph`` "X" is a span: ``name``, ``cat``, ``ts`` and ``dur``
in microseconds, ``pid`` (here the rank), ``tid`` (the thread's row) and ``args``. One of ``ph`` "M" names a rank or a
thread.
Source: "Trace Event Format", Google (2016).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spsample.store.folder import system_errors, whole_file
from spsample.timeline.spans import NO_BATCH

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    yield _named("process_name", of.rank, 0, name=f"rank {of.rank} ({of.host})")
    yield _named("process_sort_index", of.rank, 0, sort_index=of.rank)
    for row, name in enumerate(of.rows):
        yield _named("thread_name", of.rank, row, name=name)
        yield _named("thread_sort_index", of.rank, row, sort_index=row)


def _named(what: str, rank: int, row: int, **value: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": rank, "tid": row, "args": value}


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
