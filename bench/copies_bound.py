"""How near greedy plans of whole graphs are to the best: what they spare over a bound that no plan passes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

from copies_search import group_links, least_links
from spsample.features import plan_copies
from spsample.features.copies import cost
from spsample.features.copies.links import link_costs
from spsample.features.score_order import hottest

DEVICES = 4


@dataclass(frozen=True)
class Near:
    """What the greedy plan for 4 devices spares over a bound of what any plan spares, and its largest over its mean."""

    graph: str
    kind: str
    share: float
    spared_over_bound: float
    largest_over_mean: float


def near(graph: str, scores: NDArray[np.float64], by_device: NDArray[np.float64], share: float) -> list[Near]:
    """Greedy plans of one score and of one for each device, with links of two groups and with equal ones.

    Parameters
    ----------
    graph : str
    scores : (n,)
    by_device : (4, n)
    share : float
        Rows of each device over all rows.
    """
    budget = int(share * len(scores))
    cases: dict[str, tuple[NDArray[np.float64], Any]] = {
        "two groups": (scores, group_links(DEVICES)),
        "a score for each device": (by_device, 0.3),
        "two groups, a score for each device": (by_device, group_links(DEVICES)),
    }
    found = []
    for kind, (needed, alpha) in cases.items():
        paid = cost(plan_copies(needed, DEVICES, budget, alpha), needed, alpha)
        without = float(np.broadcast_to(needed, by_device.shape).sum() / DEVICES)
        most = most_spared(needed, DEVICES, budget, link_costs(alpha, DEVICES))
        found.append(Near(graph, kind, share, (without - paid.mean) / most, paid.largest / paid.mean))
    return found


def most_spared(scores: NDArray[np.float64], devices: int, budget: int, links: NDArray[np.float64]) -> float:
    """Return a bound of what any plan spares of the mean cost.

    Let a copy on device i cost a rent r_i. With any rents of at least 0 a plan of B rows for each device spares at most
    B sum r_i + sum over vertices of the most that copies of the vertex spare beyond their rents. Rents are chosen that
    make it small; any others would give a bound, too.

    Parameters
    ----------
    scores : (n,) or (devices, n)
    devices : int
        A few: all their sets are tried for each vertex.
    budget : int
        Rows of each device.
    links : (devices, devices)
        What a device pays for a row of another one; 0 on the diagonal, at most 1.
    """
    each = np.broadcast_to(scores, (devices, scores.shape[-1]))
    sets = list(product((0, 1), repeat=devices))
    is_in = np.array(sets, np.float64)
    spared = np.array([(1 - least_links(links, one)) @ each / devices for one in sets])  # (sets, n)
    unit = _least_kept(each, budget) / devices

    def bound(rents: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        beyond = spared - (is_in @ rents * unit)[:, None]
        chosen = beyond.argmax(axis=0)
        total = budget * rents.sum() + beyond.max(axis=0).sum() / unit
        return float(total) / budget, 1 - is_in[chosen].sum(axis=0) / budget

    equal = minimize_scalar(lambda rent: bound(np.full(devices, rent))[0], bounds=(0, 8), method="bounded")
    start = np.full(devices, equal.x)
    differ = minimize(bound, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * devices)
    return float(min(equal.fun, differ.fun)) * budget * unit


def _least_kept(each: NDArray[np.float64], budget: int) -> float:
    """About what the coldest row that a device keeps is worth: the unit of rents."""
    mean = each.mean(axis=0)
    return float(mean[hottest(mean, min(2 * budget, len(mean)))[-1]]) or 1.0
