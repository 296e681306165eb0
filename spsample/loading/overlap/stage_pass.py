"""What goes on around the stages of one pass: their threads are set, and what they take is measured."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from spsample.loading.overlap.adjusting import Window
from spsample.loading.overlap.tuning import TRIAL_BULKS, StageTuning, Took
from spsample.sparse import set_num_threads

if TYPE_CHECKING:
    from spsample.loading.prefetch import ClosableIterator, Prefetcher

__all__ = ["PassAsStarted", "StagePass", "TunedPass", "new_pass"]

WINDOW = 32
"""Batches of a window, at least."""
PAUSE = 4
"""Times the median of the loop's times for a batch, above which it did something else."""
LONGEST_WINDOW = 256
"""Batches of a window in which no bulk was sampled, at most."""


class StagePass(Protocol):
    """What goes on around the stages of one pass."""

    def sampled(self, bulks: ClosableIterator[Any], kept: bool = False) -> ClosableIterator[Any]:
        """The bulks, in the thread that samples them; the first one is perhaps there already."""
        ...

    def read(self, bulks: Iterator[Any]) -> Iterator[Any]:
        """The bulks, in the thread that gathers features for them."""
        ...

    def fetched(self, items: ClosableIterator[Any]) -> ClosableIterator[Any]:
        """What that thread makes of them."""
        ...

    def ahead(self, items: int) -> int:
        """How many items a stage may be ahead at first, where that number is right for one that runs freely."""
        ...

    def runs(self, stages: list[tuple[Prefetcher[Any], int]]) -> None:
        """The stages of this pass, and how far each may be ahead when it runs freely."""
        ...

    def asks(self) -> None:
        """The loop asks for a batch."""
        ...

    def delivered(self, begins_bulk: bool) -> None:
        """The loop gets one."""
        ...


class PassAsStarted:
    """A pass whose stages have the number of threads of the one that starts them."""

    def sampled(self, bulks: ClosableIterator[Any], kept: bool = False) -> ClosableIterator[Any]:
        """The bulks."""
        return bulks

    def read(self, bulks: Iterator[Any]) -> Iterator[Any]:
        """The bulks."""
        return bulks

    def fetched(self, items: ClosableIterator[Any]) -> ClosableIterator[Any]:
        """The items."""
        return items

    def ahead(self, items: int) -> int:
        """That number."""
        return items

    def runs(self, stages: list[tuple[Prefetcher[Any], int]]) -> None:
        """Nothing changes while they run."""

    def asks(self) -> None:
        """Nothing is measured."""

    def delivered(self, begins_bulk: bool) -> None:
        """Nothing is measured."""


