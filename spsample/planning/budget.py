"""`BudgetedPlan`: the largest bulk whose memory is within a budget, and how a larger one is refused."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from spsample.common.checks import require_int
from spsample.common.units import format_bytes
from spsample.errors import CapacityError

MOST_BATCHES = 1 << 62


@dataclass(frozen=True)
class BudgetedPlan(ABC):
    """What bulks take by the number of their batches, held against a budget.

    Attributes
    ----------
    memory_budget : int
        Bytes.
    batch_size : int
        Seeds of a batch.
    """

    memory_budget: int
    batch_size: int

    @abstractmethod
    def peak(self, bulk_size: int) -> int:
        """Bytes at the peak with bulks of `bulk_size` batches; more batches never take less."""

    @abstractmethod
    def most_entries(self, batches: int) -> int | None:
        """Entries that a bulk of `batches` batches may have; None where nothing limits them."""

    def fits(self, bulk_size: int) -> bool:
        """Whether bulks of `bulk_size` batches are within the budget."""
        return self.peak(bulk_size) <= self.memory_budget

    def largest(self, most: int) -> int:
        """The largest k up to `most` whose peak is within the budget; 0 where there is none."""
        return largest_fitting(require_int("most", most, minimum=0, maximum=MOST_BATCHES), self.fits)

    def require(self, bulk_size: int) -> None:
        """Refuse a bulk size that does not fit.

        Raises
        ------
        CapacityError
            It names the largest one that does.
        """
        bulk_size = require_int("bulk_size", bulk_size, minimum=0, maximum=MOST_BATCHES)
        if bulk_size == 0 or self.fits(bulk_size):
            return
        largest = self.largest(bulk_size)
        if largest == 0:
            raise CapacityError(
                argument="memory_budget",
                given=f"{self._budget} for batches of {self.batch_size} seeds",
                expected=f"at least {format_bytes(self.peak(1))}, which {self._single_batches} takes",
                hint="Give more, or use smaller batches, fanouts or layer sizes.",
            )
        raise CapacityError(
            argument="bulk_size",
            given=f"{bulk_size}, which takes {format_bytes(self.peak(bulk_size))}",
            expected=f"at most {largest} within the memory budget of {self._budget}",
            hint="bulk_size='auto' finds it.",
        )

    @property
    def _budget(self) -> str:
        """The budget in words."""
        return format_bytes(self.memory_budget)

    @property
    def _single_batches(self) -> str:
        """What the smallest bulk is, in words."""
        return "one at a time"


def largest_fitting(most: int, fits: Callable[[int], bool]) -> int:
    """The largest of 1 .. `most` that fits, where all below one that fits do; 0 where none does. O(log most) calls.

    Examples
    --------
    >>> largest_fitting(100, lambda k: 3 * k <= 50), largest_fitting(100, lambda k: False)
    (16, 0)
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


__all__ = ["MOST_BATCHES", "BudgetedPlan", "largest_fitting"]
