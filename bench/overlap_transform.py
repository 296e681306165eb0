"""A transform in pure Python that takes a given time; processes import it, and so nothing else is here."""

from __future__ import annotations

import time
from typing import Any, NamedTuple


class Busy(NamedTuple):
    """Counts to a number, which keeps Python's lock, and gives the batch back.

    Attributes
    ----------
    count : int
        To which it counts.
    """

    count: int

    def __call__(self, batch: Any) -> Any:
        """Count."""
        number = 0
        while number < self.count:
            number += 1
        return batch

    @classmethod
    def of(cls, milliseconds: float) -> Busy:
        """One that takes so long when it has a core to itself."""
        times = []
        for _ in range(7):
            start = time.perf_counter()
            cls(100_000)(None)
            times.append(time.perf_counter() - start)
        return cls(int(100_000 * milliseconds / 1000 / min(times)))
