"""How long plans of copies take: beside `np.argsort`, and beside partitions of the same graph."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from spsample.features import plan_copies
from spsample.features.copies import METHODS

SHARES = (0.05, 0.2)
ARGSORT = "np.argsort"
Key = tuple[int, str]
Calls = dict[Key, Callable[[], object]]
"""By number of vertices and method."""


@dataclass(frozen=True)
class Timing:
    """Median seconds of planning for 8 devices; user time over that of other calls in the same round.

    Attributes
    ----------
    vertices : int
    share : float
        Rows of each device over all rows.
    method : str
    seconds, user_seconds : float
    over_argsort, least_over_argsort, most_over_argsort : float
        Over `np.argsort` of the scores.
    over_half : float, optional
        Over the same method with half the vertices.
    """

    vertices: int
    share: float
    method: str
    seconds: float
    user_seconds: float
    over_argsort: float
    least_over_argsort: float
    most_over_argsort: float
    over_half: float | None


@dataclass(frozen=True)
class BesidePartitions:
    """User time of scores, of one plan, or of one partition, for 8 devices on a graph."""

    graph: str
    what: str
    user_seconds: float


def time_planning(sizes: Sequence[int], rounds: int, alpha: float = 0.3, devices: int = 8) -> list[Timing]:
    """Each method in turn with `np.argsort`, on random scores of all sizes."""
    scores = {vertices: np.random.default_rng(0).random(vertices) for vertices in sizes}
    timings = []
    for share in SHARES:
        calls: Calls = {}
        for vertices, needed in scores.items():
            plan = partial(plan_copies, needed, devices, int(share * vertices), alpha)
            calls[vertices, ARGSORT] = partial(np.argsort, needed)
            calls |= {(vertices, method): partial(plan, method=method) for method in METHODS}
        timings += _in_turn(share, calls, rounds)
    return timings


def time_greedy(vertices: int, rounds: int, devices: int = 8) -> list[Timing]:
    """Greedy plans in turn with `np.argsort`: of links that differ, of scores that differ by device, and of both."""
    rng = np.random.default_rng(0)
    scores = rng.permutation(np.arange(1, vertices + 1) ** -0.8)
    by_device, group = scores * rng.random((devices, vertices)), np.arange(devices) * 2 // devices
    links = np.where(group[:, None] == group, 0.2, 0.6)
    cases = {"greedy, links": (scores, links), "greedy, scores": (by_device, 0.3), "greedy, both": (by_device, links)}
    timings = []
    for share in SHARES:
        calls: Calls = {(vertices, ARGSORT): partial(np.argsort, scores)}
        calls |= {
            (vertices, name): partial(plan_copies, needed, devices, int(share * vertices), alpha)
            for name, (needed, alpha) in cases.items()
        }
        timings += _in_turn(share, calls, rounds)
    return timings


def time_beside_partitions(
    graph: str, scores: NDArray[np.float64], others: dict[str, float], rounds: int = 5
) -> list[BesidePartitions]:
    """A plan of 5 % on 8 devices by each method, beside `others`, whose time is known."""
    budget = max(1, len(scores) // 20)
    times = [BesidePartitions(graph, what, taken) for what, taken in others.items()]
    for method in METHODS:
        plan = partial(plan_copies, scores, 8, budget, 0.3, method=method)
        times.append(BesidePartitions(graph, method, statistics.median(seconds(plan)[1] for _ in range(rounds))))
    return times


def _in_turn(share: float, calls: Calls, rounds: int) -> list[Timing]:
    """All calls in turn; the first round is discarded."""
    taken = [{key: seconds(call) for key, call in calls.items()} for _ in range(rounds + 1)][1:]

    def over(key: Key, other: Key) -> list[float]:
        return [one[key][1] / one[other][1] if one[other][1] else 1.0 for one in taken]

    timings = []
    for vertices, name in calls:
        clock, user = (statistics.median(one[vertices, name][which] for one in taken) for which in (0, 1))
        ratios, half = over((vertices, name), (vertices, ARGSORT)), (vertices // 2, name)
        spread = statistics.median(ratios), min(ratios), max(ratios)
        growth = statistics.median(over((vertices, name), half)) if half in calls else None
        timings.append(Timing(vertices, share, name, clock, user, *spread, growth))
    return timings


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Time on the clock, and time of this process as a user."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    start = time.perf_counter()
    call()
    return time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_utime - used
