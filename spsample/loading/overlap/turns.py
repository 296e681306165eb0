"""Threads ahead of the loop, or the loop's own thread: `Turns` finds out which is faster, where nobody chose."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing
from typing import NamedTuple

from spsample.loading.order import Delivered

__all__ = ["Turns", "followed"]

LOOK_SECONDS = 0.04
"""Of the loop, that one look takes at least; it ends with a bulk."""
LONG_LOOK = 0.4
"""Seconds from which on one look at each is enough."""
FEW_PAIRS, MOST_PAIRS = 2, 4
"""Looks at each: at least, and at most where they do not differ clearly."""
CLEAR, NEARLY = 1.05, 1.03
"""Times as long: a clear difference; and such a small one that the simpler way is taken."""
LIGHT_LOOP, LIGHT_CLEAR = 0.05, 1.15
"""Share of the time that a loop needs for its own work, for threads to have something to overlap; and what is clear
of a lighter one."""
OTHER_LOOP, LEAST_CHANGE = 2.0, 50e-6
"""Times as long a batch takes the loop, and seconds more or less, as when a choice was made: it is another loop."""
PATIENCE = 8
"""Looks between two choices, at least; twice as many after each one."""


class Look(NamedTuple):
    """Seconds from batch to batch, and those of the loop among them; means of one look."""

    batch: float
    loop: float


class Turns:
    """Whether the threads of a loader's stages run ahead, or its stages work in turn in the thread of the loop.

    A pass begins with threads. Looks at the loop, each as short as can tell, then change between the two ways; the one
    whose best look is faster is kept until the loop takes another time for a batch. A look goes from one request of the
    loop to another, so that each batch in it has both: the wait for it, and the loop's own work. That on threads begins
    with the second bulk, since they fill their queues during the first one. No look costs more than what it measures
    and the bulks that threads had ready. Samples do not depend on it.

    Parameters
    ----------
    clock : function
        Gives seconds.

    Attributes
    ----------
    in_turn : bool
        The way of the next bulks.

    Examples
    --------
    >>> now = [0.0]
    >>> turns = Turns(clock=lambda: now[0])
    >>> turns.begin()
    >>> for _ in range(400):  # a batch takes 3 ms with threads, and 1 ms in turn
    ...     now[0] += 0.001 if turns.in_turn else 0.003
    ...     turns.delivered(ends_bulk=True)
    ...     if turns.asks():
    ...         turns.begin()
    >>> turns.in_turn, turns.is_settled
    (True, True)
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.in_turn = False
        self._clock = clock
        self._looks: dict[bool, list[Look]] = {False: [], True: []}  # in turn or not, since the last choice
        self._chosen: Look | None = None
        self._patience = PATIENCE
        self._looks_since = 0
        self._is_filling = self._ends_bulk = False
        self._forget()

    @property
    def is_settled(self) -> bool:
        """Whether a choice was made."""
        return self._chosen is not None

    def begin(self) -> None:
        """Threads, or turns, begin: the loop asks for a first batch."""
        self._is_filling = not self.in_turn
        self._asked = self._clock()

    def delivered(self, *, ends_bulk: bool) -> None:
        """The loop gets a batch."""
        self._got, self._ends_bulk = self._clock(), ends_bulk

    def asks(self) -> bool:
        """The loop asks for another one; True where the way changes before it."""
        now = self._clock()
        if not self._is_filling:
            self._batches += 1
            self._seconds += now - self._asked
            self._loop_seconds += now - self._got
        self._is_filling = self._is_filling and not self._ends_bulk
        self._asked = now
        return self._ends_bulk and self._seconds >= LOOK_SECONDS and self._look()

    def _look(self) -> bool:
        seconds, before = self._seconds, self.in_turn
        look = Look(seconds / self._batches, self._loop_seconds / self._batches)
        self._forget()
        if self._chosen is not None:
            self._follow(self._chosen, look)
            return False
        self._looks[self.in_turn].append(look)
        ahead, pairs = len(self._looks[False]), len(self._looks[True])
        if ahead == pairs and (pairs >= FEW_PAIRS or seconds >= LONG_LOOK):
            self._choose(is_last=pairs >= MOST_PAIRS or seconds >= LONG_LOOK)
        if self._chosen is None:
            self.in_turn = pairs < ahead
        return self.in_turn != before

    def _choose(self, *, is_last: bool) -> None:
        """Keep the faster way, where that is clear or nothing more is looked at; without a clear one the simpler."""
        ahead, in_turn = (min(self._looks[way]) for way in (False, True))
        is_light = in_turn.loop < LIGHT_LOOP * in_turn.batch
        ahead_is_clear = not is_light and CLEAR * ahead.batch <= in_turn.batch  # else all looks are waited for
        if not is_last and not ahead_is_clear and CLEAR * in_turn.batch > ahead.batch:
            return
        self.in_turn = in_turn.batch < (LIGHT_CLEAR if is_light else NEARLY) * ahead.batch
        self._chosen = in_turn if self.in_turn else ahead
        self._looks_since = 0

    def _follow(self, chosen: Look, look: Look) -> None:
        """Look anew where the loop has become another one."""
        self._looks_since += 1
        little, much = sorted((chosen.loop, look.loop))
        if self._looks_since < self._patience or much < OTHER_LOOP * little or much - little < LEAST_CHANGE:
            return
        self._patience *= 2
        self._chosen = None
        self._looks = {False: [], True: []}

    def _forget(self) -> None:
        self._batches, self._seconds, self._loop_seconds = 0, 0.0, 0.0


def followed(
    turns: Turns, deliver: Callable[[int], Generator[Delivered, None, None]], first: int, last: int
) -> Generator[Delivered, None, None]:
    """One pass, each part of it in the way that `turns` has then.

    Parameters
    ----------
    turns
    deliver
        Gives the batches from a number on, in the way that `turns` has when it is called; closed at a change.
    first, last
        Numbers of batches.
    """
    while first < last:
        with closing(deliver(first)) as items:
            turns.begin()
            for item in items:
                first = item.next_batch
                turns.delivered(ends_bulk=item.ends_bulk)
                yield item
                if turns.asks():
                    break
            else:
                return
