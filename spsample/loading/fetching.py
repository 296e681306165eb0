"""The two ways in which features of batches are fetched, by batch or by bulk; and hints of what is fetched next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.features.device import StagedFetch
from spsample.features.gathering import SlotMap, row_reader
from spsample.loading.batch import RowMemory, gather_features, on_host
from spsample.planning.budget import USE_BYTES, FeaturesAhead

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from spsample.features import FeatureSource
    from spsample.sampling import MiniBatch

_ID_BYTES = 8


FETCHES = ("batch", "bulk")
"""Values of the argument `fetch`: each batch fetches the rows that it needs, or all rows of a bulk are fetched once."""


def calls_of(minibatches: Iterable[MiniBatch], fetch: str) -> list[NDArray[Any]]:
    """Return the ids of each call of `gather` for the minibatches of a bulk, on the host.

    By batch the sources of each; by bulk the vertices that any of them needs, ascending.
    """
    sources = [on_host(minibatch.src_nodes) for minibatch in minibatches]
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
                x = read(on_host(minibatch.src_nodes))
        yield minibatch, x
        del minibatch, x


def features_ahead(features: FeatureSource, fetch: str, looks_ahead: bool) -> FeaturesAhead:
    """Return the memory of hints and fetched rows, for the plan of a loader: ids and next uses, and rows of a bulk."""
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


def known_ahead(
    bulks: Iterator[Any], features: FeatureSource | None, calls: Callable[[Any], list[NDArray[Any]]]
) -> Iterator[Any]:
    """Yield the bulks of a pass, each once the features have hints for it and for the next one.

    At the end of a pass, and where it is left, hints are dropped.

    Parameters
    ----------
    bulks
    features : FeatureSource or None
    calls : function
        Returns the calls of `gather` for a bulk.
    """

    def tell(hint: list[NDArray[Any]] | None) -> None:
        if features is not None:
            features.prefetch_hint(hint)

    tell(None)
    try:
        current = next(bulks, None)
        if current is not None:
            tell(calls(current))
        while current is not None:
            following = next(bulks, None)
            tell([] if following is None else calls(following))
            yield current
            current = following
            del following
    finally:
        tell(None)
