"""Checks of integers, choices and arrays, for the algebra and the layers above it: one wording for all.

Each check costs at most a few vectorised passes over its input, reports the first bad entry with its value and
position, and raises an exception of `spsample.errors`. Nothing is clipped, reordered or dropped.
"""

from __future__ import annotations

import math
import numbers
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spsample.backends import Draw
from spsample.backends.protocol import Int64Array
from spsample.errors import DTypeError, InputError

_UNSIGNED: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.uint16),
    4: np.dtype(np.uint32),
    8: np.dtype(np.uint64),
}
_HALF = {1: 2**7, 2: 2**15, 4: 2**31, 8: 2**63}
"""Number of values of a signed type that are not negative, by its bytes."""


_MAX_NAME, _MAX_PATH = 255, 4095
"""Bytes between two separators, and of a whole path, of the usual file systems."""


def is_scipy_sparse(value: Any) -> bool:
    """Return whether it is a SciPy sparse matrix or array; False where SciPy was not imported.

    Examples
    --------
    >>> is_scipy_sparse([[1, 0]])
    False
    """
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(value))


def require_int(argument: str, value: Any, minimum: int | None = None, maximum: int | None = None) -> int:
    """Return `value` as an int within [minimum, maximum]; a bool or a float is no integer.

    Parameters
    ----------
    argument : str
        Name of the argument, for the message.
    value : int or numpy integer
        The value given.
    minimum, maximum : int, optional
        Inclusive bounds.

    Raises
    ------
    DTypeError
        If `value` is not an integer.
    InputError
        If it is out of bounds.

    Examples
    --------
    >>> require_int("batch_size", 1024, minimum=1)
    1024
    >>> require_int("batch_size", 0, minimum=1)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: batch_size: got 0; expected an integer of at least 1
    """
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, (int, numbers.Integral))):
        given = f"{short(value)} of type {type(value).__name__}"
        raise DTypeError(argument=argument, given=given, expected=_expected_int(minimum, maximum))
    number = int(value)
    if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
        raise InputError(argument=argument, given=short(number), expected=_expected_int(minimum, maximum))
    return number


def require_bulk_size(argument: str, value: Any) -> int | None:
    """Return the number of minibatches in a bulk; None for "auto", which leaves it to a plan of memory.

    Raises
    ------
    DTypeError
        If `value` is neither an integer nor "auto".
    InputError
        If it is below 1.

    Examples
    --------
    >>> require_bulk_size("bulk_size", "auto"), require_bulk_size("bulk_size", 64)
    (None, 64)
    """
    if not isinstance(value, str):
        return require_int(argument, value, minimum=1)
    if value != "auto":
        given = f"{short(value)} of type str"
        raise DTypeError(argument=argument, given=given, expected=f"{_expected_int(1, None)}, or 'auto'")
    return None


def _expected_int(minimum: int | None, maximum: int | None) -> str:
    if minimum is not None and maximum is not None:
        return f"an integer in [{minimum}, {maximum}]"
    if minimum is not None:
        return f"an integer of at least {minimum}"
    if maximum is not None:
        return f"an integer of at most {maximum}"
    return "an integer"


def require_type(argument: str, value: Any, types: type[Any] | tuple[type[Any], ...], expected: str) -> None:
    """Refuse what is an instance of none of `types`.

    Raises
    ------
    DTypeError
        The message says what was `expected`.

    Examples
    --------
    >>> require_type("graph", 3, dict, "a mapping")
    Traceback (most recent call last):
    ...
    spsample.errors.DTypeError: graph: got 3 of type int; expected a mapping
    """
    if not isinstance(value, types):
        raise DTypeError(argument=argument, given=f"{short(value)} of type {type(value).__name__}", expected=expected)


def require_iterable(argument: str, value: Any, expected: str) -> Iterator[Any]:
    """Return an iterator over `value`, whose items are not checked.

    Raises
    ------
    DTypeError
        If it is not iterable, or is a sparse matrix; the message says what was `expected`.

    Examples
    --------
    >>> list(require_iterable("sizes", (5, 3), "numbers"))
    [5, 3]
    >>> require_iterable("sizes", 5, "numbers")
    Traceback (most recent call last):
    ...
    spsample.errors.DTypeError: sizes: got 5 of type int; expected numbers
    """
    if is_scipy_sparse(value):  # some have no rows, and raise late
        given = f"a scipy {value.format} matrix of shape {value.shape}"
        raise DTypeError(argument=argument, given=given, expected=expected)
    try:
        return iter(value)
    except TypeError as error:
        given = f"{short(value)} of type {type(value).__name__}"
        raise DTypeError(argument=argument, given=given, expected=expected) from error


