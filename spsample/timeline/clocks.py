"""Clocks of ranks: the offset of each from that of rank 0, and times on the one clock of a timeline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.comm import Communicator

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUNDS = 16
"""Exchanges by which an offset is bounded; the quickest of them count."""


class ClockOffset(NamedTuple):
    """The difference of rank 0's clock to this rank's: a number between two bounds.

    Attributes
    ----------
    at : float
        Time of the measurement, by this rank's clock.
    origin : float
        Time at which rank 0 began to measure, by its own clock.
    lowest, highest : float
        Seconds.
    """

    at: float
    origin: float
    lowest: float
    highest: float

    @property
    def seconds(self) -> float:
        """The middle of the bounds."""
        return (self.lowest + self.highest) / 2

    @property
    def error(self) -> float:
        """The largest error, in seconds."""
        return (self.highest - self.lowest) / 2


def clock_offset(comm: Communicator) -> ClockOffset:
    """Bound how far this rank's clock, `time.perf_counter`, is from that of rank 0; collective.

    All ranks wait for each other several times, and record when they began to wait and when they went on. No rank goes
    on before the last one has begun. So rank 0 begins before this rank goes on, and this rank begins before rank 0 goes
    on: each round bounds the offset from both sides, whatever the network does.

    Examples
    --------
    >>> from spsample.comm import run_threads
    >>> offsets = run_threads(2, clock_offset)  # of threads, which have one clock
    >>> all(abs(offset.seconds) <= offset.error for offset in offsets)
    True
    """
    times = np.empty((ROUNDS, 2))
    for number in range(ROUNDS):
        times[number, 0] = time.perf_counter()
        comm.barrier(phase="timeline")
        times[number, 1] = time.perf_counter()
    theirs = comm.broadcast(times, 0, phase="timeline")
    lowest, highest = (theirs[:, 0] - times[:, 1]).max(), (theirs[:, 1] - times[:, 0]).min()
    return ClockOffset(float(times[0, 0]), float(theirs[0, 0]), float(lowest), float(highest))


class ClockMap:
    """The way from a rank's clock to that of the timeline, which is rank 0's from when the timeline was made.

    Clocks drift: where the bounds at the end do not meet those of the beginning the offset is taken to change evenly.
    """

    def __init__(self, before: ClockOffset, after: ClockOffset) -> None:
        lowest, highest = max(before.lowest, after.lowest), min(before.highest, after.highest)
        self.error = max(before.error, after.error)
        self._times, self._origin = [before.at, after.at], before.origin
        self._offsets = [before.seconds, after.seconds]
        if lowest <= highest:
            self.error = (highest - lowest) / 2
            self._offsets = [(lowest + highest) / 2] * 2

    def aligned(self, spans: NDArray[Any]) -> NDArray[Any]:
        """Convert spans to seconds of the timeline, in place."""
        for name in ("begin", "end"):
            spans[name] += np.interp(spans[name], self._times, self._offsets) - self._origin
        return spans
