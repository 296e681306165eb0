"""From which device each device reads each row: the nearest that has a copy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spsample.features.copies.plan import CopyPlan

__all__ = ["nearest_holders"]

_STEP = np.uint64(0x9E3779B97F4A7C15)
"""Multiplied by it, numbers that follow each other are far apart."""


def nearest_holders(plan: CopyPlan, links: NDArray[np.float64], device: int) -> NDArray[np.unsignedinteger]:
    """Return from which device a device reads each row.

    That is itself where it has a copy, else the device with a copy whose link costs least. Of several at the same cost
    one is chosen by the vertex and the device that asks, so that holders share the work. A row is read from the host
    where no device has it, or every link to one that has it costs as much as the host. O(n + rows of the plan).

    Parameters
    ----------
    plan : CopyPlan
    links : float64 array (devices, devices)
        Costs over those of a row from the host, 0 on the diagonal: see `link_costs`.
    device : int
        The one that reads.

    Returns
    -------
    unsigned integer array (plan.num_rows,)
        The number of a device, or `plan.devices` for the host.

    Examples
    --------
    >>> from spsample.features.copies.links import link_costs
    >>> plan = CopyPlan.of([[0, 1], [0, 2]], num_rows=4)
    >>> nearest_holders(plan, link_costs(0.5, 2), device=0).tolist()
    [0, 0, 1, 2]
    >>> nearest_holders(plan, link_costs(1.0, 2), device=0).tolist()
    [0, 0, 2, 2]
    """
    host = plan.devices
    found = np.full(plan.num_rows, host, np.min_scalar_type(host))
    to = links[device]
    for distance in np.unique(to[to < 1])[::-1]:  # the nearest last
        holders = np.flatnonzero(to == distance).tolist()
        _share_out(found, {one: plan.vertices[one] for one in holders}, device)
    return found


def _share_out(found: NDArray[np.unsignedinteger], kept: dict[int, NDArray[np.int64]], device: int) -> None:
    """Write to `found` for each vertex one of the devices that keep it."""
    if len(kept) == 1:
        for holder, vertices in kept.items():
            found[vertices] = holder
        return
    copies = np.zeros(len(found), np.int16)
    for vertices in kept.values():
        copies[vertices] += 1
    several = np.flatnonzero(copies > 1)
    turn = np.zeros(len(found), np.int16)
    turn[several] = _mixed(several, device) % copies[several].astype(np.uint64)
    for holder, vertices in kept.items():
        found[vertices[turn[vertices] == 0]] = holder
        turn[vertices] -= 1


def _mixed(vertices: NDArray[np.int64], device: int) -> NDArray[np.uint64]:
    """Numbers that look random by vertex, and go up by 1 from device to device."""
    words: NDArray[np.uint64] = vertices.astype(np.uint64) * _STEP
    return (words >> np.uint64(32)) + np.uint64(device)
