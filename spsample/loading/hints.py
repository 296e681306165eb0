"""Prefetch hints: a source that looks ahead gets the ids of each bulk before its use, and of the next epoch's first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.comm import Communicator
    from spsample.features import FeatureSource


def known_ahead(
    bulks: Iterator[Any],
    features: FeatureSource | None,
    calls_of: Callable[[Any], list[NDArray[Any]]],
    ended: Callable[[Any], None],
) -> Iterator[Any]:
    """Yield the bulks of a pass, each once the features have hints for it and for the next one.

    A bulk that opens the next pass is hinted and kept. Hints of a pass that is left are dropped. The first bulk is
    hinted again where it was kept: another loader may have used the features since.

    Parameters
    ----------
    bulks
    features : FeatureSource or None
    calls_of : function
        Returns the calls of `gather` for a bulk.
    ended : function
        Called when a pass is over, with the first bulk of the next pass, for which the features have a hint; or None.
    """
    is_over = False
    _hint(features, None)
    try:
        current = next(bulks, None)
        if current is not None:
            _hint(features, calls_of(current))
        while current is not None and not current.opens_next:
            following = next(bulks, None)
            _hint(features, [] if following is None else calls_of(following))
            yield current
            current = following
            del following
        next(bulks, None)  # ends the generator
        ended(current)
        is_over = True
    finally:
        if not is_over:
            _hint(features, None)


def _hint(features: FeatureSource | None, calls: list[NDArray[Any]] | None) -> None:
    if features is not None:
        features.prefetch_hint(calls)


class Start(NamedTuple):
    """The start of a pass.

    Attributes
    ----------
    kept : bulk or None
        The first bulk of the epoch, which was sampled, and hinted, when the epoch before it ended.
    goes_on : bool
        True where the pass before was of the epoch before, and whole: then another will probably follow this one.
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
        """Return the start of an epoch's pass from batch `first` on; collective. A kept bulk is handed over or dropped.

        `drawn_by` decides the samples beside the epoch: where it has changed, a kept bulk is of no use.
        """
        follows = first == 0 and self._ended == epoch - 1 and self._drawn_by == drawn_by
        has = np.array([not follows, not (follows and self._kept is not None)], np.int64)
        if self._comm.size > 1:
            has = self._comm.all_reduce(has, "max", phase="order")  # 1 where any rank has 1
        start = Start(None if has[1] else self._kept, not has[0])
        self.drop()
        self._drawn_by = drawn_by
        return start

    def end(self, epoch: int, kept: Any) -> None:
        """End a whole pass; `kept` is the first bulk of the next epoch, where one was sampled."""
        self._ended, self._kept = epoch, kept

    def drop(self) -> None:
        """Keep nothing."""
        self._ended = self._kept = None
