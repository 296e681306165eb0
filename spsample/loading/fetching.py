"""The two ways in which features of batches are fetched: for each batch, or once for all batches of a bulk."""

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

    from spsample.features import FeatureSource
    from spsample.sampling import MiniBatch

_ID_BYTES = 8


class Gathering(NamedTuple):
    """The work around the gather of rows.

    Attributes
    ----------
    begins : function
        Called before each, where ranks gather together: waits for the other ranks.
    timed : function
        Returns a context manager that counts its time; takes the batch, or the first one of a bulk.
    memory : function
        Returns memory for the rows of a batch.
    """

    begins: Callable[[], None]
    timed: Callable[[int | None], AbstractContextManager[None]]
    memory: RowMemory


class PerBatch:
    """Fetching by batch: each fetches the rows that it needs."""

    def calls(self, minibatches: Iterable[MiniBatch]) -> list[NDArray[Any]]:
        """Return the ids of each call of `gather` for the minibatches of a bulk, on the host: the sources of each."""
        return [_on_host(minibatch.src_nodes) for minibatch in minibatches]

    def rows(
        self, features: FeatureSource | None, minibatches: Iterable[MiniBatch], work: Gathering
    ) -> Iterator[tuple[MiniBatch, Any]]:
        """Yield each minibatch of a bulk with the features of its sources; None without features. Gathers for each."""
        for minibatch in minibatches:
            work.begins()
            with work.timed(minibatch.batch_id):
                x = gather_features(features, minibatch.src_nodes, work.memory)
            yield minibatch, x
            del minibatch, x


class PerBulk(PerBatch):
    """Fetching by bulk: all rows that it needs once, in the order of the vertices; its batches are read from them."""

    def calls(self, minibatches: Iterable[MiniBatch]) -> list[NDArray[Any]]:
        """Return the vertices that any of them needs, ascending."""
        return [_union([_on_host(minibatch.src_nodes) for minibatch in minibatches])]

    def rows(
        self, features: FeatureSource | None, minibatches: Iterable[MiniBatch], work: Gathering
    ) -> Iterator[tuple[MiniBatch, Any]]:
        """Gather when the first batch is asked for."""
        batches = list(minibatches)
        work.begins()
        with work.timed(batches[0].batch_id if batches else None):
            read = None if features is None else _fetched(features, self.calls(batches)[0], work.memory)
        for minibatch in batches:
            with work.timed(minibatch.batch_id):
                x = None if read is None else read(_on_host(minibatch.src_nodes))
            yield minibatch, x
            del x


FETCHES: dict[str, PerBatch] = {"batch": PerBatch(), "bulk": PerBulk()}


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


def _union(parts: list[NDArray[Any]]) -> NDArray[np.int64]:
    """Return the distinct ids, ascending. Takes a byte for each id up to the largest."""
    is_there = np.zeros(max((int(ids.max()) + 1 for ids in parts if len(ids)), default=0), np.bool_)
    for ids in parts:
        is_there[ids] = True
    return np.flatnonzero(is_there)


def _on_host(vertices: Any) -> NDArray[Any]:
    return vertices if isinstance(vertices, np.ndarray) else backend_for(vertices).on_host(vertices)
