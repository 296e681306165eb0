"""What a plan of copies costs each device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.checks import require_type
from spsample.features.copies.arguments import require_alpha, require_scores
from spsample.features.copies.links import link_costs
from spsample.features.copies.plan import CopyPlan

__all__ = ["CopyCost", "cost"]


@dataclass(frozen=True, eq=False)
class CopyCost:
    """Expected cost of fetching the rows that are needed, in rows from the host.

    Attributes
    ----------
    devices : float64 array (devices,)
        Of each device.

    Examples
    --------
    >>> found = CopyCost(np.array([1.0, 2.0]))
    >>> found, found.mean, found.largest
    (CopyCost(mean 1.5, largest 2), 1.5, 2.0)
    """

    devices: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """Mean over devices: what `best_copies` makes least."""
        return float(self.devices.mean())

    @property
    def largest(self) -> float:
        """Cost of the device that pays most: what Song and Jiang state as their goal."""
        return float(self.devices.max())

    def __repr__(self) -> str:
        return f"CopyCost(mean {self.mean:.6g}, largest {self.largest:.6g})"


def cost(plan: CopyPlan, scores: Any, alpha: Any) -> CopyCost:
    """Compute what each device pays for the rows it needs.

    A row costs a device nothing where it has a copy itself, else the least alpha of the devices that have one, and 1,
    the cost of a row from the host, where none has one or all cost more. With probabilities of a batch as scores it is
    the expected cost of a batch. O(devices (n + rows of the plan)).

    Parameters
    ----------
    plan : CopyPlan
        From `plan_copies` by any method, or one's own (`CopyPlan.of`).
    scores : array_like (n,) or (devices, n)
        How often each vertex is needed, by every device or by each.
    alpha : float or array_like (devices, devices)
        Cost of a row from another device over that of one from the host. Entry (i, j): to device i from device j.

    Raises
    ------
    InputError, DTypeError
        If an argument cannot be used.

    Examples
    --------
    >>> plan = CopyPlan.of([[0, 1], [0, 2]], num_rows=4)
    >>> cost(plan, [8, 4, 2, 1], alpha=0.5).devices.tolist()
    [2.0, 3.0]
    """
    require_type("plan", plan, CopyPlan, "a CopyPlan")
    scores = require_scores(scores, plan.devices, plan.num_rows)
    links = link_costs(require_alpha(alpha, plan.devices), plan.devices)
    each = np.broadcast_to(scores, (plan.devices, plan.num_rows))
    return CopyCost(np.array([p @ _paid(plan, to) for p, to in zip(each, links, strict=True)]))


def _paid(plan: CopyPlan, links: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) what a device pays for each row, which pays `links` (devices,) to each."""
    paid = np.ones(plan.num_rows)
    for device in np.argsort(-links, kind="stable"):  # the cheapest last
        paid[plan.vertices[device]] = links[device]
    return paid
