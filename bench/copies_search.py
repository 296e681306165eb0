"""Exhaustive search for the best plan of copies on small cases, and what greedy plans spare beside it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.features import plan_copies
from spsample.features.copies import cost
from spsample.features.copies.links import link_costs

SIZES = {
    2: ((6, 2), (8, 2), (8, 3), (8, 4), (9, 3)),
    3: ((5, 1), (5, 2), (6, 2), (6, 3), (7, 2)),
    4: ((4, 1), (5, 1), (5, 2), (6, 1), (6, 2)),
    5: ((4, 1), (5, 1), (4, 2), (5, 2)),
}
"""By number of devices: vertices and budget, of at most 10^5 plans each."""
Scores = NDArray[np.float64]
Links = NDArray[np.float64]


@dataclass(frozen=True)
class Gap:
    """What greedy plans spare over what the best plans spare, of the cost without copies.

    Attributes
    ----------
    kind : str
        Key of `KINDS`.
    devices, cases : int
    best : float
        Share of the cases in which greedy has the best plan.
    mean, least : float
        Of the shares that are spared.
    """

    kind: str
    devices: int
    cases: int
    best: float
    mean: float
    least: float


def least_mean(scores: Scores, devices: int, budget: int, links: Links) -> float:
    """Return the least mean cost of all plans that fill the budget, by trying each.

    Parameters
    ----------
    scores : (n,) or (devices, n)
    devices : int
    budget : int
        Rows of each device.
    links : (devices, devices)
        What a device pays for a row of another one; 0 on the diagonal, at most 1.
    """
    n = scores.shape[-1]
    budget = min(budget, n)
    subsets = np.array([np.bincount(list(one), minlength=n) for one in combinations(range(n), budget)]).reshape(-1, n)
    choice = np.array(list(product(range(len(subsets)), repeat=devices)))
    held = sum(subsets[choice[:, i]] << i for i in range(devices))  # (plans, n): a bit for each device
    each = np.broadcast_to(scores, (devices, n))
    masks = [[mask >> i & 1 for i in range(devices)] for mask in range(2**devices)]
    table = np.array([each.T @ least_links(links, holds) for holds in masks])
    return float(table[held, np.arange(n)].sum(axis=1).min() / devices)


def least_links(links: Links, holds: Sequence[int]) -> NDArray[np.float64]:
    """(devices,) what each device pays for a row, where `holds` says of each whether it has it; 1 is the host."""
    least: NDArray[np.float64] = np.minimum(links[:, np.flatnonzero(holds)].min(axis=1, initial=1.0), 1.0)
    return least


def group_links(devices: int) -> Links:
    """Two groups of devices; links within a group are three times as fast as those between them."""
    group = np.arange(devices) * 2 // devices
    return np.where(group[:, None] == group, 0.2, 0.6)


def _one_score(rng: np.random.Generator, devices: int, n: int) -> Scores:
    return rng.random(n) ** 2


def _score_each(rng: np.random.Generator, devices: int, n: int) -> Scores:
    return rng.random((devices, n)) ** 2


def _equal_links(rng: np.random.Generator, devices: int) -> float:
    return 1 - float(rng.random())


def _group_links(rng: np.random.Generator, devices: int) -> Links:
    return group_links(devices)


def _any_links(rng: np.random.Generator, devices: int) -> Links:
    return rng.random((devices, devices)) + 0.05


KINDS: dict[str, tuple[Callable[..., Scores], Callable[..., Any]]] = {
    "two groups": (_one_score, _group_links),
    "a score for each device": (_score_each, _equal_links),
    "two groups, a score for each device": (_score_each, _group_links),
    "any links": (_one_score, _any_links),
    "any links, a score for each device": (_score_each, _any_links),
}
"""By name: what draws scores, and what draws alpha."""


def gaps(cases: int) -> list[Gap]:
    """Greedy plans beside exhaustive search, on random small cases of each kind and number of devices."""
    found = []
    for (kind, (draw_scores, draw_alpha)), devices in product(KINDS.items(), SIZES):
        rng = np.random.default_rng(devices)
        shares = []
        for number in range(cases):
            n, budget = SIZES[devices][number % len(SIZES[devices])]
            shares.append(_share(draw_scores(rng, devices, n), draw_alpha(rng, devices), devices, budget))
        best = statistics.mean(share > 1 - 1e-9 for share in shares)
        found.append(Gap(kind, devices, cases, best, statistics.mean(shares), min(shares)))
    return found


def _share(scores: Scores, alpha: Any, devices: int, budget: int) -> float:
    """What a greedy plan spares over the most that can be spared; a matrix makes `best-copies` plan greedily."""
    matrix = alpha if isinstance(alpha, np.ndarray) else np.full((devices, devices), alpha)
    without = float(np.broadcast_to(scores, (devices, scores.shape[-1])).sum() / devices)
    paid = cost(plan_copies(scores, devices, budget, matrix), scores, matrix).mean
    return (without - paid) / (without - least_mean(scores, devices, budget, link_costs(matrix, devices)))
