"""How old the weights of a gradient may be: a rule that keeps every gradient within a bound."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from spsample.common.checks import require_int

__all__ = ["Apply", "Grant", "StalenessBound"]


class Grant(NamedTuple):
    """A rank gets the weights as they are now, for one batch."""

    rank: int
    version: int


class Apply(NamedTuple):
    """The gradient of a rank is applied; `staleness` updates were made since it got its weights."""

    rank: int
    staleness: int


class StalenessBound:
    """Which rank gets weights when, and which gradient is applied when.

    The gradients under way, oldest weights first, could always be applied in this order within the bound: the i-th one,
    from 0, after i updates. A rank gets weights only where that stays so, and a gradient that comes early is applied
    only where that stays so; else it waits for an older one. The oldest can always be applied: nobody waits for ever.

    Parameters
    ----------
    bound : int
        Updates that may be made between the weights of a gradient and the gradient's own; with 0 ranks take turns.

    Attributes
    ----------
    version : int
        Updates so far.
    largest : int
        The largest staleness of an applied gradient.

    Examples
    --------
    >>> rule = StalenessBound(1)
    >>> rule.want(0), rule.want(1), rule.want(2)  # with a third one, one would be two updates late
    ([Grant(rank=0, version=0)], [Grant(rank=1, version=0)], [])
    >>> rule.came(1)
    [Apply(rank=1, staleness=0), Grant(rank=2, version=1)]
    >>> rule.came(2), rule.came(0)  # that of rank 2 waits: it would make that of rank 0 two updates late
    ([], [Apply(rank=0, staleness=1), Apply(rank=2, staleness=1)])
    """

    def __init__(self, bound: int) -> None:
        self.bound = require_int("staleness", bound, minimum=0)
        self.version = self.largest = 0
        self._under_way: dict[int, int] = {}  # version of the weights, by rank
        self._early: list[int] = []  # ranks whose gradient came and waits
        self._wanting: deque[int] = deque()

    def start_anew(self) -> None:
        """Forget what is under way: the gradients of a step that has failed never come."""
        self._under_way.clear()
        self._early.clear()
        self._wanting.clear()

    def want(self, rank: int) -> list[Grant | Apply]:
        """A rank wants weights; what happens now."""
        self._wanting.append(rank)
        return self._granted()

    def came(self, rank: int) -> list[Grant | Apply]:
        """The gradient of a rank came; what happens now, in this order."""
        self._early.append(rank)
        happens: list[Grant | Apply] = []
        while (ready := next(filter(self._may_go, self._early), None)) is not None:
            self._early.remove(ready)
            staleness = self.version - self._under_way.pop(ready)
            self.version += 1
            self.largest = max(self.largest, staleness)
            happens.append(Apply(ready, staleness))
        return happens + self._granted()

    def _granted(self) -> list[Grant | Apply]:
        """Weights for those who want some; a rank whose gradient still waits gets them once it is applied."""
        granted: list[Grant | Apply] = []
        while len(self._under_way) <= self.bound and (rank := self._first_that_may()) is not None:
            self._wanting.remove(rank)
            self._under_way[rank] = self.version
            granted.append(Grant(rank, self.version))
        return granted

    def _first_that_may(self) -> int | None:
        """Who wants weights and has none: not a rank whose last gradient waits."""
        return next((rank for rank in self._wanting if rank not in self._under_way), None)

    def _may_go(self, rank: int) -> bool:
        """Whether the others stay within the bound where this one is applied now."""
        others = sorted(version for other, version in self._under_way.items() if other != rank)
        return all(self.version + 1 + i - version <= self.bound for i, version in enumerate(others))
