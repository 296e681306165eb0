"""The loader: shuffled seeds, sampled in bulk, delivered one minibatch at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from spsample.backends import get_backend
from spsample.errors import DTypeError, InputError
from spsample.features import FeatureSource, FeatureStore
from spsample.sampling import bulk_sample
from spsample.sampling.arguments import check_arguments, require_word
from spsample.sampling.sampler import require_bool
from spsample.sparse import keys
from spsample.store.validation import as_array, require_int

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
        The sampled layers, a `MiniBatch`.
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
    time; `set_epoch` chooses one. A pass that is left early starts again from its beginning, unless a
    state is loaded.

    Parameters
    ----------
    graph
        The graph to sample from.
    seeds
        Vertex ids to train on, copied; duplicates within a batch are merged.
    sampler
        ``GraphSAGE``, ``LADIES``, ``FastGCN``, ...
    batch_size
        Seeds per minibatch; the last one of an epoch may be smaller.
    bulk_size
        Minibatches per call of `bulk_sample`, at least 1.
    features
        A `FeatureSource`, or a two-dimensional array or SciPy sparse matrix.
    labels
        One per vertex, in a one-dimensional array.
    shuffle
        Draw a new order each epoch; otherwise seeds come in the order given.
    random_seed
        Decides orders and samples.
    backend
        Passed on to `bulk_sample`.

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
        ids, self.batch_size = check_arguments(graph, seeds, sampler, batch_size)
        self.graph = graph
        self.seeds = ids.copy()
        self.seeds.flags.writeable = False
        self.sampler = sampler
        self.bulk_size = _bulk_size(bulk_size)
        self.features = _features(features, graph.num_nodes)
        self.labels = _labels(labels, graph.num_nodes)
        self.shuffle = require_bool("shuffle", shuffle)
        self.random_seed = require_word("random_seed", random_seed)
        self.backend = None if backend is None else get_backend(backend).name
        self.epoch = 0
        self.seconds = {"sampling": 0.0, "features": 0.0}
        self._seeds_sha256 = sha256(self.seeds.astype("<i8", copy=False).tobytes()).hexdigest()
        self._next_batch = 0
        self._resume = False
        self._pass = 0  # a pass moves the loader on only while it is the newest and no other place was chosen

    def __setstate__(self, state: dict[str, Any]) -> None:
        """After pickling or copying: the seeds stay read-only."""
        self.__dict__.update(state)
        self.seeds.flags.writeable = False

    def __len__(self) -> int:
        """Minibatches per epoch."""
        return -(-len(self.seeds) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """Sample the current epoch; see the class for what follows a complete pass."""
        first = self._next_batch if self._resume else 0
        self._resume = False
        epoch, self._next_batch = self.epoch, first
        self._pass += 1
        this_pass = self._pass
        order = self._order(epoch)
        for start in range(first, len(self), self.bulk_size):
            for minibatch in self._sample(order, epoch, start):
                batch = self._complete(minibatch)
                if self._pass == this_pass:
                    self._next_batch = batch.batch_id + 1
                yield batch
        if self._pass == this_pass:
            self.set_epoch(min(epoch + 1, 2**64 - 1))

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass, in [0, 2^64), which starts at its first batch.

        A pass that is under way goes on, and no longer moves the loader.
        """
        self.epoch = require_word("epoch", epoch)
        self._pass += 1
        self._next_batch = 0
        self._resume = False

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader stands, after the batch that was delivered last, and what decides its batches."""
        return {"next_batch": self._next_batch, "epoch": self.epoch, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass go on where ``state`` was taken.

        Raises
        ------
        DTypeError
            If ``state`` is no mapping.
        InputError
            If it lacks a key, or is of a loader with a graph of another size or weighting, another sampler, random seed
            or batch size, other seeds or another version of the law.
        """
        epoch, next_batch = self._checked_state(state)
        self.set_epoch(epoch)
        self._next_batch = next_batch
        self._resume = True

    def _checked_state(self, state: Mapping[str, Any]) -> tuple[int, int]:
        """Epoch and next batch of a state of this loader."""
        mine = self._identity()
        expected = "what state_dict() of the same loader returned"
        if not isinstance(state, Mapping):
            raise DTypeError(argument="state", given=f"an object of type {type(state).__name__}", expected=expected)
        missing = [key for key in ("next_batch", "epoch", *mine) if key not in state]
        if missing:
            raise InputError(argument="state", given=f"no {', no '.join(map(repr, missing))}", expected=expected)
        other = [key for key in mine if type(state[key]) is not type(mine[key]) or state[key] != mine[key]]
        if other:
            theirs = {key: state[key] for key in other}
            raise InputError(argument="state", given=str(theirs), expected=str({key: mine[key] for key in other}))
        next_batch = require_int("next_batch", state["next_batch"], minimum=0, maximum=len(self))
        return require_word("epoch", state["epoch"]), next_batch

    def _identity(self) -> dict[str, Any]:
        """What decides the batches of an epoch, the graph's edges aside: of these only the number and weighting."""
        operand = self.graph.operand(self.backend)
        return {
            "law_version": keys.LAW_VERSION,
            "sampler": repr(self.sampler),
            "num_nodes": self.graph.num_nodes,
            "num_edges": operand.num_edges,
            "weighting": operand.weighting,
            "num_seeds": len(self.seeds),
            "seeds_sha256": self._seeds_sha256,
            "batch_size": self.batch_size,
            "random_seed": self.random_seed,
            "shuffle": self.shuffle,
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
