"""When numbers of threads are changed while a pipeline runs: seldom, for a clear gain, and back where there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from spsample.common.stage_threads import StageThreads
from spsample.loading.overlap.choice import Choice, Curve, Loads, choose

__all__ = ["Adjuster", "Window"]

STARVES = 0.10
"""Share of its time that the loop waits for batches, above which it starves."""
GAIN = 0.90
"""A change has to be predicted to take at most this share of the time."""
KEPT = 0.95
"""A change is kept where the time that is measured then is at most this share of the time before."""
KEPT_IN_TURN = 1.0
"""Of the first change to working in turn where passes after this one then do without threads, and so are faster."""
SLOWER = 1.05
"""Times the time of working in turn, above which the stages are in each other's way."""
LOOKS_IN_TURN = 3
"""Windows after a change to working in turn before it is kept for good; of the first one nothing is asked."""
_NOTHING = 1e-9  # seconds
FIRST_REST = 2
"""Windows without a change after the first change; twice as many after each further one."""


class Window(NamedTuple):
    """Seconds of each stage for a batch, over some tens of batches.

    Attributes
    ----------
    sampling, features : float or None
        Of the work in these stages; None where they did none.
    training : float
        That the loop took.
    waiting : float
        That the loop waited.
    """

    sampling: float | None
    features: float | None
    training: float
    waiting: float

    @property
    def period(self) -> float:
        """Seconds from one batch to the next."""
        return self.training + self.waiting


@dataclass
class _Tried:
    """A change that is not yet known to be for the better; the windows that have passed since."""

    before: Choice
    period: float
    share: float  # of that time, at most, for the change to be kept
    windows: int = 0


class Adjuster:
    """Changes the numbers of threads by what windows show.

    1. What a window shows scales the curves of the stages.
    2. Where the loop waits for less than a tenth of its time no stage is too slow, and nothing changes.
    3. Else the choice is made anew. It is taken where it is predicted to save a tenth, by two windows in a row.
    4. Where batches come more slowly than in turn, by a twentieth, in two windows in a row, stages work in turn from
       then on, each on all cores. Where threads of all stages outnumber cores this is tried once in any case.
    5. The first window after a change is not looked at. Where the second is not a twentieth faster than before the
       change, it is undone. Of a change to working in turn the third is looked at, too; the first time such a change
       is kept where it is as fast, if it saves threads.
    6. After a change there is none for 2 windows, then for 4, 8, ...: in n windows there are fewer than 2 log2(n) + 2.

    Parameters
    ----------
    loads : Loads
        What the stages took when each worked alone.
    choice : Choice
        The first one.
    given : StageThreads
        Numbers that are not to be changed.
    saves_threads : bool
        Whether a pass whose stages work in turn does without threads.
    """

    def __init__(
        self,
        loads: Loads,
        choice: Choice,
        given: StageThreads = StageThreads(),  # noqa: B008
        saves_threads: bool = False,
    ) -> None:
        self.choice = choice
        self._loads = loads
        self._alone = loads.in_turn
        self._given = given
        self._rest = 1
        self._next_rest = FIRST_REST
        self._proposed: Choice | None = None
        self._tried: _Tried | None = None
        outnumber = choice.sampling + choice.features + loads.training_threads > loads.cores
        self._in_turn_is_untried = saves_threads and outnumber
        self._period = math.inf  # of the window before

    @property
    def is_settled(self) -> bool:
        """Whether no change waits to be judged."""
        return self._tried is None

    def observe(self, window: Window) -> str:
        """Look at a window; return why the choice has changed, or "" where it has not."""
        self._loads = self._scaled(window)
        before, self._period = self._period, window.period
        if self._tried is not None:
            return self._judged(self._tried, window)
        if self._rest > 0:
            self._rest -= 1
            return ""
        better, reason = self._better(window)
        if better is None or better != self._proposed:
            self._proposed = better
            return ""
        is_first = better.in_turn and self._in_turn_is_untried
        self._tried = _Tried(self.choice, min(before, window.period), KEPT_IN_TURN if is_first else KEPT)
        self._change(better)
        return reason

    def _judged(self, tried: _Tried, window: Window) -> str:
        """Undo a change that has not paid."""
        tried.windows += 1
        if tried.windows == 1:
            return ""
        if window.period <= tried.share * tried.period:
            if not self.choice.in_turn or tried.windows == LOOKS_IN_TURN:
                self._tried = None
            return ""
        self._tried = None
        self._change(tried.before)
        return f"back again: {_ms(window.period)} a batch, and {_ms(tried.period)} before the last change"

    def _better(self, window: Window) -> tuple[Choice | None, str]:
        """A choice that should be better, and why."""
        if self.choice.in_turn:
            return None, ""
        if self._in_turn_is_untried:
            return self._choice_in_turn, f"in turn, since threads outnumber cores: {_ms(window.period)} a batch before"
        if window.period > SLOWER * self._alone:
            reason = f"in turn: {_ms(window.period)} a batch side by side, and {_ms(self._alone)} in turn"
            return self._choice_in_turn, reason
        if window.waiting <= STARVES * window.period:
            return None, ""
        best, now = choose(self._loads, self._given), self._loads.of(self.choice)
        if self._loads.of(best) > GAIN * now:
            return None, ""
        share = window.waiting / window.period
        return best, f"the loop waited for {share:.0%} of its time: {_ms(self._loads.of(best))} a batch, not {_ms(now)}"

    @property
    def _choice_in_turn(self) -> Choice:
        """All cores for each stage whose number is not given."""
        sampling, features = (self._loads.cores if one is None else one for one in self._given[:2])
        return Choice(sampling, features, in_turn=True)

    def _change(self, choice: Choice) -> None:
        self._in_turn_is_untried = self._in_turn_is_untried and not choice.in_turn
        self.choice, self._proposed = choice, None
        self._rest, self._next_rest = self._next_rest, 2 * self._next_rest

    def _scaled(self, window: Window) -> Loads:
        """The loads, such that they predict what the window shows."""
        return replace(
            self._loads,
            sampling=_through(self._loads.sampling, self.choice.sampling, window.sampling),
            features=_through(self._loads.features, self.choice.features, window.features),
            training=window.training,
        )


def _through(curve: Curve, threads: int, seconds: float | None) -> Curve:
    """The curve, scaled to these seconds."""
    predicted = curve.seconds(threads)
    if seconds is None:
        return curve
    return curve.scaled(seconds / predicted) if predicted > _NOTHING else Curve(seconds, 0.0)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms"
