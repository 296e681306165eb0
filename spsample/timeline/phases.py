"""`Phases`: the one clock by which loaders and trainers count their seconds."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from types import TracebackType
from typing import Any, TypeVar

from spsample.common.checks import require_iterable, require_type
from spsample.common.locks import renewed
from spsample.timeline.timeline import Timeline

__all__ = ["Phases"]

T = TypeVar("T")

_NOTHING: AbstractContextManager[None] = nullcontext()


class Phases:
    """Seconds that the threads of a rank spend by phase; with a timeline also when each of them was spent.

    Any thread may time any phase. Without a timeline a timed block costs two readings of the clock and an addition.

    Parameters
    ----------
    names
        Phases that `seconds` has from the start, with 0; others join as they are timed.
    timeline
        Where each timed block is noted, too; None for nowhere.

    Raises
    ------
    DTypeError
        If that is no `Timeline`, or a name no text.

    Examples
    --------
    >>> phases = Phases(["sampling", "training"])
    >>> with phases.timed("sampling"):
    ...     total = sum(range(1000))
    >>> phases.seconds["sampling"] > 0, phases.seconds["training"]
    (True, 0.0)
    """

    def __init__(self, names: Iterable[str] = (), timeline: Timeline | None = None) -> None:
        if timeline is not None:
            require_type("timeline", timeline, Timeline, "a Timeline, or None")
        self.timeline = timeline
        self._names = tuple(require_iterable("names", names, "names of phases"))
        for name in self._names:
            require_type("names", name, str, "names of phases")
        self._lock = renewed(Lock())
        self._seconds: dict[str, float] = {}
        self.clear()

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase so far: a copy."""
        with self._lock:
            return dict(self._seconds)

    def clear(self) -> None:
        """Begin anew; the timeline keeps what it has."""
        with self._lock:
            self._seconds = dict.fromkeys(self._names, 0.0)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled and copied: the seconds. A timeline belongs to this process."""
        return {"names": self._names, "seconds": self.seconds}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Go on counting, without a timeline."""
        self.__init__(state["names"])  # type: ignore[misc]
        self._seconds = dict(state["seconds"])

    def timed(self, phase: str, batch: int | None = None) -> AbstractContextManager[None]:
        """Around a block of work of a phase; ``batch`` is its batch, or the first one of its bulk.

        A block that raises is counted too. Phases of one thread must not be nested: their seconds would count twice.

        Raises
        ------
        DTypeError
            If the phase is no text.
        """
        require_type("phase", phase, str, "the name of a phase")
        return _Timed(self, phase, batch)

    def part(self, name: str, batch: int | None = None) -> AbstractContextManager[None]:
        """Around a part of a timed block, for the timeline alone: `seconds` does not have it."""
        return _NOTHING if self.timeline is None else self.timeline.span(name, batch, category="part")

    def leaving(self, phase: str, context: AbstractContextManager[None]) -> AbstractContextManager[None]:
        """Return a context that times how long another one takes to be left, as where ranks wait for each other.

        Examples
        --------
        >>> phases = Phases()
        >>> with phases.leaving("waiting for ranks", nullcontext()):
        ...     total = sum(range(1000))
        >>> list(phases.seconds)
        ['waiting for ranks']
        """
        require_type("context", context, AbstractContextManager, "a context manager")
        return _Leaving(self, phase, context)

    def over(self, phase: str, items: Iterator[T]) -> Generator[T, None, None]:
        """The items, with the time that each takes to come. No item is kept longer than its user does.

        Examples
        --------
        >>> phases = Phases()
        >>> list(phases.over("reading", iter("ab"))), list(phases.seconds)
        (['a', 'b'], ['reading'])
        """
        while True:
            with self.timed(phase):
                item = next(items, _End)
            if item is _End:
                return
            yield item  # type: ignore[misc]
            del item

    def add(self, phase: str, begin: float, end: float, batch: int | None) -> None:
        """Count a block of work that began and ended at these times of `time.perf_counter`."""
        with self._lock:
            self._seconds[phase] = self._seconds.get(phase, 0.0) + (end - begin)
        if self.timeline is not None:
            self.timeline.add(phase, begin, end, batch)


class _End:
    """There are no more items."""


class _Timed:
    """A block of work that is under way."""

    __slots__ = ("_batch", "_begin", "_phase", "_phases")

    def __init__(self, phases: Phases, phase: str, batch: int | None) -> None:
        self._phases, self._phase, self._batch = phases, phase, batch

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._phases.add(self._phase, self._begin, time.perf_counter(), self._batch)


class _Leaving:
    """A context whose end is timed."""

    __slots__ = ("_context", "_phase", "_phases")

    def __init__(self, phases: Phases, phase: str, context: AbstractContextManager[None]) -> None:
        self._phases, self._phase, self._context = phases, phase, context

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with self._phases.timed(self._phase):
            return self._context.__exit__(kind, error, trace)
