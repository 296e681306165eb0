"""What plans of copies over devices or ranks move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spsample.features.copies import METHODS, plan_copies

__all__ = ["Moved", "copies_moved"]


@dataclass(frozen=True)
class Moved:
    """Bytes of an epoch, of all devices together.

    Attributes
    ----------
    method : str
        Of `plan_copies`.
    budget : float
        Rows of a device over all rows.
    host_bytes, peer_bytes : float
        From the host, and from other devices.
    """

    method: str
    budget: float
    host_bytes: float
    peer_bytes: float


def copies_moved(
    scores: NDArray[np.float64], rows_of_epoch: NDArray[np.float64], devices: int, budget: float, alpha: float
) -> list[Moved]:
    """Every method, planned by scores and paid by what an epoch needs.

    Parameters
    ----------
    scores : (n,)
    rows_of_epoch : (n,)
        How often an epoch needs each row, here in bytes; each device has an equal share of it.
    devices : int
    budget : float
        Rows of a device over all rows.
    alpha : float
        Cost of a row from another device over that of one from the host.

    Examples
    --------
    >>> moved = copies_moved(np.array([2.0, 1.0]), np.array([20.0, 10.0]), devices=2, budget=0.5, alpha=0.5)
    >>> {one.method: (one.host_bytes, one.peer_bytes) for one in moved}["interleaved"]
    (0.0, 15.0)
    """
    found = []
    for method in METHODS:
        plan = plan_copies(scores, devices, int(budget * len(scores)), alpha, method=method)
        holders = np.zeros(len(scores), np.int64)
        for vertices in plan.vertices:
            holders[vertices] += 1
        host = float(rows_of_epoch[holders == 0].sum())
        elsewhere = rows_of_epoch * (devices - holders) / devices
        found.append(Moved(method, budget, host, float(elsewhere[holders > 0].sum())))
    return found
