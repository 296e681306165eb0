"""`plan_copies`."""

from __future__ import annotations

from typing import Any

from spsample.common.checks import require_choice, require_int
from spsample.errors import InputError
from spsample.features.copies.arguments import require_alpha, require_scores
from spsample.features.copies.methods import METHODS
from spsample.features.copies.plan import CopyPlan
from spsample.features.copies.request import CopyRequest

__all__ = ["MOST_DEVICES", "plan_copies"]

MOST_DEVICES = 2**14
"""Of a plan: links are looked at pair by pair."""


def plan_copies(
    scores: Any, devices: int, budget: int, alpha: Any, *, method: str = "best-copies", head: int = 0
) -> CopyPlan:
    """Choose the rows of features that each of several devices, or ranks, keeps a copy of.

    A device reads its own rows for nothing, those of another device at `alpha` times the cost of one from the host, and
    the others from the host. More copies of a row spare links, copies of more rows spare the host.

    Parameters
    ----------
    scores : array_like (n,) or (devices, n)
        How often each vertex is needed, by every device or by each: counts or probabilities.
    devices : int
        Number of devices that reach each other, at most `MOST_DEVICES`.
    budget : int
        Rows that each device keeps; more than n are n.
    alpha : float or array_like (devices, devices)
        Cost of a row from another device over that of one from the host; a matrix where links differ. Entry (i, j) is
        for rows that device i reads from device j; the diagonal is not looked at. From 1 on such a row is read from the
        host.
    method : str
        ``"best-copies"``: least mean cost; where scores or links differ by device, greedy by what a copy spares.
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
    >>> [one.tolist() for one in plan.vertices]
    [[0, 1], [0, 2]]
    >>> cost(plan, scores, alpha=0.5)
    CopyCost(mean 4.75, largest 5)
    """
    devices = require_int("devices", devices, minimum=1, maximum=MOST_DEVICES)
    budget = require_int("budget", budget, minimum=0)
    method = require_choice("method", method, tuple(METHODS))
    checked = require_scores(scores, devices)
    budget = min(budget, checked.shape[-1])
    head = require_int("head", head, minimum=0, maximum=budget)
    if head and method != "interleaved":
        raise InputError(argument="head", given=str(head), expected=f"0 with method={method!r}")
    request = CopyRequest(checked, devices, budget, require_alpha(alpha, devices), head)
    return CopyPlan(tuple(METHODS[method](request)), checked.shape[-1])
