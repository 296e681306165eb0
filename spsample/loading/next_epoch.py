"""From one epoch to the next: a source that looks ahead knows the first bulk of an epoch before the last one ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from spsample.comm import Communicator

__all__ = ["NextEpoch", "Start"]


class Start(NamedTuple):
    """How a pass begins.

    Attributes
    ----------
    kept : bulk or None
        The first bulk of the epoch, which was sampled, and announced, when the epoch before it ended.
    goes_on : bool
        Whether the pass before was of the epoch before, and whole: then another will probably follow this one.
    """

    kept: Any
    goes_on: bool


class NextEpoch:
    """What a loader keeps between two passes, on all ranks alike.

    Examples
    --------
    >>> from spsample.comm import LocalCommunicator
    >>> after = NextEpoch(LocalCommunicator())
    >>> after.begin(epoch=4, first=0, drawn_by=(7,))
    Start(kept=None, goes_on=False)
    >>> after.end(4, None)
    >>> after.begin(epoch=5, first=0, drawn_by=(7,))
    Start(kept=None, goes_on=True)
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._ended: int | None = None
        self._kept: Any = None
        self._drawn_by: tuple[Any, ...] = ()

    def begin(self, epoch: int, first: int, drawn_by: tuple[Any, ...]) -> Start:
        """How the pass of an epoch from batch `first` on begins; collective. What was kept is given away or dropped.

        `drawn_by` is what decides the samples beside the epoch: where it has changed, what was kept is of no use.
        """
        follows = first == 0 and self._ended == epoch - 1 and self._drawn_by == drawn_by
        has = np.array([not follows, not (follows and self._kept is not None)], np.int64)
        if self._comm.size > 1:
            has = self._comm.all_reduce(has, "max", phase="order")  # whether it is not so on any rank
        start = Start(None if has[1] else self._kept, not has[0])
        self.drop()
        self._drawn_by = drawn_by
        return start

    def end(self, epoch: int, kept: Any) -> None:
        """A whole pass is over; `kept` is the first bulk of the next epoch, where one was sampled."""
        self._ended, self._kept = epoch, kept

    def drop(self) -> None:
        """Keep nothing."""
        self._ended = self._kept = None
