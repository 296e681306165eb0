"""Works of this process that take turns, and what becomes of their times. Works on a GPU are timed by its events."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from peers.cuda_timing import timed
from peers.task import Figures, Work
from report import Result, Turn, summary

__all__ = ["HostEvent", "results_of", "take_turns", "timed", "turn_of"]


class HostEvent:
    """Stands in for an event of a GPU where the host does the work."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def record(self) -> None:
        """Now."""
        self._seconds = time.perf_counter()

    def synchronize(self) -> None:
        """The host has nothing to wait for."""

    def elapsed_time(self, later: HostEvent) -> float:
        """Milliseconds from this event to a later one."""
        return (later._seconds - self._seconds) * 1e3


Events = Callable[[], Any]
"""Makes an event: `HostEvent`, `cupy.cuda.Event`, or torch's with timing enabled."""


def take_turns(works: dict[str, Work], rounds: int) -> dict[str, list[Turn]]:
    """`rounds` rounds of all works after a warm-up that is discarded; each returns its `seconds` and `batches`."""
    turns: dict[str, list[Turn]] = {name: [] for name in works}
    for round_ in range(rounds + 1):
        for name, work in works.items():
            turn = turn_of(work)
            if round_:
                turns[name].append(turn)
    return turns


def turn_of(work: Work) -> Turn:
    """One run of a work."""
    gc.collect()
    cpu = time.process_time()
    figures: Figures = dict(work())
    return Turn(figures.pop("seconds"), time.process_time() - cpu, figures)


def results_of(
    graph: str, case: str, turns: dict[str, list[Turn]], *, baseline: str, peers: dict[str, tuple[str, str]]
) -> list[Result]:
    """A result for each work; `peers` has the name and version of whom it measures, by default of spsample."""
    return [
        Result(
            graph=graph,
            case=case,
            side=name,
            peer=peers.get(name, peers[""])[0],
            version=peers.get(name, peers[""])[1],
            baseline=baseline,
            **summary(some, turns.get(baseline)),
        )
        for name, some in turns.items()
    ]
