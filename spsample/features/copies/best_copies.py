"""The plan of least mean cost."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from spsample.features.copies.greedy import greedy
from spsample.features.copies.links import link_costs
from spsample.features.copies.request import CopyRequest
from spsample.features.score_order import hottest

__all__ = ["best_copies", "deal_snake"]

_ROUNDS_AT_ONCE = 1 << 10
"""Rounds of a deal that are filled together; an even number."""


def best_copies(request: CopyRequest) -> list[NDArray[np.int64]]:
    """Return the plan of least mean cost where all devices need the same and all links cost the same.

    With a = min(alpha, 1), the first copy of v spares p_v (n - (n - 1) a): all of a host's row to one device, 1 - a of
    it to the others. Each further copy spares a p_v. The sum over devices is a sum over copies, so the n B copies that
    spare most are an optimum. Further copies of v all spare the same: but for one vertex, each has n copies, one or
    none. O(n + k log k) for the k vertices of n B that are looked at.

    Where scores or links differ by device, the plan is `greedy`'s. Equal rows of scores, and equal links in a matrix,
    do not differ.

    Examples
    --------
    >>> scores = np.array([9.0, 4, 3, 2, 1])
    >>> [one.tolist() for one in best_copies(CopyRequest(scores, devices=2, budget=2, alpha=0.3))]
    [[0, 3], [1, 2]]
    >>> [one.tolist() for one in best_copies(CopyRequest(scores, devices=2, budget=2, alpha=0.6))]
    [[0, 1], [0, 2]]
    """
    request = _alike(request)
    n, budget = request.devices, request.budget
    if request.scores.ndim == 2 or isinstance(request.alpha, np.ndarray):
        return greedy(request)
    order = hottest(request.scores, min(n * budget, request.num_rows))
    count = _held(request, order)
    on_all, left = divmod(n * budget - count, max(n - 1, 1))
    kept = np.empty((n, budget), np.int64)
    kept[:, :on_all] = order[:on_all]
    if on_all < budget:
        kept[:, on_all] = order[np.maximum(np.arange(on_all, on_all + n) - left, on_all)]
        deal_snake(order[on_all + n - left : count], kept[::-1, on_all + 1 :])
    return list(kept)


def _alike(request: CopyRequest) -> CopyRequest:
    """The request with one vector of scores, or one alpha, where all devices, or all links, have equal ones."""
    scores, alpha = request.scores, request.alpha
    if scores.ndim == 2 and (scores == scores[0]).all():
        scores = scores[0]
    if isinstance(alpha, np.ndarray):
        distinct = np.unique(link_costs(alpha, request.devices)[~np.eye(request.devices, dtype=np.bool_)])
        alpha = float(distinct[0]) if len(distinct) == 1 else alpha
    return replace(request, scores=scores, alpha=alpha)


def _held(request: CopyRequest, order: NDArray[np.int64]) -> int:
    """How many vertices have a copy: from B on, one more as long as it spares more than the copy that gives way.

    With c vertices there are n B - c further copies, n - 1 for each of the hottest. What a new vertex spares falls with
    c, what the last further copy spares rises.
    """
    devices, budget, a = request.devices, request.budget, min(request.equal_alpha("best-copies"), 1.0)
    copy_over_vertex = a / (devices - (devices - 1) * a)  # what they spare at equal scores

    def is_enough(count: int) -> bool:
        gives_way = (devices * budget - count - 1) // (devices - 1)
        return not request.scores[order[count]] > copy_over_vertex * request.scores[order[gives_way]]

    return budget + bisect_left(range(budget, len(order)), True, key=is_enough)


def deal_snake(vertices: NDArray[np.int64], to: NDArray[np.int64]) -> None:
    """Deal out vertices to devices in snake order, 0, 1, 2, then 2, 1, 0, and on: `to` (devices, rounds) is filled.

    Examples
    --------
    >>> to = np.empty((3, 2), np.int64)
    >>> deal_snake(np.arange(6), to)
    >>> to.tolist()
    [[0, 5], [1, 4], [2, 3]]
    """
    rounds = vertices.reshape(-1, len(to))
    for first in range(0, len(rounds), _ROUNDS_AT_ONCE):
        part = rounds[first : first + _ROUNDS_AT_ONCE]
        where = to[:, first : first + len(part)]
        where[:, 0::2] = part[0::2].T
        where[:, 1::2] = part[1::2, ::-1].T
