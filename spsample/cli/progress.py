"""Progress of long work on standard error: a bar on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeElapsedColumn

from spsample.cli.screen import console, print_message
from spsample.common.locks import renewed

if TYPE_CHECKING:
    from typing_extensions import Self

MINUTE = 60.0


def print_progress(text: str) -> None:
    """A line on standard error."""
    console(stderr=True).print(text, markup=False, soft_wrap=True)


def print_note(text: str) -> None:
    """A line on standard error about what was given and has no effect."""
    print_message(f"note: {text}")


def elapsed(seconds: float) -> str:
    """A duration in words.

    Examples
    --------
    >>> elapsed(3.21), elapsed(185), elapsed(7380)
    ('3.2 s', '3 min 5 s', '2 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds) // 60
    return f"{minutes} min {int(seconds) % 60} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def heartbeat(status: Callable[[], str]) -> Iterator[None]:
    """Around long work: a thread prints a line every minute.

    Parameters
    ----------
    status
        Returns the progress of the work, in words; empty for no line.
    """
    begin, is_over = time.monotonic(), renewed(threading.Event())

    def beat() -> None:
        while not is_over.wait(MINUTE):
            text = status()
            if text:
                print_progress(f"{text}; {elapsed(time.monotonic() - begin)} so far")

    thread = threading.Thread(target=beat, name="spsample-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class Display:
    """Around long work: bars on a terminal, a line a minute where there is none, nothing where it is quiet.

    Parameters
    ----------
    columns
        Columns of the bars.
    quiet
        Print nothing.

    Attributes
    ----------
    bars
        Those of rich, disabled where none are shown.
    prints_lines
        True where lines are printed instead.
    """

    def __init__(self, *columns: ProgressColumn, quiet: bool) -> None:
        where = console(stderr=True)
        shows_bars = where.is_terminal and not where.is_dumb_terminal and not quiet
        self.prints_lines = not shows_bars and not quiet
        self.bars = Progress(*columns, TimeElapsedColumn(), console=where, disable=not shows_bars)
        self._shown = ExitStack()

    def __enter__(self) -> Self:
        self._shown.enter_context(self.bars)
        if self.prints_lines:
            self._shown.enter_context(heartbeat(self.status))
        return self

    def __exit__(self, *raised: object) -> None:
        self._shown.close()

    def status(self) -> str:
        """Return the progress of the work, in words."""
        raise NotImplementedError


class PhaseProgress(Display):
    """The phases of long work, each with what of it is done.

    Parameters
    ----------
    unit
        Name of the things counted.
    quiet
        Print nothing.

    Examples
    --------
    >>> with PhaseProgress("edges") as work:
    ...     work.show("reading", 10, 20)
    ...     work.status()
    'reading: 10 of 20 edges'
    """

    def __init__(self, unit: str, *, quiet: bool = False) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[shown]}")
        super().__init__(*columns, quiet=quiet)
        self._unit = unit
        self._phase, self._done = "", ""
        self._tasks: dict[str, TaskID] = {}

    def show(self, phase: str, done: int = 0, whole: int | None = None) -> None:
        """Take note of how far a phase is."""
        of = "" if whole is None else f" of {whole:,}"
        self._phase, self._done = phase, f"{done:,}{of} {self._unit}" if done or whole else ""
        if self.bars.disable:
            return
        if phase not in self._tasks:
            self._tasks[phase] = self.bars.add_task(phase, total=whole, shown="")
        self.bars.update(self._tasks[phase], completed=done, total=whole, shown=self._done)

    def status(self) -> str:
        """Return the progress of the work, in words."""
        return f"{self._phase}: {self._done}" if self._done else self._phase
