"""Waiting for other ranks: polls that leave the processor to others, and a record of the calls that wait."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from spsample.comm.communicator import DEFAULT_TIMEOUT, TIMEOUT_VARIABLE
from spsample.common.checks import short
from spsample.errors import InputError

_AT_EXIT = 10
_MAX_TIMEOUT = 1e9
"""Seconds, some 30 years: a number that every clock and transport accepts."""
_BUSY = 1e-3
_MIN_PAUSE, _MAX_PAUSE = 2e-5, 1e-3
_yield = getattr(os, "sched_yield", lambda: time.sleep(0))


def timeout_or_default(timeout: float | None) -> float:
    """Seconds: those given, else those of the environment variable SPSAMPLE_TIMEOUT, else 600.

    Examples
    --------
    >>> timeout_or_default(30)
    30.0
    """
    value = os.environ.get(TIMEOUT_VARIABLE, DEFAULT_TIMEOUT) if timeout is None else timeout
    argument = TIMEOUT_VARIABLE if timeout is None else "timeout"
    try:
        seconds = float(value)
    except (ValueError, TypeError, OverflowError):
        seconds = -1.0
    if not 0 < seconds <= _MAX_TIMEOUT:
        expected = f"a positive number of seconds, at most {_MAX_TIMEOUT:.0e}"
        raise InputError(argument=argument, given=short(value), expected=expected)
    return seconds


def wait_for(done: Callable[[], bool], timeout: float) -> bool:
    """Poll `done` until it returns True (True) or `timeout` seconds have passed (False).

    For a millisecond the processor is only yielded between two polls; then the pauses are sleeps, which grow to a
    millisecond. So a rank that waits long leaves its core to the others where they share cores.

    Examples
    --------
    >>> wait_for(lambda: True, 1.0), wait_for(lambda: False, 0.01)
    (True, False)
    """
    begin = time.monotonic()
    pause = _MIN_PAUSE
    while not done():
        waited = time.monotonic() - begin
        if waited > timeout:
            return False
        if waited < _BUSY:
            _yield()
        else:
            time.sleep(pause)
            pause = min(_MAX_PAUSE, 1.2 * pause)
    return True


def end_soon(*kept: object) -> None:
    """Let this process end within ten seconds from now, as if killed, unless it ends by itself; for `atexit`.

    The shutdown of MPI and torch.distributed waits without end for ranks that are lost. `kept` are objects that
    must not be freed before.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_AT_EXIT)


class Call(NamedTuple):
    """A call that a communicator is in."""

    rank: int
    what: str
    begin: float

    def __str__(self) -> str:
        return f"{self.what}, for {time.monotonic() - self.begin:.1f} s"


class Activity:
    """The calls in which this process waits for other ranks, over a communicator and all split off from it.

    Examples
    --------
    >>> activity = Activity()
    >>> with activity.during(2, "all_to_all in phase 'rows'"):
    ...     print(activity)
    all_to_all in phase 'rows', for 0.0 s
    >>> print(activity)
    no exchange
    >>> activity.lost = "nothing was heard of rank 3"
    >>> print(activity)
    no exchange, after: nothing was heard of rank 3

    Attributes
    ----------
    lost : str
        Text about ranks that are lost; empty for none.
    """

    def __init__(self) -> None:
        self.lost = ""
        self._calls: list[Call] = []

    @contextmanager
    def during(self, rank: int, what: str) -> Iterator[Call]:
        """Record a call while the block runs."""
        call = Call(rank, what, time.monotonic())
        self._calls.append(call)
        try:
            yield call
        finally:
            self._calls.remove(call)

    def __str__(self) -> str:
        calls = "; ".join(map(str, self._calls)) or "no exchange"
        return f"{calls}, after: {self.lost}" if self.lost else calls
