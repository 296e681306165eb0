"""Where rows go that a device gathers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.errors import DTypeError, InputError
from spsample.store.validation import validate_ids

if TYPE_CHECKING:
    from spsample.backends.cuda.backend import CudaKernels

__all__ = ["require_device_destination"]


def require_device_destination(kernels: CudaKernels, out: Any, at: Any, count: int, dim: int) -> Any:
    """Check where `count` rows go, and return the places `at` on the device; those given there are not looked at.

    Raises
    ------
    InputError, DTypeError
        If `out` is no float32 array on the device, of rows of `dim` numbers; or has not `count` rows, without `at`; or
        `at` has not one place in `out` for each.
    """
    if out is None:
        if at is not None:
            raise InputError(argument="at", given="places without out", expected="out, whose rows they are")
        return None
    if not kernels.device.owns(out) or out.dtype != np.float32:
        raise DTypeError(argument="out", given=type(out).__name__, expected="a float32 array on the device")
    if out.ndim != 2 or out.shape[1] != dim:
        raise InputError(argument="out", given=f"shape {out.shape}", expected=f"rows of {dim} numbers")
    if at is None:
        if len(out) != count:
            raise InputError(argument="out", given=f"{len(out)} rows", expected=f"one for each id: {count}")
        return None
    places = at if kernels.device.owns(at) else kernels.to_device(validate_ids(at, len(out), argument="at"))
    if len(places) != count:
        raise InputError(argument="at", given=f"{len(places)} places", expected=f"one for each id: {count}")
    return places.astype(np.int64, copy=False)
