"""Which rows a cache keeps: those of the largest scores, as many as fit in its budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spsample.common.checks import require_int
from spsample.common.memory import available_memory
from spsample.common.units import format_bytes, require_bytes
from spsample.errors import CapacityError, InputError

if TYPE_CHECKING:
    from spsample.features.source import FeatureSource

__all__ = ["budget_bytes", "is_auto", "rows_beside", "rows_within"]


def is_auto(budget: Any) -> bool:
    """Whether a budget is the word "auto".

    Examples
    --------
    >>> is_auto("auto"), is_auto(0)
    (True, False)
    """
    return isinstance(budget, str) and budget == "auto"


def budget_bytes(budget: Any) -> int:
    """Return the budget of a cache in bytes; 0 is one, too.

    Raises
    ------
    InputError, DTypeError
        If it is no amount of memory.

    Examples
    --------
    >>> budget_bytes("2KiB"), budget_bytes(0)
    (2048, 0)
    """
    return require_bytes("budget", budget) if isinstance(budget, str) else require_int("budget", budget, minimum=0)


def rows_within(source: FeatureSource, budget: int, map_bytes: tuple[int, int]) -> int:
    """How many rows a cache of the source keeps within a budget in bytes, the map included: so much, and for each row.

    Raises
    ------
    InputError
        If the budget is above 0, and less than one row and the map.
    CapacityError
        If so much memory is not available.

    Examples
    --------
    >>> import numpy as np
    >>> from spsample.features.memory import FeatureStore
    >>> rows_within(FeatureStore(np.ones((100, 4), np.float32)), 832, (32, 0))
    50
    """
    count = _rows_and_map_within(budget, source.num_rows, source.stored_row_bytes, map_bytes)
    size, free = count * source.stored_row_bytes, available_memory()
    if size > free:
        raise CapacityError(
            argument="budget",
            given=f"{format_bytes(budget)}, which {format_bytes(size)} of rows would take",
            expected=f"at most the {format_bytes(free)} that are available",
        )
    return count


def rows_beside(source: FeatureSource, free: int, map_bytes: tuple[int, int]) -> int:
    """How many rows a cache of the source keeps in memory that is free, the map included; 0 where not one fits.

    Examples
    --------
    >>> import numpy as np
    >>> from spsample.features.memory import FeatureStore
    >>> store = FeatureStore(np.ones((100, 4), np.float32))
    >>> rows_beside(store, 832, (32, 0)), rows_beside(store, 10, (32, 0))
    (50, 0)
    """
    row_bytes, (of_all, of_each) = source.stored_row_bytes, map_bytes
    least = of_all + of_each + row_bytes
    return _rows_and_map_within(free if free >= least else 0, source.num_rows, row_bytes, map_bytes)


def _rows_and_map_within(budget: int, num_rows: int, row_bytes: int, map_bytes: tuple[int, int]) -> int:
    """How many rows fit, with the map."""
    if budget == 0:
        return 0
    if budget >= num_rows * row_bytes:
        return num_rows
    of_all, of_each = map_bytes
    count = (budget - of_all) // (row_bytes + of_each)
    if count < 1:
        raise InputError(
            argument="budget",
            given=format_bytes(budget),
            expected=f"0, or at least one row of {row_bytes + of_each} bytes and {of_all} bytes for the map",
        )
    return count
