"""`SerialChoice`: the faster of threads ahead of the loop and serial work in the loop's own thread, by measurement."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

LOOK_SECONDS = 0.04
"""Seconds of the loop that a look takes at least; it ends with a bulk."""
LONG_LOOK = 0.4
"""Seconds of a look from which on one look at each way is enough."""
MIN_PAIRS, MAX_PAIRS = 2, 4
"""Looks at each way: at least, and at most where they do not differ clearly."""
CLEAR, NEARLY = 1.05, 1.03
"""Ratios of times: that of a clear difference, and one so small that the simpler way is taken."""
LIGHT_LOOP, LIGHT_CLEAR = 0.05, 1.15
"""Share of the time that a loop needs for its own work, for threads to have work to overlap; and the ratio of a clear
difference of a lighter loop."""
OTHER_LOOP, MIN_CHANGE = 2.0, 50e-6
"""Ratio and seconds by which a batch's time in the loop has to change since a choice, to be that of another loop."""
PATIENCE = 8
"""Looks between two choices, at least; twice as many after each one."""


class Look(NamedTuple):
    """Seconds from batch to batch, and those of the loop among them; of one batch, or the means of a look."""

    batch: float
    loop: float


class SerialChoice:
    """The choice between threads that run ahead of the loop, and serial work in the loop's own thread.

    A pass begins with threads. Looks at the loop, each as short as it can be, then change between the two ways; the one
    whose best look is faster is kept until the loop takes another time for a batch. A look goes from one request of the
    loop to another, so that each batch in it has both: the wait for it, and the loop's own work. That on threads begins
    with the second bulk, since they fill their queues during the first one. No look costs more than what it measures
    and the bulks that threads had ready. Samples do not depend on it.

    Parameters
    ----------
    clock : function
        Returns seconds.

    Attributes
    ----------
    is_serial : bool
        The way of the next bulks.

    Examples
    --------
    >>> now = [0.0]
    >>> choice = SerialChoice(clock=lambda: now[0])
    >>> choice.begin()
    >>> for _ in range(400):  # a batch takes 3 ms with threads, and 1 ms serially
    ...     now[0] += 0.001 if choice.is_serial else 0.003
    ...     choice.delivered(ends_bulk=True)
    ...     if choice.asks():
    ...         choice.begin()
    >>> choice.is_serial, choice.is_settled
    (True, True)
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.is_serial = False
        self._clock = clock
        self._times: list[Look] = []  # of the batches of the look that is under way
        self._looks: dict[bool, list[Look]] = {False: [], True: []}  # serial or not, since the last choice
        self._chosen: Look | None = None
        self._patience, self._looks_since = PATIENCE, 0
        self._is_filling = self._ends_bulk = False

    @property
    def is_settled(self) -> bool:
        """True once a choice was made."""
        return self._chosen is not None

    def begin(self) -> None:
        """Begin with threads, or serial work: the loop asks for a first batch."""
        self._is_filling = not self.is_serial
        self._asked = self._clock()

    def delivered(self, *, ends_bulk: bool) -> None:
        """Record that the loop gets a batch."""
        self._got, self._ends_bulk = self._clock(), ends_bulk

    def asks(self) -> bool:
        """Record that the loop asks for another one; return whether the way changes before it."""
        now = self._clock()
        if not self._is_filling:
            self._times.append(Look(now - self._asked, now - self._got))
        self._asked = now
        if not self._ends_bulk:
            return False
        self._is_filling = False
        seconds = sum(one.batch for one in self._times)
        if seconds < LOOK_SECONDS:
            return False
        look = Look(seconds / len(self._times), sum(one.loop for one in self._times) / len(self._times))
        self._times.clear()
        if self._chosen is not None:
            self._follow(self._chosen, look)
            return False
        before, is_long = self.is_serial, seconds >= LONG_LOOK
        self._looks[before].append(look)
        ahead, pairs = len(self._looks[False]), len(self._looks[True])
        if ahead == pairs and (pairs >= MIN_PAIRS or is_long):
            self._choose(is_last=pairs >= MAX_PAIRS or is_long)
        if self._chosen is None:
            self.is_serial = pairs < ahead
        return self.is_serial != before

    def _choose(self, *, is_last: bool) -> None:
        """Choose the faster way, where it is clear or looks are over; without a clear one the simpler."""
        ahead, serial = (min(self._looks[way]) for way in (False, True))
        is_light = serial.loop < LIGHT_LOOP * serial.batch
        ahead_is_clear = not is_light and CLEAR * ahead.batch <= serial.batch
        if not is_last and not ahead_is_clear and CLEAR * serial.batch > ahead.batch:
            return
        self.is_serial = serial.batch < (LIGHT_CLEAR if is_light else NEARLY) * ahead.batch
        self._chosen = serial if self.is_serial else ahead
        self._looks_since = 0

    def _follow(self, chosen: Look, look: Look) -> None:
        """Look anew where the time of the loop has changed."""
        self._looks_since += 1
        little, much = sorted((chosen.loop, look.loop))
        if self._looks_since < self._patience or much < OTHER_LOOP * little or much - little < MIN_CHANGE:
            return
        self._patience *= 2
        self._chosen = None
        self._looks = {False: [], True: []}
