"""The methods that plan copies, by name, and `plan_copies`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import require_choice, require_int
from spsample.errors import InputError
from spsample.features.copies.greedy import greedy
from spsample.features.copies.plan import CopyPlan, CopyRequest, link_costs, require_alpha, require_scores
from spsample.features.score_order import hottest

_ROUNDS_AT_ONCE = 1 << 10
"""Rounds that are filled together; an even number."""


def best_copies(request: CopyRequest) -> list[NDArray[np.int64]]:
    """Return the plan of least mean cost where all devices need the same and all links cost the same.

    With a = min(alpha, 1), the first copy of v saves p_v (n - (n - 1) a): all of a host's row to one device, 1 - a of
    it to the others. Each further copy saves a p_v. The sum over devices is a sum over copies, so the n B copies that
    save most are an optimum. Further copies of v all save the same: but for one vertex, each has n copies, one or
    none. O(n + k log k) for the k vertices of n B that are looked at.

    Where scores or links differ by device, the plan is `greedy`'s. Equal rows of scores, and equal links in a matrix,
    do not differ.

    Examples
    --------
    >>> scores = np.array([9.0, 4, 3, 2, 1])
    >>> [vertices.tolist() for vertices in best_copies(CopyRequest(scores, devices=2, budget=2, alpha=0.3))]
    [[0, 3], [1, 2]]
    >>> [vertices.tolist() for vertices in best_copies(CopyRequest(scores, devices=2, budget=2, alpha=0.6))]
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
        assign_in_snake_order(order[on_all + n - left : count], kept[::-1, on_all + 1 :])
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
    """Return the number of vertices with a copy: from B on, one more while it saves more than the copy it replaces.

    With c vertices there are n B - c further copies, n - 1 for each of the hottest. What a new vertex saves falls with
    c, what the last further copy saves rises.
    """
    devices, budget, a = request.devices, request.budget, min(request.equal_alpha("best-copies"), 1.0)
    copy_over_vertex = a / (devices - (devices - 1) * a)  # what they save at equal scores

    def is_enough(count: int) -> bool:
        gives_way = (devices * budget - count - 1) // (devices - 1)
        return not request.scores[order[count]] > copy_over_vertex * request.scores[order[gives_way]]

    return budget + bisect_left(range(budget, len(order)), True, key=is_enough)


def assign_in_snake_order(vertices: NDArray[np.int64], to: NDArray[np.int64]) -> None:
    """Assign vertices to devices in snake order, 0, 1, 2, then 2, 1, 0, and on: `to` (devices, rounds) is filled.

    Examples
    --------
    >>> to = np.empty((3, 2), np.int64)
    >>> assign_in_snake_order(np.arange(6), to)
    >>> to.tolist()
    [[0, 5], [1, 4], [2, 3]]
    """
    rounds = vertices.reshape(-1, len(to))
    for first in range(0, len(rounds), _ROUNDS_AT_ONCE):
        part = rounds[first : first + _ROUNDS_AT_ONCE]
        where = to[:, first : first + len(part)]
        where[:, 0::2] = part[0::2].T
        where[:, 1::2] = part[1::2, ::-1].T


