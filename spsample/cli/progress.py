"""Long work says how far it is: a bar on a terminal, a line a minute elsewhere; on standard error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from spsample.cli.screen import console, has_bars

__all__ = ["Heartbeat", "Work", "elapsed", "print_note", "print_progress"]

MINUTE = 60.0


def print_progress(text: str) -> None:
    """A line on standard error."""
    console(stderr=True).print(text, markup=False, soft_wrap=True)


def print_note(text: str) -> None:
    """A line on standard error about what was given and has no effect."""
    print_progress(f"spsample: note: {text}")


def elapsed(seconds: float) -> str:
    """A time that passes, as people say it.

    Examples
    --------
    >>> elapsed(3.21), elapsed(185), elapsed(7380)
    ('3.2 s', '3 min 5 s', '2 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds) // 60
    return f"{minutes} min {int(seconds) % 60} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Heartbeat:
    """Around long work: a thread that prints a line every minute.

    Parameters
    ----------
    say
        How far the work is; empty for no line.
    """

    def __init__(self, say: Callable[[], str]) -> None:
        self._say = say
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="spsample-progress", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._begin = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(MINUTE):
            told = self._say()
            if told:
                print_progress(f"{told}; {elapsed(time.monotonic() - self._begin)} so far")


class Work:
    """The phases of long work, each with what of it is done.

    Parameters
    ----------
    unit
        What is counted.
    quiet
        Say nothing.

    Examples
    --------
    >>> with Work("edges") as work:
    ...     work.show("reading", 10, 20)
    ...     work.told()
    'reading: 10 of 20 edges'
    """

    def __init__(self, unit: str, *, quiet: bool = False) -> None:
        self._unit = unit
        self._phase, self._done = "", ""
        where = console(stderr=True)
        bars = has_bars(where) and not quiet
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[shown]}"),
            TimeElapsedColumn(),
            console=where,
            disable=not bars,
        )
        self._lines: AbstractContextManager[object] = nullcontext() if bars or quiet else Heartbeat(self.told)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Work:
        self._bars.start()
        self._lines.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.__exit__(kind, error, trace)
        self._bars.stop()

    def show(self, phase: str, done: int = 0, whole: int | None = None) -> None:
        """Take note of how far a phase is."""
        of = "" if whole is None else f" of {whole:,}"
        self._phase, self._done = phase, f"{done:,}{of} {self._unit}" if done or whole else ""
        if self._bars.disable:
            return
        if phase not in self._tasks:
            self._tasks[phase] = self._bars.add_task(phase, total=whole, shown="")
        self._bars.update(self._tasks[phase], completed=done, total=whole, shown=self._done)

    def told(self) -> str:
        """How far the work is, in words."""
        return f"{self._phase}: {self._done}" if self._done else self._phase