def require_number(argument: str, value: Any, is_right: Callable[[float], bool], expected: str) -> float:
    """Return `value` as a float that is finite and `is_right`; a bool or a text is no number.

    Raises
    ------
    DTypeError
        If it is no number.
    InputError
        If it is not right; the message says what was `expected`.

    Examples
    --------
    >>> require_number("learning_rate", 1, lambda x: x > 0, "a positive number")
    1.0
    >>> require_number("learning_rate", float("nan"), lambda x: x > 0, "a positive number")
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: learning_rate: got nan; expected a positive number
    """
    if isinstance(value, (bool, np.bool_)):
        raise DTypeError(argument=argument, given=str(value), expected=expected)
    require_type(argument, value, (int, float, np.integer, np.floating), expected)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or not is_right(number):
        raise InputError(argument=argument, given=short(value), expected=expected)
    return number


def require_path(argument: str, value: Any) -> Path:
    """Return `value` as a path: a text that is not empty, or anything that stands for a path.

    Raises
    ------
    DTypeError
        If it is nothing of the kind.
    InputError
        If no file can have that name.

    Examples
    --------
    >>> require_path("path", "graphs/cora").name
    'cora'
    >>> require_path("path", 3)
    Traceback (most recent call last):
    ...
    spsample.errors.DTypeError: path: got 3 of type int; expected a path
    """
    require_type(argument, value, (str, os.PathLike), "a path")
    name = os.fspath(value)
    require_type(argument, name, str, "a path as text")
    if not _can_be_a_path(name):
        expected = f"a path of at most {_MAX_PATH} bytes, of names of at most {_MAX_NAME}"
        raise InputError(argument=argument, given=short(name), expected=expected)
    return Path(name)


def _can_be_a_path(name: str) -> bool:
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    longest = max(map(len, encoded.split(os.fsencode(os.sep))))
    return bool(encoded) and b"\0" not in encoded and len(encoded) <= _MAX_PATH and longest <= _MAX_NAME


def require_share(argument: str, value: Any, expected: str) -> float:
    """Return `value` as a float from 0 to 1.

    Raises
    ------
    InputError
        If it is anything else; the message says what was `expected`.

    Examples
    --------
    >>> require_share("hot", 1, "a share from 0 to 1")
    1.0
    """
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:
        raise InputError(argument=argument, given=short(value), expected=expected)
    return float(value)


def require_choice(argument: str, value: Any, choices: Sequence[str]) -> str:
    """Return `value` if it is one of the strings `choices`.

    Raises
    ------
    DTypeError
        If `value` is not a string.
    InputError
        If it is none of the choices.

    Examples
    --------
    >>> require_choice("layout", "blocks", ("blocks", "subgraph"))
    'blocks'
    >>> require_choice("layout", "block", ("blocks", "subgraph"))
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: layout: got 'block'; expected one of 'blocks', 'subgraph'
    """
    if isinstance(value, str) and value in choices:
        return value
    expected = "one of " + ", ".join(repr(choice) for choice in choices)
    if isinstance(value, str):
        raise InputError(argument=argument, given=short(value), expected=expected)
    given = f"{short(value)} of type {type(value).__name__}"
    raise DTypeError(argument=argument, given=given, expected=expected)


def refuse_removed(call: str, given: Mapping[str, Any], **removed: str) -> None:
    """Refuse arguments that a call once had, each with a hint in its place; and other ones as Python does.

    Raises
    ------
    InputError, TypeError

    Examples
    --------
    >>> refuse_removed("draw", {"colour": 3}, colour="Leave it out: all is black.")
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: colour: got 3; expected nothing: it was removed. Leave it out: all is black.
    """
    for name, value in given.items():
        if name not in removed:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
        raise InputError(argument=name, given=short(value), expected="nothing: it was removed", hint=removed[name])


def short(value: Any) -> str:
    """Return the start of repr(value)."""
    try:
        text = repr(value)
    except ValueError:  # of an integer of more digits than Python prints
        text = f"an integer of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def first_bad(bad: NDArray[np.bool_], array: NDArray[Any]) -> str:
    """Describe the first entry of `array` where `bad` is true: "-3 at position 17"."""
    where = np.unravel_index(int(np.argmax(bad)), bad.shape)
    position = where[0] if len(where) == 1 else tuple(int(i) for i in where)
    return f"{array[where].item()} at position {position}"


