"""The best plan of copies: by exhaustive search on small cases, by a bound that no plan passes on large ones."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from spsample.features.scores.order import hottest


def least_mean(scores, devices, budget, links):
    """The least mean cost of all plans that fill the budget, by trying each.

    Scores are (n,) or (devices, n). Links: what a device pays for a row of another one, at most 1, and 0 for its own.
    """
    return float(min(costs.sum(axis=0).min() for costs in _costs_of_all(scores, devices, budget, links)) / devices)


def least_largest(scores, devices, budget, links):
    """The same for the least cost of the device that pays most."""
    return float(min(costs.max(axis=0).min() for costs in _costs_of_all(scores, devices, budget, links)))


def _costs_of_all(scores, devices, budget, links):
    """(devices, plans) what each device pays under each plan that fills the budget, some thousand plans at a time."""
    n = scores.shape[-1]
    budget = min(budget, n)
    subsets = np.array([np.bincount(list(one), minlength=n) for one in combinations(range(n), budget)]).reshape(-1, n)
    each = np.broadcast_to(scores, (devices, n))
    masks = [[mask >> i & 1 for i in range(devices)] for mask in range(2**devices)]
    table = np.array([each.T * _least_links(links, holds) for holds in masks])  # (masks, n, devices)
    choices = np.array(list(product(range(len(subsets)), repeat=devices)))
    for first in range(0, len(choices), 1 << 14):
        choice = choices[first : first + (1 << 14)]
        held = sum(subsets[choice[:, i]] << i for i in range(devices))  # (plans, n): a bit for each device
        yield table[held, np.arange(n)].sum(axis=1).T


def most_spared(scores, devices, budget, links):
    """A bound of what any plan spares of the mean cost; of a few devices, as all their sets are tried for each vertex.

    Let a copy on device i cost a rent r_i. With any rents of at least 0 a plan of B rows for each device spares at most
    B sum r_i + sum over vertices of the most that copies of the vertex spare beyond their rents. Rents are chosen that
    make it small; any others would give a bound, too.
    """
    each = np.broadcast_to(scores, (devices, scores.shape[-1]))
    sets = list(product((0, 1), repeat=devices))
    is_in = np.array(sets, np.float64)
    spared = np.array([(1 - _least_links(links, one)) @ each / devices for one in sets])  # (sets, n)
    mean = each.mean(axis=0)
    unit = (mean[hottest(mean, min(2 * budget, len(mean)))[-1]] or 1.0) / devices  # about the coldest row kept

    def bound(rents):
        beyond = spared - (is_in @ rents * unit)[:, None]
        total = budget * rents.sum() + beyond.max(axis=0).sum() / unit
        return total / budget, 1 - is_in[beyond.argmax(axis=0)].sum(axis=0) / budget

    equal = minimize_scalar(lambda rent: bound(np.full(devices, rent))[0], bounds=(0, 8), method="bounded")
    start, limits = np.full(devices, equal.x), [(0, None)] * devices
    differ = minimize(bound, start, jac=True, method="L-BFGS-B", bounds=limits)
    return float(min(equal.fun, differ.fun)) * budget * unit


def _least_links(links, holds):
    """(devices,) what each device pays for a row, where `holds` says of each whether it has it; 1 is the host."""
    return np.minimum(links[:, np.flatnonzero(holds)].min(axis=1, initial=1.0), 1.0)
