"""Clocks of ranks: how far each is from that of rank 0."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from spsample.comm import Communicator

__all__ = ["ClockOffset", "clock_offset"]

ROUNDS = 16
"""Exchanges by which an offset is bounded; the quickest of them count."""


class ClockOffset(NamedTuple):
    """What to add to this rank's clock to have rank 0's: a number between two bounds.

    Attributes
    ----------
    at : float
        When it was measured, by this rank's clock.
    origin : float
        When rank 0 began to measure, by its own clock.
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
        """What it is wrong by at most, in seconds."""
        return (self.highest - self.lowest) / 2


def clock_offset(comm: Communicator) -> ClockOffset:
    """Bound how far this rank's clock, `time.perf_counter`, is from that of rank 0; collective.

    All ranks wait for each other several times, and note when they began to wait and when they went on. Nobody goes on
    before the last one has begun. So rank 0 begins before this rank goes on, and this rank begins before rank 0 goes
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
