"""How many bytes may lie in the queues between the stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from spsample.common.units import require_bytes
from spsample.errors import InputError

__all__ = ["QueueBytes", "QueueLimit"]


class QueueLimit(NamedTuple):
    """Bytes of a queue, None for no limit, and what gives the bytes of an item."""

    nbytes: int | None
    size_of: Callable[[Any], int]


class QueueBytes(NamedTuple):
    """The limits of the two queues of a loader.

    Attributes
    ----------
    bulks
        Of bulks that are sampled and wait.
    batches
        Of batches that have their features and wait: bytes of these features.

    Examples
    --------
    >>> limits = QueueBytes.of("1MiB", None, prefetch=1)
    >>> limits.bulks.nbytes, limits.batches.nbytes
    (524288, 524288)
    """

    bulks: QueueLimit
    batches: QueueLimit

    @classmethod
    def of(cls, prefetch_budget: int | str | None, memory_budget: int | str | None, prefetch: int) -> QueueBytes:
        """Half of the budget for each; of that of memory, where what is ahead has none.

        Raises
        ------
        InputError, DTypeError
            If it is no number of bytes, or nothing is done ahead.
        """
        if prefetch_budget is not None and prefetch == 0:
            given = f"{prefetch_budget!r} with prefetch=0"
            raise InputError(argument="prefetch_budget", given=given, expected="None: nothing is prepared ahead")
        name, budget = "prefetch_budget", prefetch_budget
        if budget is None:
            name, budget = "memory_budget", memory_budget
        half = None if budget is None else require_bytes(name, budget) // 2
        return cls(QueueLimit(half, _bulk_bytes), QueueLimit(half, _feature_bytes))


def _bulk_bytes(one: Any) -> int:
    return int(one.bulk.nbytes)


def _feature_bytes(item: Any) -> int:
    return int(item.nbytes)
