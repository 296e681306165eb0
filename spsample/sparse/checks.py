"""Checks of what is handed to the algebra: arrays and draws; those of `spsample.store` lie a layer above."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from spsample.backends import Draw
from spsample.backends.protocol import Array, Int64Array, IntArray
from spsample.errors import DTypeError, InputError


def as_array(argument: str, value: Any) -> Any:
    """The value as a NumPy array; ragged lists are refused."""
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InputError(
            argument=argument, given="lists of uneven lengths", expected="a one-dimensional array"
        ) from error


def require_array(argument: str, value: Any, dtypes: tuple[str, ...], expected: str) -> None:
    """Refuse anything but a one-dimensional NumPy array whose dtype has one of the names or kinds `dtypes`."""
    if not isinstance(value, np.ndarray):
        raise DTypeError(argument=argument, given=f"a {type(value).__name__}", expected=f"a NumPy array of {expected}")
    if not value.dtype.isnative or (value.dtype.name not in dtypes and value.dtype.kind not in dtypes):
        raise DTypeError(argument=argument, given=f"dtype {value.dtype}", expected=expected)
    if value.ndim != 1:
        raise InputError(argument=argument, given=f"shape {value.shape}", expected="a one-dimensional array")


def require_length(argument: str, array: Array, length: int, what: str) -> None:
    """Refuse an array that has not one entry per `what`."""
    if len(array) != length:
        raise InputError(argument=argument, given=f"length {len(array)}", expected=f"length {length}, one per {what}")


def require_range(argument: str, array: IntArray, end: int, what: str) -> None:
    """Refuse integers outside [0, end); the message names the first.

    Examples
    --------
    >>> require_range("rows", np.array([0, 7, 9]), 5, "rows")
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: rows: got 7 at position 1; expected rows in [0, 5)
    """
    if len(array) and not (array.min() >= 0 and array.max() < end):
        at = int(np.argmax((array < 0) | (array >= end)))
        raise InputError(argument=argument, given=f"{array[at]} at position {at}", expected=f"{what} in [0, {end})")


def require_pointers(argument: str, indptr: Int64Array, last: int) -> None:
    """Refuse row pointers that do not start at 0, fall, or end elsewhere than at `last`."""
    expected = f"pointers that ascend from 0 to {last}, the number of indices"
    falls = indptr[1:] < indptr[:-1]
    if indptr[0] != 0:
        raise InputError(argument=argument, given=f"{indptr[0]} at position 0", expected=expected)
    if falls.any():
        at = int(np.argmax(falls)) + 1
        given = f"{indptr[at]} at position {at}, after {indptr[at - 1]}"
        raise InputError(argument=argument, given=given, expected=expected)
    if indptr[-1] != last:
        at = len(indptr) - 1
        raise InputError(argument=argument, given=f"{indptr[-1]} at position {at}", expected=expected)


def require_number(argument: str, value: Any, end: int, minimum: int = 0) -> int:
    """The value as an int in [minimum, end); a bool or a float is none.

    Examples
    --------
    >>> require_number("epoch", 3, 2**64)
    3
    """
    expected = f"an integer in [{minimum}, {end})"
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        given = f"{reprlib.repr(value)} of type {type(value).__name__}"
        raise DTypeError(argument=argument, given=given, expected=expected)
    if not minimum <= value < end:
        raise InputError(argument=argument, given=str(value), expected=expected)
    return int(value)


def require_draw(draw: Draw, batch_ids: Int64Array, rows: int) -> None:
    """Refuse a draw whose fields, or whose batch ids, do not fit the counter (law, section 1)."""
    for word in draw.key:
        require_number("draw.key", word, 2**32)
    require_number("draw.hop", draw.hop, 2**8)
    require_number("draw.size", draw.size, 2**30, minimum=1)
    require_array("batch_ids", batch_ids, ("i", "u"), "integers")
    require_length("batch_ids", batch_ids, rows, "row of P")
    require_range("batch_ids", batch_ids, 2**32, "batch ids")
