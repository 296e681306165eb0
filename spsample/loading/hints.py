"""Prefetch hints: a source that looks ahead is told of each bulk before its use, and of the next epoch's first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.comm import Communicator
    from spsample.features import FeatureSource

__all__ = ["NextEpoch", "PrefetchHint", "Start", "known_ahead"]


class PrefetchHint(NamedTuple):
    """A source that is told of the bulks of a pass, and of which calls of `gather`.

    Attributes
    ----------
    features : FeatureSource or None
    calls_of : function
        The calls of `gather` for a bulk.
    ended : function
        Called when a pass is over, with the first bulk of the next pass, of which the features know; or None.
    """

    features: Any
    calls_of: Callable[[Any], list[NDArray[Any]]]
    ended: Callable[[Any], None]


def known_ahead(bulks: Iterator[Any], hint: PrefetchHint) -> Iterator[Any]:
    """The bulks of a pass, each once the features know the calls of `gather` for it and for the next one.

    A bulk that opens the next pass is told of and kept. What features know of a pass that is left they forget. The
    first bulk is told of anew where it was kept: another loader may have used the features since.
    """
    features, is_over = hint.features, False
    _hint(features, None)
    try:
        current = next(bulks, None)
        if current is not None:
            _hint(features, hint.calls_of(current))
        while current is not None and not current.opens_next:
            following = next(bulks, None)
            _hint(features, [] if following is None else hint.calls_of(following))
            yield current
            current = following
            del following
        next(bulks, None)  # so that what makes them comes to its end
        hint.ended(current)
        is_over = True
    finally:
        if not is_over:
            _hint(features, None)


def _hint(features: FeatureSource | None, calls: list[NDArray[Any]] | None) -> None:
    if features is not None:
        features.prefetch_hint(calls)


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
    """The state that a loader keeps between two passes, on all ranks alike.

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
