"""Where rows lie, as kernels see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.backends.cuda.device import Device

__all__ = ["row_addresses"]


def row_addresses(device: Device, rows: Any) -> NDArray[np.uint64]:
    """(rows,) the address of each row of an array that a device reads, shape (rows, numbers), C order."""
    row_bytes = np.uint64(rows.itemsize * rows.shape[1])
    return np.uint64(device.address(rows)) + np.arange(rows.shape[0], dtype=np.uint64) * row_bytes
