"""The two ways in which features of batches are fetched, by batch or by bulk; and hints of what is fetched next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spsample.backends import backend_for
from spsample.features.device import StagedFetch
from spsample.features.gathering import SlotMap, row_reader
from spsample.loading.batch import RowMemory, gather_features
from spsample.planning.budget import NOTHING_AHEAD, USE_BYTES, FeaturesAhead

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.comm import Communicator
    from spsample.features import FeatureSource
    from spsample.sampling import MiniBatch

_ID_BYTES = 8


FETCHES = ("batch", "bulk")
"""Values of the argument `fetch`: each batch fetches the rows that it needs, or all rows of a bulk are fetched once."""


def calls_of(minibatches: Iterable[MiniBatch], fetch: str) -> list[NDArray[Any]]:
    """Return the ids of each call of `gather` for the minibatches of a bulk, on the host.

    By batch the sources of each; by bulk the vertices that any of them needs, ascending.
    """
    sources = [_on_host(minibatch.src_nodes) for minibatch in minibatches]
    if fetch == "batch":
        return sources
    is_there = np.zeros(max((int(ids.max()) + 1 for ids in sources if len(ids)), default=0), np.bool_)
    for ids in sources:
        is_there[ids] = True
    return [np.flatnonzero(is_there)]


def with_rows(
    minibatches: Iterable[MiniBatch],
    features: FeatureSource | None,
    fetch: str,
    begins: Callable[[], None],
    timed: Callable[[int | None], AbstractContextManager[None]],
    memory: RowMemory,
) -> Iterator[tuple[MiniBatch, Any]]:
    """Yield each minibatch of a bulk with the features of its sources; None without features.

    Parameters
    ----------
    minibatches, features, fetch
    begins : function
        Called before rows are gathered, where ranks gather together: waits for the other ranks.
    timed : function
        Returns a context manager that counts its time; takes the batch, or the first one of a bulk.
    memory : function
        Returns memory for the rows of a batch.
    """
    read = None
    if fetch == "bulk":
        minibatches = list(minibatches)
        begins()
        with timed(minibatches[0].batch_id if minibatches else None):
            read = None if features is None else _fetched(features, calls_of(minibatches, fetch)[0], memory)
    for minibatch in minibatches:
        if fetch == "batch":
            begins()
        with timed(minibatch.batch_id):
            if read is None:
                x = gather_features(features, minibatch.src_nodes, memory)
            else:
                x = read(_on_host(minibatch.src_nodes))
        yield minibatch, x
        del minibatch, x


def features_ahead(features: FeatureSource | None, fetch: str, looks_ahead: bool) -> FeaturesAhead:
    """Return the memory of hints and fetched rows, for the plan of a loader: ids and next uses, and rows of a bulk."""
    if features is None:
        return NOTHING_AHEAD
    by_bulk = fetch == "bulk"
    return FeaturesAhead(
        known_bulks=int(looks_ahead),
        use_bytes=USE_BYTES + by_bulk * _ID_BYTES,
        row_bytes=by_bulk * (features.stored_row_bytes + _ID_BYTES),
        num_vertices=features.num_rows,
    )


def _fetched(features: FeatureSource, vertices: NDArray[np.int64], memory: RowMemory) -> Callable[[NDArray[Any]], Any]:
    """Fetch rows, and return a function that reads those of some of the vertices."""
    slots = SlotMap(vertices, features.num_rows)
    if features.device is not None:
        there = StagedFetch(features, vertices)
        return lambda ids: there.gather(slots.find(ids).slots)
    rows = np.empty((len(vertices), features.dim), features.stored_dtype)
    features.gather(vertices, rows)
    reader = row_reader(rows)
    return lambda ids: reader.gather(slots.find(ids).slots, memory(len(ids), features.dim))


def _on_host(vertices: Any) -> NDArray[Any]:
    return vertices if isinstance(vertices, np.ndarray) else backend_for(vertices).on_host(vertices)


def known_ahead(
    bulks: Iterator[Any],
    features: FeatureSource | None,
    calls: Callable[[Any], list[NDArray[Any]]],
    ended: Callable[[Any], None],
) -> Iterator[Any]:
    """Yield the bulks of a pass, each once the features have hints for it and for the next one.

    A bulk that opens the next pass is hinted and kept. Hints of a pass that is left are dropped. The first bulk is
    hinted again where it was kept: another loader may have used the features since.

    Parameters
    ----------
    bulks
    features : FeatureSource or None
    calls : function
        Returns the calls of `gather` for a bulk.
    ended : function
        Called when a pass is over, with the first bulk of the next pass, for which the features have a hint; or None.
    """

    def tell(hint: list[NDArray[Any]] | None) -> None:
        if features is not None:
            features.prefetch_hint(hint)

    is_over = False
    tell(None)
    try:
        current = next(bulks, None)
        if current is not None:
            tell(calls(current))
        while current is not None and not current.opens_next:
            following = next(bulks, None)
            tell([] if following is None else calls(following))
            yield current
            current = following
            del following
        next(bulks, None)  # ends the generator
        ended(current)
        is_over = True
    finally:
        if not is_over:
            tell(None)


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
        lacks = np.array([not follows, not follows or self._kept is None], np.int64)
        if self._comm.size > 1:
            lacks = self._comm.all_reduce(lacks, "max", phase="order")  # 1 where any rank has 1
        start = Start(None if lacks[1] else self._kept, not lacks[0])
        self.drop()
        self._drawn_by = drawn_by
        return start

    def end(self, epoch: int, kept: Any) -> None:
        """End a whole pass; `kept` is the first bulk of the next epoch, where one was sampled."""
        self._ended, self._kept = epoch, kept

    def drop(self) -> None:
        """Keep nothing."""
        self._ended = self._kept = None