def interleaved(request: CopyRequest) -> list[NDArray[np.int64]]:
    """Return the `head` hottest vertices for every device, and the next ones in turn for one device each.

    Where there is room for more than one copy of all, the head grows until less than a row for each device is left
    over.

    References
    ----------
    Min et al., "Graph neural network training with data tiering", KDD 2022.

    Examples
    --------
    >>> scores = np.array([9.0, 8, 7, 6, 5, 4])
    >>> [vertices.tolist() for vertices in interleaved(CopyRequest(scores, devices=2, budget=2, alpha=0.5))]
    [[0, 2], [1, 3]]
    >>> [vertices.tolist() for vertices in interleaved(CopyRequest(scores, devices=2, budget=2, alpha=0.5, head=1))]
    [[0, 1], [0, 2]]
    """
    n, budget = request.devices, request.budget
    surplus = max(n * budget - request.num_rows, 0)
    head = max(request.head, surplus // max(n - 1, 1)) if n > 1 else request.head
    order = hottest(request.equal_scores("interleaved"), min(head + n * (budget - head), request.num_rows))
    return [np.concatenate([order[:head], order[head + device :: n]]) for device in range(n)]


def replicated(request: CopyRequest) -> list[NDArray[np.int64]]:
    """Return for each device its `budget` hottest vertices: rule 1 of Song and Jiang.

    Examples
    --------
    >>> request = CopyRequest(np.array([1.0, 3, 2]), devices=2, budget=2, alpha=1.0)
    >>> [vertices.tolist() for vertices in replicated(request)]
    [[1, 2], [1, 2]]
    """
    if request.scores.ndim == 1:
        return [hottest(request.scores, request.budget)] * request.devices
    return [hottest(scores, request.budget) for scores in request.scores]


def song_jiang(request: CopyRequest) -> list[NDArray[np.int64]]:
    """Return the plan of Song and Jiang for devices that reach each other at the cost `alpha` of the host's.

    Case 1, alpha >= 1: every device keeps the hottest vertices. Case 2: it begins so. Then, from the coldest vertex
    that is kept to the hottest, all its copies but one are replaced by the next vertices that are on no device, as long
    as p(new) > alpha p(old). Within a round the devices take turns, those that got the least probability so far first.
    As printed, the loop skips a new vertex at each copy that stays, and ends early; here none is skipped, as in the
    worked example. O(n log n).

    References
    ----------
    Song and Jiang, "Rethinking graph data placement for graph neural network training on multiple GPUs", ICS 2022.

    Examples
    --------
    >>> scores = np.array([6.0, 5, 4, 3, 2, 1])
    >>> [vertices.tolist() for vertices in song_jiang(CopyRequest(scores, devices=2, budget=2, alpha=0.3))]
    [[0, 2], [3, 1]]
    """
    n, budget = request.devices, request.budget
    alpha, scores = request.equal_alpha("song-jiang"), request.equal_scores("song-jiang")
    if alpha >= 1 or n == 1:
        return replicated(request)
    order = hottest(scores, min(n * budget, request.num_rows))
    sorted_scores = scores[order]
    count = _replacements(sorted_scores, n, budget, alpha)
    kept = np.tile(order[:budget], (n, 1))
    where = _devices_of_replacements(sorted_scores[budget : budget + count], n)
    kept[where, budget - 1 - np.arange(count) // (n - 1)] = order[budget : budget + count]
    return list(kept)


def _replacements(scores: NDArray[np.float64], devices: int, budget: int, alpha: float) -> int:
    """Return how many vertices after the first `budget` replace a copy: new ones get colder, old ones hotter."""

    def is_worse(new: int) -> bool:
        return not scores[budget + new] > alpha * scores[budget - 1 - new // (devices - 1)]

    return bisect_left(range(len(scores) - budget), True, key=is_worse)


def _devices_of_replacements(scores: NDArray[np.float64], devices: int) -> NDArray[np.int64]:
    """The device of each replacement: n - 1 in a round, by the sums of what was replaced so far, ascending."""
    sums = [0.0] * devices
    where: list[int] = []
    for first in range(0, len(scores), devices - 1):
        ascending = sorted(range(devices), key=sums.__getitem__)
        for device, score in zip(ascending, scores[first : first + devices - 1].tolist(), strict=False):
            sums[device] += score
            where.append(device)
    return np.array(where, np.int64)


METHODS: dict[str, Callable[[CopyRequest], list[NDArray[np.int64]]]] = {
    "best-copies": best_copies,
    "interleaved": interleaved,
    "replicated": replicated,
    "song-jiang": song_jiang,
}
"""By name: what makes of a request the vertices of each device."""


MAX_DEVICES = 2**14
"""Devices of a plan at most: links are looked at pair by pair."""


def plan_copies(
    scores: Any, devices: int, budget: int, alpha: Any, *, method: str = "best-copies", head: int = 0
) -> CopyPlan:
    """Choose the rows of features that each of several devices, or ranks, keeps a copy of.

    A device reads its own rows for nothing, those of another device at `alpha` times the cost of one from the host, and
    the others from the host. More copies of a row save links, copies of more rows save the host.

    Parameters
    ----------
    scores : array_like (n,) or (devices, n)
        How often each vertex is needed, by every device or by each: counts or probabilities.
    devices : int
        Number of devices that reach each other, at most `MAX_DEVICES`.
    budget : int
        Rows that each device keeps; more than n are n.
    alpha : float or array_like (devices, devices)
        Cost of a row from another device over that of one from the host; a matrix where links differ. Entry (i, j) is
        for rows that device i reads from device j; the diagonal is not looked at. From 1 on such a row is read from the
        host.
    method : str
        ``"best-copies"``: least mean cost; where scores or links differ by device, greedy by what a copy saves.
        ``"replicated"``: every device keeps what it needs most.
        ``"interleaved"``: the hottest rows in turn, one copy each (Data Tiering). Takes one vector of scores.
        ``"song-jiang"``: algorithm 1 of Song and Jiang. Takes one vector of scores and one alpha.
    head : int
        For ``"interleaved"``: how many of the `budget` rows are the hottest ones, on every device.

    Returns
    -------
    CopyPlan
        `cost` says what it costs each device.

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used, or the method cannot use it.

    Examples
    --------
    >>> from spsample.features.copies import cost
    >>> scores = [9, 4, 3, 2, 1]
    >>> plan = plan_copies(scores, devices=2, budget=2, alpha=0.5)
    >>> [vertices.tolist() for vertices in plan.vertices]
    [[0, 1], [0, 2]]
    >>> cost(plan, scores, alpha=0.5)
    CopyCost(mean 4.75, largest 5)
    """
    devices = require_int("devices", devices, minimum=1, maximum=MAX_DEVICES)
    budget = require_int("budget", budget, minimum=0)
    method = require_choice("method", method, tuple(METHODS))
    checked = require_scores(scores, devices)
    budget = min(budget, checked.shape[-1])
    head = require_int("head", head, minimum=0, maximum=budget)
    if head and method != "interleaved":
        raise InputError(argument="head", given=str(head), expected=f"0 with method={method!r}")
    request = CopyRequest(checked, devices, budget, require_alpha(alpha, devices), head)
    return CopyPlan(tuple(METHODS[method](request)), checked.shape[-1])
