"""What a device pays for a row that another device has."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["link_costs"]


def link_costs(alpha: float | NDArray[np.float64], devices: int) -> NDArray[np.float64]:
    """(devices, devices) cost of a row that is on device j to device i, over that of one from the host.

    It is 0 on the diagonal and at most 1 elsewhere: a row that costs more from a device is read from the host.

    Examples
    --------
    >>> link_costs(0.5, 2).tolist(), link_costs(3.0, 2).tolist()
    ([[0.0, 0.5], [0.5, 0.0]], [[0.0, 1.0], [1.0, 0.0]])
    """
    costs: NDArray[np.float64] = np.minimum(np.broadcast_to(alpha, (devices, devices)), 1.0)
    np.fill_diagonal(costs, 0.0)
    return costs
