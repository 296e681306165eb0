"""Checks of what plans of copies are made from: scores, and the cost of links."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.common.arrays import as_array
from spsample.common.checks import first_bad, require_number
from spsample.errors import DTypeError, InputError
from spsample.store.validation import check_weights

__all__ = ["require_alpha", "require_scores"]

_ALPHA = "a positive, finite number"


def require_scores(value: Any, devices: int, num_rows: int | None = None) -> NDArray[np.float64]:
    """Return scores as float64: one vector for all devices, or a row for each device.

    Parameters
    ----------
    value : array_like (n,) or (devices, n)
        How often each vertex is needed: finite, not negative.
    devices : int
        Number of devices.
    num_rows : int, optional
        n, where it is known.

    Raises
    ------
    InputError, DTypeError
        If they are anything else.

    Examples
    --------
    >>> require_scores([3, 1], devices=2)
    array([3., 1.])
    >>> require_scores([3, -1], devices=2)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: scores: got -1.0 at position 1; expected finite weights of at least 0
    """
    array = as_array("scores", value)
    if array.dtype.kind == "c":
        raise DTypeError(argument="scores", given=f"dtype {array.dtype}", expected="real numbers")
    n = "n" if num_rows is None else str(num_rows)
    has_shape = array.ndim in (1, 2) and array.size and (array.ndim == 1 or len(array) == devices)
    if not has_shape or (num_rows is not None and array.shape[-1] != num_rows):
        expected = f"shape ({n},), or ({devices}, {n}) for {devices} devices, of at least one vertex"
        raise InputError(argument="scores", given=f"shape {array.shape}", expected=expected)
    scores = np.ascontiguousarray(array, np.float64)
    check_weights("scores", scores)
    return scores


def require_alpha(value: Any, devices: int) -> float | NDArray[np.float64]:
    """Return the cost of a row from another device over that of one from the host: a number, or a matrix by device.

    The diagonal of a matrix is not looked at, and comes back as 0: a device's own rows cost nothing.

    Parameters
    ----------
    value : float or array_like (devices, devices)
        Positive and finite. Entry (i, j) is what device i pays for a row from device j.
    devices : int
        Number of devices.

    Raises
    ------
    InputError, DTypeError
        If it is anything else.

    Examples
    --------
    >>> require_alpha(1, devices=4)
    1.0
    >>> require_alpha([[9, 0.5], [0, 9]], devices=2)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: alpha: got 0.0 at position (1, 0); expected positive, finite numbers off the diagonal
    """
    if not isinstance(value, (list, tuple)) and not getattr(value, "ndim", 0):
        return require_number("alpha", value, lambda x: x > 0, _ALPHA)
    array = as_array("alpha", value)
    if array.dtype.kind not in "iuf":
        raise DTypeError(argument="alpha", given=f"dtype {array.dtype}", expected="real numbers")
    if array.shape != (devices, devices):
        expected = f"{_ALPHA}, or a matrix of shape ({devices}, {devices})"
        raise InputError(argument="alpha", given=f"shape {array.shape}", expected=expected)
    alpha = array.astype(np.float64)
    np.fill_diagonal(alpha, 1.0)
    bad = ~((alpha > 0) & (alpha < np.inf))
    if bad.any():
        expected = "positive, finite numbers off the diagonal"
        raise InputError(argument="alpha", given=first_bad(bad, alpha), expected=expected)
    np.fill_diagonal(alpha, 0.0)
    return alpha
