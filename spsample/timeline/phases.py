"""`Phases`: the seconds of loaders and trainers by phase; `stage_times` reads stages off them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from spsample.common.checks import require_iterable, require_type
from spsample.common.locks import renewed
from spsample.timeline.spans import Span
from spsample.timeline.timeline import Timeline

T = TypeVar("T")

_END: Any = object()


class Phases:
    """Seconds that the threads of a rank spend by phase; with a timeline also when each of them was spent.

    Any thread may time any phase. Without a timeline a timed block costs two readings of the clock and an addition.

    Parameters
    ----------
    names
        Phases that `seconds` has from the start, with 0; others join as they are timed.
    timeline
        Records each timed block, too; None for none.

    Raises
    ------
    DTypeError
        If `timeline` is no `Timeline`, or a name no text.

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
        """The state that is pickled and copied: the seconds. A timeline belongs to this process."""
        return {"names": self._names, "seconds": self.seconds}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Go on counting, without a timeline."""
        self.__init__(state["names"])  # type: ignore[misc]
        self._seconds = dict(state["seconds"])

    def timed(self, phase: str, batch: int | None = None) -> AbstractContextManager[None]:
        """Return a context that times a block of work of a phase; ``batch`` is its batch, or the first one of its bulk.

        A block that raises is counted too. Phases of one thread must not be nested: their seconds would count twice.

        Raises
        ------
        DTypeError
            If the phase is no text.
        """
        require_type("phase", phase, str, "the name of a phase")
        return Span(self.add, phase, batch)

    def part(self, name: str, batch: int | None = None) -> AbstractContextManager[None]:
        """Return a context for a part of a timed block, which only the timeline records."""
        return nullcontext() if self.timeline is None else self.timeline.span(name, batch, category="part")

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
        """Yield the items, and time the wait for each. No item is kept longer than its user keeps it.

        Examples
        --------
        >>> phases = Phases()
        >>> list(phases.over("reading", iter("ab"))), list(phases.seconds)
        (['a', 'b'], ['reading'])
        """
        while True:
            with self.timed(phase):
                item = next(items, _END)
            if item is _END:
                return
            yield item
            del item

    def add(self, phase: str, begin: float, end: float, batch: int | None) -> None:
        """Count a block of work that began and ended at these times of `time.perf_counter`."""
        with self._lock:
            self._seconds[phase] = self._seconds.get(phase, 0.0) + (end - begin)
        if self.timeline is not None:
            self.timeline.add(phase, begin, end, batch)


class _Leaving:
    """A context whose end is timed."""

    def __init__(self, phases: Phases, phase: str, context: AbstractContextManager[None]) -> None:
        self._phases, self._phase, self._context = phases, phase, context

    def __enter__(self) -> None:
        self._context.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        with self._phases.timed(self._phase):
            return self._context.__exit__(*error)


# ----------------------------------------------------------------------------------------------- stages of a pipeline

_WAITING = " waiting for "


class StageTimes(NamedTuple):
    """Seconds of one stage.

    Attributes
    ----------
    stage : str
        ``"sampling"``, ``"features"``, ``"copies"`` or ``"training"``.
    worked : float
    waited : dict
        By the cause: ``"input"`` (the stage is starved by the one before), ``"room"`` (it is ahead of the one after)
        and ``"ranks"``. Causes for which a stage never waits are not in it.
    """

    stage: str
    worked: float
    waited: dict[str, float]


def waiting_for(kind: str, stage: str) -> str:
    """Name the phase in which a stage waits.

    Examples
    --------
    >>> waiting_for("room", "sampling")
    'sampling waiting for room'
    """
    return f"{stage}{_WAITING}{kind}"


def work_seconds(seconds: Mapping[str, float]) -> dict[str, float]:
    """Seconds by phase, without those in which threads beside the training wait.

    Examples
    --------
    >>> work_seconds({"sampling": 2.0, "sampling waiting for room": 1.0})
    {'sampling': 2.0}
    """
    return {phase: value for phase, value in seconds.items() if _WAITING not in phase}


def stage_times(seconds: Mapping[str, float]) -> list[StageTimes]:
    """Read the stages of a pipeline off its seconds by phase; none where no stage waits.

    Parameters
    ----------
    seconds
        As of `BulkLoader`, `Trainer` or `TrainResult`.

    Raises
    ------
    DTypeError
        If these are no seconds by phase.

    Examples
    --------
    >>> seconds = {"sampling": 2.0, "training": 3.0, "waiting": 0.5, "sampling waiting for room": 1.5}
    >>> for stage in stage_times(seconds):
    ...     print(stage.stage, stage.worked, stage.waited)
    sampling 2.0 {'room': 1.5}
    training 3.0 {'input': 0.5}
    """
    require_type("seconds", seconds, Mapping, "seconds by phase")
    waited: dict[str, dict[str, float]] = {}
    for phase, value in seconds.items():
        require_type("seconds", phase, str, "names of phases")
        stage, is_waiting, kind = phase.partition(_WAITING)
        if is_waiting:
            waited.setdefault(stage, {})[kind] = value
    if not waited:
        return []
    if "training" in seconds:
        waited["training"] = {"input": seconds.get("waiting", 0.0), **waited.get("training", {})}
    stages = [*(phase for phase in seconds if phase in waited), *(stage for stage in waited if stage not in seconds)]
    return [StageTimes(stage, seconds.get(stage, 0.0), waited[stage]) for stage in stages]
