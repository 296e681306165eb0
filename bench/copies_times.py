"""How long plans of copies take: beside `np.argsort`, and beside partitions of the same graph."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from spsample.features import plan_copies
from spsample.features.copies import METHODS

SHARES = (0.05, 0.2)
Calls = dict[str, Callable[[], object]]


@dataclass(frozen=True)
class Timing:
    """Median seconds of planning for 8 devices; user time over that of `np.argsort` in the same round."""

    vertices: int
    share: float
    method: str
    seconds: float
    user_seconds: float
    over_argsort: float
    least_over_argsort: float
    most_over_argsort: float


@dataclass(frozen=True)
class BesidePartitions:
    """User time of scores, of one plan, or of one partition, for 8 devices on a graph."""

    graph: str
    what: str
    user_seconds: float


def time_planning(vertices: int, rounds: int, alpha: float = 0.3, devices: int = 8) -> list[Timing]:
    """Each method in turn with `np.argsort`, on random scores."""
    scores = np.random.default_rng(0).random(vertices)
    timings = []
    for share in SHARES:
        plan = partial(plan_copies, scores, devices, int(share * vertices), alpha)
        calls: Calls = {method: partial(plan, method=method) for method in METHODS}
        timings += _in_turn(vertices, share, {"np.argsort": partial(np.argsort, scores), **calls}, rounds)
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
        calls: Calls = {
            name: partial(plan_copies, needed, devices, int(share * vertices), alpha)
            for name, (needed, alpha) in cases.items()
        }
        timings += _in_turn(vertices, share, {"np.argsort": partial(np.argsort, scores), **calls}, rounds)
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


def _in_turn(vertices: int, share: float, calls: Calls, rounds: int) -> list[Timing]:
    """All calls in turn, the first of which the others are held against; the first round is discarded."""
    taken = [{name: seconds(call) for name, call in calls.items()} for _ in range(rounds + 1)][1:]
    baseline = next(iter(calls))
    timings = []
    for name in calls:
        over = [one[name][1] / one[baseline][1] if one[baseline][1] else 1.0 for one in taken]
        clock, user = (statistics.median(one[name][which] for one in taken) for which in (0, 1))
        timings.append(Timing(vertices, share, name, clock, user, statistics.median(over), min(over), max(over)))
    return timings


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """Time on the clock, and time of this process as a user."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    start = time.perf_counter()
    call()
    return time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_utime - used
