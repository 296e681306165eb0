"""Amounts of memory, and numbers of things, as text."""

from __future__ import annotations

import re
from typing import Any

from spsample.common.checks import require_int, short
from spsample.errors import InputError

_UNITS = {"": 1, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_UNITS |= {f"{letter}iB": _UNITS[letter] for letter in "KMGT"}
_UNITS |= {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_MAX, _DIGITS = 2**63 - 1, 40
_FORM = "a number of bytes, or one with a unit, as 512MiB, 2GiB or 1.5GB"


def require_bytes(argument: str, value: Any) -> int:
    """Return a positive amount of memory in bytes: an integer, or a string such as "2GiB" (2^31) or "1.5GB" (10^9).

    K, M, G and T alone are 2^10, 2^20, 2^30 and 2^40.

    Raises
    ------
    InputError, DTypeError
        If `value` is not of that form, or less than one byte.

    Examples
    --------
    >>> require_bytes("memory_budget", "1.5 GiB")
    1610612736
    """
    if not isinstance(value, str):
        return require_int(argument, value, minimum=1, maximum=_MAX)
    match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([A-Za-z]*)\s*", value)
    if match is None or match[2] not in _UNITS or len(match[1]) > _DIGITS:
        raise InputError(argument=argument, given=short(value), expected=_FORM)
    size = int(float(match[1]) * _UNITS[match[2]]) if "." in match[1] else int(match[1]) * _UNITS[match[2]]
    if not 1 <= size <= _MAX:
        raise InputError(argument=argument, given=short(value), expected=_FORM)
    return size


def format_bytes(size: float) -> str:
    """Return an amount of memory in the largest unit that keeps it at 1 or above.

    Examples
    --------
    >>> format_bytes(3 * 2**29), format_bytes(100)
    ('1.50 GiB', '100 B')
    """
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(size) >= factor:
            return f"{size / factor:.2f} {unit}"
    return f"{size:.0f} B"


def count(number: int, singular: str, plural: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> count(1, "batch", "batches"), count(2000, "batch", "batches")
    ('1 batch', '2,000 batches')
    """
    return f"{number:,} {singular if number == 1 else plural}"