class TunedPass:
    """A pass whose stages have the numbers of threads that a `StageTuning` says, and are measured for it."""

    def __init__(self, tuning: StageTuning) -> None:
        self._tuning = tuning
        self._took: dict[str, deque[Took]] = {"sampling": deque(), "features": deque()}
        self._first_is_kept = False
        self._threads = 1  # of the thread that gathers
        self._first = tuning.trial.begun  # bulk of the trial
        self._bulk = self._first - 1  # which that thread works on
        self._waited = 0.0  # for it
        self._stages: list[tuple[Prefetcher[Any], int]] = []
        self._is_free = self._runs_freely
        self._clock = time.perf_counter()
        self._has_begun = False  # the loop
        self._training: list[float] = []
        self._waiting: list[float] = []

    @property
    def _runs_freely(self) -> bool:
        choice = self._tuning.choice
        return choice is not None and not choice.in_turn

    # ------------------------------------------------------------------------------------------- in the threads

    def sampled(self, bulks: ClosableIterator[Any], kept: bool = False) -> ClosableIterator[Any]:
        """The bulks, each sampled with the threads that it should have; a first one that is there is not measured."""
        self._first_is_kept = kept
        return _Measured(bulks, self._sample)

    def _sample(self, bulks: ClosableIterator[Any], number: int) -> Any:
        is_there = number == 0 and self._first_is_kept
        number += self._first
        threads = self._threads_of("sampling", number)
        set_num_threads(threads)
        begin = time.perf_counter()
        one = next(bulks)
        took = time.perf_counter() - begin
        if not is_there:
            self._took["sampling"].append(Took(number, threads, took, self._tuning.steps_of(one)))
        return one

    def read(self, bulks: Iterator[Any]) -> Iterator[Any]:
        """The bulks; the thread that takes them gets the number of threads for the batches of each."""
        while True:
            begin = time.perf_counter()
            one = next(bulks, None)
            self._waited += time.perf_counter() - begin
            if one is None:
                return
            self._bulk += 1
            self._threads = self._threads_of("features", self._bulk)
            set_num_threads(self._threads)
            yield one
            del one

    def fetched(self, items: ClosableIterator[Any]) -> ClosableIterator[Any]:
        """The items, each measured but for the wait for its bulk."""
        return _Measured(items, self._fetch)

    def _fetch(self, items: ClosableIterator[Any], number: int) -> Any:
        self._waited = 0.0
        begin = time.perf_counter()
        item = next(items)
        took = time.perf_counter() - begin - self._waited
        self._took["features"].append(Took(self._bulk, self._threads, took, 1))
        return item

    def _threads_of(self, stage: str, bulk: int) -> int:
        choice, given = self._tuning.choice, getattr(self._tuning.given, stage)
        if choice is not None:
            return int(getattr(choice, stage))
        if given is not None:
            return int(given)
        return 1 if bulk == 1 else self._tuning.cores

    # --------------------------------------------------------------------------------------------- in the loop

    def ahead(self, items: int) -> int:
        """How many items a stage may be ahead: none while stages work in turn."""
        return items if self._is_free else 0

    def runs(self, stages: list[tuple[Prefetcher[Any], int]]) -> None:
        """The stages of this pass, and how far each may be ahead when it runs freely."""
        self._stages = stages

    def asks(self) -> None:
        """The loop asks for a batch: what went by since the last one was training."""
        now = time.perf_counter()
        if self._has_begun:
            self._training.append(now - self._clock)
        self._clock = now

    def delivered(self, begins_bulk: bool) -> None:
        """The loop gets a batch: look at what was measured. The wait for the first of a pass counts for nothing."""
        now = time.perf_counter()
        if self._has_begun:
            self._waiting.append(now - self._clock)
        if self._tuning.choice is None:
            self._go_on_with_trial(begins_bulk)
        elif self._is_whole_window:
            self._tuning.observe(self._window())
        self._follow()
        self._has_begun = True
        self._clock = time.perf_counter()

    def _follow(self) -> None:
        """Let the stages run freely, or in turn, as the choice is now."""
        if self._is_free != self._runs_freely:
            self._is_free = self._runs_freely
            for stage, ahead in self._stages:
                stage.set_ahead(self.ahead(ahead))

    def _go_on_with_trial(self, begins_bulk: bool) -> None:
        """It is over with the first batch of its last bulk: all of them are sampled then."""
        trial = self._tuning.trial
        trial.begun += begins_bulk
        trial.keep({stage: _taken(took) for stage, took in self._took.items()}, self._training)
        self._forget()
        if trial.begun >= TRIAL_BULKS:
            self._tuning.trial_is_over(*trial.loads())

    @property
    def _is_whole_window(self) -> bool:
        batches = len(self._waiting)
        return batches >= LONGEST_WINDOW or (batches >= WINDOW and len(self._took["sampling"]) > 0)

    def _window(self) -> Window:
        sampling, features = (_mean(_taken(self._took[stage])) for stage in ("sampling", "features"))
        window = Window(sampling, features, _without_pauses(self._training), statistics.fmean(self._waiting))
        self._forget()
        return window

    def _forget(self) -> None:
        self._training.clear()
        self._waiting.clear()


class _Measured:
    """Iterate over what a function takes of an iterator, given their numbers, and close that.

    A generator that has not begun would not close it.
    """

    def __init__(self, items: ClosableIterator[Any], take: Callable[[ClosableIterator[Any], int], Any]) -> None:
        self._items = items
        self._take = take
        self._taken = 0

    def __iter__(self) -> _Measured:
        return self

    def __next__(self) -> Any:
        item = self._take(self._items, self._taken)
        self._taken += 1
        return item

    def close(self) -> None:
        self._items.close()


def new_pass(tuning: StageTuning | None) -> StagePass:
    """What goes on around the stages of a pass, with and without a choice of threads."""
    return PassAsStarted() if tuning is None else TunedPass(tuning)


def _taken(took: deque[Took]) -> list[Took]:
    """Take all that a thread has put there so far."""
    return [took.popleft() for _ in range(len(took))]


def _without_pauses(seconds: list[float]) -> float:
    """Mean of what the loop took, but for a checkpoint, an evaluation and the like."""
    most = PAUSE * statistics.median(seconds)
    return statistics.fmean([one for one in seconds if one <= most])


def _mean(some: list[Took]) -> float | None:
    """Seconds of a batch."""
    batches = sum(one.batches for one in some)
    return sum(one.seconds for one in some) / batches if batches else None
