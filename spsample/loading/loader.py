"""The loader: shuffled seeds, sampled in bulk, delivered one minibatch at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.errors import InputError
from spsample.features import FeatureSource, FeatureStore
from spsample.sampling import bulk_sample
from spsample.sparse import keys
from spsample.store.validation import as_array, require_int, validate_seeds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from spsample.sampling import BulkSample, MiniBatch, Sampler
    from spsample.store import Graph

__all__ = ["Batch", "BulkLoader"]


@dataclass(frozen=True)
class Batch:
    """A minibatch with the features of its sources and the labels of its seeds.

    Attributes
    ----------
    minibatch
        The sampled layers, a :class:`~spsample.sampling.MiniBatch`.
    x
        float32 features of ``src_nodes``, or None.
    y
        Labels of ``seeds``, or None.
    """

    minibatch: MiniBatch
    x: NDArray[np.float32] | None
    y: NDArray[Any] | None

    @property
    def batch_id(self) -> int:
        """Number of the batch in its epoch."""
        return int(self.minibatch.batch_id)

    @property
    def seeds(self) -> NDArray[Any]:
        """The distinct seeds, in order of first appearance: rows of the last layer and of ``y``."""
        seeds: NDArray[Any] = self.minibatch.seeds
        return seeds

    @property
    def src_nodes(self) -> NDArray[Any]:
        """The vertices whose features layer 1 needs: rows of ``x``."""
        nodes: NDArray[Any] = self.minibatch.src_nodes
        return nodes

    @property
    def layers(self) -> Sequence[Any]:
        """The sampled layers, farthest from the seeds first."""
        layers: Sequence[Any] = self.minibatch.layers
        return layers


class BulkLoader:
    """Iterate over minibatches that are sampled ``bulk_size`` at a time.

    Batch ``i`` of an epoch holds the seeds at positions ``i * batch_size`` and following of the epoch's
    order, and its sample depends on the random seed, the epoch, ``i`` and its seeds alone: ``bulk_size``, the
    backend and where an epoch was resumed change nothing.

    Every complete pass advances the epoch by one, so that a plain loop sees a new order and new samples each
    time; :meth:`set_epoch` chooses one. A pass that is left early starts again from its beginning, unless a
    state is loaded.

    Parameters
    ----------
    graph
        The graph to sample from.
    seeds
        Vertex ids to train on; duplicates within a batch are merged.
    sampler
        ``GraphSAGE``, ``LADIES``, ``FastGCN``, ...
    batch_size
        Seeds per minibatch; the last one of an epoch may be smaller.
    bulk_size
        Minibatches per call of :func:`~spsample.bulk_sample`, at least 1.
    features
        A :class:`~spsample.features.FeatureSource`, or a two-dimensional array or SciPy sparse matrix.
    labels
        One per vertex, in a one-dimensional array.
    shuffle
        Draw a new order each epoch; otherwise seeds come in the order given.
    random_seed
        Decides orders and samples.
    backend
        Passed on to :func:`~spsample.bulk_sample`.

    Raises
    ------
    InputError, DTypeError
        If an argument is out of range or does not fit the graph.

    Examples
    --------
    >>> import spsample as sp
    >>> graph = sp.Graph.from_edge_index([[0, 1, 2, 3], [1, 2, 3, 0]], num_nodes=4)
    >>> loader = BulkLoader(graph, [0, 1, 2, 3], sp.GraphSAGE([2]), batch_size=3, shuffle=False)
    >>> [(batch.batch_id, batch.seeds.tolist()) for batch in loader]
    [(0, [0, 1, 2]), (1, [3])]
    """

    def __init__(
        self,
        graph: Graph,
        seeds: ArrayLike,
        sampler: Sampler,
        *,
        batch_size: int,
        bulk_size: int = 64,
        features: Any = None,
        labels: ArrayLike | None = None,
        shuffle: bool = True,
        random_seed: int = 0,
        backend: str | None = None,
    ) -> None:
        self.graph = graph
        self.seeds = validate_seeds(seeds, graph.num_nodes)
        self.sampler = sampler
        self.batch_size = require_int("batch_size", batch_size, minimum=1)
        self.bulk_size = _bulk_size(bulk_size)
        self.features = _features(features, graph.num_nodes)
        self.labels = _labels(labels, graph.num_nodes)
        self.shuffle = shuffle
        self.random_seed = require_int("random_seed", random_seed, minimum=0, maximum=2**64 - 1)
        self.backend = backend
        self.epoch = 0
        self.seconds = {"sampling": 0.0, "features": 0.0}
        self._next_batch = 0
        self._resume = False

    def __len__(self) -> int:
        """Minibatches per epoch."""
        return -(-len(self.seeds) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """Sample the current epoch; see the class for what follows a complete pass."""
        first = self._next_batch if self._resume else 0
        self._resume = False
        epoch, self._next_batch = self.epoch, first
        order = self._order(epoch)
        for start in range(first, len(self), self.bulk_size):
            for minibatch in self._sample(order, epoch, start):
                batch = self._complete(minibatch)
                self._next_batch = batch.batch_id + 1
                yield batch
        self.set_epoch(epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass, which starts at its first batch."""
        self.epoch = require_int("epoch", epoch, minimum=0)
        self._next_batch = 0
        self._resume = False

    def state_dict(self) -> dict[str, int]:
        """Return where the loader stands, after the batch that was delivered last."""
        return {"next_batch": self._next_batch, "epoch": self.epoch, **self._identity()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next pass go on where ``state`` was taken.

        Raises
        ------
        InputError
            If the state is of a loader with other seeds, batch size or random seed.
        """
        mine = self._identity()
        theirs = {key: state.get(key) for key in mine}
        if theirs != mine:
            raise InputError(argument="state", given=str(theirs), expected=str(mine))
        self.set_epoch(state["epoch"])
        self._next_batch = require_int("next_batch", state["next_batch"], minimum=0, maximum=len(self))
        self._resume = True

    def _identity(self) -> dict[str, int]:
        return {
            "num_seeds": len(self.seeds),
            "batch_size": self.batch_size,
            "random_seed": self.random_seed,
            "shuffle": int(self.shuffle),
        }

    def _order(self, epoch: int) -> NDArray[np.int64]:
        if not self.shuffle:
            return self.seeds
        return self.seeds[keys.shuffle(len(self.seeds), self.random_seed, epoch)]

    def _sample(self, order: NDArray[np.int64], epoch: int, first_batch: int) -> BulkSample:
        start = first_batch * self.batch_size
        with self._timed("sampling"):
            return bulk_sample(
                self.graph,
                order[start : start + self.bulk_size * self.batch_size],
                self.sampler,
                batch_size=self.batch_size,
                random_seed=self.random_seed,
                epoch=epoch,
                first_batch=first_batch,
                backend=self.backend,
            )

    def _complete(self, minibatch: MiniBatch) -> Batch:
        with self._timed("features"):
            x = None if self.features is None else self.features.gather(minibatch.src_nodes)
            y = None if self.labels is None else self.labels[minibatch.seeds]
        return Batch(minibatch, x, y)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - start


def _bulk_size(value: Any) -> int:
    if value == "auto":
        raise InputError(
            argument="bulk_size",
            given="'auto'",
            expected="an integer of at least 1",
            hint="Sizes chosen from a memory budget are not available yet.",
        )
    return require_int("bulk_size", value, minimum=1)


def _features(features: Any, num_nodes: int) -> FeatureSource | None:
    if features is None:
        return None
    source = features if isinstance(features, FeatureSource) else FeatureStore(features)
    if source.num_rows != num_nodes:
        raise InputError(
            argument="features", given=f"{source.num_rows} rows", expected=f"one row per vertex: {num_nodes}"
        )
    return source


def _labels(labels: ArrayLike | None, num_nodes: int) -> NDArray[Any] | None:
    if labels is None:
        return None
    array = as_array("labels", labels)
    if array.shape != (num_nodes,):
        raise InputError(
            argument="labels", given=f"shape {array.shape}", expected=f"one label per vertex: ({num_nodes},)"
        )
    return array
