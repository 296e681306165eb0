"""Labels of vertices as a data set takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.errors import DataError

__all__ = ["class_labels", "num_classes"]

_LARGEST_WHOLE = 2**53


def class_labels(argument: str, y: NDArray[Any], num_nodes: int | None, hint: str = "") -> NDArray[np.int64]:
    """Return labels as integers: floats are taken where they are whole, NaN becomes -1, shape (n, 1) becomes (n,).

    Parameters
    ----------
    argument : str
        What `y` is called in messages.
    y : array (n,) or (n, labels)
        Booleans, integers or floats, from 0 on; -1 or NaN where unlabelled.
    num_nodes : int or None
        Number of vertices, n; None fits no labels.
    hint : str, optional
        What to do, for messages.

    Raises
    ------
    DataError
        If it has another shape or dtype, or a label is no whole number from -1 on.

    Examples
    --------
    >>> class_labels("y", np.array([[2.0], [np.nan], [0.0]]), 3)
    array([ 2, -1,  0])
    """
    if y.ndim not in (1, 2) or len(y) != num_nodes or y.dtype.kind not in "biuf" or y.shape[1:] == (0,):
        given = f"labels of dtype {y.dtype} and shape {y.shape}"
        expected = f"numbers in {'num_nodes' if num_nodes is None else num_nodes} rows, one per vertex"
        raise DataError(argument=argument, given=given, expected=expected, hint=hint)
    flat = y.reshape(-1) if y.shape[1:] == (1,) else y
    if flat.dtype.kind == "f":
        flat = np.where(np.isnan(flat), -1, flat)
    if flat.dtype.kind != "b":
        bad = (flat < -1) | (flat > _LARGEST_WHOLE)
        if flat.dtype.kind == "f":
            bad |= np.trunc(flat) != flat
        if bad.any():
            place = np.unravel_index(int(np.argmax(bad)), flat.shape)
            given = f"{flat[place]} at position {', '.join(str(int(i)) for i in place)}"
            expected = "whole numbers; from 0 on, or -1 or NaN where unlabelled"
            raise DataError(argument=argument, given=given, expected=expected, hint=hint)
    return flat.astype(np.int64)


def num_classes(y: NDArray[Any]) -> int:
    """Return one more than the largest label, or the number of columns of several labels.

    Examples
    --------
    >>> num_classes(np.array([0, 4, -1])), num_classes(np.zeros((3, 2)))
    (5, 2)
    """
    return int(y.shape[1]) if y.ndim == 2 else int(y.max(initial=-1)) + 1
