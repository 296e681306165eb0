"""Reductions in one order, that of the ranks: the same bits on every rank and over every communicator."""

from __future__ import annotations

from collections.abc import Sequence

from spsample.comm.buffers import namespace
from spsample.comm.communicator import Array, Reduction
from spsample.common.checks import require_choice

_NAMES: dict[Reduction, str] = {"sum": "add", "max": "maximum", "min": "minimum"}


def check_reduction(op: str) -> None:
    """Refuse what is no reduction."""
    require_choice("op", op, tuple(_NAMES))


def reduce_in_order(parts: Sequence[Array] | Array, op: Reduction) -> Array:
    """Elementwise sum, maximum or minimum of arrays of one shape and dtype, from the first to the last.

    `parts` may also be one array with the parts along its first axis.

    Examples
    --------
    >>> import numpy as np
    >>> reduce_in_order([np.array([1, 5], np.uint8), np.array([2, 3], np.uint8)], "max")
    array([2, 5], dtype=uint8)
    """
    ufunc = getattr(namespace(parts[0]), _NAMES[op])
    result = parts[0].copy()
    for part in parts[1:]:
        ufunc(result, part, out=result)
    return result


__all__ = ["check_reduction", "reduce_in_order"]