def require_array(argument: str, value: Any, dtypes: tuple[str, ...], expected: str) -> None:
    """Refuse anything but a one-dimensional NumPy array whose dtype has one of the names or kinds `dtypes`."""
    if not isinstance(value, np.ndarray):
        raise DTypeError(argument=argument, given=f"a {type(value).__name__}", expected=f"a NumPy array of {expected}")
    if not value.dtype.isnative or (value.dtype.name not in dtypes and value.dtype.kind not in dtypes):
        raise DTypeError(argument=argument, given=f"dtype {value.dtype}", expected=expected)
    if value.ndim != 1:
        raise InputError(argument=argument, given=f"shape {value.shape}", expected="a one-dimensional array")


def check_length(argument: str, array: NDArray[Any], length: int, what: str) -> None:
    """Check that `array` has `length` entries, one per `what`.

    Examples
    --------
    >>> check_length("data", np.ones(3), 4, "entry of indices")
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: data: got length 3; expected length 4, one per entry of indices
    """
    if len(array) != length:
        raise InputError(argument=argument, given=f"length {len(array)}", expected=f"length {length}, one per {what}")


def check_range(argument: str, array: NDArray[Any], end: int, what: str, hint: str = "") -> None:
    """Check that every entry of the integer array is in [0, end); one pass, no temporary array.

    Examples
    --------
    >>> check_range("rows", np.array([0, 7, 9]), 5, "rows")
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: rows: got 7 at position 1; expected rows in [0, 5)
    """
    if array.size == 0 or _largest_unsigned(array) < min(end, _HALF[array.dtype.itemsize]):
        return
    bad = (array < 0) | (array >= end)
    if bad.any():
        raise InputError(argument=argument, given=first_bad(bad, array), expected=f"{what} in [0, {end})", hint=hint)


def _largest_unsigned(array: NDArray[Any]) -> int:
    """Return the largest entry, where negative ones count as unsigned integers of the same bits, which are larger."""
    unsigned = array if array.dtype.kind == "u" else array.view(_UNSIGNED[array.dtype.itemsize])
    flat = unsigned.ravel(order="K")
    return int(flat[flat.argmax()])  # takes a third of the time of a maximum


def check_indptr(argument: str, indptr: NDArray[Any], num_entries: int) -> None:
    """Check that `indptr` starts at 0, never falls, and ends at `num_entries`.

    Examples
    --------
    >>> check_indptr("indptr", np.array([0, 3, 2, 4]), 4)
    Traceback (most recent call last):
    ...
    spsample.errors.InputError: indptr: got 2 at position 2, after 3; expected row starts that never fall
    """
    if int(indptr[0]) != 0:
        raise InputError(argument=argument, given=f"{indptr[0]} at position 0", expected="0 as the first entry")
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        at = int(np.argmax(falls)) + 1
        given = f"{indptr[at]} at position {at}, after {indptr[at - 1]}"
        raise InputError(argument=argument, given=given, expected="row starts that never fall")
    if int(indptr[-1]) != num_entries:
        last = len(indptr) - 1
        expected = f"the number of entries of indices, {num_entries}, as the last entry"
        raise InputError(argument=argument, given=f"{indptr[-1]} at position {last}", expected=expected)


def require_draw(draw: Any) -> None:
    """Refuse values other than a `Draw`, and one with a key, hop or size that no sampler could have made."""
    require_type("draw", draw, Draw, "a Draw")
    expected = "two words, as derive_key gives them"
    require_type("draw.key", draw.key, tuple, expected)
    if len(draw.key) != 2:
        raise InputError(argument="draw.key", given=short(draw.key), expected=expected)
    for word in draw.key:
        require_int("draw.key", word, 0, 2**32 - 1)
    require_int("draw.hop", draw.hop, 0, 2**8 - 1)
    require_int("draw.size", draw.size, -1, 2**30 - 1)
    require_type("draw.replace", draw.replace, (bool, np.bool_), "True or False")
    if draw.size == 0:
        raise InputError(argument="draw.size", given="0", expected="at least 1, or -1 for whole rows")


def check_draw(draw: Draw, batch_ids: Int64Array, rows: int) -> None:
    """Refuse a draw whose fields, or whose batch ids, do not fit the counter (law, section 1)."""
    require_draw(draw)
    require_int("draw.size", draw.size, 1, 2**30 - 1)
    require_array("batch_ids", batch_ids, ("i", "u"), "integers")
    check_length("batch_ids", batch_ids, rows, "row of P")
    check_range("batch_ids", batch_ids, 2**32, "batch ids")
